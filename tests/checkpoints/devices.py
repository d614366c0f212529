"""Several devices on a machine that has one: tensors remember which device they were put on, and must meet there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch import nn
from torch.overrides import TorchFunctionMode

HOST = torch.device("cpu")
_MAY_CROSS = {"copy_", "to", "cpu", "__get__", "__set__", "__repr__", "_has_compatible_shallow_copy_type"}


class ManyDevices(TorchFunctionMode):
    """``cpu:1``, ``cpu:2`` and so on are devices of their own while this is active; values are real.

    An operation on tensors of two devices raises RuntimeError, as it would between GPUs. A tensor on the host may be an
    index, or a single number.
    """

    def __enter__(self) -> ManyDevices:
        new = self._new_parameter = nn.Parameter.__new__

        def placed(cls: Any, data: torch.Tensor | None = None, *args: Any, **kwargs: Any) -> nn.Parameter:
            parameter = new(cls, data, *args, **kwargs)
            _put([parameter], HOST if data is None else _place(data))
            return parameter

        nn.Parameter.__new__ = placed  # type: ignore[method-assign]  # torch tells no mode of a new parameter
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        nn.Parameter.__new__ = self._new_parameter  # type: ignore[method-assign]
        super().__exit__(*error)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if func == torch.Tensor.device.__get__:  # type: ignore[attr-defined]
            return _place(args[0])
        if name == "__setitem__":
            _meet(name, [args[0], *_tensors(args[1])])
        elif name == "__getitem__":
            _meet(name, [args[0], *(t for t in _tensors(args[1]) if _place(t) != HOST)])
        elif name not in _MAY_CROSS:
            _meet(name, _tensors([args, kwargs]))
        out = func(*args, **kwargs)
        if name == "__set__":  # parameter.data = ...
            _put([args[0]], _place(args[1]) if isinstance(args[1], torch.Tensor) else _place(args[0]))
        elif (device := _asked(name, args, kwargs)) is not None:
            if any(out is given and _place(given) != device for given in _tensors([args])):
                out = out.detach()  # a copy of its own, where torch sees no need for one
            _put(_tensors(out), device)
        elif given := _tensors([args, kwargs]):
            places = [_place(t) for t in given]
            _put(_tensors(out), next((place for place in places if place != HOST), HOST))
        return out


def put(module: nn.Module, device: str) -> None:
    """Place a part of a model on ``device``, and bring its inputs there in the way accelerate does."""
    _put([*module.parameters(), *module.buffers()], torch.device(device))
    forward = module.forward
    module.forward = lambda *args, **kwargs: forward(*send_to_device(args, device), **send_to_device(kwargs, device))


def _asked(name: str, args: Any, kwargs: Mapping[str, Any]) -> torch.device | None:
    """The device that a call names: ``device=``, or what ``to`` was given."""
    if (device := kwargs.get("device")) is not None:
        return torch.device(device)
    if name == "cpu":
        return HOST
    for arg in args[1:] if name == "to" else ():
        if isinstance(arg, (str, torch.device)):
            return torch.device(arg)
        if isinstance(arg, torch.Tensor):
            return _place(arg)
    return None


def _meet(name: str, tensors: list[torch.Tensor]) -> None:
    places = {_place(t) for t in tensors if t.dim() > 0 or _place(t) != HOST}
    if len(places) > 1:
        raise RuntimeError(f"{name} of tensors on {', '.join(sorted(map(str, places)))}")


def _place(tensor: torch.Tensor) -> torch.device:
    return tensor.__dict__.get("place", HOST)


def _put(tensors: Iterable[torch.Tensor], device: torch.device) -> None:
    for tensor in tensors:
        tensor.__dict__["place"] = device


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [t for item in value for t in _tensors(item)] if isinstance(value, (list, tuple)) else []
