"""Decode prompts greedily with vLLM, plain or with a checkpoint's own MTP head, and say what the head was worth.

This file runs in vLLM's environment (``vllm_env.sh`` makes one), not in foretell's: it imports vLLM and the standard
library alone, and speaks token ids, so that no tokenizer stands between the two engines.

    VLLM_ENV/bin/python interop/vllm_run.py MODEL prompts.json --depth 1 --max-tokens 64 --out vllm.json

``prompts.json`` is a list of lists of token ids; a ``.jsonl`` file has one such list a line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

QUIET = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process: counters and the draft model are within reach
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
COUNTERS = "vllm:spec_decode_num_"


def main() -> int:
    """Run the command line; 0 is success, and 1 comes with one line on what went wrong."""
    args = _arguments()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        prompts = read_prompts(args.prompts)
        report = run(args, prompts)
        args.out.write_text(json.dumps(report) + "\n")
    except (OSError, ValueError, RuntimeError, NotImplementedError, AssertionError) as error:
        if os.environ.get("VLLM_LOGGING_LEVEL") == "DEBUG":
            raise
        message = next(iter(str(error).strip().splitlines()), "") or "no message"
        print(f"vllm_run: {type(error).__name__}: {message}", file=sys.stderr)
        return 1
    return 0


def read_prompts(path: Path) -> list[list[int]]:
    """The prompts of a JSON or JSONL file, each a list of token ids."""
    text = path.read_text()
    prompts = [json.loads(line) for line in text.splitlines() if line.strip()] if path.suffix == ".jsonl" else json.loads(text)
    if not prompts or not all(isinstance(p, list) and p and all(type(i) is int for i in p) for p in prompts):
        raise ValueError(f"{path} must hold one or more lists of token ids, none of them empty")
    return prompts


def run(args: argparse.Namespace, prompts: list[list[int]]) -> dict[str, Any]:
    """Decode every prompt alone, so that plain and speculative passes differ in nothing but their width."""
    import vllm

    speculation = {"method": "mtp", "num_speculative_tokens": args.depth} if args.depth else None
    llm = vllm.LLM(
        model=str(args.model),
        dtype=args.dtype,
        skip_tokenizer_init=True,
        generation_config="vllm",  # no penalties or temperature out of the model folder
        enforce_eager=True,
        enable_prefix_caching=False,
        max_num_seqs=1,
        max_model_len=args.max_model_len,
        trust_remote_code=args.trust_remote_code,
        disable_log_stats=False,  # they feed get_metrics
        seed=0,
        speculative_config=speculation,
    )
    sampling = vllm.SamplingParams(
        temperature=0.0, max_tokens=args.max_tokens, stop_token_ids=args.eos, detokenize=False
    )
    done = llm.generate([{"prompt_token_ids": p} for p in prompts], sampling, use_tqdm=False)
    return {
        "vllm": vllm.__version__,
        "dtype": str(llm.llm_engine.model_config.dtype).removeprefix("torch."),
        "depth": args.depth,
        "tokens": [list(request.outputs[0].token_ids) for request in done],
        "speculation": _speculation(llm) if args.depth else None,
        "trunk_class": llm.collective_rpc(_trunk_class)[0],
    }


def _speculation(llm: Any) -> dict[str, Any]:
    """What drafted, and vLLM's own counters of how it went."""
    method, draft_class = llm.collective_rpc(_drafter)[0]
    counters = {m.name.removeprefix(COUNTERS): m for m in llm.get_metrics() if m.name.startswith(COUNTERS)}
    if "drafts" not in counters:
        raise RuntimeError("vLLM was asked to draft and counted no draft")
    return {
        "method": method,
        "draft_class": draft_class,
        "num_drafts": counters["drafts"].value,
        "num_draft_tokens": counters["draft_tokens"].value,
        "num_accepted_tokens": counters["accepted_tokens"].value,
        "num_accepted_tokens_per_pos": list(counters["accepted_tokens_per_pos"].values),
    }


def _trunk_class(worker: Any) -> str:
    return type(worker.model_runner.model).__name__


def _drafter(worker: Any) -> tuple[str, str]:
    runner = worker.model_runner
    return runner.speculative_config.method, type(runner.drafter.model).__name__


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model folder that vLLM reads")
    parser.add_argument("prompts", type=Path, metavar="PROMPTS", help="JSON or JSONL: one list of token ids a prompt")
    parser.add_argument("--out", type=Path, required=True, help="where the report goes, as JSON")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens a prompt (64)")
    parser.add_argument("--depth", type=int, default=0, help="tokens drafted a pass; 0, the default, is plain decoding")
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16"], default="float32")
    parser.add_argument("--eos", type=int, nargs="*", default=[], metavar="ID", help="token ids that end a text")
    parser.add_argument("--max-model-len", type=int, help="context length, where the model's own takes too much memory")
    parser.add_argument("--trust-remote-code", action="store_true", help="run modeling files from the model folder")
    args = parser.parse_args()
    if args.depth < 0 or args.max_tokens < 1:
        parser.error("--depth must be 0 or more, and --max-tokens 1 or more")
    return args


if __name__ == "__main__":
    sys.exit(main())
