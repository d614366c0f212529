"""Acceptance against distance, where one block serves every depth: trained for depth 1 alone, or unrolled.

python experiments/source_code.py --seeds 0    # makes the trunk
python experiments/unrolled.py
"""

from __future__ import annotations

from common import served, show, trained, variant, write
from source_code import function_heads

import foretell
from foretell.config import HeadsConfig

DEPTH = 5
KINDS = {
    "one depth": HeadsConfig(unrolled=True, num_depths=1),
    "two depths": HeadsConfig(unrolled=True, num_depths=2),
    "three depths": HeadsConfig(unrolled=True, num_depths=3),
}


def main() -> None:
    """Train each on the frozen trunk, then draft to depth 5 where the heads can."""
    rows = []
    for name, heads in KINDS.items():
        report = trained(variant("unrolled.toml", f"unrolled-{name.replace(' ', '-')}", heads=heads))
        model = foretell.load(variant("unrolled.toml", "x").trunk, report["output"])
        decoded = served(model, function_heads(), min(DEPTH, heads.max_depth or DEPTH))
        rows.append(
            {
                "trained": name,
                "conditional": decoded["conditional_acceptance_by_depth"],
                "tokens_per_pass": decoded["mean_acceptance_length"],
                "train_s": round(report["train_s"]),
                "differ": decoded["num_texts_unlike_depth_0"],
            }
        )
        write("unrolled", rows)
    show(rows)


if __name__ == "__main__":
    main()
