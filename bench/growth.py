"""How a step grows with context, batch, nodes (one more than the depth) and vocabulary, and how fast prompts are read.

    python bench/growth.py --dtype int8 --json docs/benchmarks/growth/int8.json --plot docs/images/growth-int8.svg

Medians over the steps of one run. Each series gets the line a + b x that fits it best, and an exponent: the slope of
the last two points in logarithms. Up to 1 is no worse than linear; the script ends with exit code 1 where it is more
than 1.1. Prompts are read by transformers' model too, in turns.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import foretell
from foretell.analysis.environment import environment
from foretell.config import HeadsConfig, SamplingParams
from foretell.convert.folder import model_folder
from foretell.decoding.engine import Engine
from foretell.models.build import build_heads
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk

CONTEXTS = (500, 1000, 2000, 4000, 8000)
BATCHES = (1, 2, 4, 8, 16)
NODES = (1, 2, 3, 4, 5, 7, 9)
VOCABULARIES = (8_000, 16_000, 32_000, 64_000, 128_000)
PREFILLS = (500, 2000)
MOST = 1.1
"""Exponent above which growth is called worse than linear: timing is not exact."""


def main() -> None:
    """Measure every series, print them, write JSON and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--heads", default="adapters/smollm2-135m-instruct")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "int8", "int4"])
    parser.add_argument("--steps", type=int, default=12, help="steps of each point (the first two are left out)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help="draw them into this SVG file")
    options = parser.parse_args()
    model = foretell.load(options.model, heads=options.heads, dtype=options.dtype)
    text = text_tokens(model)
    series = {
        "context": grow(CONTEXTS, lambda n, depth: step_ms(model, [text[:n]], depth, options.steps)),
        "batch": grow(BATCHES, lambda n, depth: step_ms(model, rows(text, n), depth, options.steps)),
        "nodes": grow(NODES, lambda n, _: step_ms(model, [text[:100]], n - 1, options.steps), depths=(0,)),
        "vocabulary": grow(
            VOCABULARIES, lambda n, depth: step_ms(tiny(n, options.dtype), [[5] * 50], depth, options.steps)
        ),
    }
    report = {
        "environment": environment(options.dtype, " ".join(["python", "bench/growth.py", *sys.argv[1:]])),
        "series": series,
        "prefill": [prefill(model, options.model, text[:n]) for n in PREFILLS],
    }
    for point in report["prefill"]:
        print(
            f"prefill {point['tokens']}: {point['foretell_tok_s']:.0f} tokens/s, transformers "
            f"{point['transformers_tok_s']:.0f}, ratio {point['ratio']:.2f}"
        )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.plot:
        plot(series, options.plot)
    worst = max(line["exponent"] for lines in series.values() for line in lines.values())
    sys.exit(worst > MOST)


def grow(
    sizes: Sequence[int], measure: Callable[[int, int], float], depths: Sequence[int] = (0, 3)
) -> dict[str, dict[str, Any]]:
    """A line for each depth: milliseconds by size, the fit, the exponent."""
    lines = {}
    for depth in depths:
        ms = [measure(size, depth) for size in sizes]
        slope, start = statistics.linear_regression(sizes, ms)
        exponent = math.log(ms[-1] / ms[-2]) / math.log(sizes[-1] / sizes[-2])
        lines[f"depth {depth}"] = {"sizes": list(sizes), "ms": ms, "start": start, "slope": slope, "exponent": exponent}
        print(
            f"{' '.join(f'{size}: {m:.1f}' for size, m in zip(sizes, ms, strict=True))} ms at depth {depth}; "
            f"{start:.1f} + {slope:.2g} x, exponent {exponent:.2f}",
            flush=True,
        )
    return lines


def step_ms(model: MTPModel, prompts: list[list[int]], depth: int, num_steps: int) -> float:
    """Median of a decoding step's milliseconds, with a draft of ``depth`` tokens in each."""
    seconds: list[float] = []
    engine = Engine(model, max_batch=len(prompts), reuse_prefixes=False)

    def watch(works: Sequence[Any], times: Any) -> None:
        if all(work.row.num_pending == 1 and len(work.row.token_ids) > 1 for work in works) and len(works) == len(
            prompts
        ):
            seconds.append(times.total_s)

    engine.watch(watch)
    params = SamplingParams(max_tokens=num_steps * (depth + 1), ignore_eos=True)
    engine.generate(prompts, params, depth=depth)
    return 1e3 * statistics.median(seconds[1:num_steps])


def text_tokens(model: MTPModel) -> list[int]:
    """Real text, longer than the longest context: sources of the standard library."""
    text = inspect.getsource(argparse) + inspect.getsource(statistics) + inspect.getsource(inspect)
    return model.tokenizer.encode(text)


def rows(text: list[int], count: int) -> list[list[int]]:
    """Different stretches of the text, a hundred tokens each."""
    return [text[100 * i : 100 * i + 100] for i in range(count)]


def tiny(vocab_size: int, dtype: str) -> MTPModel:
    """A random Llama of four layers with heads over its whole vocabulary."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=vocab_size,
        tie_word_embeddings=True,
    )
    trunk = Trunk(LlamaForCausalLM(config).to(torch.bfloat16 if dtype == "bfloat16" else torch.float32))
    trunk.precision = dtype if dtype in ("int8", "int4") else None  # type: ignore[assignment]
    model = MTPModel(
        trunk, build_heads(trunk, HeadsConfig(unrolled=True, num_modules=1, num_depths=3)).requires_grad_(False)
    )
    model.pack()
    return model


def prefill(model: MTPModel, name: str, token_ids: list[int], repeats: int = 5) -> dict[str, float]:
    """Tokens a second of a prompt, here and in transformers' own model of the same type, in turns."""
    theirs = AutoModelForCausalLM.from_pretrained(model_folder(name), dtype=model.trunk.dtype).eval()
    seconds: dict[str, list[float]] = {"foretell": [], "transformers": []}
    ids = torch.tensor([token_ids])
    for _ in range(repeats):
        start = time.perf_counter()
        Engine(model).generate([token_ids], SamplingParams(max_tokens=1))
        seconds["foretell"].append(time.perf_counter() - start)
        start = time.perf_counter()
        with torch.inference_mode():
            theirs(input_ids=ids, use_cache=True, logits_to_keep=1)
        seconds["transformers"].append(time.perf_counter() - start)
    ratios = [b / a for a, b in zip(seconds["foretell"], seconds["transformers"], strict=True)]
    speeds = {f"{name}_tok_s": len(token_ids) / statistics.median(each) for name, each in seconds.items()}
    return {"tokens": len(token_ids), **speeds, "ratio": statistics.median(ratios)}


def plot(series: dict[str, dict[str, Any]], path: Path) -> None:
    """Four small figures, each with the fitted lines."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "foretell"
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(series), figsize=(3 * len(series), 2.8))
    for axes, (name, lines) in zip(panels, series.items(), strict=True):
        for (label, line), mark in zip(lines.items(), ("o", "s"), strict=False):
            axes.plot(line["sizes"], line["ms"], mark, label=label)
            axes.plot(line["sizes"], [line["start"] + line["slope"] * x for x in line["sizes"]], "-", color="0.6")
        axes.set(xlabel=name, ylabel="ms a step")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        if len(lines) > 1:
            axes.legend(frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
