"""What is in the clock of a batch, step by step, against a list written by hand; and lengths out of bench files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from foretell.analysis.batch_bench import run_batch_bench
from foretell.analysis.bench_report import together
from foretell.analysis.texts import BenchPrompt
from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.decoding.scheduler import Work
from foretell.decoding.step import StepTimes
from foretell.errors import DataError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.planning import groups
from foretell.planning.against import against
from foretell.planning.bench_file import BenchFile, read_bench
from foretell.planning.group_texts import TextGroup, read_groups
from foretell.planning.groups import Drafts, Text, group_seconds
from foretell.planning.measured_costs import MeasuredCosts
from tests import fixtures
from tests.planning.models import bench, run, write_json
from tests.planning.test_measured import MACHINE, REAL


class Tape:
    """Costs of nothing that write down what they are asked for; a step like an earlier one is not asked for again."""

    def __init__(self) -> None:
        self.steps: list[Any] = []

    def pass_s(self, batch: int, nodes: float) -> float:
        self.steps.append(("pass", batch, nodes))
        return 0.0

    def draft_s(self, batch: int, depth: int, num_true: float, width: float) -> float:
        self.steps.append(("draft", batch, depth, width))
        return 0.0

    def join_s(self, rows: int, nodes: float, pieces: Sequence[int], num_first: int) -> float:
        self.steps.append(("join", rows, nodes, list(pieces), num_first))
        return 0.0

    def catch_up_s(self, rows: int, depth: int, prompts: Sequence[int]) -> float:
        self.steps.append(("catch up", rows, depth, list(prompts)))
        return 0.0


def steps(batch: int, texts: Sequence[Text], drafts: Drafts) -> list[Any]:
    tape = Tape()
    group_seconds(tape, tape, batch, texts, drafts)
    return tape.steps


def test_rows_join_while_others_decode_and_leave_when_they_end() -> None:
    texts = [Text(10, 2), Text(20, 4), Text(30, 2)]
    assert steps(2, texts, Drafts()) == [
        ("join", 0, 0, [10, 20], 2),
        ("pass", 2, 1.0),  # the first text ends, the second goes on
        ("pass", 1, 1.0),
        ("join", 1, 1.0, [30], 1),  # in the same step; then both decode, and that is known already
    ]


def test_long_prompts_are_read_in_pieces_beside_rows_that_decode() -> None:
    """512 tokens a step: 400 and 112, then 511 and the last 277 beside the first row, which takes one of them."""
    found = steps(2, [Text(400, 3), Text(900, 1)], Drafts())
    joins = [step for step in found if step[0] == "join"]
    assert joins == [("join", 0, 0, [400, 112], 1), ("join", 1, 1.0, [511], 0), ("join", 1, 1.0, [277], 1)]


def test_heads_read_a_prompt_one_step_later_and_drafts_end_with_the_text() -> None:
    """Four tokens behind the first one; certain drafts of 3, then nothing may be drafted for the last one."""
    assert steps(1, [Text(50, 6)], Drafts([1.0] * 3, 3))[:5] == [
        ("join", 0, 0, [50], 1),
        ("pass", 1, 4.0),
        ("draft", 1, 3, 1.0),
        ("catch up", 1, 3, [50]),
        ("pass", 1, 1.0),
    ]
    # Two tokens are left behind the first: one may be drafted.
    assert steps(1, [Text(50, 3)], Drafts([1.0] * 3, 3))[1:3] == [("pass", 1, 2.0), ("draft", 1, 1, 1.0)]
    # A tree that is cut keeps as many nodes as its levels hold: four at one level.
    assert steps(1, [Text(50, 3)], Drafts([1.0] * 3, 6))[1] == ("pass", 1, 5.0)
    assert steps(1, [Text(50, 4)], Drafts([1.0] * 3, 6))[1] == ("pass", 1, 7.0)


def file(tmp_path: Path, batches: Any = None, samples: Any = None) -> BenchFile:
    common: Any = {"mode": "end-to-end", "num_prompts": 3, "num_output_tokens": 30}
    runs = [run(2, 0, 9.0, **common), run(2, 1, 9.0, shares=[0.5], **common)]
    values = bench(*runs)
    values |= {} if batches is None else {"batches": batches}
    values |= {} if samples is None else {"samples": samples}
    return read_bench(write_json(tmp_path / "b.json", values))


SAMPLES = [
    {"system": "foretell", "depth": 1, "batch": 2, "prompt": 0, "num_tokens": [9, 9, 9], "domain": "mixed"},
    {"system": "foretell", "depth": 0, "batch": 2, "prompt": 0, "num_tokens": [10, 4, 16], "domain": "mixed"},
    {"system": "foretell", "depth": 0, "batch": 2, "prompt": 0, "num_tokens": [1, 1, 1], "domain": "mixed"},
]
BATCHES = [{"batch": 2, "prompt_tokens": [[7, 8, 9]]}]


def test_lengths_come_from_the_file(tmp_path: Path) -> None:
    [group] = read_groups(file(tmp_path, BATCHES, SAMPLES))[2]
    assert group == TextGroup("all", (Text(7, 10), Text(8, 4), Text(9, 16))) and group.knows_prompts
    [group] = read_groups(file(tmp_path, None, SAMPLES))[2]
    assert group.texts == (Text(None, 10), Text(None, 4), Text(None, 16)) and not group.knows_prompts
    [group] = read_groups(file(tmp_path, BATCHES, None))[2]
    assert group.texts == (Text(None, 10),) * 3  # groups are known by their texts


@pytest.mark.parametrize(
    ("batches", "samples"),
    [
        (3, SAMPLES),
        ([{"batch": "2"}], SAMPLES),
        ([{"batch": 2, "prompt_tokens": 5}], SAMPLES),
        ([{"batch": 2, "prompt_tokens": []}], SAMPLES),
        ([{"batch": 2, "prompt_tokens": [[7, 8]]}], SAMPLES),
        ([{"batch": 2, "prompt_tokens": [[7, 8, -1]]}], SAMPLES),
        (BATCHES, [{**SAMPLES[1], "num_tokens": "x"}]),
        (BATCHES, [{**SAMPLES[1], "num_tokens": [1, 2.5, 3]}]),
        (BATCHES, [{**SAMPLES[1], "prompt": -1}]),
        (BATCHES, [{**SAMPLES[1], "num_tokens": [1, 2, 2**21]}]),
        (BATCHES, [{**SAMPLES[1], "num_tokens": [2**20] * 9}]),  # each for itself is allowed
        ([{"batch": 2, "prompt_tokens": [[7, 8, 2**62]]}], SAMPLES),
        (BATCHES, "x"),
    ],
)
def test_damaged_lengths_are_one_line(tmp_path: Path, batches: Any, samples: Any) -> None:
    with pytest.raises(DataError) as caught:
        read_groups(file(tmp_path, batches, samples))
    assert "\n" not in str(caught.value) and "b.json" in str(caught.value)


def test_evenly_long_texts_have_an_end_too(tmp_path: Path) -> None:
    """A file without samples: as many texts as it says, as long as it says, and all of them would be walked through."""
    for wrong in ({"num_prompts": 2**16, "num_output_tokens": 2**30}, {"num_prompts": 1, "num_output_tokens": 10**18}):
        values = bench(run(2, 0, 9.0, mode="end-to-end", **wrong))
        with pytest.raises(DataError, match="tokens of prompts and texts at batch 2, expected at most"):
            read_groups(read_bench(write_json(tmp_path / "b.json", values)))


def test_measured_costs_predict_the_reading_of_prompts(tmp_path: Path) -> None:
    """With lengths, nothing of the plain run's share counts; without, it does."""
    costs = MeasuredCosts(MACHINE, REAL)
    texts = [Text(7, 10), Text(8, 4), Text(9, 16)]
    rows = against(file(tmp_path, BATCHES, SAMPLES), lambda _: costs)
    for row, drafts in zip(rows, (Drafts(), Drafts([0.5], 1)), strict=True):
        assert row.predicted_tokens_per_s == pytest.approx(30 / group_seconds(costs, costs, 2, texts, drafts))
    known = against(file(tmp_path, BATCHES, SAMPLES), lambda _: costs)[0].predicted_tokens_per_s
    assert against(file(tmp_path, None, SAMPLES), lambda _: costs)[0].predicted_tokens_per_s > 1.02 * known


