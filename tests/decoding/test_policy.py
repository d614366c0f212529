"""DepthPolicy: on simulated machines it is never much slower than depth 0 or the best fixed depth."""

from __future__ import annotations

import time
from statistics import median

import pytest

from foretell.decoding.estimates import Estimates, RowView
from foretell.decoding.goodput import Choice
from foretell.decoding.policy import DepthPolicy, RowRecord, StepRecord
from foretell.decoding.probes import Probes
from foretell.decoding.shape import Shape
from foretell.errors import UsageError
from tests.decoding.simulated import MAX_DEPTH, Machine, Outcome, fixed_goodputs, recorded, run

GOOD, MIDDLING, BAD, WRONG = [0.9, 0.85, 0.8, 0.75, 0.7], [0.7, 0.6, 0.5, 0.5, 0.4], [0.05] * 5, [0.0] * 5
MS = 1e-3


def cheap(rows: int, nodes: int) -> float:
    return 20 * MS * (1 + 0.03 * (nodes - 1))


def linear(rows: int, nodes: int) -> float:
    return 20 * MS * nodes


def compute_bound(rows: int, nodes: int) -> float:
    return 20 * MS * max(1.0, nodes / 16)


def roofline(rows: int, nodes: int) -> float:
    return 20 * MS * max(1.0, nodes / 32) + 0.5 * MS * rows


def stairs(rows: int, nodes: int) -> float:
    """Two tokens are twice as dear as one, six hardly dearer than two: MKL."""
    return 20 * MS * (1 if nodes == 1 else 2 + 0.05 * (nodes - 2))


def small_drafter(drafting: int, depth: int) -> float:
    return 1 * MS * depth * (1 + 0.02 * drafting)


def dear_drafter(drafting: int, depth: int) -> float:
    return 3 * MS * depth


def depths_of(shapes: list[Shape]) -> list[int]:
    assert all(shape.is_chain for shape in shapes)
    return [shape.depth for shape in shapes]


def machine(pass_s, alphas, later=None, draft_s=small_drafter) -> Machine:  # type: ignore[no-untyped-def]
    return Machine(pass_s, draft_s, {"": alphas}, {"": later} if later else {})


TWO_CLASSES = {"code": GOOD, "noise": BAD}
CASES = {
    "cheap verify, good heads": (machine(cheap, GOOD), [""]),
    "cheap verify, good heads, batch 4": (machine(cheap, GOOD), [""] * 4),
    "cheap verify, good heads, batch 16": (machine(cheap, GOOD), [""] * 16),
    "cheap verify, middling heads": (machine(cheap, MIDDLING), [""]),
    "dear drafter, middling heads": (machine(cheap, MIDDLING, draft_s=dear_drafter), [""]),
    "linear verify": (machine(linear, GOOD), [""]),
    "linear verify, batch 4": (machine(linear, GOOD), [""] * 4),
    "wrong heads": (machine(cheap, WRONG), [""]),
    "wrong heads, dear drafter": (machine(cheap, WRONG, draft_s=dear_drafter), [""]),
    "wrong heads, batch 16": (machine(compute_bound, WRONG), [""] * 16),
    "two classes": (Machine(cheap, small_drafter, TWO_CLASSES), ["code", "noise"]),
    "two classes, batch 4": (Machine(cheap, small_drafter, TWO_CLASSES), ["code", "noise"] * 2),
    "two classes, batch 16": (Machine(roofline, small_drafter, TWO_CLASSES), ["code", "noise"] * 8),
    "turns bad": (machine(cheap, GOOD, BAD, dear_drafter), [""]),
    "turns good": (machine(cheap, BAD, GOOD, dear_drafter), [""]),
    "turns bad, batch 16": (machine(roofline, GOOD, BAD, dear_drafter), [""] * 16),
    "turns good, batch 16": (machine(roofline, BAD, GOOD, dear_drafter), [""] * 16),
    "compute-bound, batch 16": (machine(compute_bound, GOOD), [""] * 16),
    "compute-bound later, batch 16": (machine(roofline, MIDDLING), [""] * 16),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CASES)
def test_goodput_with_the_cold_start(name: str, seed: int) -> None:
    simulated, labels = CASES[name]
    fixed = fixed_goodputs(simulated, labels)
    outcome = run(simulated, labels, DepthPolicy(MAX_DEPTH), seed=seed)
    assert outcome.goodput >= 0.95 * max(fixed)
    assert outcome.goodput >= 0.95 * fixed[0]


@pytest.mark.parametrize("seed", range(3))
def test_rows_come_and_go(seed: int) -> None:
    simulated, labels = machine(roofline, GOOD), [""] * 16
    fixed = fixed_goodputs(simulated, labels, num_rows=batch_sizes)
    outcome = run(simulated, labels, DepthPolicy(MAX_DEPTH), seed=seed, num_rows=batch_sizes)
    assert outcome.goodput >= 0.95 * max(fixed)


