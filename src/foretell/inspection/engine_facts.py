"""What decides between the ways in which engines treat a checkpoint with native heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foretell.checkpoints.native import NativeClaim


@dataclass(frozen=True)
class Facts:
    """What decides between engines' ways. ``config``: settings of the language model. ``num_modules``: of heads, by
    their tensors. ``has_trunk``: False for heads alone. ``has_experts``: some of the heads' tensors are experts.
    """

    config: Mapping[str, Any]
    num_layers: int
    num_modules: int
    claim: NativeClaim
    has_trunk: bool = True
    has_experts: bool = False

    @property
    def architectures(self) -> list[str]:
        """As config.json names them; empty where it does not."""
        named = self.config.get("architectures")
        return [str(name) for name in named] if isinstance(named, list) else []

    @property
    def model_type(self) -> str:
        """The language model's."""
        return str(self.config.get("model_type", ""))

    @property
    def has_own_code(self) -> bool:
        """True where the folder brings its own modeling file."""
        return isinstance(self.config.get("auto_map"), Mapping)

    @property
    def is_without_linear_attention(self) -> bool:
        """True where the config says that every layer attends to all positions."""
        kinds = self.config.get("layer_types")
        if isinstance(kinds, list) and kinds:
            return all(kind == "full_attention" for kind in kinds[: self.num_layers])
        return self.config.get("full_attention_interval") == 1
