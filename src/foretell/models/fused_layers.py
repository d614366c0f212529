"""What the kernels can be told of a decoder's layers: those made of the parts they know, by name and shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretell.kernels.stack import Layer, Norm
from foretell.models.packed import KernelLinear

if TYPE_CHECKING:
    from foretell.models.decoder import DecoderRunner

_PARTS = {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}


def described_layers(run: DecoderRunner) -> list[Layer] | None:
    """Every layer of ``run``'s decoder, or None where one has other parts, or keys of another shape than the first."""
    layers = list(getattr(run.decoder, "layers", ()))
    if not layers or len(layers) != len(run.kinds) or not hasattr(run.decoder, "rotary_emb"):
        return None
    found = [_layer(layer, kind) for layer, kind in zip(layers, run.kinds, strict=True)]
    known = [layer for layer in found if layer is not None]
    shapes = {(layer.num_kv_heads, layer.head_size) for layer in known}
    return known if len(known) == len(found) and len(shapes) == 1 else None


def norm_of(norm: Any) -> Norm | None:
    """An RMSNorm for the kernels, by its looks; None for what looks otherwise."""
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if eps is None or [name for name, _ in norm.named_parameters()] != ["weight"] or norm.weight.dim() != 1:
        return None
    return Norm(norm.weight, float(eps))


def _layer(layer: Any, kind: str) -> Layer | None:
    """An RMSNorm, queries, keys and values of packed linear layers, a gated MLP behind another RMSNorm."""
    if {name for name, _ in layer.named_children()} != _PARTS or hasattr(layer, "_hf_hook"):
        return None
    attention, mlp = layer.self_attn, layer.mlp
    linears = [getattr(attention, f"{name}_proj", None) for name in "qkvo"]
    linears += [getattr(mlp, f"{name}_proj", None) for name in ("gate", "up", "down")]
    if not all(isinstance(linear, KernelLinear) for linear in linears) or not hasattr(attention, "scaling"):
        return None
    others = {name: part for name, part in attention.named_children() if part not in linears}
    norms: list[Norm | None] = [norm_of(layer.input_layernorm), norm_of(layer.post_attention_layernorm)]
    inner = {name: norm_of(others.pop(name)) for name in ("q_norm", "k_norm") if name in others}
    own = [name for part in (layer, attention, mlp) for name, _ in part.named_parameters(recurse=False)]
    if own or others or None in norms or None in inner.values():
        return None
    norms += [inner.get(name) for name in ("q_norm", "k_norm")]
    matrices = [linear.matrix for linear in linears]  # type: ignore[union-attr]
    found = Layer(matrices, norms, float(attention.scaling), int(attention.head_dim), kind)
    return found if _has_shape(found) else None


def _has_shape(layer: Layer) -> bool:
    """True where everything is as long as what it meets: the kernels do not look."""
    q, k, v, o, gate, up, down = layer.matrices
    size, head = q.num_in, layer.head_size
    norms = [size, size, head, head]
    return (
        all(matrix.num_in == size for matrix in (k, v, gate, up))
        and (o.num_in, o.num_out, down.num_out) == (q.num_out, size, size)
        and (v.num_out, up.num_out, down.num_in) == (k.num_out, gate.num_out, gate.num_out)
        and q.num_out % k.num_out == k.num_out % head == 0
        and all(norm is None or norm.size == n for norm, n in zip(layer.norms, norms, strict=True))
    )
