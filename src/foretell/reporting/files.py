"""Files in: each is recognised by what it holds, never by its name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretell.errors import DataError, UsageError
from foretell.reporting.bench_files import read_bench, read_compare
from foretell.reporting.eval_files import PARTS, read_eval
from foretell.reporting.node import Node, clean
from foretell.reporting.plan_files import read_plan
from foretell.reporting.proof_files import read_adapter, read_probe, read_verify
from foretell.reporting.results import Results
from foretell.reporting.training_log import read_log

IN_FOLDERS = ("metrics.jsonl", "mtp_config.json")
"""What is looked for in a folder: a run_dir's log, and an adapter's config."""
_EXPECTED = (
    "results of foretell bench, compare, verify, probe, eval or plan (--json), a run_dir with metrics.jsonl, or an "
    "adapter folder"
)
_MOST_KEYS = 6


def read_results(paths: Sequence[Path]) -> Results:
    """All files, in the order given, under names that tell them apart.

    Raises UsageError where a file is given twice, DataError where one cannot be read or is none of those known.
    """
    files = [_file_of(path) for path in paths]
    for index, file in enumerate(files):
        if any(file.resolve() == other.resolve() for other in files[:index]):
            raise UsageError(f"FILE: {paths[index]} is given twice; give it once")
    results = Results()
    for file, name in zip(files, short_names(files), strict=True):
        problems: list[str] = []
        _read(file, name, results, problems)
        if problems:
            results.problems[name] = list(dict.fromkeys(problems))
    return results


def short_names(files: Sequence[Path]) -> list[str]:
    """For each file the end of its path, as long as it takes to be the only one of that name; without .json."""
    parts = [_parts(file) for file in files]
    names = []
    for index, own in enumerate(parts):
        others = parts[:index] + parts[index + 1 :]
        length = next((n for n in range(1, len(own)) if all(own[-n:] != other[-n:] for other in others)), len(own))
        names.append(clean("/".join(own[-length:])))
    return names


def _parts(file: Path) -> list[str]:
    path = file.resolve()
    # A log and a config have the same name everywhere: their folder tells them apart.
    path = path.parent if path.name in IN_FOLDERS else path.with_name(path.name.removesuffix(".json"))
    return [part.encode("utf-8", "replace").decode() for part in path.parts]


def _file_of(path: Path) -> Path:
    try:
        if not path.is_dir():
            return path
        found = [path / name for name in IN_FOLDERS if (path / name).is_file()]
        if not found:
            raise DataError(f"a folder without {' or '.join(IN_FOLDERS)}; give {_EXPECTED}", path)
        return found[0]
    except (OSError, ValueError) as error:  # a name too long, a null byte, a folder that may not be entered
        raise DataError(
            f"cannot be read ({getattr(error, 'strerror', None) or error}); give another name", path
        ) from error


def _read(file: Path, name: str, results: Results, problems: list[str]) -> None:
    text = _text_of(file)
    values = _json_of(text, file)
    if values is None or "step" in values:
        results.logs.append(read_log(text, file, name, problems))
        return
    node, keys = Node(values, problems=problems), values.keys()
    has_runs = isinstance(values.get("runs"), list)
    if has_runs and values.get("compare") is True:
        results.compares.append(read_compare(node, name))
    elif has_runs and keys & {"environment", "batches", "step_costs"}:
        results.benches.append(read_bench(node, name))
    elif "passed" in keys and keys & {"greedy", "sampling", "controls", "model_law"}:
        results.verifies.append(read_verify(node, name))
    elif isinstance(values.get("served"), dict) or (
        isinstance(values.get("depths"), list) and "mean_acceptance_length" in keys
    ):
        results.probes.append(read_probe(node, name))
    elif "model" in keys and any(isinstance(values.get(part), dict) for part in PARTS):
        results.evals.append(read_eval(node, name))
    elif isinstance(values.get("plan"), dict) or isinstance(values.get("against"), dict):
        results.plans.append(read_plan(node, name))
    elif "format_version" in keys and keys & {"heads", "training"}:
        results.adapters.append(read_adapter(node, name))
    else:
        shown = [clean(key) for key in list(keys)[:_MOST_KEYS]]
        raise DataError(f"has the keys {', '.join(shown) or '(none)'}, so it is no result file; give {_EXPECTED}", file)


def _text_of(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror}); give {_EXPECTED}", file) from error
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 ({error.reason}, byte {error.start}); give {_EXPECTED}", file) from error


def _json_of(text: str, file: Path) -> dict[str, Any] | None:
    """The object that is the whole file; None where it is several lines of JSON."""
    try:
        values = json.loads(text)
    except RecursionError as error:
        raise DataError(f"JSON nested too deep; give {_EXPECTED}", file) from error
    except ValueError as error:
        first, _, rest = text.lstrip().partition("\n")
        if first.startswith("{") and _is_object(first):
            return None
        raise DataError(f"not valid JSON ({error}); give {_EXPECTED}", file) from error
    if not isinstance(values, dict):
        raise DataError(f"a {type(values).__name__}, not an object; give {_EXPECTED}", file)
    return values


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
