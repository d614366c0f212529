"""Eight-byte prediction: recipes/bytes-8.toml, and the same model without heads.

python experiments/bytes8.py
"""

from __future__ import annotations

from common import served, show, trained, variant, write
from source_code import function_heads

import foretell


def main() -> None:
    """Train both, decode held-out functions."""
    rows = []
    for name, changes in (("ntp", {"heads": None}), ("8 bytes", {})):
        report = trained(variant("../recipes/bytes-8.toml", f"bytes8-{name[0]}", train={"max_steps": 300}, **changes))
        model = foretell.load(report["output"])
        decoded = served(model, function_heads(), 0 if model.heads is None else 7)
        rows.append(
            {
                "kind": name,
                "bits_per_byte": report["held_out"]["bits_per_byte"],
                "train_s": round(report["train_s"]),
                "served": decoded["acceptance_by_depth"],
                "bytes_per_pass": decoded["mean_acceptance_length"] or 1.0,
                "differ": decoded["num_texts_unlike_depth_0"],
            }
        )
    write("bytes8", rows)
    show(rows)


if __name__ == "__main__":
    main()
