"""Export heads, let real engines decode with them, and compare: texts token by token, acceptance, logits.

    python interop/check.py [mimo] [hybrid] [--environments .interop] [--json FILE]

Runs in foretell's environment; vLLM and llama.cpp run in theirs, which vllm_env.sh and llamacpp_env.sh make (make
interop does all of it). Prints a line a check, and exits with status 1 where one failed.
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import foretell
from foretell.analysis.near_tie import near_tie_gap, next_logits
from foretell.convert.export import export
from foretell.training.jsonl import numbered_prompts

HERE = Path(__file__).parent
ROOT = HERE.parent
SMOLLM2 = ROOT / "adapters" / "smollm2-135m-instruct"
PROMPTS = [ROOT / "prompts" / f"{domain}.jsonl" for domain in ("chat", "code", "structured")]
NUM_TEXTS = 64
"""Pieces of a source file for the hybrid: in bfloat16 two engines write different texts, and drafts are few in each."""
TEXT = "for i in range(1234):\n\n    It's 5 + 678,\r\n  na\u00efve \u4e16\u754c  "
"""Digits, line ends and other scripts: what tokenizers split otherwise."""
NEAR = 0.02
"""Acceptance may differ by so much: each engine rounds in its own way, and drafts are compared with their own texts."""


class Checks:
    """What was compared, and whether it held."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, holds: bool, figures: str = "") -> None:
        """Note and print one comparison."""
        self.rows.append({"check": what, "holds": holds, "figures": figures})
        print(f"{'ok  ' if holds else 'FAIL'} {what}{': ' if figures else ''}{figures}", flush=True)


def main() -> int:
    """Run the parts that were asked for, by default all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=["mimo", "hybrid"], default=[], help="default: all of them")
    parser.add_argument("--environments", type=Path, default=ROOT / ".interop", help="folder with vllm/ and llamacpp/")
    parser.add_argument("--num-prompts", type=int, default=4, help="of each of three domains (4)")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens a prompt (64)")
    parser.add_argument("--json", type=Path, help="write the checks to this file too")
    args = parser.parse_args()
    checks = Checks()
    models = args.environments / "models"
    for part in args.parts or ["mimo", "hybrid"]:
        {"mimo": mimo, "hybrid": hybrid}[part](checks, models, args)
    if args.json:
        args.json.write_text(json.dumps({"checks": checks.rows}, indent=2) + "\n")
    failed = sum(not row["holds"] for row in checks.rows)
    print(f"{len(checks.rows) - failed} of {len(checks.rows)} checks hold")
    return int(failed > 0)


def mimo(checks: Checks, models: Path, args: argparse.Namespace) -> None:
    """SmolLM2 and its heads in MiMo's layout in vLLM: with the final norm folded, and with heads trained without it."""
    trained = SMOLLM2.with_name(f"{SMOLLM2.name}-mimo")
    for name, adapter, fold in (("folded", SMOLLM2, True), ("trained", trained, False)):
        folder = models / f"smollm2-mimo-{name}"
        export("demo", adapter, folder, "mimo", fold_norm=fold, overwrite=True)
        model = foretell.load(folder, dtype="float32")
        engine = foretell.Engine(model)
        prompts = [
            engine.encode(record.get("messages") or record["prompt"])
            for file in PROMPTS
            for _, record in numbered_prompts(file)[: args.num_prompts]
        ]
        compare_vllm(checks, f"mimo, {name}", folder, engine, prompts, args, "float32", depths=(1, 3))


