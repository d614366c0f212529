"""The weight of the heads' loss, too low and too high: sequential heads trained with their trunk.

python experiments/lambdas.py
"""

from __future__ import annotations

from common import served, show, trained, variant, write
from source_code import function_heads

import foretell

LAMBDAS = (0.01, 0.3, 10.0)


def main() -> None:
    """One run a lambda, half as long as those of source_code.py."""
    rows = []
    for value in LAMBDAS:
        recipe = variant(
            "source_code.toml",
            f"lambda-{value}",
            objective={"mtp_lambda": value, "gradient_share_steps": 20},
            train={"max_steps": 300},
        )
        report = trained(recipe)
        decoded = served(foretell.load(report["output"]), function_heads(), 3)
        rows.append(
            {
                "lambda": value,
                "bits_per_byte": report["held_out"]["bits_per_byte"],
                "served": decoded["acceptance_by_depth"],
                "tokens_per_pass": decoded["mean_acceptance_length"],
            }
        )
        write("lambdas", rows)
    show(rows)


if __name__ == "__main__":
    main()
