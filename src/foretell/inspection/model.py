"""Facts about a model folder: a trunk with or without native heads, or native heads alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.checkpoints.adapter_config import CONFIG_FILE, TENSOR_FILE, is_adapter
from foretell.checkpoints.families import LAYERS, Family, detect_family, family_of_architecture
from foretell.checkpoints.files import TensorHeader
from foretell.checkpoints.head_modules import COPIES, HeadLayout
from foretell.checkpoints.native import native_tensors
from foretell.checkpoints.quantisation import (
    Quantisation,
    quantisation_of,
    quantisation_problems,
    quantised_matrices,
    stored_as,
)
from foretell.checkpoints.stored import StoredModel
from foretell.config import HeadsConfig
from foretell.inspection.costs import (
    Costs,
    embedding_of,
    experts_of,
    has_output_matrix,
    module_costs,
    output_matrix,
    parameter_counts,
    trunk_cost,
)
from foretell.inspection.disagreements import head_problems, trunk_problems
from foretell.inspection.drafters import drafter_of
from foretell.inspection.engine_facts import Facts
from foretell.inspection.engines import engine_lines
from foretell.inspection.inspection import Inspection
from foretell.inspection.open_folder import open_folder
from foretell.inspection.tallies import stored_numbers

_FIRST_HEAD = re.compile(r"(?:model\.|language_model\.)*layers\.(\d{1,9})\.(?:eh_proj|enorm|hnorm)\.")
_ANY_LAYER = re.compile(r"(?:.*\.)?(?:layers|h|blocks)\.\d+\.")


def inspect_folder(folder: Path) -> Inspection:
    """Inspect a folder of safetensors files. Raises CheckpointError where it is damaged, or no model."""
    return inspect_stored(open_folder(folder))


def inspect_stored(stored: StoredModel) -> Inspection:
    """Facts about a folder whose config and headers are read."""
    config = _settings(stored)
    num_layers = _num_layers(stored)
    names, family = _heads(stored, num_layers)
    layout = HeadLayout.of(family, names, num_layers)
    of_heads = set(names)
    trunk = {name: header for name, header in stored.headers.items() if name not in of_heads}
    has_trunk = embedding_of(trunk) is not None or any(_ANY_LAYER.match(name) for name in trunk)
    drafter = None if names else drafter_of(trunk)
    said = quantisation_of(stored.config)
    counts = parameter_counts(stored.headers, said.bits if said else None)
    tied, has_output = config.get("tie_word_embeddings"), has_output_matrix(trunk)
    claim = stored.claim
    lost_family = family_of_architecture(config) if claim.num_layers and not names else None
    shown_family = family or lost_family
    facts = Facts(
        config=config,
        num_layers=num_layers,
        num_modules=len(layout.modules) or int(bool(names)),
        claim=claim,
        has_trunk=has_trunk,
        has_experts=any("experts." in name for name in names),
    )
    problems = _setting_problems(stored.config)
    problems += head_problems(
        claim, family, layout.modules, names, layout.strange, trunk, num_layers, is_alone=not has_trunk
    )
    if has_trunk and drafter is None:
        problems += trunk_problems(config, trunk, num_layers)
        if tied is False and not has_output:
            problems.append("config says the output head is not tied to the embedding, but none is in the files")
        if tied and has_output and embedding_of(trunk):
            problems.append(
                "config ties the output head to the embedding, but one is in the files too: engines leave it out"
            )
    quantisation, more = _quantisation(said, stored.headers, trunk, names, layout)
    problems += more
    stray = stored.folder / TENSOR_FILE
    if stray.is_file() and stray not in stored.files and not is_adapter(stored.folder):
        problems.append(f"{TENSOR_FILE} lies beside the weights, in no index and without {CONFIG_FILE}: not read")
    return Inspection(
        kind="trunk" if has_trunk and drafter is None else "heads",
        path=str(stored.folder),
        num_tensors=len(stored.headers),
        num_parameters=sum(counts.values()),
        num_bytes=sum(file.stat().st_size for file in stored.files),
        dtypes=stored_numbers(stored.headers),
        num_files=len(stored.files),
        architecture=", ".join(facts.architectures) or facts.model_type,
        family=shown_family.name if shown_family else "",
        blocked=family.why_blocked(names) if family else "",
        models=drafter.name if drafter else shown_family.models if shown_family else "",
        num_layers=num_layers or None,
        hidden_size=_size(config, "hidden_size", "n_embd", "d_model"),
        vocab_size=_size(config, "vocab_size"),
        tied=None if not has_trunk else (not has_output) if tied is None else bool(tied),
        claimed_heads=claim.num_layers,
        num_modules=len(layout.modules),
        mtp_tensors=names,
        heads=_conventions(family, len(layout.modules)) if layout.modules else None,
        costs=_costs(config, counts, {} if drafter else trunk, layout),
        quantisation=quantisation,
        engines=drafter.engines if drafter else engine_lines(shown_family, facts),
        problems=problems,
    )


def _settings(stored: StoredModel) -> dict[str, Any]:
    """Settings of the language model; the top-level ones hold where it has none, and name the architecture."""
    nested = stored.config.get("transformer_layer_config")
    found = (nested if isinstance(nested, dict) else {}) | stored.text_config
    top = {key: stored.config[key] for key in ("architectures", "auto_map") if key in stored.config}
    return {**found, **top}


def _num_layers(stored: StoredModel) -> int:
    """The trunk's layers; for heads alone, what their names say, or 0. Raises CheckpointError."""
    config = _settings(stored)
    if all(config.get(key) is None for key in ("num_hidden_layers", "num_layers", "n_layer")):
        behind = [int(found[1]) for name in stored.headers if (found := _FIRST_HEAD.match(name))]
        if behind or embedding_of(stored.headers) is None:
            return min(behind, default=0)
    return replace(stored, config=config).num_layers


