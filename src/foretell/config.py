"""Settings with their checks: how a head is built; SamplingParams comes from its own file. No torch import."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from foretell.errors import CheckpointError
from foretell.sampling_params import GREEDY_TEMPERATURE as GREEDY_TEMPERATURE
from foretell.sampling_params import SamplingParams as SamplingParams

DrafterKind = Literal["heads", "ngram", "ngram+heads", "model", "ngram+model"]
"""Who guesses ahead: heads, n-gram look-up, a separate model; after a plus, who is asked where the first is silent."""


@dataclass(frozen=True)
class HeadsConfig:
    """What heads are and their conventions, stored with them: checkpoints differ, and a wrong one costs acceptance
    silently. A setting that means nothing for ``kind`` is refused where it is not the default.

    ``kind``: "sequential" (a chain that reads the drafted tokens), "parallel" (Gloeckle, arXiv 2404.19737: each depth
    reads the trunk's state alone, through one ``block``: a transformer "layer" or a "linear" map) or "medusa" (arXiv
    2401.10774: ``num_res_blocks`` residual blocks and an own output matrix a depth).
    ``num_depths``: the depth they are trained for. ``num_modules`` distinct modules, one a depth; sequential heads may
    be ``unrolled``: one module serves every depth, also deeper ones. Left out (None and 0), the two follow: sequential
    heads are unrolled unless they have several modules, the other kinds never are.
    ``hidden_source``: trunk state after ("post") or before ("pre") its final norm, or the one that enters its last
    layer ("below", parallel and medusa). ``concat``: which half of eh_proj's input comes first. ``feedback``: state
    passed to the next depth, after ("normed") or before ("raw") the head's own final norm. ``final_norm``: the heads'
    "own", the "trunk"'s or "none". ``zero_first``: the embedding beside a text's first state counts as zeros.
    ``block_layer``: the trunk's layer that blocks are built as, -1 = the last one with full attention. ``then_layer``:
    the one without attention that a second layer behind it is built as (sequential), as Nemotron-H has its experts; -1
    = there is none. ``mlp_layer``: the one whose MLP stands in the block in place of its own (sequential), as MiMo-V2
    joins sliding attention to a dense MLP; -1 = its own. ``own_output``: output matrices of their own (medusa always
    has them); sequential heads share one, or have one a module (``output_per_module``), as Step-3.5.
    ``draft_vocab_size``: rows of the draft vocabulary, 0 = all. ``max_positions``: the head's own window, 0 = the
    trunk's.
    """

    kind: Literal["sequential", "parallel", "medusa"] = "sequential"
    num_modules: int = 0
    num_depths: int = 3
    unrolled: bool | None = None
    hidden_source: Literal["post", "pre", "below"] = "post"
    concat: Literal["embedding_first", "hidden_first"] = "embedding_first"
    feedback: Literal["normed", "raw"] = "normed"
    final_norm: Literal["own", "trunk", "none"] = "own"
    own_output: bool = False
    output_per_module: bool = False
    draft_vocab_size: int = 0
    max_positions: int = 0
    block: Literal["layer", "linear"] = "layer"
    num_res_blocks: int = 1
    zero_first: bool = False
    block_layer: int = -1
    then_layer: int = -1
    mlp_layer: int = -1
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in _ALLOWED.items():
            if getattr(self, name) not in values:
                raise CheckpointError(f"heads: {name} is {getattr(self, name)!r}; allowed: {', '.join(values)}")
        if self.kind == "sequential" and self.hidden_source == "below":
            raise CheckpointError("heads: hidden_source is 'below'; allowed for kind sequential: post, pre")
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in _MEANINGLESS[self.kind] and value != f.default:
                raise CheckpointError(f"heads: {f.name} is {value!r}, but {self.kind} heads have none; leave it out")
        if self.num_depths < 1 or self.num_modules < 0 or self.num_res_blocks < 1:
            raise CheckpointError(
                f"heads: num_depths {self.num_depths} and num_res_blocks {self.num_res_blocks} must be at least 1, "
                f"num_modules {self.num_modules} too, or 0 = what follows from the rest"
            )
        if self.kind == "sequential":
            self._settle_sequential()
        else:
            self._settle_one_a_depth()

    def _settle_sequential(self) -> None:
        if self.output_per_module and not self.own_output:
            raise CheckpointError("heads: output_per_module needs own_output; give both, or neither")
        unrolled = self.num_modules <= 1 if self.unrolled is None else self.unrolled
        num_modules = self.num_modules or (1 if unrolled else self.num_depths)
        if unrolled and num_modules != 1:
            raise CheckpointError(f"heads: unrolled needs num_modules 1, got {num_modules}")
        if not unrolled and self.num_depths != num_modules:
            raise CheckpointError(
                f"heads: {num_modules} distinct modules serve exactly that many depths, "
                f"got num_depths {self.num_depths}"
            )
        object.__setattr__(self, "unrolled", unrolled)
        object.__setattr__(self, "num_modules", num_modules)

    def _settle_one_a_depth(self) -> None:
        if self.unrolled or self.num_modules not in (0, self.num_depths):
            given = "unrolled" if self.unrolled else f"num_modules {self.num_modules}"
            raise CheckpointError(
                f"heads: {self.kind} heads have one module a depth, so {given} does not go with num_depths "
                f"{self.num_depths}; leave it out"
            )
        object.__setattr__(self, "unrolled", False)
        object.__setattr__(self, "num_modules", self.num_depths)
        object.__setattr__(self, "own_output", self.own_output or self.kind == "medusa")

    @property
    def max_depth(self) -> int | None:
        """Deepest draft these heads can make: the number of distinct modules, or None (no limit) when unrolled."""
        return None if self.unrolled else self.num_modules

    def to_dict(self) -> dict[str, Any]:
        """Plain values for ``mtp_config.json``: the latest settings only where they are no default, as earlier versions
        refuse a file that has them.
        """
        defaults = {f.name: f.default for f in fields(self)}
        return {k: value for k, value in asdict(self).items() if k not in _LATEST or value != defaults[k]}

    def conventions(self) -> dict[str, Any]:
        """Plain values to show: those that mean something for this kind."""
        return {name: value for name, value in asdict(self).items() if name not in _MEANINGLESS[self.kind]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> HeadsConfig:
        """Build from stored values; an unknown key is an error, not a silent default."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise CheckpointError(f"heads: unknown settings {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        return cls(**values)


_ALLOWED = {
    "kind": ("sequential", "parallel", "medusa"),
    "hidden_source": ("post", "pre", "below"),
    "concat": ("embedding_first", "hidden_first"),
    "feedback": ("normed", "raw"),
    "final_norm": ("own", "trunk", "none"),
    "block": ("layer", "linear"),
}
_LATEST = ("output_per_module", "mlp_layer")
"""Settings that not every version which reads the format knows."""
_MEANINGLESS = {
    "sequential": ("block", "num_res_blocks"),
    "parallel": ("concat", "feedback", "num_res_blocks", "zero_first", "then_layer", "mlp_layer", "output_per_module"),
    "medusa": (
        "concat",
        "feedback",
        "final_norm",
        "block",
        "zero_first",
        "block_layer",
        "then_layer",
        "mlp_layer",
        "output_per_module",
    ),
}
"""Settings that do not apply to a kind: it has no such part."""
