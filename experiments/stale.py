"""Heads after fine-tuning: left behind, left behind and realigned, or tuned together with their trunk.

    python experiments/source_code.py --seeds 0    # makes the model
    python experiments/stale.py

The chats are SmolLM2's answers to prompts it wrote itself (prompts/README.md), as text.
"""

from __future__ import annotations

import gzip
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import RUNS, served, show, trained, variant, write

import foretell
from foretell.checkpoints.load import load_trunk
from foretell.config import HeadsConfig

NUM_CHATS, NUM_PROMPTS = 4000, 60


def main() -> None:
    """Tune, realign, decode prompts that no run was trained on."""
    prompts = write_chats(RUNS / "chats.jsonl")
    before = str(RUNS / "code-sequential-0")
    tuned = trained(variant("stale_sft.toml", "stale-sft"))["output"]
    realigned = trained(variant("stale_realign.toml", "stale-realigned"))["output"]
    fresh = trained(replace(variant("stale_realign.toml", "stale-fresh", heads=HeadsConfig()), init_from=""))["output"]
    together = {}
    for name, detach in (("attached", ()), ("attached, loss detached", ("trunk", "embedding", "output"))):
        recipe = variant(
            "stale_sft.toml", f"stale-together-{len(together)}", heads=HeadsConfig(), objective={"detach": detach}
        )
        together[name] = trained(replace(recipe, init_from=before))["output"]
    pairs = {
        "before": (before, None),
        "stale": (tuned, before),
        "realigned": (tuned, realigned),
        "fresh heads, same steps": (tuned, fresh),
        **{name: (output, None) for name, output in together.items()},
    }
    rows = []
    for name, (trunk, heads) in pairs.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that heads are stale is the point
            model = foretell.load(trunk, heads)
        decoded = served(model, prompts, 3)
        rows.append(
            {
                "heads": name,
                "served": decoded["acceptance_by_depth"],
                "tokens_per_pass": decoded["mean_acceptance_length"],
                "differ": decoded["num_texts_unlike_depth_0"],
            }
        )
        write("stale", rows)
    show(rows)


def write_chats(path: Path) -> list[list[dict[str, str]]]:
    """Chats to tune on, and the prompts of others to decode."""
    chats = list(answered())
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as sink:
        for chat in chats[:NUM_CHATS]:
            sink.write(json.dumps({"messages": chat}) + "\n")
    return [chat[:1] for chat in chats[NUM_CHATS:]][:NUM_PROMPTS]


def answered() -> Iterator[list[dict[str, str]]]:
    """Chats of one question and its answer."""
    tokenizer = load_trunk("demo").tokenizer
    answers = {a["id"]: a["token_ids"] for a in read("prompts/smollm2-answers.jsonl.gz")}
    for prompt in read("prompts/self-prompts.jsonl.gz"):
        if (answer := answers.get(prompt["id"])) and len(prompt.get("messages", ())) == 1:
            text = tokenizer.decode(answer, skip_special_tokens=True)
            yield [*prompt["messages"], {"role": "assistant", "content": text}]


def read(path: str) -> Iterator[dict[str, Any]]:
    """Records of a compressed JSONL file of this repository."""
    with gzip.open(Path(__file__).parents[1] / path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


if __name__ == "__main__":
    main()
