"""What ``inspect_checkpoint`` gives back: facts about one checkpoint, plain enough for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from foretell.checkpoints.quantisation import Quantisation
from foretell.inspection.costs import Costs

Kind = Literal["adapter", "trunk", "heads", "gguf", "medusa"]


@dataclass
class Inspection:
    """Facts about one checkpoint; a field that its kind does not have is None or empty.

    ``kind``: "trunk" is a model folder, with or without heads; "heads" is native heads alone, without their trunk.
    ``num_parameters``: in all files, copies too, scales of quantised matrices left out. ``num_bytes``: of the files.
    ``dtypes``: stored numbers by type. ``family``: name in the table of families; ``models``: who is of it;
    ``blocked``: why Foretell cannot run such heads.
    ``num_modules``: of native heads, by tensors; ``claimed_heads``: by the config. ``heads``: their conventions, of
    which ``centred_norms`` is None where they are as the trunk's.
    ``mtp_tensors``: names of the heads' tensors. ``made_for``: the trunk an adapter was trained against. ``engines``:
    what each engine does with it. ``adapter``: heads of ours in the same folder. ``problems``: what does not fit
    together.
    """

    kind: Kind
    path: str
    num_tensors: int
    num_parameters: int
    num_bytes: int
    dtypes: dict[str, int]
    num_files: int = 1
    architecture: str = ""
    family: str = ""
    models: str = ""
    blocked: str = ""
    num_layers: int | None = None
    hidden_size: int | None = None
    vocab_size: int | None = None
    tied: bool | None = None
    claimed_heads: int | None = None
    num_modules: int | None = None
    mtp_tensors: list[str] = field(default_factory=list)
    heads: dict[str, Any] | None = None
    costs: Costs | None = None
    quantisation: Quantisation | None = None
    engines: dict[str, str] = field(default_factory=dict)
    adapter: Inspection | None = None
    made_for: dict[str, Any] | None = None
    draft_vocab: dict[str, Any] | None = None
    training: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def max_depth(self) -> int | None:
        """Depths that the heads were made for; None where there are none, or their conventions are not known."""
        return self.heads["num_depths"] if self.heads else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the fields that this kind does not have."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        if self.adapter is not None:
            values["adapter"] = self.adapter.as_dict()
        return values
