"""What an int8 head costs in acceptance: the shipped head in bfloat16 and in int8, weights alone, on held-out prompts.

    python experiments/int8_head.py [--num-prompts 8] [--max-tokens 64]

The trunk stays bfloat16, so the text is the same; torchao (foretell[quant]) quantises the head's linear layers, a scale
a row.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_

import foretell
from foretell.training.jsonl import numbered_prompts
from foretell.types import AcceptanceStats

ROOT = Path(__file__).parents[1]
DOMAINS = ("chat", "code", "structured")
DEPTH = 3


def main() -> None:
    """Print acceptance by depth of both heads, by domain."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-prompts", type=int, default=8, help="prompts of each domain (8)")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens a prompt (64)")
    args = parser.parse_args()
    params = foretell.SamplingParams(max_tokens=args.max_tokens)
    for kind in ("bfloat16", "int8"):
        model = foretell.load("demo", ROOT / "adapters" / "smollm2-135m-instruct", dtype="bfloat16", pack=False)
        if kind == "int8":
            quantize_(model.heads, Int8WeightOnlyConfig())
        engine = foretell.Engine(model)
        for domain in DOMAINS:
            records = [record for _, record in numbered_prompts(ROOT / "prompts" / f"{domain}.jsonl")]
            prompts = [engine.encode(r.get("messages") or r["prompt"]) for r in records[: args.num_prompts]]
            with torch.inference_mode():
                stats = [done.stats for done in engine.generate(prompts, params, depth=DEPTH)]
            rates = acceptance(stats)
            print(f"{kind:9} {domain:11} " + "  ".join(f"depth {k + 1}: {rate:.3f}" for k, rate in enumerate(rates)))


def acceptance(stats: list[AcceptanceStats]) -> list[float]:
    """Share of the drafted tokens of each depth that were accepted, of those whose depths before it were."""
    rates = []
    for k in range(DEPTH):
        reached, accepted = (
            sum(row[k] for found in stats if len(row := getattr(found, name)) > k)
            for name in ("reached_per_position", "accepted_per_position")
        )
        rates.append(accepted / max(1, reached))
    return rates


if __name__ == "__main__":
    main()