def batch_sizes(step: int) -> int:
    return 1 + step // 25 % 16


@pytest.mark.parametrize("seed", range(3))
def test_cost_in_stairs(seed: int) -> None:
    """Depth 1 alone loses, deeper wins: seen in the first steps, or by probing later."""
    simulated = machine(stairs, GOOD)
    fixed = fixed_goodputs(simulated, [""], 800)
    assert fixed[1] < fixed[0] < fixed[4]
    assert run(simulated, [""], DepthPolicy(MAX_DEPTH), 800, seed).goodput >= 0.9 * max(fixed)


def share(outcome: Outcome, depth: int, row: int = 0) -> float:
    late = outcome.shapes[100:]
    return sum(shapes[row] == Shape.chain(depth) for shapes in late) / len(late)


@pytest.mark.parametrize("name", ["linear verify", "wrong heads", "compute-bound, batch 16"])
def test_it_turns_itself_off(name: str) -> None:
    simulated, labels = CASES[name]
    assert share(run(simulated, labels, DepthPolicy(MAX_DEPTH)), 0) > 0.85


def test_one_class_drafts_and_the_other_does_not() -> None:
    simulated, labels = CASES["two classes, batch 4"]
    outcome = run(simulated, labels, DepthPolicy(MAX_DEPTH))
    assert share(outcome, 0, row=0) < 0.1
    assert share(outcome, 0, row=1) > 0.7  # the rest: probes, which cost next to nothing here


@pytest.mark.parametrize("name", ["linear verify", "wrong heads", "cheap verify, good heads", "two classes, batch 16"])
def test_probing_stays_within_its_share(name: str) -> None:
    simulated, labels = CASES[name]
    policy = DepthPolicy(MAX_DEPTH)
    outcome = run(simulated, labels, policy, 1500)
    assert policy.probes.lost_s <= 0.025 * policy.probes.elapsed_s
    assert outcome.goodput >= 0.965 * max(fixed_goodputs(simulated, labels))


def test_no_probes_without_a_share() -> None:
    """But what a row showed long ago fades, so that it tries again by itself."""
    simulated, labels = CASES["wrong heads, dear drafter"]
    outcome = run(simulated, labels, DepthPolicy(MAX_DEPTH, probe_share=0.0), 600)
    assert share(outcome, 0) > 0.98


def test_an_unlucky_first_draft_decides_nothing() -> None:
    """The first draft reads the whole prompt and takes a hundred times as long."""
    simulated, labels = CASES["cheap verify, good heads"]
    policy = DepthPolicy(MAX_DEPTH)
    rows = [RowView(0, MAX_DEPTH)]
    first = True
    for _ in range(40):
        [shape] = policy.choose(rows)
        draft_s, pass_s = simulated.step_s([shape])
        slow = 100 if shape.depth and first else 1
        first = first and not shape.depth
        policy.observe(recorded(rows, [shape], [shape.depth], (draft_s * slow, pass_s * min(slow, 4))))
    assert policy.choose(rows)[0].depth >= 4


def steps(policy: DepthPolicy, num_rows: int, num_steps: int, accepts: bool) -> list[int]:
    """Depths of the first row, in steps where a draft is accepted whole or not at all."""
    simulated, rows = CASES["wrong heads, dear drafter"][0], [RowView(i, MAX_DEPTH) for i in range(num_rows)]
    chosen = []
    for _ in range(num_steps):
        shapes = policy.choose(rows)
        depths = depths_of(shapes)
        policy.observe(recorded(rows, shapes, depths if accepts else [0] * num_rows, simulated.step_s(shapes)))
        chosen.append(depths[0])
    return chosen


def test_a_class_that_turns_good_is_found_and_kept() -> None:
    policy = DepthPolicy(MAX_DEPTH)
    assert steps(policy, 1, 200, accepts=False)[-100:].count(0) > 80
    policy.forget(0)
    found = steps(policy, 1, 60, accepts=True)
    first = next(i for i, depth in enumerate(found) if depth)
    assert all(found[first : first + 15])


def test_a_probe_that_pays_goes_on() -> None:
    estimates, probes = Estimates(), Probes(share=0.02, max_depth=MAX_DEPTH)
    rows, best = [RowView(0, 3)], Choice([Shape.chain(0)], 50.0)
    estimates.cost.observe_pass(1, 1, 0.02)

    def num_probed(lost_s: float) -> int:
        """Probes in a row, at most 30, when each loses this much."""
        for _ in range(100):
            probes.advance(1.0)
        for count in range(30):
            if (shapes := probes.propose(rows, [3], best, estimates)) is None:
                return count
            assert shapes[0].depth <= 3
            probes.charge(lost_s)
            probes.advance(0.02)
        return 30

    assert num_probed(0.01) == 2
    assert num_probed(-0.01) == 30
    assert num_probed(0.01) <= 3  # what is left of it, then a pause
    probes.charge(1000.0)
    assert num_probed(0.0) == 0  # too much was lost


