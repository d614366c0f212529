"""The rules of recurrent layers node by node: the gated delta rule, and Mamba-2's state space.

The layers of a family call two functions of their own file, one for many tokens and one for a single token. Both are
wrapped, once a file. A wrapper does nothing unless the state it is given is a ``NodeStates``: the pass travels with the
state, and whoever else uses the file is not affected.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from foretell.decoding.recurrent_nodes import NodeStates

Rule = Callable[..., Any]


def wrap_rules(layer: type[torch.nn.Module], rules: dict[str, str]) -> None:
    """Let functions of the layer's file take a ``NodeStates``; ``rules``: name of the function -> its kind."""
    module: Any = sys.modules[layer.__module__]
    for name, kind in rules.items():
        original = getattr(module, name)
        if not hasattr(original, "takes_node_states"):
            wrapper = functools.wraps(original)(_WRAPPERS[kind](original))
            setattr(wrapper, "takes_node_states", True)  # noqa: B010
            setattr(module, name, wrapper)


def delta_rule(
    value_BNHd: torch.Tensor,
    query_BNHd: torch.Tensor,
    key_BNHd: torch.Tensor,
    decay: torch.Tensor,
    beta_BNH: torch.Tensor,
    state: torch.Tensor | None,
    unit_length: bool = True,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Output (B, N, heads, d_value) and the state after each node, float32 (B, heads, d_key, d_value).

    S_t = e^g_t S_(t-1) + k_t^T beta_t (v_t - k_t e^g_t S_(t-1)) and o_t = q_t S_t d^-0.5, with q and k brought to unit
    length first where ``unit_length`` (Gated Delta Networks, arXiv 2412.06464). ``decay`` is g: (B, N, heads), or
    (B, N, heads, d_key) where every channel has its own (Kimi Linear, arXiv 2510.26692). One query and key may serve
    several heads of values.
    """
    groups = value_BNHd.shape[2] // key_BNHd.shape[2]
    query, key = query_BNHd.float(), key_BNHd.float()
    if unit_length:
        query, key = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    query, key = (x.repeat_interleave(groups, dim=2) for x in (query * query.shape[-1] ** -0.5, key))
    value, beta = value_BNHd.float(), beta_BNH.float().unsqueeze(-1)
    keep = decay.float().exp().reshape(*value.shape[:3], -1, 1)
    if state is None:
        state = value.new_zeros(value.shape[0], value.shape[2], key.shape[-1], value.shape[-1])
    outputs, states = [], []
    for n in range(value.shape[1]):
        kept = state * keep[:, n]
        error = (value[:, n] - _read(key[:, n], kept)) * beta[:, n]
        state = kept.addcmul_(key[:, n].unsqueeze(-1), error.unsqueeze(-2))
        outputs.append(_read(query[:, n], state))
        states.append(state)
    return torch.stack(outputs, dim=1).to(value_BNHd.dtype), states


def state_space(
    x_BNHd: torch.Tensor,
    step_BNH: torch.Tensor,
    b_BNGs: torch.Tensor,
    c_BNGs: torch.Tensor,
    state: torch.Tensor | None,
    a_H: torch.Tensor,
    skip_H: torch.Tensor,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Output (B, N, heads, d) and the state after each node, float32 (B, heads, d, s).

    S_t = e^(a dt) S_(t-1) + dt x_t b_t^T and y_t = S_t c_t + skip x_t (Mamba-2, arXiv 2405.21060); one b and c serve
    the heads of a group. ``step_BNH``: dt, float32, limits applied.
    """
    groups = x_BNHd.shape[2] // b_BNGs.shape[2]
    b, c = (own.float().repeat_interleave(groups, dim=2) for own in (b_BNGs, c_BNGs))
    x = x_BNHd.float()
    keep = (step_BNH * a_H.float()).exp()[..., None, None]
    scaled = x * step_BNH.unsqueeze(-1)
    if state is None:
        state = x.new_zeros(*x.shape[:1], *x.shape[2:], b.shape[-1])
    outputs, states = [], []
    for n in range(x.shape[1]):
        state = (state * keep[:, n]).addcmul_(scaled[:, n].unsqueeze(-1), b[:, n].unsqueeze(-2))
        outputs.append(torch.matmul(state, c[:, n].unsqueeze(-1)).squeeze(-1))
        states.append(state)
    return (torch.stack(outputs, dim=1) + x * skip_H.float().unsqueeze(-1)).to(x_BNHd.dtype), states


def _read(row_BHd: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    return torch.matmul(row_BHd.unsqueeze(-2), state).squeeze(-2)


def _delta(original: Rule) -> Rule:
    """Either function of the gated delta rule: q, k, v (B, N, heads, d), ``g`` and ``beta`` (B, N, heads)."""

    def rule(query: Any, key: Any, value: Any, *, initial_state: Any = None, **options: Any) -> Any:
        states = initial_state
        if not isinstance(states, NodeStates):
            return original(query, key, value, initial_state=states, **options)
        inputs = (value, query, key, options.pop("g"), options.pop("beta"))
        final = options | {"output_final_state": True}

        def at_once(value: Any, query: Any, key: Any, g: Any, beta: Any, before: Any) -> Any:
            return original(query, key, value, g=g, beta=beta, initial_state=before, **final)

        unit_length = options.get("use_qk_l2norm_in_kernel", False)
        output = states.run(inputs, functools.partial(delta_rule, unit_length=unit_length), at_once)
        return output, _reported(output)

    return rule


def _state_space_many(original: Rule) -> Rule:
    """Mamba-2 for many tokens: x (B, N, heads, d), step (B, N, heads), b and c (B, N, groups, s)."""

    def rule(x: Any, step: Any, a: Any, b: Any, c: Any, *, initial_states: Any = None, **options: Any) -> Any:
        states = initial_states
        if not isinstance(states, NodeStates):
            return original(x, step, a, b, c, initial_states=states, **options)
        final = options | {"return_final_states": True}

        def by_node(x: Any, step: Any, b: Any, c: Any, before: Any) -> Any:
            return state_space(x, _step(step, options["dt_bias"], states), b, c, before, a, options["D"])

        def at_once(x: Any, step: Any, b: Any, c: Any, before: Any) -> Any:
            return original(x, step, a, b, c, initial_states=before, **final)

        output = states.run((x, step, b, c), by_node, at_once)
        return output, _reported(output)

    return rule


def _state_space_single(original: Rule) -> Rule:
    """Mamba-2 for one token: x and step (B, heads, d), b and c (B, groups, s); what a head shares comes spread out."""

    def rule(states: Any, x: Any, step: Any, a: Any, b: Any, c: Any, skip: Any, **options: Any) -> Any:
        if not isinstance(states, NodeStates):
            return original(states, x, step, a, b, c, skip, **options)

        def by_node(x: Any, step: Any, b: Any, c: Any, before: Any) -> Any:
            return state_space(x, _step(step, options["dt_bias"][:, 0], states), b, c, before, a[:, 0, 0], skip[:, 0])

        inputs = tuple(own.unsqueeze(1) for own in (x, step[..., 0], b, c))
        output = states.run(inputs, by_node, original).squeeze(1)
        return output if options.get("z") is None else output * F.silu(options["z"])

    return rule


def _step(step_BNH: torch.Tensor, bias_H: torch.Tensor, states: NodeStates) -> torch.Tensor:
    """transformers limits the time step in passes of many tokens alone; then one more pass would be another text."""
    return F.softplus(step_BNH.float() + bias_H.float()).clamp(*states.step_limit)


def _reported(output: torch.Tensor) -> torch.Tensor:
    """What the layer hands to ``update_recurrent_state``, which has the states already and reads nothing."""
    return output.new_empty(0)


_WRAPPERS: dict[str, Callable[[Rule], Rule]] = {
    "delta": _delta,
    "state_space_many": _state_space_many,
    "state_space_single": _state_space_single,
}
