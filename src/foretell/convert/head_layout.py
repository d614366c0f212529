"""An adapter's tensors in the layout of a family: names, concat order, and how norms store their gain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from safetensors import safe_open

from foretell.checkpoints.adapter_config import TENSOR_FILE, AdapterInfo
from foretell.checkpoints.families import Family, Place, family_named
from foretell.checkpoints.files import read_headers, refuse_not_finite
from foretell.checkpoints.folds import centre, fold_gain_into_norm, is_centred, swap_halves, take_gain_out, uncentre
from foretell.checkpoints.head_tensors import NORMS, as_stored_gain
from foretell.checkpoints.layer_names import fused_name, stored_layer
from foretell.convert.conventions import concat_of
from foretell.convert.norm_fold import NormFold
from foretell.convert.skeleton import block_layers, final_norm
from foretell.errors import CheckpointError, UnsupportedModel
from foretell.models.block_layer import block_layer_of
from foretell.models.support import num_decoder_layers


class HeadTensors:
    """The heads of an adapter, ``num_modules`` of them, for ``family``; ``model`` is the trunk, without values.

    ``biased``: projections of attention that get a bias of zero where they have none. ``fold``: the trunk's final norm
    loses its gain.
    """

    def __init__(
        self,
        info: AdapterInfo,
        family: Family,
        model: Any,
        num_modules: int,
        *,
        biased: tuple[str, ...] = (),
        fold: NormFold | None = None,
    ) -> None:
        self.info, self.family, self.model = info, family, model
        self.num_modules, self.biased, self.fold = num_modules, biased, fold
        self.num_layers = num_decoder_layers(model.get_decoder().config)
        self.renamed: dict[str, str] = {}
        self.folds: list[str] = []

    def tensors(
        self, dtype: torch.dtype, types: Mapping[str, torch.dtype], trunk_gain_D: torch.Tensor | None
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Stored name and values, in ``dtype``, or in that of the same tensor in a layer of the trunk (``types``).

        ``trunk_gain_D``: the final norm of heads that use the trunk's.
        """
        centred = is_centred(final_norm(self.model))
        index, mlp_index = block_layers(self.model, self.info.heads)
        places = self._places(index, mlp_index)
        with safe_open(self.info.folder / TENSOR_FILE, framework="pt") as file:
            for name, place in places.items():
                values = file.get_tensor(name)
                refuse_not_finite(str(self.info.folder), {name: values}, "Nothing was written.")
                for rest, part in self._stored_parts(place, values, index):
                    if "o_proj" in self.biased and rest == "self_attn.o_proj.bias" and part.any():
                        raise CheckpointError(
                            f"{self.info.folder}: {name} is not zero, and this layout's layers have no bias on the "
                            "output of attention; nothing was written"
                        )
                    there = Place(place.module, place.part, rest)
                    stored = self.family.stored(there, self.num_layers)
                    self.renamed[name] = stored
                    folded = self._folded(there, part, centred)
                    yield stored, folded.to(types.get(rest, dtype) if place.part == "layer" else dtype)
                    if rest.endswith(tuple(f"self_attn.{part}.weight" for part in self.biased)):
                        bias = name.removesuffix("weight") + "bias"
                        if bias not in places:
                            yield stored.removesuffix("weight") + "bias", torch.zeros(len(part), dtype=dtype)
        if trunk_gain_D is not None:
            for module in range(self.num_modules):
                there = Place(module, "norm", "weight")
                yield self.family.stored(there, self.num_layers), self._folded(there, trunk_gain_D, centred).to(dtype)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Stored name and shape of the adapter's tensors; nothing is read."""
        index, mlp_index = block_layers(self.model, self.info.heads)
        headers = read_headers(self.info.folder / TENSOR_FILE)
        return {
            self.family.stored(Place(place.module, place.part, rest), self.num_layers): tuple(part.shape)
            for name, place in self._places(index, mlp_index).items()
            for rest, part in self._stored_parts(place, torch.empty(headers[name].shape, device="meta"), index)
        }

    def _places(self, index: int, mlp_index: int) -> dict[str, Place]:
        """Where the adapter's tensors belong, those of the modules to export. Raises CheckpointError for others."""
        ours = family_named("transformers")
        headers = read_headers(self.info.folder / TENSOR_FILE)
        placed = {name: ours.place(name, self.num_layers) for name in headers if name != "mtp.draft_ids"}
        size = self.model.get_input_embeddings().weight.shape[1]
        wanted = {("enorm", "weight"): (size,), ("hnorm", "weight"): (size,), ("eh_proj", "weight"): (size, 2 * size)}
        if self.info.heads.final_norm == "own":
            wanted["norm", "weight"] = (size,)
        layer = block_layer_of(self.model.get_decoder(), index, mlp_index).state_dict()
        wanted |= {("layer", name): tuple(tensor.shape) for name, tensor in layer.items()}
        expected = {
            ours.stored(Place(module, part, rest), self.num_layers): shape
            for module in range(self.info.heads.num_modules)
            for (part, rest), shape in wanted.items()
        }
        wrong = sorted(expected.keys() ^ placed.keys())
        wrong += [name for name in sorted(expected.keys() & placed.keys()) if headers[name].shape != expected[name]]
        if wrong:
            shown = ", ".join(wrong[:8]) + (", ..." if len(wrong) > 8 else "")
            raise CheckpointError(
                f"{self.info.folder}: {len(wrong)} tensors are missing, unexpected or misshapen: {shown}; nothing was "
                "written"
            )
        return {name: place for name, place in placed.items() if place and place.module < self.num_modules}

    def _stored_parts(self, place: Place, values: torch.Tensor, index: int) -> Iterator[tuple[str, torch.Tensor]]:
        if place.part != "layer":
            yield place.rest, values
            return
        stored = stored_layer(self.model, index, {place.rest: values})
        if len(stored) > 1 and any(fused_name(name) != place.rest for name in stored):
            raise UnsupportedModel(
                f"{self.info.folder}: this family stores {place.rest} under names that are not read back "
                f"({next(iter(stored))}, ...); its heads cannot be exported yet"
            )
        yield from stored.items()

    def _folded(self, place: Place, values: torch.Tensor, centred: bool) -> torch.Tensor:
        if self.fold is not None and place.part in ("hnorm", "norm"):
            self._note("the trunk's final norm, into hnorm and out of the heads' final norm")
            own = uncentre(values) if centred else values.float()
            if place.part == "hnorm":
                own = fold_gain_into_norm(own, self.fold.gain_D, self.fold.rms)
            else:
                own = take_gain_out(own, self.fold.gain_D)
            values = centre(own) if centred else own
        if place.part in NORMS and self.family.centred not in (None, centred):
            self._note("zero-centred norms" if self.family.centred else "norms with their whole gain")
            return as_stored_gain(values, from_centred=centred, to_centred=self.family.centred)
        if place.part == "eh_proj" and self.info.heads.concat != concat_of(self.family):
            self._note(f"halves of eh_proj swapped ({concat_of(self.family).replace('_', ' ')})")
            return swap_halves(values)
        return values

    def _note(self, what: str) -> None:
        if what not in self.folds:
            self.folds.append(what)
