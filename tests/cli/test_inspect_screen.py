"""One screen for a person: short, in groups, with what matters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from foretell.cli.inspect_screen import _FLOPS, _scaled, screen
from foretell.inspection.model import inspect_stored
from tests.inspection.manifests import DEEPSEEK_V3, deepseek_v3, stored, write
from tests.inspection.test_engines import SIZES, TRUNK, behind

GROUPS = ["trunk", "heads", "engines", "problems"]


def groups(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines[3:] if not line.startswith(" ")]


def test_deepseek_v3_in_a_few_lines() -> None:
    lines = screen(inspect_stored(stored(DEEPSEEK_V3, deepseek_v3())))
    text = "\n".join(lines)
    assert groups(lines) == GROUPS and len(lines) <= 20
    for words in (
        "671 B parameters, 36.6 B active, 73.3 GFLOPs a token",
        "11.6 B parameters (and 1.85 B of copies)",
        "4.4% of the trunk's",
        "1 module by tensors, 1 by config",
        "quantised by fp8, 8 bits",
        "vLLM          decodes with the heads",
    ):
        assert words in text


def test_many_modules_and_problems_stay_short() -> None:
    config = {"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 2, **SIZES}
    lines = screen(inspect_stored(stored(config, TRUNK | behind(9))))
    assert len(lines) <= 25 and any("and 5 more" in line for line in lines)
    assert any(re.search("problems +.*claims 2 .* hold tensors of 9", line) for line in lines)


def test_the_command_prints_it(run: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "m", SIZES | {"architectures": ["LlamaForCausalLM"]}, TRUNK)
    ran = run("inspect", folder)
    assert (ran.code, groups(ran.out.splitlines())) == (0, GROUPS) and "heads     none" in ran.out


def test_a_model_folder_of_ours(run: Any, folders: Path) -> None:
    """Its adapter's facts stand beside the trunk's."""
    ran = run("inspect", folders / "cycle")
    assert ran.code == 0 and ran.out.count("problems") == 1


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 FLOPs"), (950, "950 FLOPs"), (1234, "1.23 kFLOPs"), (99.96e9, "100 GFLOPs")]
)
def test_numbers_have_three_digits(number: float, shown: str) -> None:
    assert _scaled(number, _FLOPS, "FLOPs") == shown
