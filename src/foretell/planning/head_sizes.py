"""Heads of any kind as a plan sees them: from their settings, and from what one module weighs."""

from __future__ import annotations

from dataclasses import replace

from foretell.checkpoints.families import family_named
from foretell.checkpoints.head_modules import HeadLayout
from foretell.checkpoints.stored import StoredModel
from foretell.config import HeadsConfig
from foretell.errors import UnsupportedModel
from foretell.inspection.costs import Cost
from foretell.inspection.inspection import Inspection
from foretell.planning.layer_caches import LayerCache
from foretell.planning.model import HeadModel, Linear, PlanModel, linears_of
from foretell.planning.stack import Stack


def heads_of(
    model: PlanModel, config: HeadsConfig, module: Cost, linears: tuple[Linear, ...], origin: str
) -> HeadModel:
    """Heads for the trunk of ``model``. ``module``: cost of the first one; ``linears``: its matrices, without an output
    matrix. What attends keeps what one layer of heads keeps.
    """
    rows = config.draft_vocab_size or model.vocab_size
    output = rows * model.hidden_size
    stack = Stack.of_module(module, 0 if config.own_output else output, model.stack.experts)
    if config.own_output:  # then it is among the module's parameters, and still only what is projected meets it
        stack = replace(stack, dense=stack.dense - output, output=output)
    attends = config.kind == "sequential" or (config.kind == "parallel" and config.block == "layer")
    return HeadModel(
        stack=stack,
        parameters=module.parameters,
        cache=model.heads.cache if attends else LayerCache("no attention", 0),
        distinct=not config.unrolled,
        max_depth=config.max_depth,
        origin=origin,
        linears=linears,
        draft_vocab=config.draft_vocab_size or None,
        config=config,
    )


def with_native(model: PlanModel, found: Inspection, stored: StoredModel) -> PlanModel:
    """``model`` with the heads of its own folder, which ``model.heads`` are like where they are sequential ones.

    Raises UnsupportedModel where their layout is not known.
    """
    if found.costs is None or not found.costs.depths or not found.heads:
        raise UnsupportedModel(f"{found.path}: its heads have no layout that can be planned; plan the trunk alone")
    first, count = found.costs.depths[0], len(found.costs.depths)
    origin = f"{count} native module{'s' * (count > 1)}"
    if found.heads["kind"] == "sequential":
        stack = Stack.of_module(first, model.stack.output, model.stack.experts)
        most = count if count > 1 else None
        heads = replace(model.heads, stack=stack, parameters=first.parameters, distinct=count > 1, max_depth=most)
        return model.with_heads(replace(heads, origin=origin))
    config = HeadsConfig.from_dict({name: value for name, value in found.heads.items() if name != "centred_norms"})
    linears = _linears(found, stored)
    if config.kind == "medusa":
        config = replace(config, num_res_blocks=sum(one.count for one in linears))
    return model.with_heads(heads_of(model, config, first, linears, origin))


def _linears(found: Inspection, stored: StoredModel) -> tuple[Linear, ...]:
    """The first module's matrices, without an output matrix of its own."""
    layout = HeadLayout.of(family_named(found.family), found.mtp_tensors, found.num_layers or 0)
    own = [name for name in layout.modules[0].names if name not in layout.own_outputs]
    return linears_of({name: stored.headers[name].shape for name in own})