def test_a_new_batch_size_is_measured_only_where_drafts_could_pay() -> None:
    policy = DepthPolicy(MAX_DEPTH, probe_share=0.0)
    steps(policy, 2, 100, accepts=False)
    assert steps(policy, 3, 10, accepts=False) == [0] * 10
    willing = DepthPolicy(MAX_DEPTH, probe_share=0.0)
    steps(willing, 2, 100, accepts=True)
    assert steps(willing, 3, 4, accepts=True) == [0, 1, 0, 1]


def test_a_draft_cut_by_the_end_of_the_text_is_no_rejection() -> None:
    cut, rejected = DepthPolicy(3), DepthPolicy(3)
    for policy, num_judged in ((cut, 1), (rejected, 3)):
        for _ in range(20):
            policy.observe(StepRecord([RowRecord(RowView(0, 3), Shape.chain(3), 3, 1, num_judged)], 0.0, 0.1, 0.0))
    assert cut.estimates.chains.alphas("", 2)[1] > 0.7
    assert rejected.estimates.chains.alphas("", 2)[1] < 0.2


def test_what_a_grammar_gave_says_nothing_of_the_drafter() -> None:
    """Accepted whatever the heads are worth, and drafted in no time."""
    policy = learnt("wrong heads")
    before = policy.estimates.chains.alphas("", 3), policy.estimates.cost.draft_s(1, 3)
    for _ in range(50):
        policy.observe(StepRecord([RowRecord(RowView(0, 5), Shape.chain(3), 3, 3, 3, True)], 1e-6, 0.02, 0.0))
    assert policy.estimates.chains.alphas("", 3) == before[0]
    assert policy.estimates.cost.draft_s(1, 3) == before[1]


def learnt(name: str, num_steps: int = 200) -> DepthPolicy:
    policy = DepthPolicy(MAX_DEPTH, probe_share=0.0)
    simulated, labels = CASES[name]
    run(simulated, labels, policy, num_steps)
    return policy


def test_depths_stay_within_the_rows_limits() -> None:
    policy = learnt("cheap verify, good heads, batch 4")
    assert depths_of(policy.choose([RowView(i, limit) for i, limit in enumerate([0, 1, 2, 9])]))[:3] == [0, 1, 2]
    assert depths_of(DepthPolicy(0).choose([RowView(0, 5)])) == [0]
    cold = DepthPolicy(2)
    for _ in range(20):
        rows = [RowView(0, 1), RowView(1, 9)]
        shapes = cold.choose(rows)
        assert all(0 <= depth <= limit for depth, limit in zip(depths_of(shapes), [1, 2], strict=True))
        cold.observe(recorded(rows, shapes, depths_of(shapes), (0.001, 0.02)))


def test_a_fixed_depth_is_kept() -> None:
    policy = learnt("wrong heads, batch 16")
    rows = [RowView(i, 4, fixed=Shape.chain(5) if i % 2 else None) for i in range(16)]
    assert depths_of(policy.choose(rows)) == [0, 4] * 8
    assert depths_of(DepthPolicy(MAX_DEPTH).choose([RowView(0, 4, fixed=Shape.chain(3)), RowView(1, 4)])) == [3, 0]


def test_a_fixed_tree_is_kept_and_is_no_chain() -> None:
    policy = learnt("cheap verify, middling heads")
    rows = [RowView(0, 5, fixed=Shape(2, 7)), RowView(1, 5)]
    before = policy.estimates.chains.alphas("", 5)
    for _ in range(30):
        shapes = policy.choose(rows)
        assert shapes[0] == Shape(2, 7)
        policy.observe(recorded(rows, [shapes[0], Shape.chain(0)], [2, 0], (0.009, 0.03)))
    assert policy.estimates.chains.alphas("", 5) == before
    assert policy.estimates.acceptance(Shape(2, 7)).alphas("", 2)[1] > 0.9
    assert policy.estimates.cost.tree_s(1, 2) == pytest.approx(0.009)


