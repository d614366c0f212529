"""Where a trunk's weights go: to one device, to several (``device_map``), or in parts to processes (``tp_plan``)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers.distributed import DistributedConfig

from foretell.errors import UnsupportedModel, UsageError

DeviceMap = str | torch.device | Mapping[str, int | str | torch.device]
"""transformers' device_map: "auto" and its kin, a device, or module name -> device."""

_AUTOMATIC = ("auto", "balanced", "balanced_low_0", "sequential")


@dataclass(frozen=True)
class Placement:
    """One of three: ``device`` alone, ``device_map``, or ``tp_plan`` (each process its part, on its own device)."""

    device: torch.device
    device_map: DeviceMap | None = None
    tp_plan: str | Mapping[str, str] | None = None

    @classmethod
    def of(
        cls, device: str | torch.device, device_map: DeviceMap | None, tp_plan: str | Mapping[str, str] | None
    ) -> Placement:
        """Check what the caller asked for. Raises UsageError where it contradicts itself or this machine."""
        given = [name for name, value in (("device_map", device_map), ("tp_plan", tp_plan)) if value is not None]
        if given and str(device) != "cpu":
            given.insert(0, f"device {str(device)!r}")
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} both say where the weights go; give one of them")
        device_map = _checked(device_map)
        if isinstance(tp_plan, str) and tp_plan != "auto":
            raise UsageError(f'tp_plan {tp_plan!r} is not allowed; give "auto" or a dict of module names and styles')
        if tp_plan is not None and _num_processes() < 2:
            raise UsageError(
                "tp_plan splits the weights among processes, and this is only one; start it with torchrun "
                "--nproc-per-node N, or leave tp_plan out"
            )
        return cls(_device(device), device_map, tp_plan)

    @property
    def loading(self) -> dict[str, Any]:
        """What ``from_pretrained`` is to be told."""
        if self.tp_plan is not None:
            plan = self.tp_plan if isinstance(self.tp_plan, str) else dict(self.tp_plan)
            return {"distributed_config": DistributedConfig(tp_plan=plan)}
        return {} if self.device_map is None else {"device_map": self.device_map}

    def settle(self, model: Any, name: str) -> Any:
        """The loaded model at its place. Raises where it cannot be decoded there."""
        if self.tp_plan is not None:
            _refuse_bad_split(model, name)
        elif self.device_map is not None:
            _refuse_offloaded(model, name)
        else:
            model = model.to(self.device)
        return model


def _refuse_offloaded(model: Any, name: str) -> None:
    """What no device has room for is a stand-in without values, which accelerate fills at every call."""
    absent = [key for key, parameter in model.named_parameters() if parameter.device.type == "meta"]
    if absent:
        raise UsageError(
            f"{name}: device_map leaves {len(absent)} tensors (such as {absent[0]}) in main memory or on disk, to be "
            "fetched at every step; decoding needs them all in place: use more devices, or a smaller dtype or model"
        )


def _refuse_bad_split(model: Any, name: str) -> None:
    if not any(hasattr(parameter, "full_tensor") for parameter in model.parameters()):
        raise UnsupportedModel(
            f"{name}: transformers has no tensor parallel plan for {type(model).__name__}; give tp_plan as a dict, or "
            "device_map in place of it"
        )
    num_heads = getattr(model.config.get_text_config(), "num_key_value_heads", None)
    if num_heads and num_heads % _num_processes():
        raise UsageError(
            f"{name}: {_num_processes()} processes cannot share {num_heads} key-value heads evenly; start a number of "
            f"processes that divides {num_heads}"
        )


def _num_processes() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def _checked(device_map: DeviceMap | None) -> DeviceMap | None:
    """Every device there is on this machine, and no weights left where no layer runs."""
    if device_map is None or (isinstance(device_map, str) and device_map in _AUTOMATIC):
        return device_map
    if isinstance(device_map, (str, torch.device)):
        return {"": _device(device_map, "device_map", *_AUTOMATIC)}
    if not isinstance(device_map, Mapping) or not device_map:
        raise UsageError(
            f"device_map {device_map!r} is not allowed; give {', '.join(_AUTOMATIC)}, a device, or a dict of module "
            "names and devices"
        )
    places = {
        name: _device(f"cuda:{place}" if isinstance(place, int) else place, f"device_map[{name!r}]")
        for name, place in device_map.items()
    }
    if len({place.type for place in places.values()}) > 1:
        raise UsageError(
            "device_map names the CPU beside another device, so that weights would be fetched from main memory at "
            "every step; name devices of one kind"
        )
    return places


def _device(device: str | torch.device, what: str = "device", *others: str) -> torch.device:
    allowed = [*others, "cpu"]
    if torch.cuda.is_available():
        allowed += ["cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        allowed.append("mps")
    if str(device) not in allowed:
        raise UsageError(f"{what} {str(device)!r} is not available here; give {', '.join(allowed)}")
    return torch.device(device)
