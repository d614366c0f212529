"""The scripts in prompts/: openings to go on from, prompts out of what came, nothing held out among them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.docs.conftest import ROOT


def script(*arguments: object) -> str:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_openings_become_prompts(tmp_path: Path) -> None:
    script("prompts/build_openings.py", "openings", "--count", 300, "--out", tmp_path / "openings.jsonl")
    openings = lines(tmp_path / "openings.jsonl")
    assert len(openings) == 300 == len({record["id"] for record in openings})
    held_out = json.loads((ROOT / "prompts" / "chat.jsonl").read_text(encoding="utf-8").splitlines()[0])
    leak = held_out["messages"][0]["content"]
    with (tmp_path / "sampled.jsonl").open("w", encoding="utf-8") as sink:
        for number, record in enumerate(openings):
            text = leak if number % 10 == 0 else f" something about the number {number}"
            reason = "length" if number % 10 == 1 else "stop"
            sink.write(json.dumps({**record, "text": text, "finish_reason": reason}) + "\n")
    made = tmp_path / "prompts.jsonl"
    script("prompts/build_openings.py", "prompts", "--sampled", tmp_path / "sampled.jsonl", "--out", made)
    found = {record["id"]: record for record in lines(made)}
    assert 200 < len(found) < 280
    for number, record in enumerate(openings):
        prompt = found.get(record["id"])
        if "system" in record and number % 10 == 1:
            assert prompt is None  # no whole sentence came
        elif "system" in record and number % 10:
            assert prompt is not None and prompt["messages"][-1]["content"].endswith(f"number {number}")
        if prompt is not None and "system" in record:
            assert leak not in prompt["messages"][-1]["content"]
    assert "no overlaps" in script("prompts/check_disjoint.py", made)


def test_no_held_out_prompt_is_among_those_for_training() -> None:
    assert "no overlaps" in script("prompts/check_disjoint.py")


def test_the_check_can_fail(tmp_path: Path) -> None:
    copy = tmp_path / "leak.jsonl"
    copy.write_text((ROOT / "prompts" / "code.jsonl").read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "prompts/check_disjoint.py", str(copy)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 1 and "code-001 overlaps with code-001" in ran.stdout
