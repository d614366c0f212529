"""BenchFile: what a report of ``foretell bench`` says that a prediction can be held against, every value checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.checkpoints.files import read_json
from foretell.errors import DataError
from foretell.planning.acceptance import conditional_from
from foretell.planning.averages import mean_of
from foretell.planning.bench_runs import our_runs
from foretell.planning.fields import LEAST_TIME, an_object, count, number, number_list, objects, share
from foretell.planning.mean_texts import MeanTexts
from foretell.planning.names import measured_model
from foretell.reporting.runs import ALL

MAX_PROMPTS = 2**17
"""Of a bench: more are damage, and would each be walked through."""

Sample = tuple[float, int]
"""(mean seconds, steps) of one cell of c(n)."""


@dataclass(frozen=True)
class BenchRun:
    """One fixed depth of ours on one domain at one batch size. ``num_nodes``: drafted tokens a row, chains too.

    ``prefill_share``: of the seconds, in steps that read prompts; 0 in "decode" mode, which leaves them out.
    ``mean_length``: tokens a pass.
    """

    batch: int
    domain: str
    depth: int
    num_nodes: int
    is_tree: bool
    end_to_end: bool
    tokens_per_s: float
    speedup: float
    conditional: tuple[float, ...]
    num_prompts: int
    text_tokens: float
    prefill_share: float
    mean_length: float

    @property
    def key(self) -> tuple[int, int, int]:
        """(batch, depth, nodes)."""
        return self.batch, self.depth, self.num_nodes


@dataclass(frozen=True)
class BenchFile:
    """``passes``: (batch, rows, nodes) -> sample; ``drafts``: (batch, rows, depth, nodes) -> sample; empty where the
    report has no step_costs. ``environment``: where it was measured; ``model``: with what, None in older files.
    """

    path: Path
    runs: list[BenchRun]
    passes: dict[tuple[int, int, int], Sample]
    drafts: dict[tuple[int, int, int, int], Sample]
    environment: Mapping[str, Any]
    incomplete: bool = False
    model: str | None = None

    def at(self, batch: int, domain: str) -> list[BenchRun]:
        """Runs of one batch size and domain, shallow ones first."""
        found = [run for run in self.runs if run.batch == batch and run.domain == domain]
        return sorted(found, key=lambda run: run.key)

    @property
    def batches(self) -> list[int]:
        """Batch sizes, smallest first."""
        return sorted({run.batch for run in self.runs})

    def domains(self, batch: int) -> list[str]:
        """Domains apart from "all"; none where all groups were mixed."""
        return list(dict.fromkeys(run.domain for run in self.runs if run.batch == batch and run.domain != ALL))


def read_bench(path: Path) -> BenchFile:
    """Raises CheckpointError where the file cannot be read, DataError naming what is missing or wrong in it."""
    values = read_json(path)
    ours = our_runs(values, path)
    environment = an_object(values.get("environment", {}), path, "environment")
    texts = MeanTexts(values, path)
    found = [_run(run, texts, path) for run in ours if _is_fixed(run)]
    if not any(run.depth == 0 and run.domain == ALL for run in found):
        raise DataError("no run of depth 0 over all prompts, so there is nothing to compare with", path)
    costs = an_object(values.get("step_costs", {}), path, "step_costs")
    passes, drafts = (objects(costs.get(part, []), path, f"step_costs.{part}") for part in ("pass", "draft"))
    return BenchFile(
        path,
        found,
        {_key3(cell, path, "rows", "nodes"): _sample(cell, path, LEAST_TIME) for cell in passes},
        {
            (*_key3(cell, path, "rows", "depth"), count(cell.get("nodes"), path, "nodes")): _sample(cell, path)
            for cell in drafts
        },
        environment,
        values.get("incomplete") is True,
        measured_model(values),
    )


def _is_fixed(run: Mapping[str, Any]) -> bool:
    return run.get("depth") != "auto" and run.get("decode_tokens_per_s") is not None


def _run(run: Mapping[str, Any], texts: MeanTexts, path: Path) -> BenchRun:
    depth = count(run.get("depth"), path, "depth", 0)
    nodes = count(run.get("num_nodes", 0), path, "num_nodes", 0)
    shares = number_list(run.get("acceptance_by_depth"), path, "acceptance_by_depth") if depth else []
    if len(shares) < depth:
        raise DataError(f"acceptance_by_depth has {len(shares)} entries at depth {depth}; the file is damaged", path)
    num_prompts = count(run.get("num_prompts"), path, "num_prompts", at_most=MAX_PROMPTS)
    parts = an_object(run.get("time_share") or {}, path, "time_share")
    return BenchRun(
        batch=count(run.get("batch", 1), path, "batch"),
        domain=str(run.get("domain")),
        depth=depth,
        num_nodes=nodes or depth,
        is_tree=bool(nodes),
        end_to_end=run.get("mode", "decode") == "end-to-end",
        tokens_per_s=_median(run["decode_tokens_per_s"], path, "decode_tokens_per_s"),
        speedup=_median(run.get("speedup"), path, "speedup"),
        conditional=conditional_from(shares[:depth]),
        num_prompts=num_prompts,
        text_tokens=texts.of(run, num_prompts, count(run.get("num_output_tokens"), path, "num_output_tokens")),
        mean_length=number(run.get("mean_acceptance_length"), path, "mean_acceptance_length", 1.0) if depth else 1.0,
        prefill_share=share(parts.get("prefill", 0.0), path, "time_share.prefill"),
    )


def _median(value: Any, path: Path, name: str) -> float:
    return number(an_object(value, path, name).get("median"), path, f"{name}.median", LEAST_TIME)


def _key3(cell: Mapping[str, Any], path: Path, second: str, third: str) -> tuple[int, int, int]:
    batch, two, three = (count(cell.get(name), path, f"step_costs {name}") for name in ("batch", second, third))
    return batch, two, three


def _sample(cell: Mapping[str, Any], path: Path, least_s: float = 0.0) -> Sample:
    spread = an_object(cell.get("seconds"), path, "seconds")
    low, median, high = (
        number(spread.get(name), path, f"step_costs seconds.{name}", least_s) for name in ("low", "median", "high")
    )
    return mean_of(low, median, high), count(cell.get("num_steps"), path, "num_steps")