def _heads(stored: StoredModel, num_layers: int) -> tuple[list[str], Family | None]:
    names = native_tensors(stored.headers, num_layers or None)
    family = detect_family(_listed(stored.config), names, num_layers)
    if not names and embedding_of(stored.headers) is None:  # Medusa's names begin with a number
        family = detect_family({}, stored.headers, num_layers)
        if family is not None and family.name == "medusa":
            return sorted(stored.headers), family
        return [], None
    return names, family


def _listed(config: Mapping[str, Any]) -> dict[str, Any]:
    """``config`` with architectures that are a list, or none."""
    named = config.get("architectures")
    return {**config, "architectures": named if isinstance(named, list) else []}


def _conventions(family: Family | None, num_modules: int) -> dict[str, Any]:
    """How the heads compute, by their family; a single module serves every depth."""
    assert family is not None
    given = dict(family.conventions)
    if given.get("kind", "sequential") == "sequential":
        given["unrolled"] = num_modules == 1
    found = HeadsConfig(num_modules=num_modules, num_depths=num_modules, **given)
    return found.conventions() | {"centred_norms": family.centred}


def _costs(
    config: Mapping[str, Any], counts: Mapping[str, int], trunk: Mapping[str, TensorHeader], layout: HeadLayout
) -> Costs:
    experts = experts_of(config)
    own = {name: counts[name] for name in trunk}
    whole, side = trunk_cost(own, experts) if embedding_of(trunk) else (None, 0)
    hidden, vocabulary = _size(config, "hidden_size"), _size(config, "vocab_size")
    own_outputs = layout.own_outputs
    depths = module_costs(
        [{name: counts[name] for name in module.names} for module in layout.modules],
        experts,
        output_matrix(own) or (hidden or 0) * (vocabulary or 0),
        whole,
        copies=set(layout.parts(*COPIES)) - set(own_outputs),
        own_outputs=own_outputs,
    )
    return Costs(whole, depths, side)


def _quantisation(
    said: Quantisation | None,
    headers: Mapping[str, TensorHeader],
    trunk: Mapping[str, TensorHeader],
    names: list[str],
    layout: HeadLayout,
) -> tuple[Quantisation | None, list[str]]:
    own = quantised_matrices(trunk)
    heads = quantised_matrices({name: headers[name] for name in names})
    in_layers = {name.rsplit(".", 1)[0] for name in layout.parts(*LAYERS)}
    layers = {matrix: _within_layer(matrix) for matrix in heads if matrix in in_layers}
    problems = quantisation_problems(said, own, heads, layers)
    return (replace(said, heads=stored_as(own, heads, layers)) if said else None), problems


def _within_layer(matrix: str) -> str:
    """``self_attn.q_proj`` of ``mtp.layers.0.self_attn.q_proj``: what follows the last number of a layer."""
    return re.sub(r"^.*?(?:layers|mtp_layers|mtp_block|extra_heads)\.\d+\.", "", matrix)


def _setting_problems(config: Mapping[str, Any]) -> list[str]:
    """Settings of a kind that no reader expects."""
    kinds = {"architectures": list, "quantization_config": dict, "text_config": dict, "layer_types": list}
    return [
        f"config's {key} is {config[key]!r:.60}; expected {'a list' if kind is list else 'an object'}"
        for key, kind in kinds.items()
        if config.get(key) is not None and not isinstance(config[key], kind)
    ]


def _size(config: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
