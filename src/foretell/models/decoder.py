"""One call into a transformers decoder stack: masks, cache keyword, and states on both sides of the final norm.

The trunk and the blocks of heads both run through here; transformers' own layers, rotary embedding and
norms do the work, so a new model family needs no code. Passes of decoding run through kernels (fused_stack) where those
compute the same.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from foretell.errors import UnsupportedModel
from foretell.models.attention import ROW_LAYOUT
from foretell.models.fused_stack import FusedStack
from foretell.models.support import MASKLESS_KINDS, num_decoder_layers, refuse_layer_types

Masks = torch.Tensor | Mapping[str, torch.Tensor]
"""(B, T, S) bool: which keys each query may see; or such a mask for each kind of layer, its window included."""

_NORM_NAMES = ("norm", "final_layernorm", "final_layer_norm", "ln_f", "norm_f", "embedding_norm")


class States(NamedTuple):
    """Hidden states before (``pre``) and after (``post``) the final norm, each (B, T, D).

    ``below``: what enters the last layer, where the runner was told to keep it.
    """

    pre_BTD: torch.Tensor
    post_BTD: torch.Tensor
    below_BTD: torch.Tensor | None = None


def final_norm_name(decoder: nn.Module) -> str:
    """Attribute name of the decoder's final norm."""
    for name in _NORM_NAMES:
        if isinstance(getattr(decoder, name, None), nn.Module):
            return name
    raise UnsupportedModel(
        f"{type(decoder).__name__}: no final norm found (looked for {', '.join(_NORM_NAMES)}); "
        "please report this model family"
    )


