"""The style sheet of the HTML page: light and dark, narrow and wide, screen and paper."""

STYLE = """\
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b1f24; --soft: #59636e; --line: #d0d7de; --band: #f4f6f8;
  --warn: #b3441e; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171c; --ink: #e6edf3; --soft: #9aa5b1; --line: #3a424c;
  --band: #1c2128; --warn: #ff9b73; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 1.5rem 1rem 3rem; background: var(--ground); color: var(--ink);
  font: 1rem/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.75rem; border-bottom: 1px solid var(--line); padding-bottom: 0.25rem; }
p { max-width: 46rem; margin: 0.5rem 0; overflow-wrap: anywhere; }
a { color: inherit; }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; list-style: none; margin: 1.25rem 0 0; padding: 0; }
.warns { border-left: 3px solid var(--warn); padding-left: 0.75rem; }
.warns b { color: var(--warn); }
pre { background: var(--band); padding: 0.6rem 0.8rem; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 0.82rem/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem 2rem; align-items: flex-start; }
figure { margin: 0.75rem 0; flex: 0 1 auto; max-width: 100%; break-inside: avoid; }
figure svg { display: block; max-width: 100%; height: auto; overflow: visible; }
figcaption { font-size: 0.85rem; max-width: 30rem; color: var(--soft); }
figcaption b { color: var(--ink); }
.table { overflow-x: auto; margin: 1.25rem 0; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: 0.3rem; }
th, td { text-align: left; vertical-align: top; padding: 0.18rem 0.9rem 0.18rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th.long, td.long, thead th { white-space: normal; overflow-wrap: anywhere; min-width: 5rem; max-width: 24rem; }
thead th { min-width: 0; overflow-wrap: normal; border-bottom: 2px solid var(--line); vertical-align: bottom; }
tbody th { font-weight: 500; }
tbody th.long { min-width: 11rem; }
.note { font-size: 0.85rem; color: var(--soft); margin: 0.2rem 0; }
footer { margin-top: 3rem; font-size: 0.85rem; color: var(--soft); }
@media print {
  :root { color-scheme: light; --ground: #ffffff; --ink: #000000; --soft: #444444; --line: #bbbbbb; --band: #f2f2f2;
    --warn: #8a2f10; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h2 { break-after: avoid; }
  .table { overflow: visible; }
  table { font-size: 7pt; }
  th, td { padding-right: 0.6em; }
  .note, figcaption { font-size: 8pt; }
  thead { display: table-header-group; }
  tr { break-inside: avoid; }
  .figures { display: block; }
  figure { display: inline-block; vertical-align: top; width: 48%; margin-right: 1%; }
  figure.wide { width: 100%; }
  @page { margin: 15mm; }
}
"""
"""Colours of the page; figures take theirs from ``color``, so they follow."""
