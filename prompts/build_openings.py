"""Prompts that the model writes itself, in two steps around ``foretell distill``.

A chat model has seen so many requests that it can write them: given the beginning of a user turn, it samples the rest.
That gives prompts of far more kinds than templates do (the idea of Magpie, arXiv 2406.08464).

    python prompts/build_openings.py openings              # openings.txt -> data/openings.jsonl
    foretell distill demo data/openings.jsonl data/sampled.jsonl --temperature 0.9 --min-p 0.02 --max-tokens 56
    python prompts/build_openings.py prompts               # data/sampled.jsonl -> data/self-prompts.jsonl

Standard library only; deterministic for a seed. The markup of a user turn is that of SmolLM2 (ChatML).
"""

import argparse
import json
import random
import re
from pathlib import Path

import train_words as w
from build_train import read_sections
from check_disjoint import HeldOut

SHARES = {"chat.chat": 45, "code.chat": 18, "code.raw": 14, "structured.chat": 12, "structured.raw": 11}
DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
SYSTEM_SHARE = 0.12
UNFINISHED_SHARE = 0.3
"""Of user turns that did not end in time: the share kept, cut after the last whole sentence."""


def openings(count: int, seed: int) -> list[dict[str, object]]:
    """Every section's beginnings over and over, each time with another id, which is what seeds its sampling."""
    rng = random.Random(seed)
    made: list[dict[str, object]] = []
    for section, lines in read_sections("openings.txt").items():
        domain, kind = section.split(".")
        wanted = round(count * SHARES[section] / 100)
        for number in range(wanted):
            line = lines[number % len(lines)]
            opening = "" if line == '""' else line.rstrip(" ")
            record: dict[str, object] = {"id": f"self-{domain}-{kind}-{number:05d}", "domain": domain}
            record["opening"] = opening
            if kind == "chat":
                system = rng.choice(w.SYSTEMS) if rng.random() < SYSTEM_SHARE else ""
                record["system"] = system
                record["prompt"] = (
                    f"<|im_start|>system\n{system or DEFAULT_SYSTEM}<|im_end|>\n<|im_start|>user\n{opening}"
                )
            else:
                record["prompt"] = opening
            made.append(record)
    rng.shuffle(made)
    return made


def prompt_of(record: dict[str, object], rng: random.Random) -> dict[str, object] | None:
    """The prompt a sampled text makes, or None where it is of no use."""
    text = f"{record['opening']}{record['text']}"
    named = {"id": record["id"], "domain": record["domain"]}
    if "system" not in record:
        # Cut at a random place, so that prefixes end anywhere; a space at the end would split a token.
        length = rng.randint(len(str(record["opening"])), len(text))
        text = text[:length].rstrip(" \t")
        return {**named, "prompt": text} if text.strip() else None
    if record["finish_reason"] == "length":
        sentences = re.match(r"(?s).*[.?!\n]", text)
        if not sentences or rng.random() > UNFINISHED_SHARE:
            return None
        text = sentences[0]
    if len(text.strip()) < 8:
        return None
    system = [{"role": "system", "content": record["system"]}] if record["system"] else []
    return {**named, "messages": [*system, {"role": "user", "content": text.strip()}]}


def prompts(sampled: list[Path], seed: int) -> list[dict[str, object]]:
    """All usable prompts, exact repeats and overlaps with held-out prompts left out; shuffled."""
    rng = random.Random(seed)
    held_out, seen = HeldOut(), set()
    records = [json.loads(line) for path in sampled for line in path.read_text(encoding="utf-8").splitlines()]
    made = []
    for record in sorted(records, key=lambda record: str(record["id"])):
        prompt = prompt_of(record, rng)
        if prompt is None:
            continue
        key = json.dumps(prompt.get("messages", prompt.get("prompt")))
        text = prompt["messages"][-1]["content"] if "messages" in prompt else prompt["prompt"]  # type: ignore[index]
        if key not in seen and not held_out.overlaps(text):
            seen.add(key)
            made.append(prompt)
    rng.shuffle(made)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["openings", "prompts"])
    parser.add_argument("--count", type=int, default=18000, help="openings to write")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--sampled", type=Path, nargs="+", default=[Path("data/sampled.jsonl")])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    made = openings(args.count, args.seed) if args.step == "openings" else prompts(args.sampled, args.seed)
    out = args.out or Path("data/openings.jsonl" if args.step == "openings" else "data/self-prompts.jsonl")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps(p, ensure_ascii=False) + "\n" for p in made), encoding="utf-8", newline="\n")
    print(f"{len(made)} lines: {out}")


if __name__ == "__main__":
    main()
