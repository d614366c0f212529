"""Files of the repository that commands use by default: held-out prompts and the demo's adapter."""

from __future__ import annotations

from pathlib import Path

from foretell.errors import UsageError

HELD_OUT = ("prompts/chat.jsonl", "prompts/code.jsonl", "prompts/structured.jsonl")
DEMO_ADAPTER = "adapters/smollm2-135m-instruct"
DEMO_HEADS = (DEMO_ADAPTER, *(f"{DEMO_ADAPTER}-{kind}" for kind in ("distinct", "parallel", "medusa")))
"""Adapters of every kind for the demo's trunk, trained on the same data for as many steps."""
DEMO_DRAFT_MODEL = "adapters/smollm2-draft"
"""A small model of its vocabulary, trained likewise."""


def find(name: str) -> Path | None:
    """``name`` below the current folder or below the repository this package runs from; None where neither has it."""
    for root in (Path(), Path(__file__).resolve().parents[3]):
        if (root / name).exists():
            return root / name
    return None


def prompt_files(given: list[Path] | None) -> list[Path]:
    """The files asked for, or the held-out prompts."""
    if given:
        return given
    found = [path for path in map(find, HELD_OUT) if path is not None]
    if not found:
        raise UsageError("--prompts: give JSONL files; the project's own prompts/ folder is not here")
    return found