def hybrid(checks: Checks, models: Path, args: argparse.Namespace) -> None:
    """A tiny Qwen3.5 hybrid in vLLM and in llama.cpp."""
    source, folder = ROOT / "models" / "tiny-hybrid", models / "tiny-hybrid"
    if not source.is_dir():
        subprocess.run([sys.executable, "-m", "foretell", "train", str(HERE / "hybrid.toml")], cwd=ROOT, check=True)
    export(source, source, folder, "qwen3_5", overwrite=True)
    engine = foretell.Engine(foretell.load(folder, dtype="bfloat16"))
    source_text = inspect.getsource(argparse)
    starts = range(0, len(source_text) - 200, len(source_text) // NUM_TEXTS)
    prompts = [engine.encode(source_text[start : start + 100]) for start in starts]
    compare_vllm(checks, "hybrid", folder, engine, prompts, args, "bfloat16", depths=(1,), same_text=False)
    command = [sys.executable, HERE / "llamacpp_run.py", folder, "--build", args.environments / "llamacpp"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if not done.stdout:
        checks.add("hybrid: llama.cpp", False, done.stderr.strip()[-300:])
        return
    found = json.loads(done.stdout)
    gaps = ", ".join(f"{name} {gap:.1e}" for name, gap in found["difference"].items())
    checks.add("hybrid: llama.cpp's logits within 1e-3 of transformers'", found["logits_agree"], gaps)
    checks.add("hybrid: llama.cpp's plain text is transformers'", found["plain_as_transformers"])
    checks.add("hybrid: llama.cpp's drafted text is its plain one", found["drafted_as_plain"])
    accepted = f"{found['accepted']} of {found['drafted']}"
    checks.add("hybrid: llama.cpp accepts what it should", found["accepted_as_transformers"] is True, accepted)


def compare_vllm(
    checks: Checks,
    name: str,
    folder: Path,
    engine: foretell.Engine,
    prompts: list[list[int]],
    args: argparse.Namespace,
    dtype: str,
    depths: tuple[int, ...],
    same_text: bool = True,
) -> None:
    """vLLM's drafted texts against its plain ones, its plain ones against ours, and how often drafts were right."""
    eos = sorted(engine.model.trunk.eos_token_ids)
    tokenizer = engine.model.trunk.tokenizer
    texts = [tokenizer.decode(ids) for ids in prompts] + [TEXT]
    folder.with_suffix(".texts.json").write_text(json.dumps(texts))
    report = run_vllm(folder, prompts, args, dtype, 0, eos, "--texts", folder.with_suffix(".texts.json"))
    plain = report["tokens"]
    read = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    equal = sum(a == b for a, b in zip(read, report["encoded"], strict=True))
    checks.add(f"{name}: vLLM reads text as Foretell does", equal == len(texts), f"{equal} of {len(texts)}")
    params = foretell.SamplingParams(max_tokens=args.max_tokens)
    if same_text:
        ours = [list(done.token_ids) for done in engine.generate(prompts, params, depth=0)]
        equal = sum(a == b for a, b in zip(ours, plain, strict=True))
        checks.add(f"{name}: vLLM's plain texts are Foretell's", equal == len(prompts), f"{equal} of {len(prompts)}")
    for depth in depths:
        report = run_vllm(folder, prompts, args, dtype, depth, eos)
        what = f"{name}, depth {depth}"
        texts = list(zip(prompts, report["tokens"], plain, strict=True))
        gaps = [tie_gap(engine, prompt, a, b) for prompt, a, b in texts if a != b]
        figures = f"{len(prompts) - len(gaps)} of {len(prompts)}"
        if gaps:
            figures += f", the others part where two logits are {max(gap for gap, _ in gaps):.3f} apart or less"
        holds = all(gap <= limit for gap, limit in gaps)
        checks.add(f"{what}: vLLM's texts are its plain ones, but for near ties", holds, figures)
        counters = report["speculation"]
        theirs = counters["num_accepted_tokens"] / counters["num_draft_tokens"]
        stats = [done.stats for done in engine.generate(prompts, params, depth=depth)]
        here = sum(s.num_accepted_tokens for s in stats) / sum(s.num_draft_tokens for s in stats)
        figures = f"vLLM {theirs:.3f} ({counters['draft_class']}), Foretell {here:.3f}"
        checks.add(f"{what}: acceptance within {NEAR}", abs(theirs - here) <= NEAR, figures)


def tie_gap(engine: foretell.Engine, prompt: list[int], first: list[int], second: list[int]) -> tuple[float, float]:
    """How far apart the logits of the two tokens are where two texts part, and how far counts as a near tie."""
    place = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    trunk = engine.model.trunk
    logits = next_logits(trunk, prompt + first[:place])
    gap = (logits[first[place]] - logits[second[place]]).abs().item()
    return gap, near_tie_gap(trunk.dtype, logits.max().item())


def run_vllm(
    folder: Path,
    prompts: list[list[int]],
    args: argparse.Namespace,
    dtype: str,
    depth: int,
    eos: list[int],
    *more: object,
) -> dict[str, Any]:
    """One run of vllm_run.py in its own environment."""
    asked, told = folder.with_suffix(".prompts.json"), folder.with_suffix(".vllm.json")
    asked.write_text(json.dumps(prompts))
    command = [args.environments / "vllm" / "bin" / "python", HERE / "vllm_run.py", folder, asked, "--out", told]
    command += ["--depth", depth, "--max-tokens", args.max_tokens, "--dtype", dtype, "--max-model-len", 512]
    command += ["--eos", *eos, *more] if eos else more
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"vLLM failed: {done.stderr.strip()[-500:]}")
    report: dict[str, Any] = json.loads(told.read_text())
    return report


if __name__ == "__main__":
    sys.exit(main())
