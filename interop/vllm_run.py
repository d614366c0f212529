"""Decode prompts greedily with vLLM, plainly or with the MTP head in the checkpoint, and report how often it was right.

This file runs in the environment that vllm_env.sh makes, not in foretell's: it imports vLLM and the standard library
alone. Prompts and answers are token ids, so no tokenizer stands between two engines that are compared; --texts is for
tokenizers.

    VLLM_ENV/bin/python interop/vllm_run.py MODEL prompts.json --depth 1 --max-tokens 64 --out vllm.json

prompts.json is a list of lists of token ids; a .jsonl file has one such list a line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # OMP_NUM_THREADS decides
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process, so that the drafting model can be asked what it is
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
COUNTERS = "vllm:spec_decode_num_"


def main() -> int:
    """Run the command line; 0 is success, 1 comes with one line that says what went wrong."""
    args = _arguments()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        report = decode(args, read_prompts(args.prompts))
        if args.texts:
            report["encoded"] = encode(args.model, json.loads(args.texts.read_text()))
        args.out.write_text(json.dumps(report) + "\n")
    except Exception as error:
        if os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG":
            raise
        message = " ".join(str(error).split())
        print(f"vllm_run: {type(error).__name__}: {message[:500]}", file=sys.stderr)
        return 1
    return 0


def read_prompts(path: Path) -> list[list[int]]:
    """The prompts in a JSON or JSONL file, each a list of token ids."""
    text = path.read_text()
    if path.suffix == ".jsonl":
        prompts = [json.loads(line) for line in text.splitlines() if line.strip()]
    else:
        prompts = json.loads(text)
    if not prompts or not all(isinstance(ids, list) and ids and all(type(i) is int for i in ids) for ids in prompts):
        raise ValueError(f"{path}: expected one or more lists of token ids, none of them empty")
    return prompts


def decode(args: argparse.Namespace, prompts: list[list[int]]) -> dict[str, Any]:
    """Texts and counters; prompts run one at a time, so a speculative pass differs from a plain one in width alone."""
    if not (args.model / "config.json").is_file():
        raise ValueError(f"{args.model}: not a model folder, it has no config.json")
    import vllm

    llm = vllm.LLM(
        model=str(args.model),
        dtype=args.dtype,
        speculative_config={"method": "mtp", "num_speculative_tokens": args.depth} if args.depth else None,
        hf_overrides=_without_mrope if args.drop_mrope else {},
        trust_remote_code=args.trust_remote_code,
        skip_tokenizer_init=True,
        generation_config="vllm",  # nothing from the folder may touch greedy decoding
        max_model_len=args.max_model_len,
        max_num_seqs=1,
        enable_prefix_caching=False,
        enforce_eager=True,
        use_tqdm_on_load=False,
        disable_log_stats=False,  # these feed get_metrics
        seed=0,
    )
    sampling = vllm.SamplingParams(
        temperature=0.0, max_tokens=args.max_tokens, stop_token_ids=args.eos, detokenize=False
    )
    requests = llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
    return {
        "vllm": vllm.__version__,
        "model_class": llm.collective_rpc(_model_class)[0],
        "dtype": str(llm.llm_engine.model_config.dtype).removeprefix("torch."),
        "depth": args.depth,
        "tokens": [list(request.outputs[0].token_ids) for request in requests],
        "speculation": _speculation(llm) if args.depth else None,
    }


def encode(model: Path, texts: list[str]) -> list[list[int]]:
    """What vLLM reads the texts as, with the tokenizer that it finds for the folder."""
    from vllm.tokenizers import get_tokenizer

    tokenizer = get_tokenizer(str(model))
    return [list(tokenizer.encode(text, add_special_tokens=False)) for text in texts]


def _speculation(llm: Any) -> dict[str, Any]:
    """What drafted, and vLLM's own counters of it."""
    method, draft_class = llm.collective_rpc(_drafter)[0]
    counters = {m.name.removeprefix(COUNTERS): m for m in llm.get_metrics() if m.name.startswith(COUNTERS)}
    if "drafts" not in counters:
        raise RuntimeError("vLLM was told to speculate and counts no drafts")
    return {
        "method": method,
        "draft_class": draft_class,
        "num_drafts": counters["drafts"].value,
        "num_draft_tokens": counters["draft_tokens"].value,
        "num_accepted_tokens": counters["accepted_tokens"].value,
        "num_accepted_tokens_per_pos": counters["accepted_tokens_per_pos"].values,
    }


def _model_class(worker: Any) -> str:
    return type(worker.model_runner.model).__name__


def _drafter(worker: Any) -> tuple[str, str]:
    runner = worker.model_runner
    return runner.speculative_config.method, type(runner.drafter.model).__name__


def _without_mrope(config: Any) -> Any:
    """A text-only Qwen3.5 config with plain positions, for trunk and head alike.

    vLLM 0.32 drops the section from the trunk's config only: the head then gets three rows of positions, takes them for
    three times as many tokens, and writes past the end of its queries. For text the three rows are equal.
    """
    for name in ("mrope_section", "mrope_interleaved"):
        (getattr(config, "rope_parameters", None) or {}).pop(name, None)
    return config


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model folder that vLLM reads")
    parser.add_argument("prompts", type=Path, metavar="PROMPTS", help="JSON or JSONL, a list of token ids a prompt")
    parser.add_argument("--out", type=Path, required=True, help="where the report goes, as JSON")
    parser.add_argument(
        "--depth", type=int, default=0, help="tokens to draft a pass; 0, the default, is plain decoding"
    )
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens a prompt (64)")
    parser.add_argument("--eos", type=int, nargs="*", default=[], metavar="ID", help="token ids that end a text")
    parser.add_argument("--texts", type=Path, help="JSON, a list of texts: report their token ids in vLLM too")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--max-model-len", type=int, help="a context shorter than the model's own, to save memory")
    parser.add_argument("--drop-mrope", action="store_true", help="give a text-only Qwen3.5 plain positions")
    parser.add_argument("--trust-remote-code", action="store_true", help="run modeling files in the model folder")
    args = parser.parse_args()
    if args.depth < 0 or args.max_tokens < 1:
        parser.error("--depth must be at least 0 and --max-tokens at least 1")
    return args


if __name__ == "__main__":
    sys.exit(main())
