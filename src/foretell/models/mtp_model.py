"""MTPModel = trunk + heads."""

from __future__ import annotations

from torch import nn

from foretell.models.heads import Heads
from foretell.models.packed import pack_linears, packed
from foretell.models.trunk import Trunk


class MTPModel(nn.Module):
    """A trunk and the heads that guess for it; ``heads`` is None for plain decoding."""

    def __init__(self, trunk: Trunk, heads: Heads | None = None) -> None:
        super().__init__()
        self.trunk = trunk
        self.heads = heads

    @property
    def tokenizer(self):  # type: ignore[no-untyped-def]  # transformers gives tokenizers no common type
        """The trunk's tokenizer, or None."""
        return self.trunk.tokenizer

    def pack(self) -> None:
        """Pack weights for decoding on this CPU (in place, see models/packed), rounded as ``trunk.precision`` says.

        int4 leaves the output head in int8: it is the embedding in most small models, and the most sensitive matrix.
        """
        if self.trunk.precision == "int4" and (head := packed(self.trunk.output_head, "int8")) is not None:
            self.trunk.model.set_output_embeddings(head)
        pack_linears(self.trunk, self.trunk.precision)
        self.trunk.fuse()
        if self.heads is not None:
            self.heads.pack()
