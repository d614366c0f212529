"""What an exact engine costs: the same prompts with and without, at depth 0 and drafted, alone and in a batch.

    python experiments/exact_cost.py --heads adapters/smollm2-135m-instruct --num-prompts 4 --max-tokens 48

Engines decode each group of prompts one after another, in an order that rotates; ratios are of neighbours in time.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch

import foretell
from foretell.analysis.records import turns

SETTINGS = [(0, False), (0, True), (2, False), (2, True)]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", required=True)
    parser.add_argument("--num-prompts", type=int, default=4, help="of each domain")
    parser.add_argument("--max-tokens", type=int, default=48)
    options = parser.parse_args()
    model = foretell.load("demo", heads=options.heads, dtype=torch.bfloat16)
    prompts = [
        _prompt(json.loads(line))
        for domain in ("chat", "code", "structured")
        for line in Path(f"prompts/{domain}.jsonl").read_text().splitlines()[: options.num_prompts]
    ]
    params = foretell.SamplingParams(max_tokens=options.max_tokens)
    print("tokens a second over those of an engine that is not exact, at the same depth: median (lowest-highest)")
    for batch in (1, 4):
        groups = [prompts[i : i + batch] for i in range(0, len(prompts), batch)]
        engines = {exact: foretell.Engine(model, batch, reuse_prefixes=False, exact=exact) for exact in (False, True)}
        rates: dict[tuple[int, bool], list[float]] = {setting: [] for setting in SETTINGS}
        for _, index, (depth, exact) in turns(SETTINGS, len(groups), 1):
            engine = engines[exact]
            before = engine.decode_times.total_s
            done = engine.generate(groups[index], params, depth)
            num_tokens = sum(len(d.token_ids) - 1 for d in done)
            rates[depth, exact].append(num_tokens / (engine.decode_times.total_s - before))
        for depth in (0, 2):
            ratios = [a / b for a, b in zip(rates[depth, True], rates[depth, False], strict=True)]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            print(f"batch {batch}, depth {depth}: {spread}")


def _prompt(record: dict[str, Any]) -> Any:
    return record.get("messages") or record["prompt"]


if __name__ == "__main__":
    main()