def test_rows_of_fixed_depth_pay_for_the_drafter() -> None:
    """A dear first draft is worth nothing to one row alone, but costs little beside rows that draft anyway."""
    policy = DepthPolicy(1, probe_share=0.0)
    simulated = Machine(lambda rows, nodes: 20 * MS, lambda drafting, depth: 20 * MS, {"": GOOD, "x": WRONG})
    run(simulated, ["", "x", "x", "x"], policy, 100)
    rows = [RowView(0, 1), *(RowView(i, 1, "x") for i in (1, 2, 3))]
    assert depths_of(policy.choose(rows)) == [0] * 4
    fixed = [RowView(i, 1, "x", fixed=Shape.chain(1)) for i in (1, 2, 3)]
    assert depths_of(policy.choose([rows[0], *fixed])) == [1] * 4


def test_a_prompt_in_the_pass_leaves_less_room() -> None:
    policy = DepthPolicy(MAX_DEPTH, probe_share=0.0)
    run(machine(roofline, [0.35] * 5), [""] * 16, policy)
    rows = [RowView(i, 5) for i in range(16)]
    assert sum(depths_of(policy.choose(rows))) >= 14  # 16 more nodes are free
    assert sum(depths_of(policy.choose(rows, num_other_nodes=512))) == 0  # none is
    before = policy.estimates.cost.pass_range(16, 16, 64)
    policy.observe(
        StepRecord([RowRecord(row, Shape.chain(0), 0, 0, 0) for row in rows], 0.0, 9.0, 0.0, num_other_nodes=512)
    )
    assert policy.estimates.cost.pass_range(16, 16, 64) == before


# Trees


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("num_rows", [1, 4])
@pytest.mark.parametrize(
    ("pass_s", "alphas", "draft_s"),
    [
        (cheap, MIDDLING, small_drafter),
        (cheap, GOOD, small_drafter),
        (cheap, MIDDLING, dear_drafter),
        (linear, GOOD, small_drafter),
        (cheap, WRONG, small_drafter),
    ],
    ids=["middling heads", "good heads", "dear drafter", "linear verify", "wrong heads"],
)
def test_trees_are_drafted_where_they_bring_more(pass_s, alphas, draft_s, num_rows: int, seed: int) -> None:  # type: ignore[no-untyped-def]
    simulated, labels = machine(pass_s, alphas, draft_s=draft_s), [""] * num_rows
    fixed = fixed_goodputs(simulated, labels)
    trees = [run(simulated, labels, Shape(levels, 6)).goodput for levels in (2, 3, 4)]
    found = run(simulated, labels, DepthPolicy(MAX_DEPTH), seed=seed, num_nodes=6)
    assert found.goodput >= 0.9 * max(*fixed, *trees)  # near misses are told apart late


def test_trees_are_for_rows_that_may_have_them() -> None:
    """One row may have trees, its neighbour chains; a third one has a class whose drafts are worth nothing."""
    labels = ["good", "good", "bad"]
    simulated = Machine(cheap, small_drafter, {"good": MIDDLING, "bad": WRONG})
    policy = DepthPolicy(MAX_DEPTH, probe_share=0.0)
    rows = [RowView(i, MAX_DEPTH, label, None, 0 if i == 1 else 6) for i, label in enumerate(labels)]
    seen = []
    for _ in range(200):
        shapes = policy.choose(rows)
        most = [min(shape.depth, 1) if shape.is_chain else shape.depth for shape in shapes]
        accepted = [0 if row.label == "bad" else k for row, k in zip(rows, most, strict=True)]
        policy.observe(recorded(rows, shapes, accepted, simulated.step_s(shapes)))
        seen.append(shapes)
    assert all(shapes[1].is_chain for shapes in seen)
    assert sum(not shapes[0].is_chain for shapes in seen) > 100
    assert sum(shapes[2] != Shape.chain(0) for shapes in seen[50:]) < 50  # it fades, and is tried again


@pytest.mark.parametrize("max_depth", [-1, True, 1.5, "3"])
def test_a_wrong_depth_is_refused(max_depth: object) -> None:
    with pytest.raises(UsageError, match="max_depth is .*; give an integer of at least 0"):
        DepthPolicy(max_depth)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="probe_share is 1.5"):
        DepthPolicy(3, probe_share=1.5)


@pytest.mark.parametrize(("name", "limit_s"), [("cheap verify, good heads", 50e-6), ("two classes, batch 16", 300e-6)])
def test_choosing_is_cheap(name: str, limit_s: float) -> None:
    """Loosely: several times the limit, because tests share their machine."""
    policy = DepthPolicy(MAX_DEPTH)
    choose, seconds = policy.choose, []

    def timed(rows: list[RowView]) -> list[Shape]:
        start = time.perf_counter()
        shapes = choose(rows)
        seconds.append(time.perf_counter() - start)
        return shapes

    policy.choose = timed  # type: ignore[assignment, method-assign]
    run(*CASES[name], policy, 200)
    assert median(seconds) < 6 * limit_s