@pytest.mark.parametrize("lengths", [[5, 9, 3, 7], [40, 6, 20, 11, 3]])
def test_the_engine_takes_the_same_steps(lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which rows decode, which pieces are read beside them and how many first tokens that gives, step by step."""
    monkeypatch.setattr(groups, "MAX_STEP_TOKENS", 16)
    model = MTPModel(Trunk(fixtures.tiny_llama(eos_token_id=None)), None)
    engine = Engine(model, 2, max_step_tokens=16, reuse_prefixes=False)
    taken: list[Any] = []

    def on_step(works: Sequence[Work], times: StepTimes) -> None:
        pieces = [work.num_read for work in works if not is_decoding(work)]
        num_first = sum(work.is_judged for work in works if not is_decoding(work))
        taken.append((len(works) - len(pieces), pieces, num_first))
        read.update(id(work.row) for work in works if work.is_judged)

    def is_decoding(work: Work) -> bool:
        return id(work.row) in read

    read: set[int] = set()
    engine.watch(on_step)
    engine.generate([[1 + k for k in range(length)] for length in lengths], SamplingParams(max_tokens=4))
    simulated = steps(2, [Text(length, 4) for length in lengths], Drafts())
    joins = [(rows, pieces, num) for _, rows, _, pieces, num in (step for step in simulated if step[0] == "join")]
    assert joins == [step for step in taken if step[1]]
    assert sum(rows for rows, _, _ in taken) == 3 * len(lengths)


@pytest.mark.parametrize(("script", "num_nodes"), [("perfect", 3), ("wrong", 3), ("perfect", 5)])
@pytest.mark.parametrize("texts", [[(5, 11), (9, 4), (3, 7), (7, 9)], [(40, 11), (6, 30), (20, 9), (11, 4), (3, 7)]])
def test_the_engine_drafts_the_same_steps(
    texts: list[tuple[int, int]], script: Any, num_nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guesses that are all right, or all wrong, so that nothing is drawn: drafted tokens of every row that decodes, the
    pieces that are read beside them, and how many first tokens that gives, step by step to the last one.
    """
    monkeypatch.setattr(groups, "MAX_STEP_TOKENS", 16)
    trunk = fixtures.script_trunk([*range(40), 0], max_positions=128)
    heads = fixtures.scripted_heads(trunk, script)
    engine = Engine(MTPModel(trunk, heads), 2, max_step_tokens=16, reuse_prefixes=False)
    taken: list[Any] = []
    read: list[Any] = []

    def on_step(works: Sequence[Work], times: StepTimes) -> None:
        reading = [work for work in works if work.row not in read]
        drafted = [len(work.draft) for work in works if work.row in read]
        taken.append([drafted, [work.num_read for work in reading], sum(work.is_judged for work in reading)])
        read.extend(work.row for work in reading if work.is_judged)

    engine.watch(on_step)
    params = [SamplingParams(max_tokens=most, temperature=0.0) for _, most in texts]  # some drafts end at one level
    prompts = [[place % 40 for place in range(length)] for length, _ in texts]
    engine.generate(prompts, params, depth=3, num_nodes=num_nodes if num_nodes > 3 else 0)
    drafts = Drafts([float(script == "perfect")] * 3, num_nodes)
    planned: list[Any] = []

    class Joins(Tape):
        def join_s(self, rows: int, nodes: float, pieces: Sequence[int], num_first: int) -> float:
            planned[-1][1:] = [list(pieces), num_first]
            return 0.0

    def step_s(group: Any, depths: Sequence[int]) -> float:
        planned.append([list(map(drafts.nodes, depths)), [], 0])
        return 0.0

    monkeypatch.setattr(groups, "_TRIALS", 1)
    monkeypatch.setattr(groups._Group, "_step_s", step_s)
    group_seconds(Joins(), Joins(), 2, [Text(*text) for text in texts], drafts)
    assert planned == taken
    assert any(any(drafted) and pieces for drafted, pieces, _ in taken)  # rows join those that draft


def test_a_bench_says_how_long_its_prompts_are(tmp_path: Path) -> None:
    """What bench writes is what is read: lengths of prompts and of texts, group by group."""
    model = MTPModel(Trunk(fixtures.tiny_llama(eos_token_id=None)), None)
    prompts = [BenchPrompt("d", [1] * length) for length in (5, 9, 3, 7, 4, 2, 8, 6)]
    report = run_batch_bench(model, prompts, 2, [0], 3)
    values = together([report]) | {"environment": {"command": "foretell bench m --repeats 1"}}
    bench_file = read_bench(write_json(tmp_path / "b.json", values))
    assert read_groups(bench_file)[2] == [
        TextGroup("d", tuple(Text(length, 3) for length in lengths)) for lengths in ((5, 3, 4, 8), (9, 7, 2, 6))
    ]
