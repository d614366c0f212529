"""ChainKernel: a chain of guesses by one module, all depths in one call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from foretell.kernels.build import kernels
from foretell.kernels.linear import CMatrix, Matrix
from foretell.kernels.passes import KernelPass
from foretell.kernels.stack import CLayer, CNorm, Layer, Norm


class _CChain(ctypes.Structure):
    _fields_ = [
        ("layer", CLayer),
        *[(name, CNorm) for name in ("embedding_norm", "state_norm", "final")],
        *[(name, CMatrix) for name in ("pair", "output")],
        *[(name, ctypes.c_void_p) for name in ("embeddings", "token_ids")],
        *[(name, ctypes.c_int64) for name in ("is_bfloat", "embedding_first", "feeds_normed")],
    ]


@dataclass
class ChainKernel:
    """A module: norms of embedding and state, the projection of the two, a layer, the final norm, and an output.

    ``embeddings_VD``: of tokens, float32 or bfloat16; ``token_ids_V``: of the output's rows, None where a row is its
    token. ``embedding_first``: the order of the pair; ``feeds_normed``: the next depth reads what the final norm gives.
    """

    layer: Layer
    norms: tuple[Norm, Norm, Norm]
    pair: Matrix
    output: Matrix
    embeddings_VD: torch.Tensor
    token_ids_V: torch.Tensor | None
    embedding_first: bool
    feeds_normed: bool

    def __post_init__(self) -> None:
        ids = self.token_ids_V
        self._chain = _CChain(
            self.layer.described([self.layer.kind]),
            *(norm.described for norm in self.norms),
            *(matrix.described for matrix in (self.pair, self.output)),
            self.embeddings_VD.data_ptr(),
            None if ids is None else ids.data_ptr(),
            *(self.embeddings_VD.dtype == torch.bfloat16, self.embedding_first, self.feeds_normed),
        )

    def draft(
        self, token_ids: Sequence[int], states_PD: torch.Tensor, lengths: Sequence[int], given: KernelPass
    ) -> list[list[int]]:
        """The likeliest token of each depth, ``lengths[b]`` for row b.

        A row's nodes in ``given`` are those that the module has not read, with ``token_ids`` and states (row after
        row), and behind them one for each token to be drafted but the last.
        """
        states = states_PD.float().contiguous()
        c_ids = (ctypes.c_int64 * len(token_ids))(*token_ids)
        c_lengths = (ctypes.c_int64 * len(lengths))(*lengths)
        longest = max(lengths)
        drafted = (ctypes.c_int64 * (len(lengths) * longest))()
        kernels().chain(
            *(ctypes.byref(self._chain), ctypes.byref(given.described([self.layer.kind]))),
            *(ctypes.c_int(given.is_bfloat), c_lengths, ctypes.c_int64(longest)),
            *(c_ids, ctypes.c_void_p(states.data_ptr()), drafted),
        )
        return [list(drafted[b * longest : b * longest + length]) for b, length in enumerate(lengths)]
