"""Stack: the weights that a token passes through: those always read, routed experts, and the output matrix.

    weights that m tokens read = dense + output + routed x (1 - (1 - k/E)^m)

of E routed experts, k a token. The last factor is the expected share of experts that at least one of m tokens is sent
to, where each token picks k of E uniformly and alone. Real routing is less even and neighbouring tokens pick alike, so
fewer wake up: the share is an upper estimate of what drafted tokens cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foretell.inspection.costs import Cost, Experts, output_matrix, trunk_cost


@dataclass(frozen=True)
class Stack:
    """Numbers of parameters. ``dense``: read for any token, shared experts among them; ``routed``: all routed experts;
    ``output``: the output matrix. What is looked up (the embedding) is in none.
    """

    dense: int
    routed: int
    output: int
    experts: Experts = Experts()

    @classmethod
    def of(cls, counts: Mapping[str, int], experts: Experts) -> Stack:
        """From parameters by tensor name, as ``inspect`` counts them."""
        every, _ = trunk_cost(counts, Experts())
        if every is None:
            return cls(0, 0, 0)
        output = output_matrix(counts)
        routed = 0
        if experts.num > 1 and experts.per_token:
            one, _ = trunk_cost(counts, Experts(experts.num, 1))
            assert one is not None
            routed = round((every.active - one.active) * experts.num / (experts.num - 1))
        return cls(every.active - routed - output, routed, output, experts)

    @classmethod
    def of_module(cls, cost: Cost, output: int, experts: Experts) -> Stack:
        """From what ``inspect`` says of one module of heads; ``output``: the matrix that it projects with."""
        sleeping = max(cost.parameters - (cost.active - output), 0)
        share = experts.per_token / experts.num if experts.num else 1.0
        routed = round(sleeping / (1 - share)) if share < 1 else 0
        return cls(cost.parameters - routed, routed, output, experts)

    @property
    def active(self) -> int:
        """Parameters that one token passes through, the output matrix among them."""
        return round(self.dense + self.routed * self._share) + self.output

    @property
    def _share(self) -> float:
        return min(self.experts.per_token / self.experts.num, 1.0) if self.experts.num else 1.0

    def awake(self, num_tokens: float) -> float:
        """Parameters of routed experts that so many tokens are expected to read."""
        return self.routed * (1 - (1 - self._share) ** num_tokens)

    def num_awake_experts(self, num_tokens: float) -> float:
        """Expected distinct experts of a layer; 0 for a dense stack."""
        return self.experts.num * (1 - (1 - self._share) ** num_tokens) if self.routed else 0.0

    def routed_flops(self, num_tokens: float) -> float:
        """FLOPs of the experts that tokens are sent to."""
        return 2 * self.routed * self._share * num_tokens
