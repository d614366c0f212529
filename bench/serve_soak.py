"""Soak test of ``foretell serve``: mixed requests and clients that leave, for as long as you like.

    python bench/serve_soak.py demo --heads adapters/smollm2-135m-instruct --minutes 30 --json soak.json

Starts the server itself, with little memory for keys and values so that it is soon full, watches its size, and holds
every greedy answer against a plain run of the engine: equal, or different at a token where the two best logits nearly
tie (batches of different size round differently). Exit code 1 where an answer differs otherwise, a request fails, rows
are left over, or the server grew by more than --most-growth MiB in the second half.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import openai
import psutil
import torch

import foretell
from foretell.analysis.environment import environment
from foretell.analysis.near_tie import near_tie_gap, next_logits

MOST = 40
SCHEMA = {
    "type": "object",
    "properties": {"rivers": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 2}},
    "required": ["rivers"],
    "additionalProperties": False,
}
NUM_PROMPTS = 30
KINDS = {"whole": 4, "streamed": 4, "sampled": 1, "chat": 1, "json": 1, "silent": 1, "aborted": 2, "refused": 1}
"""What clients ask for, and how often: chats have a stop string and log-probabilities, silent ones do not read."""


def start(args: argparse.Namespace) -> tuple[subprocess.Popen[str], str]:
    """The server and its address, once it listens."""
    line = [
        sys.executable,
        "-m",
        "foretell",
        "serve",
        args.model,
        "--port",
        "0",
        "--dtype",
        "float32",
        "--memory",
        "0.5",
    ]
    line += ["--heads", args.heads] if args.heads else []
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for text in process.stderr:
        print(text, end="", file=sys.stderr)
        if found := re.search(r"serving \S+ at (http://\S+)", text):
            threading.Thread(target=sys.stderr.writelines, args=[process.stderr], daemon=True).start()
            return process, found[1]
    raise SystemExit("the server did not start")


class Soak:
    """Clients that ask, read, stop reading or leave, until the time is over; ``answers``: (prompt, tokens) -> ids."""

    def __init__(self, url: str, prompts: list[str], seconds: float, num_clients: int) -> None:
        self.url = url
        self.prompts = prompts
        self.end = time.monotonic() + seconds
        self.num_clients = num_clients
        self.model = ""
        self.answers: dict[tuple[int, int, tuple[int, ...]], int] = {}
        self.counts = dict.fromkeys((*KINDS, "errors"), 0)

    async def run(self) -> None:
        """All clients."""
        async with openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=300) as client:
            self.model = (await client.models.list()).data[0].id
            await asyncio.gather(*(self._client(client, random.Random(n)) for n in range(self.num_clients)))

    async def _client(self, client: openai.AsyncOpenAI, rng: random.Random) -> None:
        while time.monotonic() < self.end:
            index, size = rng.randrange(len(self.prompts)), rng.randint(1, MOST)
            kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
            policy = rng.choice([{"policy": "off"}, {"policy": "auto"}, {"depth": rng.randint(1, 4)}])
            try:
                await self._one(client, kind, index, size, policy, rng)
                self.counts[kind] += 1
            except openai.BadRequestError:
                self.counts["refused" if kind == "refused" else "errors"] += 1
            except Exception as error:
                print(f"error: {error!r:.200}", file=sys.stderr)
                self.counts["errors"] += 1

    async def _one(self, client: Any, kind: str, index: int, size: int, policy: Any, rng: random.Random) -> None:
        extra = {"speculative": policy, "return_token_ids": True}
        fields: Any = {"model": self.model, "prompt": self.prompts[index], "max_tokens": size, "extra_body": extra}
        if kind == "refused":
            await client.completions.create(**fields | {"temperature": 9})
        elif kind == "chat":
            chat = {"role": "user", "content": self.prompts[index]}
            done = await client.chat.completions.create(
                model=self.model, messages=[chat], max_tokens=size, stop=[" the"], logprobs=True, top_logprobs=3
            )
            assert " the" not in done.choices[0].message.content
        elif kind == "json":
            chat = {"role": "user", "content": "Name two rivers."}
            form = {"type": "json_schema", "json_schema": {"name": "rivers", "schema": SCHEMA}}
            done = await client.chat.completions.create(
                model=self.model, messages=[chat], max_tokens=100, response_format=form, extra_body=extra
            )
            if done.choices[0].finish_reason == "stop":
                assert set(json.loads(done.choices[0].message.content)) == {"rivers"}
        elif kind == "silent":
            stream = await client.completions.create(**fields, temperature=0, stream=True)
            await asyncio.sleep(3)
            await stream.close()
        elif kind == "sampled":
            await client.completions.create(**fields, temperature=1.0, n=rng.randint(1, 3))
        elif kind == "whole":
            done = await client.completions.create(**fields, temperature=0)
            self._keep(index, size, done.choices[0].token_ids)
        else:
            stream = await client.completions.create(**fields, temperature=0, stream=True)
            token_ids: list[int] = []
            async for chunk in stream:
                token_ids += getattr(chunk.choices[0], "token_ids", None) or []
                if kind == "aborted" and rng.random() < 0.3:
                    await stream.close()
                    return
            self._keep(index, size, token_ids)

    def _keep(self, index: int, size: int, token_ids: list[int]) -> None:
        key = index, size, tuple(token_ids)
        self.answers[key] = self.answers.get(key, 0) + 1


async def watch(process: subprocess.Popen[str], soak: Soak, every_s: float) -> list[dict[str, float]]:
    """Memory of the server over time."""
    server, begin, found = psutil.Process(process.pid), time.monotonic(), []
    while time.monotonic() < soak.end:
        await asyncio.sleep(every_s)
        sample = {"minute": (time.monotonic() - begin) / 60, "rss_mib": server.memory_info().rss / 2**20}
        found.append(sample)
        print(f"{sample['minute']:6.1f} min  {sample['rss_mib']:8.1f} MiB  {soak.counts}", flush=True)
    return found


def compare(args: argparse.Namespace, soak: Soak) -> dict[str, int]:
    """Answers against plain runs of the engine: equal, near ties, different."""
    model = foretell.load(args.model, dtype="float32")
    engine = foretell.Engine(model)
    params = foretell.SamplingParams(max_tokens=MOST, temperature=0.0)
    plain = [done.token_ids for done in engine.generate(soak.prompts, params)]
    counts = {"equal": 0, "near_tie": 0, "different": 0}
    for (index, size, token_ids), times in soak.answers.items():
        right = plain[index][:size]
        if list(token_ids) == right:
            counts["equal"] += times
        else:
            at = next((i for i, (a, b) in enumerate(zip(token_ids, right, strict=False)) if a != b), None)
            prompt = engine.encode(soak.prompts[index])
            tie = at is not None and is_near_tie(model, prompt + right[:at], token_ids[at], right[at])
            counts["near_tie" if tie else "different"] += times
    return counts


def is_near_tie(model: Any, token_ids: list[int], one: int, other: int) -> bool:
    """Whether two tokens' logits lie within what kernels of different width differ by."""
    logits_V = next_logits(model.trunk, token_ids)
    return abs(logits_V[one] - logits_V[other]).item() < near_tie_gap(torch.float32, logits_V.max().item())


