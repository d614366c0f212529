"""Foretell beside its peers: the same prompts, greedy, one request at a time, every system in turn.

    make interop                      # once: the environment of vLLM, and the exported folder that it serves
    sh bench/peers/llamacpp_env.sh    # once: llama.cpp
    python bench/peers/run.py --json docs/benchmarks/peers/smollm2-135m.json

Every system is a process that loads its model once (worker_*.py) and then waits; prompts go to one after the other, so
that a machine that slows down slows all of them. Seconds are of whole requests, the prompt included. Nothing is cached
between requests.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import foretell
from foretell.analysis.environment import environment
from foretell.checkpoints.source import find_source
from foretell.threads import num_cores
from foretell.training.jsonl import numbered_prompts

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DOMAINS = ("chat", "code", "structured")
PLAIN = "transformers:float32"
SYSTEMS = [
    PLAIN,
    "transformers:float32:lookup",
    "vllm:float32:0",
    "vllm:float32:1",
    "llamacpp:q4_1",
    *[f"foretell:{dtype}:{depth}" for dtype in ("float32", "int8", "int4") for depth in ("0", "auto")],
]


@dataclass
class Worker:
    """A system's process. ``version``: what it said of itself when its model was loaded."""

    name: str
    process: subprocess.Popen[str]
    version: str = ""
    samples: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def start(cls, name: str, environments: Path) -> Worker:
        """Load ``name``, such as foretell:int8:auto; the first word says whose worker runs, the others go to it."""
        kind, *options = name.split(":")
        if kind == "llamacpp":
            options = [find_source("demo").where, str(environments.absolute() / "llama"), str(num_cores())]
        program = {"llamacpp": "node", "vllm": str(environments / "vllm" / "bin" / "python")}.get(kind, sys.executable)
        command = [program, str(HERE / f"worker_{kind}.{'mjs' if kind == 'llamacpp' else 'py'}"), *options]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
        )
        worker = cls(name, process)
        worker.version = worker._read()["version"]
        return worker

    def ask(self, token_ids: Sequence[int], max_tokens: int) -> dict[str, Any]:
        """Tokens of the answer, and seconds."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"token_ids": list(token_ids), "max_tokens": max_tokens}) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):  # libraries print too
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise SystemExit(f"{self.name} ended (status {self.process.wait()}); run its worker alone to see why")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("systems", nargs="*", default=SYSTEMS, help=f"default: {' '.join(SYSTEMS)}")
    parser.add_argument("--environments", type=Path, default=ROOT / ".interop", help="folder with vllm/ and llama/")
    parser.add_argument("--num-prompts", type=int, default=2, help="of each of three domains (2)")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens a prompt (64)")
    parser.add_argument("--json", type=Path, help="write the samples to this file")
    args = parser.parse_args()
    prompts = _prompts(args.num_prompts)
    workers = []
    for name in args.systems:
        workers.append(Worker.start(name, args.environments))
        workers[-1].ask(prompts[0][1], 4)  # warms up
        print(f"{name}: {workers[-1].version}", flush=True)
    for domain, token_ids in prompts:
        for worker in workers:
            worker.samples.append({"domain": domain, **worker.ask(token_ids, args.max_tokens)})
    rows = table(workers)
    print("\n".join(rows))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        found = {
            "environment": environment("several", " ".join(["python", "bench/peers/run.py", *sys.argv[1:]])),
            "systems": {worker.name: {"version": worker.version, "samples": worker.samples} for worker in workers},
        }
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _prompts(count: int) -> list[tuple[str, list[int]]]:
    encode = foretell.Engine(foretell.load("demo", heads="none", pack=False)).encode
    return [
        (domain, encode(record.get("messages") or record["prompt"]))
        for domain in DOMAINS
        for _, record in numbered_prompts(ROOT / "prompts" / f"{domain}.jsonl")[:count]
    ]


def table(workers: Sequence[Worker]) -> list[str]:
    """Markdown: tokens/s, and the ratio to transformers' plain decoding of the same prompt, median and range."""
    first = {worker.name: worker for worker in workers}.get(PLAIN, workers[0])
    rows = [f"| system | tokens/s | over {first.name} | range | structured | texts as {first.name} |", "|" + "---|" * 6]
    for worker in workers:
        speeds = [_speed(sample) for sample in worker.samples]
        ratios = [a / _speed(b) for a, b in zip(speeds, first.samples, strict=True)]
        structured = [r for r, sample in zip(ratios, worker.samples, strict=True) if sample["domain"] == "structured"]
        equal = sum(a["token_ids"] == b["token_ids"] for a, b in zip(worker.samples, first.samples, strict=True))
        rows.append(
            f"| {worker.name} | {statistics.median(speeds):.1f} | {statistics.median(ratios):.2f} | "
            f"{min(ratios):.2f}-{max(ratios):.2f} | {statistics.median(structured or [0]):.2f} | "
            f"{equal} of {len(ratios)} |"
        )
    return rows


def _speed(sample: dict[str, Any]) -> float:
    return len(sample["token_ids"]) / float(sample["seconds"])


if __name__ == "__main__":
    sys.exit(main())
