"""A report: all result files on one page, section by section; a section without data is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foretell.reporting.lead import lead
from foretell.reporting.node import clean
from foretell.reporting.page import Block, Figure, Page, Section
from foretell.reporting.results import Results
from foretell.reporting.section_compare import compared
from foretell.reporting.section_eval import evaluated
from foretell.reporting.section_measured import measured
from foretell.reporting.section_plan import planned, predicted
from foretell.reporting.section_proof import verified, warnings
from foretell.reporting.section_served import compared_served
from foretell.reporting.section_speed import acceptance, speed
from foretell.reporting.section_steps import costs, times
from foretell.reporting.section_system_costs import system_costs
from foretell.reporting.section_training import probed, trained
from foretell.reporting.style import with_ids


def build(results: Results, title: str, version: str) -> Page:
    """The page. Equal results, title and ``version`` (of this program) give an equal page, figures included."""
    compares = [compare.bench for compare in results.compares]
    every = [*results.benches, *compares]
    probes = [*results.probes, *(adapter.probe for adapter in results.adapters if adapter.probe)]
    sections = [
        *measured(every, [*results.verifies, *results.probes, *results.evals, *results.plans]),
        *compared(results.compares),
        *speed(results.benches),
        *acceptance(results.benches),
        *costs(every),
        *system_costs(results.compares),
        *times(results.benches),
        *planned(results.plans),
        *predicted(results.plans),
        *evaluated(results.evals),
        *verified(results.verifies),
        *probed(probes),
        *compared_served(results.probes),
        *trained(results.adapters, results.logs),
        *warnings(every, results),
    ]
    return Page(clean(title), lead(results), _named(sections), version)


def _named(sections: Sequence[Section]) -> list[Section]:
    """Figures with a slug each, although names of two files may come down to the same letters, and with own ids."""
    taken: set[str] = set()

    def own(block: Block) -> Block:
        if not isinstance(block, Figure):
            return block
        name, number = block.slug, 1
        while name in taken:
            number += 1
            name = f"{block.slug}-{number}"
        taken.add(name)
        return replace(block, slug=name, svg=with_ids(block.svg, name))

    return [replace(section, blocks=[own(block) for block in section.blocks]) for section in sections]
