"""Closed-loop load on an OpenAI-compatible server: so many clients, each with one request at a time.

    foretell serve demo --heads adapters/smollm2-135m-instruct --port 8000 &
    python bench/serve_load.py --url http://127.0.0.1:8000 --json docs/benchmarks/serve/load.json

Every number of clients runs plain ("off") and with the server's policy in turns, on the same prompts, greedy. Against
another server (vLLM), ``--modes default`` sends nothing of Foretell's own. Texts of all modes are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import openai

from foretell.analysis.environment import environment

PROMPTS = ("chat", "code", "structured")


@dataclass
class Request:
    """One answer: when its first token came, when it was done, how many tokens it had; or what went wrong."""

    ttft_s: float
    total_s: float
    num_tokens: int
    text: str
    error: str = ""

    @property
    def per_token_s(self) -> float:
        """Seconds a token after the first."""
        return (self.total_s - self.ttft_s) / max(1, self.num_tokens - 1)


def prompts(folder: Path) -> list[list[dict[str, str]]]:
    """Chats of all kinds in turns."""
    files = [(folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines() for name in PROMPTS]
    records = [json.loads(line) for lines in zip(*files, strict=False) for line in lines]
    return [r.get("messages") or [{"role": "user", "content": r.get("prompt") or r["text"]}] for r in records]


async def ask(client: openai.AsyncOpenAI, model: str, messages: Any, max_tokens: int, extra: dict[str, Any]) -> Request:
    """One streamed request."""
    start = time.perf_counter()
    first, text, num_tokens = 0.0, "", 0
    try:
        stream = await client.chat.completions.create(
            model=model,
            messages=messages,
            max_tokens=max_tokens,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=extra,
        )
        async for chunk in stream:
            if chunk.usage is not None:
                num_tokens = chunk.usage.completion_tokens
            if chunk.choices and chunk.choices[0].delta.content:
                first = first or time.perf_counter() - start
                text += chunk.choices[0].delta.content
    except Exception as error:  # the client's, or its transport's where a connection breaks
        return Request(0, time.perf_counter() - start, 0, "", str(error)[:200])
    return Request(first, time.perf_counter() - start, num_tokens, text)


async def closed_loop(args: Any, num_clients: int, mode: str, chats: list[Any], model: str) -> dict[str, Any]:
    """All ``chats`` once, by ``num_clients`` clients."""
    extra = {} if mode == "default" else {"speculative": {"policy": mode}}
    queue = list(enumerate(chats))[::-1]
    done: dict[int, Request] = {}

    async def client_loop(client: openai.AsyncOpenAI) -> None:
        while queue:
            index, messages = queue.pop()
            done[index] = await ask(client, model, messages, args.max_tokens, extra)

    async with openai.AsyncOpenAI(base_url=f"{args.url}/v1", api_key="none", max_retries=0, timeout=600) as client:
        start = time.perf_counter()
        await asyncio.gather(*(client_loop(client) for _ in range(num_clients)))
        elapsed_s = time.perf_counter() - start
    good = [request for request in done.values() if not request.error]
    num_tokens = sum(request.num_tokens for request in good)
    return {
        "clients": num_clients,
        "mode": mode,
        "num_requests": len(done),
        "num_errors": len(done) - len(good),
        "requests_per_s": len(good) / elapsed_s,
        "tokens_per_s": num_tokens / elapsed_s,
        "ttft_s": spread([request.ttft_s for request in good]),
        "time_per_token_s": spread([request.per_token_s for request in good]),
        "requests": [asdict(done[index]) for index in sorted(done)],
    }


def spread(values: list[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    if len(values) < 2:
        return {"median": values[0] if values else float("nan"), "p95": values[0] if values else float("nan")}
    return {"median": statistics.median(values), "p95": statistics.quantiles(values, n=20)[18]}


def row(run: dict[str, Any], same: str) -> str:
    """A line of the table."""
    ttft, each = run["ttft_s"], run["time_per_token_s"]
    return (
        f"{run['clients']:>7}  {run['mode']:<8} {run['requests_per_s']:>10.2f} {run['tokens_per_s']:>9.1f} "
        f"{ttft['median']:>8.2f} {ttft['p95']:>8.2f} {1e3 * each['median']:>9.0f} {1e3 * each['p95']:>8.0f} "
        f"{run['num_errors']:>6}  {same}"
    )


def own_dtype(url: str) -> str:
    """The dtype of a Foretell server's weights."""
    try:
        with urllib.request.urlopen(f"{url}/v1/status", timeout=30) as answer:
            return str(json.load(answer)["dtype"])
    except OSError:
        sys.exit(f"{url} does not tell its dtype, so it is no Foretell server; give --dtype")


async def main() -> None:
    """All numbers of clients, modes in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--clients", default="1,4,16,64")
    parser.add_argument("--modes", default="off,auto", help="off, auto (Foretell's policies), or default")
    parser.add_argument("--requests", type=int, default=12, help="at least; and at least one a client")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--prompts", type=Path, default=Path("prompts"))
    parser.add_argument("--dtype", help="of the server's weights; Foretell's own tells it")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    model = (await openai.AsyncOpenAI(base_url=f"{args.url}/v1", api_key="none").models.list()).data[0].id
    dtype = args.dtype or await asyncio.to_thread(own_dtype, args.url)
    chats = prompts(args.prompts)
    modes = args.modes.split(",")
    print("clients  mode     requests/s  tokens/s  ttft s  p95  ms/token  p95  errors  texts", flush=True)
    for mode in modes:  # warm-up, and time for the policy to learn
        await closed_loop(args, 2, mode, chats[-6:], model)
    runs: list[dict[str, Any]] = []
    for num_clients in map(int, args.clients.split(",")):
        asked = (chats * (1 + max(args.requests, num_clients) // len(chats)))[: max(args.requests, num_clients)]
        for repeat in range(args.repeats):
            texts: list[list[str]] = []
            for mode in modes if repeat % 2 == 0 else modes[::-1]:
                run = await closed_loop(args, num_clients, mode, asked, model)
                texts.append([request["text"] for request in run["requests"]])
                num_same = sum(a == b for a, b in zip(texts[0], texts[-1], strict=True))
                print(row(run, f"{num_same}/{len(asked)} equal"), flush=True)
                runs.append(run | {"num_equal_texts": num_same, "repeat": repeat})
    if args.json:
        report = {
            "environment": environment(dtype, " ".join(sys.argv)),
            "url": args.url,
            "model": model,
            "max_tokens": args.max_tokens,
            "runs": runs,
        }
        args.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
