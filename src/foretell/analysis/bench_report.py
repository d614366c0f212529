"""What a bench found at one batch size, and several of them as one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from foretell.analysis.lossless import Difference
from foretell.analysis.records import Measured, Record, Setting
from foretell.analysis.summary import RunSummary, best_run


@dataclass(frozen=True)
class ColdStart:
    """What the policy gave on the first prompt, or group, that its engine ever saw; in no summary.

    ``speedup``: over depth 0 on the same, measured just before.
    """

    name: str
    prompts: list[int]
    tokens_per_s: float | None
    speedup: float | None

    @classmethod
    def of(cls, warm_up: Mapping[Setting, Measured], name: str, prompts: list[int]) -> ColdStart | None:
        """None where no policy was measured."""
        auto = next((sample for setting, sample in warm_up.items() if setting.depth == "auto"), None)
        if auto is None:
            return None
        plain = next(sample for setting, sample in warm_up.items() if setting.is_plain)
        rate, plain_rate = auto.decode_tokens_per_s, plain.decode_tokens_per_s
        return cls(name, prompts, rate, rate / plain_rate if rate and plain_rate else None)


@dataclass
class BenchReport:
    """Summaries per system, depth and domain ("all" first), and every output of ours that was not depth 0's.

    ``num_unlike``: for each reference, prompts where it wrote something else than depth 0. ``plain_texts``: depth 0's
    first output of every prompt. ``notes``: what was not measured, and why. ``num_planned``: of a run that was
    stopped, the measurements that it was to have; ``records`` are those that it came to (see `stopped`).
    ``prompt_tokens``: lengths of every group's prompts, in the order in which they were handed over.
    """

    runs: list[RunSummary]
    differences: list[Difference]
    num_unlike: dict[str, int]
    records: list[Record[Any]] = field(repr=False)
    batch: int = 1
    cold_start: ColdStart | None = None
    plain_texts: dict[int, list[int]] = field(default_factory=dict, repr=False)
    notes: list[str] = field(default_factory=list)
    num_planned: int | None = None
    prompt_tokens: list[list[int]] = field(default_factory=list)

    @property
    def num_reference_differences(self) -> int:
        """Prompts where transformers' generate wrote something else than depth 0."""
        return self.num_unlike.get("transformers", 0)

    @property
    def best_depth(self) -> int | None:
        """Depth with the highest median speed-up over all prompts, of the fixed ones; 0 where drafting loses, None
        where the run was stopped before its first whole turn.
        """
        return int(best_run(self.runs).depth) if self.runs else None

    @property
    def passed(self) -> bool:
        """True where every difference is a near tie."""
        return all(d.verdict == "near tie" for d in self.differences)

    def outputs(self) -> list[list[int]]:
        """Depth 0's texts, to see whether they mean anything (`meaning`)."""
        return list(self.plain_texts.values())

    def num_plain_unlike(self, other: BenchReport) -> int:
        """Prompts whose depth 0 text is another than in ``other``: a pass of another width may round otherwise."""
        return sum(text != other.plain_texts.get(index) for index, text in self.plain_texts.items())

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a bench file (the caller adds ``environment``)."""
        return {
            "runs": [run.as_dict() for run in self.runs],
            "best_depth": self.best_depth,
            "differences": [asdict(difference) for difference in self.differences],
            "num_reference_differences": self.num_reference_differences,
        }


def together(reports: Sequence[BenchReport]) -> dict[str, Any]:
    """Several batch sizes as one bench file: all runs in one list, a summary a batch size in ``batches``, and every
    single measurement in ``samples``.

    ``best_depth`` and ``num_reference_differences`` are those of the first one.
    """
    first = reports[0].as_dict()
    single = next((report for report in reports if report.batch == 1), None)
    batches = [
        {
            "batch": report.batch,
            "best_depth": report.best_depth,
            "cold_start": report.cold_start and asdict(report.cold_start),
            "num_texts_unlike_depth_0": report.num_unlike | {"foretell": len(report.differences)},
            "num_plain_texts_unlike_batch_1": None if single is None else report.num_plain_unlike(single),
            "notes": report.notes,
            "prompt_tokens": report.prompt_tokens,
            **stopped_early(report.num_planned, len(report.records)),
        }
        for report in reports
    ]
    lists = {key: [item for r in reports for item in r.as_dict()[key]] for key in ("runs", "differences")}
    samples = [{"batch": report.batch, **record.as_dict()} for report in reports for record in report.records]
    return {**first, **lists, "batches": batches, "samples": samples}


def stopped_early(num_planned: int | None, num_measured: int) -> dict[str, Any]:
    """What a file says of a batch size that was not finished; nothing of one that was."""
    if num_planned is None:
        return {}
    return {"incomplete": True, "num_measured": num_measured, "num_planned": num_planned}


def first_texts(records: Sequence[Record[Any]], members: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    """Each prompt's text in its first record. ``members``: the prompts that a record's index stands for."""
    texts: dict[int, list[int]] = {}
    for record in records:
        for index, text in zip(members[record.prompt], record.sample.texts, strict=True):
            texts.setdefault(index, text)
    return texts


def unequal_texts(
    records: Sequence[Record[Any]], members: Sequence[Sequence[int]], plain: Mapping[int, list[int]]
) -> dict[tuple[Setting, int], list[int]]:
    """One text for every setting and prompt that ever had another than ``plain``, in order; depth 0 is no exception."""
    found: dict[tuple[Setting, int], list[int]] = {}
    for record in records:
        for index, text in zip(members[record.prompt], record.sample.texts, strict=True):
            if text != plain[index]:
                found.setdefault((record.setting, index), text)
    return dict(sorted(found.items(), key=lambda item: (item[0][0].order, item[0][1])))
