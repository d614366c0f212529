"""HeadsConfig: what follows when settings are left out, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from foretell.config import HeadsConfig
from foretell.errors import CheckpointError


@pytest.mark.parametrize(
    ("given", "unrolled", "num_modules", "max_depth"),
    [
        ({}, True, 1, None),
        ({"num_modules": 1}, True, 1, None),
        ({"unrolled": False}, False, 3, 3),
        ({"num_modules": 3}, False, 3, 3),
        ({"unrolled": False, "num_modules": 2, "num_depths": 2}, False, 2, 2),
        ({"unrolled": False, "num_modules": 1, "num_depths": 1}, False, 1, 1),
        ({"kind": "parallel", "num_depths": 4}, False, 4, 4),
        ({"kind": "parallel", "num_depths": 2, "num_modules": 2, "unrolled": False}, False, 2, 2),
        ({"kind": "medusa"}, False, 3, 3),
    ],
)
def test_what_is_left_out_follows(
    given: dict[str, Any], unrolled: bool, num_modules: int, max_depth: int | None
) -> None:
    config = HeadsConfig(**given)
    assert (config.unrolled, config.num_modules, config.max_depth) == (unrolled, num_modules, max_depth)
    assert config.own_output == (config.kind == "medusa")
    assert HeadsConfig.from_dict(config.to_dict()) == config == replace(config)


def test_late_settings_are_stored_where_they_say_something() -> None:
    """Earlier versions refuse a file with keys that they do not know."""
    late = {"output_per_module": True, "mlp_layer": 0}
    assert not late.keys() & HeadsConfig().to_dict().keys()
    config = HeadsConfig(own_output=True, **late)
    assert late.items() <= config.to_dict().items() and HeadsConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "serial"}, "kind is 'serial'; allowed: sequential, parallel, medusa"),
        ({"num_depths": 0}, "num_depths 0"),
        ({"num_modules": -1}, "num_modules -1"),
        ({"kind": "medusa", "num_res_blocks": 0}, "num_res_blocks 0"),
        ({"num_modules": 2}, "2 distinct modules serve exactly that many depths, got num_depths 3"),
        ({"num_modules": 2, "unrolled": True}, "unrolled needs num_modules 1, got 2"),
        ({"hidden_source": "below"}, "'below'; allowed for kind sequential: post, pre"),
        ({"block": "linear"}, "block is 'linear', but sequential heads have none"),
        ({"num_res_blocks": 2}, "num_res_blocks is 2, but sequential heads have none"),
        ({"kind": "parallel", "unrolled": True}, "one module a depth, so unrolled does not go"),
        ({"kind": "medusa", "num_modules": 2}, "one module a depth, so num_modules 2 does not go with num_depths 3"),
        ({"kind": "parallel", "concat": "hidden_first"}, "concat is 'hidden_first', but parallel heads"),
        ({"kind": "parallel", "feedback": "raw"}, "feedback is 'raw', but parallel heads"),
        ({"kind": "parallel", "num_res_blocks": 2}, "num_res_blocks is 2, but parallel heads"),
        ({"kind": "medusa", "concat": "hidden_first"}, "concat is 'hidden_first', but medusa heads"),
        ({"kind": "medusa", "final_norm": "trunk"}, "final_norm is 'trunk', but medusa heads"),
        ({"kind": "medusa", "block": "linear"}, "block is 'linear', but medusa heads"),
        ({"output_per_module": True}, "output_per_module needs own_output; give both, or neither"),
        (
            {"kind": "parallel", "own_output": True, "output_per_module": True},
            "output_per_module is True, but parallel",
        ),
        ({"kind": "medusa", "mlp_layer": 0}, "mlp_layer is 0, but medusa heads"),
        ({"kind": "parallel", "block": "conv"}, "block is 'conv'; allowed: layer, linear"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        HeadsConfig(**given)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_conventions_are_those_of_the_kind() -> None:
    assert "concat" in HeadsConfig().conventions() and "block" not in HeadsConfig().conventions()
    assert "block" in HeadsConfig(kind="parallel").conventions()
    medusa = HeadsConfig(kind="medusa", num_res_blocks=2).conventions()
    assert medusa["num_res_blocks"] == 2 and not {"concat", "feedback", "final_norm", "block"} & set(medusa)
