"""Peak memory of one training step with 1, 2, 4, 8 heads: Foretell's loss, and the naive one that keeps all logits.

    python experiments/heads_memory.py --json docs/benchmarks/heads-memory.json --plot docs/images/heads-memory.svg

Each point is a process of its own: its peak resident memory (VmHWM) minus what it held before the step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

NUM_ROWS, ROW_LENGTH, VOCAB_SIZE, HIDDEN_SIZE = 4, 512, 32_000, 256
WAYS = ("foretell", "naive")


def main() -> None:
    """Measure every point, print the table, write JSON and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plot", type=Path, help="draw them into this SVG file")
    parser.add_argument("--num-heads", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--one", nargs=2, metavar=("WAY", "NUM_HEADS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return
    runs = [point(way, n) for n in options.num_heads for way in WAYS]
    print(f"{NUM_ROWS} rows of {ROW_LENGTH} tokens, vocabulary {VOCAB_SIZE:,}, width {HIDDEN_SIZE}; MiB of one step")
    print("heads  " + "  ".join(f"{way:>9}" for way in WAYS))
    for n in options.num_heads:
        peaks = {run["way"]: run["peak_bytes"] for run in runs if run["num_heads"] == n}
        print(f"{n:5}  " + "  ".join(f"{peaks[way] / 2**20:9.0f}" for way in WAYS))
    if options.json:
        setting = {"rows": NUM_ROWS, "row_length": ROW_LENGTH, "vocab_size": VOCAB_SIZE, "hidden_size": HIDDEN_SIZE}
        options.json.write_text(json.dumps({"setting": setting, "runs": runs}, indent=2) + "\n")
    if options.plot:
        plot(runs, options.plot)


def point(way: str, num_heads: int) -> dict[str, Any]:
    """One measurement in a fresh process."""
    command = [sys.executable, __file__, "--one", way, str(num_heads)]
    # Large blocks go back to the system when they are freed, so that the peak is that of live memory.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(256 * 1024)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def measure(way: str, num_heads: int) -> dict[str, Any]:
    """Peak memory of one forward and backward pass of trunk and heads trained together."""
    import torch
    import torch.nn.functional as F
    from transformers import LlamaConfig, LlamaForCausalLM

    from foretell.config import HeadsConfig
    from foretell.models.build import build_heads
    from foretell.models.trunk import Trunk
    from foretell.training.recipe import ObjectiveConfig
    from foretell.training.training_model import TrainingModel

    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN_SIZE,
        intermediate_size=2 * HIDDEN_SIZE,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=ROW_LENGTH,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    trunk = Trunk(LlamaForCausalLM(config)).train()
    heads = build_heads(trunk, HeadsConfig(kind="parallel", num_depths=num_heads, block="linear")).train()
    token_ids = torch.randint(0, VOCAB_SIZE, (NUM_ROWS, ROW_LENGTH))
    doc_ids, supervised = torch.zeros_like(token_ids), torch.ones_like(token_ids, dtype=torch.bool)
    model = TrainingModel(trunk, heads, ObjectiveConfig(), train_trunk=True)
    model(token_ids[:1, :16], doc_ids[:1, :16], supervised[:1, :16])["loss"].backward()  # buffers of the libraries
    before = _peak_bytes()
    if way == "foretell":
        loss = model(token_ids, doc_ids, supervised)["loss"]
    else:
        states = trunk.text_states(token_ids, doc_ids)
        depths = [states.post_BTD, *heads.training_states(states, trunk.embed(token_ids), doc_ids)]
        logits = [trunk.project(state_BTD) for state_BTD in depths]
        loss = sum(
            F.cross_entropy(logits_BTV[:, : -k - 1].flatten(0, 1), token_ids[:, k + 1 :].flatten())
            for k, logits_BTV in enumerate(logits)
        )
    loss.backward()
    return {"way": way, "num_heads": num_heads, "peak_bytes": _peak_bytes() - before, "loss": float(loss.detach())}


def _peak_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def plot(runs: list[dict[str, Any]], path: Path) -> None:
    """Memory against the number of heads."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "foretell"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.5, 3.4))
    for way, style in zip(WAYS, ("o-", "s--"), strict=True):
        points = sorted((run["num_heads"], run["peak_bytes"] / 2**30) for run in runs if run["way"] == way)
        axes.plot(*zip(*points, strict=True), style, label=way)
    axes.set(xlabel="heads", ylabel="peak of one step (GiB)", xticks=sorted({run["num_heads"] for run in runs}))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
