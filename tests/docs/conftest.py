from __future__ import annotations

import gzip
import io
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from foretell.checkpoints.adapter import save_adapter
from foretell.models.trunk import Trunk
from tests import fixtures

ROOT = Path(__file__).parents[2]
ADAPTER = "adapters/smollm2-135m-instruct"
NUM_PROMPTS = 4
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in ``trunk``, and heads made for it in ``heads``."""
    root = tmp_path_factory.mktemp("stand-in")
    # Small weights, so that bfloat16 rounds logits by less than what counts as a near tie. Room for prompts in bytes.
    model = fixtures.tiny_llama(initializer_range=0.02, max_position_embeddings=4096)
    trunk = Trunk(model, fixtures.byte_tokenizer(CHAT_TEMPLATE), name="stand-in")
    trunk.model.save_pretrained(root / "trunk")
    trunk.tokenizer.save_pretrained(root / "trunk")
    save_adapter(fixtures.random_heads(trunk), root / "heads")
    return root


@pytest.fixture
def working_copy(stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder for a page's commands: the project's files, made short, and "demo" is the tiny model."""
    (tmp_path / "prompts").mkdir()
    for file in (ROOT / "prompts").glob("*.jsonl"):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / "prompts" / file.name).write_text("".join(lines[:NUM_PROMPTS]), encoding="utf-8")
    for file in (ROOT / "prompts").glob("*.jsonl.gz"):  # token ids of the real model: text stands in for them
        with gzip.open(tmp_path / "prompts" / file.name, "wt", encoding="utf-8") as sink:
            sink.writelines(json.dumps({"text": f"An answer with the number {i}."}) + "\n" for i in range(NUM_PROMPTS))
    (tmp_path / "recipes").mkdir()
    for file in (ROOT / "recipes").glob("*.toml"):
        recipe = short_recipe(tomllib.loads(file.read_text(encoding="utf-8")))
        (tmp_path / "recipes" / file.name).write_text(recipe, encoding="utf-8")
    shutil.copytree(stand_in / "heads", tmp_path / ADAPTER)
    for kind in ("medusa", "parallel"):  # planned for the real model, never loaded
        (tmp_path / f"{ADAPTER}-{kind}").symlink_to(ROOT / f"{ADAPTER}-{kind}")
    shutil.copytree(ROOT / "docs" / "benchmarks", tmp_path / "docs" / "benchmarks")
    monkeypatch.setenv("FORETELL_DEMO_MODEL", str(stand_in / "trunk"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("sys.stdin", io.StringIO())  # nobody types at a chat
    monkeypatch.chdir(tmp_path)
    return tmp_path


def short_recipe(recipe: dict[str, Any]) -> str:
    """The recipe with two steps on little data, as TOML."""
    recipe.setdefault("data", {}).update(max_documents=NUM_PROMPTS, max_text_tokens=2000)
    recipe.setdefault("train", {}).update(max_steps=2, batch_rows=2)
    plain = {name: value for name, value in recipe.items() if not isinstance(value, dict)}
    tables = {name: value for name, value in recipe.items() if isinstance(value, dict)}
    lines = _assignments(plain)
    for name, table in tables.items():
        lines += [f"[{name}]", *_assignments(table)]
    return "\n".join(lines) + "\n"


def _assignments(values: dict[str, Any]) -> list[str]:
    return [f"{name} = {json.dumps(value)}" for name, value in values.items()]  # JSON scalars and lists are TOML
