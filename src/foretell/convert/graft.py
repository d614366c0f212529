"""Graft: put an original's native heads back on a trunk that was fine-tuned, and saved without them."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import torch

from foretell.checkpoints.stored import StoredModel
from foretell.convert.claims import MODELING_FILE, with_heads_of
from foretell.convert.folder import check_target, write_converted
from foretell.convert.report import Conversion
from foretell.convert.shards import Plan, Progress
from foretell.convert.targets import remote_code
from foretell.errors import CheckpointError

_SAME = ("model_type", "hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_EMBEDDINGS = ("embed_tokens.weight", "word_embeddings.weight", "embedding.weight")
_OUTPUTS = ("lm_head.weight", "output.weight")
HEADS, COPY = "heads of the original", "copy of the tuned trunk's own, as the original had one of its"


def graft(
    model: str | PathLike[str],
    original: str | PathLike[str],
    target: str | PathLike[str],
    *,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> Conversion:
    """Write ``model`` with the native heads of ``original`` to ``target``; every other bit is the model's.

    Where the original's heads repeat its embedding or output head, the result repeats the model's. Raises
    CheckpointError where the two do not fit together, and where ``model`` has heads already.
    """
    source, donor = StoredModel.open(model), StoredModel.open(original)
    check_target(target, [source.folder, donor.folder], overwrite)
    _check_fit(source, donor)
    copies = _copies(source, donor)
    report = Conversion("graft", str(source.folder), str(Path(target)))
    report.added = {name: COPY if name in copies else HEADS for name in donor.head_names}
    report.notes.append(
        "the heads were trained for the original trunk: text stays exact, acceptance may drop; foretell probe shows "
        "it, foretell train recipes/realign.toml mends it"
    )

    def added() -> Iterator[tuple[str, torch.Tensor]]:
        yield from donor.read([name for name in donor.head_names if name not in copies])
        for name, own in copies.items():
            yield name, next(source.read([own]))[1]

    size = sum(donor.headers[name].num_bytes for name in donor.head_names)
    plan, config, texts = Plan(added=added()), with_heads_of(source.config, donor.config), {}
    if MODELING_FILE.removesuffix(".py") in str(donor.config.get("auto_map")):  # an export in the deepseek-style layout
        config |= {key: donor.config[key] for key in ("architectures", "auto_map")}
        texts = remote_code(source, donor.num_modules)
    write_converted(source, target, plan, config, report, added_bytes=size, texts=texts, on_progress=on_progress)
    return report


def _check_fit(source: StoredModel, donor: StoredModel) -> None:
    if not donor.head_names:
        lost = f"{donor.claim}, but " if donor.claim.num_layers else ""
        raise CheckpointError(f"{donor.folder}: {lost}no native heads are in its files; give the original checkpoint")
    if source.head_names:
        raise CheckpointError(
            f"{source.folder}: has {len(source.head_names)} tensors of native heads already; to replace them, "
            "strip it first: foretell convert strip"
        )
    ours, theirs = source.text_config, donor.text_config
    wrong = [f"{key} {theirs.get(key)!r} (here {ours.get(key)!r})" for key in _SAME if ours.get(key) != theirs.get(key)]
    if wrong:
        raise CheckpointError(f"{donor.folder}: its heads do not fit {source.folder}: {', '.join(wrong)}")
    quantised = [json_method(model) for model in (donor, source)]
    if quantised[0] != quantised[1]:
        raise CheckpointError(
            f"{donor.folder}: quantised as {quantised[0]}, {source.folder} as {quantised[1]}; heads and trunk would be "
            "read with one setting: give an original that is stored as the trunk is"
        )


def json_method(model: StoredModel) -> str:
    """How a checkpoint is quantised by its config, "not at all" where it says nothing."""
    values = model.config.get("quantization_config") or model.text_config.get("quantization_config")
    return str(values.get("quant_method", "unknown")) if isinstance(values, dict) else "not at all"


def _copies(source: StoredModel, donor: StoredModel) -> dict[str, str]:
    """Heads' tensors that repeat the donor's embedding or output head -> the tensor of ``source`` to repeat."""
    found = {}
    for name in donor.head_names:
        for endings in (_EMBEDDINGS, (*_OUTPUTS, "shared_head.head.weight")):
            if not name.endswith(endings):
                continue
            ends = (
                _EMBEDDINGS if endings is _EMBEDDINGS else (*_OUTPUTS, *_EMBEDDINGS)
            )  # a tied output is the embedding
            twins = [twin for end in ends for twin in donor.headers if twin.endswith(end)]
            twin = next((twin for twin in twins if twin not in donor.head_names and twin in source.headers), None)
            if twin and _equal(donor, name, twin):
                found[name] = twin
    return found


def _equal(model: StoredModel, first: str, second: str) -> bool:
    if model.headers[first] != model.headers[second]:
        return False
    one, other = (next(model.read([name]))[1] for name in (first, second))
    return torch.equal(one, other)