async def main() -> int:
    """Run, watch, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--heads")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=12)
    growth = "MiB in the second half; runs of a few minutes grow by more, as caches fill"
    parser.add_argument("--most-growth", type=float, default=64, help=growth)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    records = [json.loads(line) for line in Path("prompts/chat.jsonl").read_text(encoding="utf-8").splitlines()]
    prompts = [record["messages"][0]["content"] for record in records][:NUM_PROMPTS]
    process, url = start(args)
    try:
        soak = Soak(url, prompts, args.minutes * 60, args.clients)
        memory, _ = await asyncio.gather(watch(process, soak, max(2.0, args.minutes * 60 / 60)), soak.run())
        await asyncio.sleep(2)
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
            status: Any = await client.get("/status", cast_to=object)
    finally:
        process.terminate()
        process.wait(60)
    texts = compare(args, soak)
    half = [sample["rss_mib"] for sample in memory[len(memory) // 2 :]]
    growth = half[-1] - half[0] if half else 0.0
    report = {
        "environment": environment("float32", " ".join(sys.argv)),
        "minutes": args.minutes,
        "counts": soak.counts,
        "texts": texts,
        "growth_mib_in_second_half": growth,
        "left_over": {name: status[name] for name in ("num_running", "num_waiting", "kv_cache_usage")},
        "exit_code": process.returncode,
        "memory": memory,
    }
    print(json.dumps({name: value for name, value in report.items() if name != "memory"}, indent=1))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    bad = texts["different"], soak.counts["errors"], *report["left_over"].values(), growth > args.most_growth
    return 0 if not any(bad) and process.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