class DecoderRunner:
    """Runs ``decoder`` (for example a LlamaModel) on embeddings with an explicit mask and positions."""

    def __init__(self, decoder: nn.Module) -> None:
        self.decoder = decoder
        self.config: Any = decoder.config
        refuse_layer_types(type(decoder).__name__, self.config)
        parameters = inspect.signature(decoder.forward).parameters
        self._cache_keyword = "cache" if "cache" in parameters else "past_key_values"
        self._pre_norm: torch.Tensor | None = None
        self._below: torch.Tensor | None = None
        self._keeps_below = False
        self.stack: FusedStack | None = None
        self._lock = threading.Lock()  # for what the hooks hear: engines in several threads may share a model
        getattr(decoder, final_norm_name(decoder)).register_forward_pre_hook(self._hear_pre_norm)

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the decoder takes its hooks along, and they this; it gets a lock of its own, and is not fused."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "stack")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), stack=None)

    def fuse(self) -> bool:
        """Let passes of decoding run through the kernels where those compute the same; False where they do not."""
        if self.stack is None or not self.stack.is_current():
            self.stack = FusedStack.of(self, getattr(self.decoder, final_norm_name(self.decoder)), self._lock)
        return self.stack is not None

    def keep_below(self) -> None:
        """From now on give what enters the last layer too (``States.below_BTD``)."""
        if self._keeps_below:
            return
        layers = getattr(self.decoder, "layers", None)
        if not isinstance(layers, nn.ModuleList):
            raise UnsupportedModel(
                f"{type(self.decoder).__name__}: no list of decoder layers under a known name, so what enters the last "
                'one cannot be had; use hidden_source "post" or "pre"'
            )
        layers[num_decoder_layers(self.config) - 1].register_forward_pre_hook(self._hear_below, with_kwargs=True)
        self._keeps_below = True

    def _hear_pre_norm(self, _module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        self._pre_norm = args[0]

    def _hear_below(self, _module: nn.Module, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor]) -> None:
        self._below = args[0] if args else kwargs["hidden_states"]

    def __call__(
        self,
        embeddings_BTD: torch.Tensor,
        positions_BT: torch.Tensor,
        allowed: Masks,
        key_positions_BS: torch.Tensor | None = None,
        cache: Any = None,
    ) -> States:
        """``allowed``: which keys each query may see; sliding windows are added per layer from the positions.

        Or one finished mask a kind of layer. With a cache, rows may be packed into one, as ``cache.layout`` says.
        """
        if self.stack is not None and self.stack.fits(embeddings_BTD, allowed, cache):
            assert isinstance(allowed, Mapping)
            return States(*self.stack(embeddings_BTD, positions_BT, allowed, cache, self._keeps_below))
        layout = ROW_LAYOUT.set(getattr(cache, "layout", None))
        try:
            with self._lock:
                output = self.decoder(
                    inputs_embeds=embeddings_BTD,
                    position_ids=positions_BT,
                    attention_mask=self._masks(allowed, positions_BT, key_positions_BS),
                    use_cache=cache is not None,
                    **{self._cache_keyword: cache},
                )
                pre, below = self._pre_norm, self._below
                self._pre_norm = self._below = None
        finally:
            ROW_LAYOUT.reset(layout)
        assert pre is not None
        return States(pre, output.last_hidden_state, below)

    @property
    def kinds(self) -> list[str]:
        """The kind of every layer, such as "full_attention" or "sliding_attention"."""
        types = getattr(self.config, "layer_types", None)
        if types:
            return list(types)
        only = "sliding_attention" if self.window else "full_attention"
        return [only] * self.config.num_hidden_layers

    @property
    def window(self) -> int | None:
        """Tokens that sliding layers look back, their own included."""
        return getattr(self.config, "sliding_window", None)

    def _masks(
        self, allowed: Masks, positions_BT: torch.Tensor, key_positions_BS: torch.Tensor | None
    ) -> torch.Tensor | dict[str, torch.Tensor | None] | None:
        kinds = set(self.kinds)
        if kinds == {"linear_attention"}:
            return None
        masks: dict[str, torch.Tensor | None]
        if isinstance(allowed, Mapping):
            masks = {kind: mask.unsqueeze(1) for kind, mask in allowed.items()}
        else:
            masks = {"full_attention": allowed.unsqueeze(1)}
            if "sliding_attention" in kinds:
                assert key_positions_BS is not None
                masks["sliding_attention"] = in_window(allowed, positions_BT, key_positions_BS, self.window).unsqueeze(
                    1
                )
        if kinds & set(MASKLESS_KINDS):
            return {**dict.fromkeys(MASKLESS_KINDS), **masks}
        return masks if len(kinds) > 1 else masks[kinds.pop()]


def in_window(
    allowed_BTS: torch.Tensor, positions_BT: torch.Tensor, key_positions_BS: torch.Tensor, window: int | None
) -> torch.Tensor:
    """What is allowed of ``allowed_BTS`` in a layer that looks ``window`` tokens back; all of it without a window."""
    if not window:
        return allowed_BTS
    return allowed_BTS & (positions_BT.unsqueeze(2) - key_positions_BS.unsqueeze(1) < window)


def causal_mask(doc_ids_BT: torch.Tensor) -> torch.Tensor:
    """(B, T, T): a query sees keys at or before it in its own document; padding carries document -1 and sees itself."""
    num_positions = doc_ids_BT.shape[1]
    causal = torch.ones(num_positions, num_positions, dtype=torch.bool, device=doc_ids_BT.device).tril()
    return causal & (doc_ids_BT.unsqueeze(2) == doc_ids_BT.unsqueeze(1))


def document_positions(doc_ids_BT: torch.Tensor) -> torch.Tensor:
    """(B, T): index of each token within its own document, so that packed and separate rows agree."""
    index = torch.arange(doc_ids_BT.shape[1], device=doc_ids_BT.device).expand_as(doc_ids_BT)
    starts = torch.ones_like(doc_ids_BT, dtype=torch.bool)
    starts[:, 1:] = doc_ids_BT[:, 1:] != doc_ids_BT[:, :-1]
    return index - torch.where(starts, index, 0).cummax(1).values
