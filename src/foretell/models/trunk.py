"""Trunk: any causal LM that transformers loads, reduced to three steps: embed, states, project."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import torch
from torch import nn

from foretell.errors import UnsupportedModel
from foretell.kernels.linear import Precision
from foretell.models import attention
from foretell.models.decoder import DecoderRunner, Masks, States, causal_mask, document_positions, final_norm_name
from foretell.models.quantised import dense, stored_tensors
from foretell.models.recurrent_support import carries_state, recurrent_kind
from foretell.models.shards import whole
from foretell.models.support import block_index, num_decoder_layers, set_num_decoder_layers


class Trunk(nn.Module):
    """Wraps a transformers causal LM without changing a weight.

    Raises UnsupportedModel where the family keeps recurrent state that cannot be rewound (unless ``for_training``:
    whole texts need no rewind), or where the three steps do not reproduce the model's own logits (checked once, on a
    few tokens).
    """

    def __init__(self, model: Any, tokenizer: Any = None, name: str = "", for_training: bool = False) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.name = name or getattr(model.config, "_name_or_path", "") or type(model).__name__
        self.config = model.config.get_text_config()
        self.precision: Precision | None = None  # what linear layers are rounded to when they are packed
        if not for_training:
            recurrent_kind(model)
        model.set_attn_implementation(attention.NAME)
        self._run = DecoderRunner(model.get_decoder())
        self.model.eval()
        try:
            self._check_logits()
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise UnsupportedModel(
                f"{type(model).__name__}: its layers do not run with masks and positions from outside ({error!r}); "
                "this family needs a step Foretell does not know"
            ) from error

    @property
    def decoder(self) -> Any:
        """transformers' decoder stack: embedding, layers, final norm."""
        return self._run.decoder

    @property
    def hidden_size(self) -> int:
        """Width D of the trunk's states."""
        return int(self.config.hidden_size)

    @property
    def vocab_size(self) -> int:
        """Rows of the output head."""
        return int(self.output_head.weight.shape[0])

    @property
    def num_layers(self) -> int:
        """Layers of the decoder."""
        return num_decoder_layers(self.config)

    @property
    def max_positions(self) -> int:
        """Context window in tokens, prompt and output together."""
        return int(getattr(self.config, "max_position_embeddings", 0) or 2**31 - 1)

    @property
    def dtype(self) -> torch.dtype:
        """Storage type of the embedding."""
        return self.model.get_input_embeddings().weight.dtype

    @property
    def dtype_name(self) -> str:
        """What is computed with, as for ``load``: the storage type, or what weights are rounded to."""
        return self.precision or str(self.dtype).removeprefix("torch.")

    @property
    def device(self) -> torch.device:
        """Device of the embedding."""
        return self.model.get_input_embeddings().weight.device

    @property
    def states_device(self) -> torch.device:
        """Device of the final norm, where states come out: the last one of a trunk over several; heads live there."""
        return next(self.final_norm.parameters()).device

    @property
    def tp_group(self) -> Any:
        """The processes that hold a part of every layer each (tensor parallelism), or None for a whole trunk."""
        manager = getattr(self.model, "_mesh_manager", None)
        return None if manager is None else manager.get_mesh("tp").get_group()

    @property
    def output_head(self) -> nn.Linear:
        """The linear map from states to vocabulary (a PackedLinear after packing)."""
        return self.model.get_output_embeddings()

    @property
    def final_norm(self) -> nn.Module:
        """The norm between the last layer and the output head."""
        return getattr(self.decoder, final_norm_name(self.decoder))

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every id that ends a text: generation config first, then config, then tokenizer."""
        for holder in (getattr(self.model, "generation_config", None), self.config, self.tokenizer):
            value = getattr(holder, "eos_token_id", None)
            if value is not None:
                return frozenset([value] if isinstance(value, int) else value)
        return frozenset()

    @property
    def is_recurrent(self) -> bool:
        """True where layers carry a state from token to token: a row of training data holds one document then."""
        return carries_state(self.model)

    def embed(self, token_ids_BT: torch.Tensor) -> torch.Tensor:
        """(B, T) token ids -> (B, T, D) input embeddings, the family's scaling included."""
        return self.model.get_input_embeddings()(token_ids_BT.to(self.device))

    @property
    def kinds(self) -> list[str]:
        """The kind of every layer; see DecoderRunner."""
        return self._run.kinds

    @property
    def window(self) -> int | None:
        """Tokens that sliding layers look back; see DecoderRunner."""
        return self._run.window

    def fuse(self) -> bool:
        """Let passes of decoding run through the kernels; see DecoderRunner. False where they do not fit."""
        return self._run.fuse()

    def keep_below(self) -> None:
        """Let ``states`` give what enters the last layer too; heads that read it ask for it."""
        self._run.keep_below()

    def states(
        self,
        embeddings_BTD: torch.Tensor,
        positions_BT: torch.Tensor,
        allowed: Masks,
        key_positions_BS: torch.Tensor | None = None,
        cache: Any = None,
    ) -> States:
        """All layers; see DecoderRunner for the mask."""
        return self._run(embeddings_BTD, positions_BT, allowed, key_positions_BS, cache)

    def text_states(self, token_ids_BT: torch.Tensor, doc_ids_BT: torch.Tensor) -> States:
        """States of whole texts without a cache; documents packed in one row do not see each other."""
        positions = document_positions(doc_ids_BT)
        return self.states(self.embed(token_ids_BT), positions, causal_mask(doc_ids_BT), positions)

    def project(self, states_post: torch.Tensor) -> torch.Tensor:
        """Post-norm states (..., D) -> logits (..., V), with the family's own scaling or soft cap."""
        return self.scale_logits(self.output_head(states_post))

    def scale_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """What some families do to logits after the output head (Cohere, Granite, Gemma)."""
        config = self.config
        if scale := getattr(config, "logit_scale", None):
            logits = logits * scale
        if scaling := getattr(config, "logits_scaling", None):
            logits = logits / scaling
        if cap := getattr(config, "final_logit_softcapping", None):
            logits = cap * torch.tanh(logits / cap)
        return logits

    def freeze(self) -> None:
        """Heads-only training: no parameter of the trunk takes a gradient."""
        self.model.requires_grad_(False)

    def fingerprint(self) -> str:
        """Short hash of the weights; equal weights give equal prints in any storage type.

        Values are rounded to bfloat16 first, so the same checkpoint loaded in fp32 or bf16 agrees. Tensors of up to
        2^18 values count in full, larger ones by at least 2^16 evenly spaced values, so that a load stays fast.
        """
        digest = hashlib.sha256()
        for name, tensor in sorted(stored_tensors(self.model).items()):
            flat = dense(whole(tensor.detach())).reshape(-1)
            step = 1 if flat.numel() <= 2**18 else flat.numel() // 2**16
            sample = flat[::step].to(torch.bfloat16).cpu()
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(sample.view(torch.int16).numpy().tobytes())
        return digest.hexdigest()[:16]

    def block_config(self, index: int = -1, then: int = -1, mlp: int = -1) -> tuple[Any, list[int]]:
        """Config for a small decoder of the trunk's kind, and the indices of the layers it is copied from.

        ``index`` -1: the last full-attention layer, or the last layer where none is. ``then``: a second layer, -1 =
        none. ``mlp``: the layer whose MLP the first has, -1 = its own. Raises CheckpointError for no layer.
        """
        config = copy.deepcopy(self.decoder.config)
        indices = [block_index(config, index, self.name)]
        if then >= 0:
            indices.append(block_index(config, then, self.name, "then_layer"))
        mlps = [block_index(config, mlp, self.name, "mlp_layer"), *indices[1:]] if mlp != -1 else indices
        for name, chosen in (("layer_types", indices), ("mlp_layer_types", mlps)):
            values = getattr(config, name, None)
            if values:
                setattr(config, name, [values[i] for i in chosen])
        set_num_decoder_layers(config, len(indices))
        return config, indices

    @torch.no_grad()
    def _check_logits(self) -> None:
        token_ids = torch.arange(1, 9, device=self.device).unsqueeze(0) % self.vocab_size
        ours = self.project(self.text_states(token_ids, torch.zeros_like(token_ids)).post_BTD).float()
        theirs = self.model(input_ids=token_ids, use_cache=False).logits.float().to(ours.device)
        tolerance = 1e-3 if self.dtype == torch.float32 else 0.1
        error = (ours - theirs).abs().max().item() / max(1.0, theirs.abs().max().item())
        if not error < tolerance:
            raise UnsupportedModel(
                f"{type(self.model).__name__}: embed, layers and output head give other logits than the model itself "
                f"(relative difference {error:.2e}); this family needs a step Foretell does not know"
            )
