"""Export: trunk and adapter as one checkpoint in a layout that engines load."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from foretell.checkpoints.adapter_config import AdapterInfo, read_adapter_config
from foretell.checkpoints.families import Family, Place, family_named
from foretell.checkpoints.layer_names import stored_name
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.native import DEPTHS_KEY
from foretell.checkpoints.quantisation import matrices_in
from foretell.checkpoints.stored import StoredModel
from foretell.convert.claims import with_plain_heads
from foretell.convert.conventions import check_conventions, check_layers
from foretell.convert.folder import check_target, model_folder, write_converted
from foretell.convert.head_layout import HeadTensors
from foretell.convert.norm_fold import fold_trunk, norm_fold
from foretell.convert.reload import check_reload
from foretell.convert.report import Conversion
from foretell.convert.shards import Plan, Progress
from foretell.convert.skeleton import block_layers, final_norm, module_name, skeleton, stored_weight
from foretell.convert.targets import TARGETS, Target, own_family
from foretell.convert.tokenizer_note import tokenizer_note
from foretell.errors import AdapterMismatch, CheckpointError, UnsupportedModel, UsageError


def export(
    trunk: str | PathLike[str],
    adapter: str | PathLike[str],
    target: str | PathLike[str],
    to: str,
    *,
    num_modules: int = 0,
    fold_norm: bool = False,
    reload: bool = True,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> Conversion:
    """Write ``trunk`` (a model folder, a GGUF file or "demo") with the heads of ``adapter`` to ``target``.

    ``to``: a name in ``TARGETS``. ``num_modules``: export so many distinct modules, the first ones; 0 = all.
    ``fold_norm``: move the final norm's gain into the output head, so that heads which read the state after the norm
    do where an engine hands them the one before it. ``reload``: load the result and compare what its heads
    compute, where memory allows. Raises CheckpointError, AdapterMismatch, UnsupportedModel, UsageError; nothing is
    left behind then.
    """
    if to not in TARGETS:
        raise UsageError(f"to {to!r} is not allowed; give {', '.join(TARGETS)}")
    goal, info = TARGETS[to], read_adapter_config(adapter)
    source = StoredModel.open(model_folder(trunk, on_progress))
    folder = check_target(target, [source.folder, info.folder], overwrite)
    num_modules = _num_modules(info, num_modules)
    model = skeleton(source.folder)
    _check_fit(source, info, model, goal)
    family = family_named(goal.family) if goal.family else own_family(source)
    if any("{n}" in prefix for prefix in family.parts.values()) and not any(
        name.startswith("model.layers.") for name in source.headers
    ):
        raise UnsupportedModel(
            f"{source.folder}: the {family.name} layout puts heads behind model.layers, and this model's layers have "
            "another prefix"
        )
    report = Conversion(f"export --to {to}", str(source.folder), str(folder))
    report.notes += check_conventions(info, family, num_modules, fold_norm)
    layers = block_layers(model, info.heads)
    says_kinds = goal.name != "native" and source.text_config.get("mlp_layer_types")  # transformers reads them
    if not (family.joins_layers or says_kinds):
        check_layers(info, family, model.get_decoder(), layers)
    config = goal.config(source, num_modules, layers)
    norm_name = stored_weight(source, model, final_norm(model))
    if info.heads.unrolled:
        config = config | {DEPTHS_KEY: info.heads.num_depths}
    fold = norm_fold(load_trunk(source.folder)) if fold_norm else None
    heads = HeadTensors(info, family, model, num_modules, biased=goal.biased(source), fold=fold)
    copies = _copies(source, model, family, num_modules) if goal.name == "native" else {}
    shapes = heads.shapes() | {name: source.headers[original].shape for name, original in copies.items()}
    config = with_plain_heads(config, matrices_in(shapes))
    dtype = source.dtype(norm_name)
    plan = Plan()
    extra: dict[str, torch.Tensor] = dict(goal.added(source))
    report.added |= dict.fromkeys(extra, "zeros where the layout has biases and the trunk has none")
    gain = next(source.read([norm_name]))[1]
    if fold_norm:
        fold_trunk(source, model, plan, config, report, extra)
    borrowed = gain if info.heads.final_norm == "trunk" else None

    def added() -> Iterator[tuple[str, torch.Tensor]]:
        yield from extra.items()
        for name, tensor in heads.tensors(dtype, source.layer_types(layers[0]), borrowed):
            report.added[name] = f"heads of {info.folder.name}"
            yield name, tensor
        for name, original in copies.items():
            report.added[name] = f"copy of {original}, as released models have it"
            yield name, next(source.read([original]))[1]
        report.renamed |= heads.renamed
        report.notes += [f"folded: {fold}" for fold in heads.folds]

    plan.added = added()
    report.notes.append(f"serve with {goal.serve}")

    def check(fresh: Path) -> None:
        if said := tokenizer_note(fresh):
            report.notes.append(said)
        if reload:
            check_reload(source, fresh, info, num_modules, report, folded=fold_norm)

    size = sum(t.numel() * t.element_size() for t in extra.values()) + (info.folder / "mtp.safetensors").stat().st_size
    write_converted(
        source,
        folder,
        plan,
        config,
        report,
        added_bytes=2 * size,
        texts=goal.texts(source, num_modules),
        check=check,
        overwrite=overwrite,
        on_progress=on_progress,
    )
    return report


def _num_modules(info: AdapterInfo, asked: int) -> int:
    count = info.heads.num_modules
    if not 0 <= asked <= count:
        raise UsageError(f"modules {asked} is not allowed; {info.folder} has {count}: give 1 to {count}")
    return asked or count


def _check_fit(source: StoredModel, info: AdapterInfo, model: Any, goal: Target) -> None:
    kind = source.text_config.get("model_type")
    if goal.trunks and kind not in goal.trunks:
        raise UnsupportedModel(
            f"{source.folder}: model type {kind!r}; --to {goal.name} takes {', '.join(goal.trunks)}; {goal.hint}"
        )
    if source.head_names:
        raise CheckpointError(
            f"{source.folder}: has native heads already ({len(source.head_names)} tensors); strip it first: foretell "
            "convert strip"
        )
    here = {
        "architecture": type(model).__name__,
        "hidden_size": source.text_config.get("hidden_size"),
        "vocab_size": model.get_output_embeddings().weight.shape[0],
    }
    wrong = [
        f"{key} {getattr(info.trunk, key)} (here {value})"
        for key, value in here.items()
        if getattr(info.trunk, key) != value
    ]
    if wrong:
        raise AdapterMismatch(f"{info.folder}: made for {info.trunk.name}, not this trunk: {', '.join(wrong)}")


def _copies(source: StoredModel, model: Any, family: Family, num_modules: int) -> dict[str, str]:
    """Tensors of the trunk that this family's modules repeat: name of the copy -> name of the original."""
    wanted = [part for part in ("embedding", "output") if part in family.parts]
    if not wanted:
        return {}
    originals = dict.fromkeys(wanted, stored_weight(source, model, model.get_input_embeddings()))
    output = stored_name(model, f"{module_name(model, model.get_output_embeddings())}.weight")
    if "output" in wanted and output in source.headers:  # else it is tied
        originals["output"] = output
    return {
        family.stored(Place(k, part, "weight"), source.num_layers): original
        for k in range(num_modules)
        for part, original in originals.items()
    }
