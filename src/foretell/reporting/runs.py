"""Run: one system at one depth, batch size and domain, as bench and compare files have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foretell.reporting.node import Node, Spread

ALL = "all"
"""Domain of a summary over every prompt."""
MAX_DEPTHS = 64
"""Depths of one run that are shown; no command drafts deeper."""

Depth = int | Literal["auto"]


@dataclass(frozen=True)
class Run:
    """Figures that are None, or an empty tuple or dict, were not measured. ``name``: of a system in a compare file.

    ``acceptance_by_depth``: unconditional, accepted up to depth k over rounds that drafted so deep.
    ``tokens_per_pass``: output tokens over all passes of the trunk; ``mean_acceptance_length`` leaves out those without
    a draft. ``share_drafted``: of passes in which anything was drafted.
    """

    system: str
    name: str | None
    depth: Depth | None
    num_nodes: int
    batch: int
    domain: str
    mode: str | None
    drafter: str | None
    num_prompts: int | None
    tokens_per_s: Spread | None
    speedup: Spread | None
    over_reference: Spread | None
    over_generate_batch: Spread | None
    over_chain: Spread | None
    over_best_fixed: Spread | None
    mean_acceptance_length: float | None
    acceptance_by_depth: tuple[float | None, ...]
    time_share: dict[str, float]
    step_ms: float | None
    round_cost: float | None
    predicted_speedup: float | None
    extra_memory_bytes: float | None
    token_ms_median: float | None
    token_ms_p95: float | None
    draft_overhead: float | None
    tokens_per_pass: float | None
    share_drafted: float | None

    @property
    def is_ours(self) -> bool:
        """True for our own engine, plain decoding included."""
        return self.system == "foretell"

    @property
    def is_plain(self) -> bool:
        """True for our own depth 0, the base of every speed-up."""
        return self.is_ours and self.depth == 0

    @property
    def drafts(self) -> bool:
        """True for our own runs with drafts."""
        return self.is_ours and not self.is_plain

    @property
    def is_chain(self) -> bool:
        """True for drafts of a fixed depth without branches."""
        return self.drafts and self.depth != "auto" and not self.num_nodes

    @property
    def tokens_a_pass(self) -> float | None:
        """``tokens_per_pass``, or of a file without it the mean acceptance length."""
        return self.mean_acceptance_length if self.tokens_per_pass is None else self.tokens_per_pass

    @property
    def label(self) -> str:
        """``depth 3``, ``depth 3, tree of 8``, ``depth auto``, ``plain (depth 0)``, or the name of another system."""
        if not self.is_ours:
            return self.system
        if self.is_plain:
            return "plain (depth 0)"
        return f"depth {self.depth}" + (f", tree of {self.num_nodes}" if self.num_nodes else "")

    @property
    def order(self) -> tuple[bool, bool, int, int, str]:
        """Sort key: ours before others, chains, trees, then auto."""
        depth = self.depth if isinstance(self.depth, int) else 0
        return (not self.is_ours, self.depth == "auto", self.num_nodes, depth, self.system)


def read_run(node: Node) -> Run | None:
    """None, with a line in ``problems``, where it does not say what was measured."""
    system, name, batch = node.text("system"), node.text("name"), node.count("batch")
    depth = read_depth(node)
    system = system or ("foretell" if name else None)  # a compare file has the name of a system in its place
    if system is None or batch is None or (system == "foretell" and depth is None):
        node.problems.append(f"{node.place}: without system, depth or batch nobody knows what it is; left out")
        return None
    return Run(
        system=system,
        name=name,
        depth=depth,
        num_nodes=node.count("num_nodes") or 0,
        batch=batch,
        domain=node.text("domain") or ALL,
        mode=node.text("mode"),
        drafter=node.text("drafter"),
        num_prompts=node.count("num_prompts"),
        tokens_per_s=node.spread("decode_tokens_per_s"),
        speedup=node.spread("speedup"),
        over_reference=node.spread("speedup_over_reference"),
        over_generate_batch=node.spread("speedup_over_generate_batch"),
        over_chain=node.spread("speedup_over_chain"),
        over_best_fixed=node.spread("speedup_over_best_fixed"),
        mean_acceptance_length=node.number("mean_acceptance_length"),
        acceptance_by_depth=node.shares("acceptance_by_depth")[:MAX_DEPTHS],
        time_share=node.share_of("time_share"),
        step_ms=node.number("step_ms"),
        round_cost=node.number("round_cost"),
        predicted_speedup=node.number("predicted_speedup"),
        extra_memory_bytes=node.number("extra_memory_bytes"),
        token_ms_median=node.node("token_ms").number("median"),
        token_ms_p95=node.node("token_ms").number("p95"),
        draft_overhead=node.number("draft_overhead"),
        tokens_per_pass=node.number("tokens_per_pass"),
        share_drafted=node.number("share_drafted", at_most=1.0),
    )


def read_depth(node: Node) -> Depth | None:
    """Tokens drafted a step, "auto", or None where it is neither."""
    return "auto" if node.values.get("depth") == "auto" else node.count("depth")
