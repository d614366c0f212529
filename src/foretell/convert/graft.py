"""Graft: put an original's native heads back on a trunk that was fine-tuned, and saved without them."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import torch

from foretell.checkpoints.files import refuse_not_finite
from foretell.checkpoints.head_modules import lacking_parts, stored_modules
from foretell.checkpoints.quantisation import Quantisation, is_exempt, matrices_in, quantisation_of, quantised_matrices
from foretell.checkpoints.stored import FLOATS, StoredModel
from foretell.convert.claims import is_remote, with_heads_of, with_plain_heads
from foretell.convert.folder import check_target, model_folder, write_converted
from foretell.convert.reload import check_loads
from foretell.convert.report import Conversion
from foretell.convert.shards import Plan, Progress
from foretell.convert.targets import remote_class, remote_code
from foretell.errors import CheckpointError

_SIZES = [
    "model_type",
    "hidden_size",
    "vocab_size",
    "num_hidden_layers",
    "num_layers",
    "num_attention_heads",
    "intermediate_size",
    "num_key_value_heads",
    "head_dim",
    "q_lora_rank",
    "kv_lora_rank",
    "v_head_dim",
    "moe_intermediate_size",
    "n_routed_experts",
    "num_experts",
    "num_local_experts",
]
"""Settings that heads depend on; one that a config leaves to its class is not compared."""
_ALIKE = (("mimo", "qwen2"),)
"""Model types of an original and a tuned model that are one: transformers has no class for MiMo-7B but Qwen2's."""
_EMBEDDINGS = ("embed_tokens.weight", "word_embeddings.weight", "embedding.weight")
_OUTPUTS = ("lm_head.weight", "output.weight")
HEADS, COPY = "heads of the original", "copy of the tuned trunk's own, as the original had one of its"


def graft(
    model: str | PathLike[str],
    original: str | PathLike[str],
    target: str | PathLike[str],
    *,
    reload: bool = True,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> Conversion:
    """Write ``model`` with the native heads of ``original`` to ``target``; every other bit is the model's.

    Where the original's heads repeat its embedding or output head, the result repeats the model's. ``reload``: load the
    result with its heads, where memory allows. Raises CheckpointError where the two do not fit together, and where
    ``model`` has heads already.
    """
    source, donor = StoredModel.open(model_folder(model)), StoredModel.open(model_folder(original))
    folder = check_target(target, [source.folder, donor.folder], overwrite)
    _check_fit(source, donor)
    copies = _copies(source, donor)
    report = Conversion("graft", str(source.folder), str(folder))
    report.added = {name: COPY if name in copies else HEADS for name in donor.head_names}
    report.notes.append(
        "the heads were trained for the original trunk: text stays exact, acceptance may drop; foretell probe shows "
        "it, a recipe such as recipes/realign.toml, with this model as its trunk, mends it"
    )

    def added() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in donor.read([name for name in donor.head_names if name not in copies]):
            refuse_not_finite(str(donor.folder), {name: tensor}, "Nothing was written.")
            yield name, tensor
        for name, own in copies.items():
            yield name, next(source.read([own]))[1]

    size = sum(donor.headers[name].num_bytes for name in donor.head_names)
    plan, config, texts = Plan(added=added()), with_heads_of(source.config, donor.config), {}
    if is_remote(donor.config):
        config |= remote_class(source)
        texts = remote_code(source, donor.num_modules)
    config = with_plain_heads(config, _plain_matrices(donor))

    def check(fresh: Path) -> None:
        report.checks.append(check_loads(source, fresh, with_heads=True) if reload else "not loaded, as asked")

    write_converted(
        source,
        folder,
        plan,
        config,
        report,
        added_bytes=size,
        texts=texts,
        check=check,
        overwrite=overwrite,
        on_progress=on_progress,
    )
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
    sizes = {key: (donor.text_config.get(key), source.text_config.get(key)) for key in _SIZES}
    wrong = [
        f"{key} {theirs!r} (here {ours!r})"
        for key, (theirs, ours) in sizes.items()
        if theirs != ours and None not in (theirs, ours) and (theirs, ours) not in _ALIKE
    ]
    biases = [bool(each.text_config.get("attention_bias")) for each in (donor, source)]
    if biases[0] != biases[1]:
        wrong.append("attention_bias {} (here {})".format(*biases))
    if wrong:
        raise CheckpointError(f"{donor.folder}: its heads do not fit {source.folder}: {', '.join(wrong)}")
    theirs_said, said = (quantisation_of(model.config) for model in (donor, source))
    if _setting(theirs_said) != _setting(said):
        raise CheckpointError(
            f"{donor.folder}: quantised as {_setting(theirs_said)}, {source.folder} as {_setting(said)}; heads and "
            "trunk would be read with one setting: give an original that is stored as the trunk is"
        )
    _check_whole(donor)


def _setting(said: Quantisation | None) -> str:
    """Method and bits in words."""
    return "not at all" if said is None else f"{said.method} {said.bits or ''}".rstrip()


def _check_whole(donor: StoredModel) -> None:
    """Raise CheckpointError where a part of a module is not there, or a module that the config announces."""
    if donor.family is None:
        return
    modules, _ = stored_modules(donor.family, donor.head_names, donor.num_layers)
    lacking = [f"{part} of module {number}" for number, parts in lacking_parts(donor.family, modules) for part in parts]
    if donor.claim.num_layers > donor.num_modules:
        lacking.append(f"{donor.claim.num_layers} modules announced, {donor.num_modules} found")
    if lacking:
        raise CheckpointError(f"{donor.folder}: its heads are not whole: {', '.join(lacking)}; give a whole original")


def _plain_matrices(donor: StoredModel) -> list[str]:
    """Modules of the heads that are stored as plain numbers beside a quantised trunk.

    Where some are not, those that the donor's config names: engines know of routers and the like by themselves.
    """
    said = quantisation_of(donor.config)
    heads = {name: donor.headers[name] for name in donor.head_names}
    small = {module for module, is_small in quantised_matrices(heads).items() if is_small}
    modules = matrices_in({name: header.shape for name, header in heads.items() if header.dtype in FLOATS})
    if said is None or not small:
        return modules
    return [name for name in modules if name not in small and is_exempt(name, said.exempt, said.method)]


def _copies(source: StoredModel, donor: StoredModel) -> dict[str, str]:
    """Heads' tensors that repeat the donor's embedding or output head -> the tensor of ``source`` to repeat."""
    found = {}
    for name in donor.head_names:
        for endings in (_EMBEDDINGS, (*_OUTPUTS, "shared_head.head.weight")):
            if not name.endswith(endings):
                continue
            # A tied output head is the embedding.
            ends = _EMBEDDINGS if endings is _EMBEDDINGS else (*_OUTPUTS, *_EMBEDDINGS)
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
