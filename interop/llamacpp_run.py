"""Checks a Qwen3.5 checkpoint with one MTP module in llama.cpp: its logits against transformers', and its decoding.

python interop/llamacpp_run.py CHECKPOINT [--build FOLDER] [--text TEXT] [--new 48] [--depth 1] [--out FILE.npz]

The stock converter writes a GGUF file, `llamacpp_mtp` (built by llamacpp_env.sh) runs it. llama.cpp feeds the head one
entry more than transformers: the first token, with zeros for the state before it. The reference gets the same entry, so
that logits must agree within rounding; `shift` says how far that entry moves the head's logits, `shift_same_best` at
how many positions the best token stays.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_layers import MtpModel

TOLERANCE = 1e-3
TEXT = "def add(a, b):\n    return a + b\n\nThe moth is in the path, and both are thin."

# The converter knows a tokenizer by a hash of what it makes of a test text. Others pass as plain byte-level BPE: token
# ids are handed over here, so only text would be split wrongly.
CONVERTER = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
from conversion.base import TextModel
known = TextModel.get_vocab_base_pre
def get_vocab_base_pre(self, tokenizer):
    try:
        return known(self, tokenizer)
    except NotImplementedError:
        print("UNKNOWN TOKENIZER", flush=True)
        return "gpt-2"
TextModel.get_vocab_base_pre = get_vocab_base_pre
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def convert(checkpoint: Path, build: Path, gguf: Path) -> bool:
    """Write the checkpoint as float32 GGUF; True if the converter knows its tokenizer."""
    source = next(build.glob("llama_cpp_python-*/vendor/llama.cpp"), None)
    if source is None:
        raise SystemExit(f"No llama.cpp in {build}. Make it: sh interop/llamacpp_env.sh {build}")
    script = source / "convert_hf_to_gguf.py"
    command = [sys.executable, "-c", CONVERTER, source, script, checkpoint, "--outtype", "f32", "--outfile", gguf]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"The converter failed:\n{done.stderr}")
    return "UNKNOWN TOKENIZER" not in done.stdout


def run(gguf: Path, build: Path, ids: list[int], new: int, depth: int) -> dict:
    """What llama.cpp makes of the ids: logits of `trunk`, `head` and `head_bare` (without the first entry), texts."""
    with tempfile.NamedTemporaryFile() as file:
        command = [build.resolve() / "llamacpp_mtp", gguf, file.name, new, depth, *ids]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"llama.cpp failed (exit status {done.returncode}):\n{done.stderr}")
        result = json.loads(done.stdout)
        logits = np.fromfile(file.name, dtype=np.float32).reshape(-1, result["vocab"])
    n = len(ids)
    return result | {"trunk": logits[:n], "head": logits[n : 2 * n], "head_bare": logits[2 * n :]}


@torch.inference_mode()
def reference(checkpoint: Path, ids: list[int], new: int) -> dict:
    """The same from transformers, in float32; `accepted` is how many drafts of one token should have been."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    # Not in Qwen3.5's config class; what config.json says wins.
    model.config.num_mtp_layers = getattr(model.config, "num_mtp_layers", 1)
    model.config.mtp_layer_types = getattr(model.config, "mtp_layer_types", ["full_attention"])
    head = MtpModel.from_pretrained(model)

    def logits(tokens: torch.Tensor) -> dict[str, np.ndarray]:
        states = model.model(tokens).last_hidden_state
        before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)
        positions = torch.arange(tokens.shape[1])[None]
        led = head.forward_layer(0, before, positions, None, input_ids=tokens)
        bare = head.forward_layer(0, before[:, 1:], positions[:, 1:], None, input_ids=tokens[:, 1:])
        return {k: model.lm_head(x)[0].numpy() for k, x in {"trunk": states, "head": led, "head_bare": bare}.items()}

    text = torch.tensor([ids])
    for _ in range(new):  # unlike generate(), past the end of the text
        text = torch.cat([text, model(text, logits_to_keep=1, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    tokens = text[0].tolist()
    accepted = accepted_at_depth_1(tokens, logits(text)["head"].argmax(-1).tolist(), len(ids) - 1)
    return logits(text[:, : len(ids)]) | {"plain": tokens[len(ids) :], "accepted": accepted}


def accepted_at_depth_1(text: list[int], drafts: list[int], last: int) -> int:
    """How many drafts fit if `drafts[i]` is what the head would guess after token i of the text."""
    accepted = 0
    while last + 2 < len(text):
        fits = drafts[last] == text[last + 1]
        accepted += fits
        last += 1 + fits
    return accepted


def compare(ours: dict, theirs: dict, depth: int) -> dict:
    """Largest differences of logits, which texts agree, and how many drafts were accepted."""
    gaps = {name: float(np.abs(ours[name] - theirs[name]).max()) for name in ("trunk", "head", "head_bare")}
    led, bare = theirs["head"][1:], theirs["head_bare"]
    drafted = ours["drafted"]
    return {
        "largest_logit": float(np.abs(theirs["trunk"]).max()),
        "difference": gaps,
        "shift": float(np.abs(led - bare).max()),
        "shift_same_best": float((led.argmax(-1) == bare.argmax(-1)).mean()),
        "logits_agree": all(gap < TOLERANCE for gap in gaps.values()),
        "plain_as_transformers": ours["plain"]["tokens"] == theirs["plain"],
        "drafted_as_plain": drafted["tokens"] == ours["plain"]["tokens"],
        "passes": drafted["passes"],
        "drafted": drafted["drafted"],
        "accepted": drafted["accepted"],
        "accepted_as_transformers": drafted["accepted"] == theirs["accepted"] if depth == 1 else None,
    }


def main() -> None:
    """Convert, run, compare, print JSON; exit status 1 where llama.cpp says something else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--build", type=Path, default=Path(".interop/llamacpp"), help="folder of llamacpp_env.sh")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--new", type=int, default=48, help="tokens to decode")
    parser.add_argument("--depth", type=int, default=1, help="tokens drafted a pass")
    parser.add_argument("--out", type=Path, help="file for llama.cpp's logits")
    args = parser.parse_args()
    torch.set_num_threads(1)
    ids = AutoTokenizer.from_pretrained(args.checkpoint)(args.text)["input_ids"]
    with tempfile.TemporaryDirectory() as folder:
        gguf = Path(folder) / "model.gguf"
        known = convert(args.checkpoint, args.build, gguf)
        ours = run(gguf, args.build, ids, args.new, args.depth)
    if args.out:
        np.savez(args.out, ids=ids, **{name: ours[name] for name in ("trunk", "head", "head_bare")})
    report = {"tokens": len(ids), "tokenizer_known": known}
    report |= compare(ours, reference(args.checkpoint, ids, args.new), args.depth)
    print(json.dumps(report, indent=2))
    checks = ("logits_agree", "plain_as_transformers", "drafted_as_plain", "accepted_as_transformers")
    sys.exit(any(report[check] is False for check in checks))


if __name__ == "__main__":
    main()
