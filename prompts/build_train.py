"""Write train.jsonl: about 9000 short training prompts made from templates and word lists.

Standard library only and deterministic: the same seed gives the same file, byte for byte.
Word lists are in train_words.py, templates in
train_templates.txt, made-up records in train_records.py.  The share of chat, code and structured prompts is
45 / 35 / 20 %, and the lines are shuffled, so any prefix of the file is a fair mix.

Usage: python prompts/build_train.py [--count 9000] [--seed 7] [--out prompts/train.jsonl]
"""

import argparse
import csv
import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import train_words as w
from train_records import MONTHS, Schema, prose, value

Prompt = dict[str, object]
MAX_CHARS = 1200


def read_sections(name: str) -> dict[str, list[str]]:
    """Read the sections of a text file here, one entry a line below two lines of comment, and undo the escapes."""
    sections: dict[str, list[str]] = {}
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    current: list[str] = []
    for line in lines[2:]:
        if re.fullmatch(r"\[[a-z._]+\]", line):
            current = sections.setdefault(line[1:-1], [])
        elif line:
            current.append(line.replace("\\n", "\n").replace("\\t", "\t"))
    return sections


TEMPLATES = read_sections("train_templates.txt")


class Slots(dict[str, object]):
    """Fills template slots lazily: {topic}, {place}, ... draw a random word each time they first appear."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng

    def __missing__(self, key: str) -> object:
        rng, base = self.rng, key.rstrip("0123456789")
        lists = {
            "topic": w.TOPICS,
            "task": w.TASKS,
            "place": w.PLACES,
            "country": w.COUNTRIES,
            "dish": w.DISHES,
            "job": w.JOBS,
            "event": w.EVENTS,
            "subject": w.SUBJECTS,
            "tone": w.TONES,
            "audience": w.AUDIENCES,
            "length": w.LENGTHS,
            "person": w.PEOPLE,
            "adj": w.ADJ,
            "noun": w.NOUN,
            "thing": w.THINGS,
            "word": w.WORDS,
            "opinion": w.OPINIONS,
            "month": MONTHS,
        }
        if base in lists:
            self[key] = rng.choice(lists[base])
        elif base == "n":
            self[key] = rng.randint(2, 12)
        elif base == "num":
            self[key] = rng.randint(13, 980)
        elif base in ("price", "date", "time", "street", "title", "email", "code"):
            self[key] = value({"price": "money"}.get(base, base), rng)
        elif base in ("left", "right"):
            self["left"], self["right"] = rng.choice(w.PAIRS).split(" | ")
        elif base in ("sig", "does", "fn", "args", "ret", "camel"):
            self["sig"], self["does"] = rng.choice(w.FUNCTIONS).split(" | ", 1)
            self["fn"], rest = str(self["sig"]).split("(", 1)
            arguments, self["ret"] = rest.rsplit(") -> ", 1)
            self["args"] = ", ".join(re.findall(r"(\w+):", arguments))
            self["camel"] = re.sub(r"_(\w)", lambda m: m[1].upper(), str(self["fn"]))
        elif base in (
            "schema",
            "schemas",
            "fields",
            "field",
            "f2",
            "first",
            "Class",
            "columns",
            "json",
            "json2",
            "prose",
            "pyfields",
            "inits",
            "params",
            "csv",
            "mdrows",
            "yaml",
            "xml",
            "ini",
            "dicts",
            "inputs",
        ):
            self.fill_schema(Schema(rng))
        elif base == "paragraph":
            chosen = rng.sample(TEMPLATES["sentence"], rng.randint(3, 5))
            self[key] = " ".join(sentence.format_map(Slots(rng)) for sentence in chosen)
        elif base == "sentence":
            self[key] = rng.choice(TEMPLATES["sentence"]).format_map(Slots(rng))
        elif base == "snippet":
            self[key] = fill("snippet", rng)
        elif base == "bug":
            self[key] = fill("bug", rng)
        else:
            raise KeyError(key)
        return self[key]

    def fill_schema(self, schema: Schema) -> None:
        """Set every slot that comes from one record type, so that a template sees one consistent record."""
        rows = [schema.record() for _ in range(self.rng.randint(2, 3))]
        names, buffer = list(schema.kinds), io.StringIO()
        writer = csv.DictWriter(buffer, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        plain = [{k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()} for row in rows]
        self.update(
            schema=schema.name.replace("_", " "),
            schemas=schema.plural,
            first=names[0],
            field=names[-1],
            f2=names[1],
            fields=", ".join(names),
            Class=schema.name.title().replace("_", ""),
            columns=schema.sql_columns(),
            json=json.dumps(rows[0], indent=2, ensure_ascii=False),
            json2="[\n" + ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows) + ",\n",
            prose=prose(rows[0], self.rng),
            csv=buffer.getvalue(),
            params=", ".join(names),
            pyfields="\n".join(f"    {n}: {t}" for n, t in schema.python_fields()),
            inits="\n".join(f"        self.{n} = {n}" for n in names),
            dicts=",\n".join(f"    {row!r}" for row in rows),
            mdrows="| "
            + " | ".join(names)
            + " |\n|"
            + " --- |" * len(names)
            + "\n"
            + "".join("| " + " | ".join(str(v) for v in row.values()) + " |\n" for row in plain),
            yaml="".join("  - " + "\n    ".join(f"{k}: {v}" for k, v in row.items()) + "\n" for row in plain),
            xml="".join(
                f"  <{schema.name}>\n"
                + "".join(f"    <{k}>{v}</{k}>\n" for k, v in row.items())
                + f"  </{schema.name}>\n"
                for row in plain
            ),
            ini="\n".join(
                f"[{schema.name}.{i}]\n" + "".join(f"{k} = {v}\n" for k, v in row.items())
                for i, row in enumerate(plain, 1)
            ),
            inputs="\n".join(
                f'    <label for="{n}">{n.replace("_", " ").title()}</label>\n    <input id="{n}" name="{n}">'
                for n in names[:3]
            ),
        )


VOWEL_WORDS = "|".join(
    word
    for word in [*w.ADJ, *w.NOUN, *w.JOBS, *w.THINGS, *(schema.split(":")[0].replace("_", " ") for schema in w.SCHEMAS)]
    if word[0] in "aeio" or word == "umbrella"
)


def render(template: str, slots: Slots) -> str:
    """Fill the slots of a template and write "an" before a drawn word that begins with a vowel."""
    return re.sub(rf"\b([Aa]) (?=({VOWEL_WORDS})\b)", r"\1n ", template.format_map(slots))


def fill(section: str, rng: random.Random) -> str:
    """Fill a random template of a section."""
    return render(rng.choice(TEMPLATES[section]), Slots(rng))


def raw(section: str, rng: random.Random, context_share: float = 0.0) -> Prompt:
    """Make a prefix to be continued; spaces at its end are cut, because they would split a token."""
    text = fill(section, rng)
    if rng.random() < context_share and text.startswith(("def ", "class ", "async ")):
        text = f"{fill('snippet', rng)}\n\n\n{text}"
    return {"prompt": text.rstrip(" \t")}


def chat(text: str, rng: random.Random, system_share: float = 0.15) -> Prompt:
    """Wrap a user message, sometimes after a system prompt."""
    system = [{"role": "system", "content": rng.choice(w.SYSTEMS)}] if rng.random() < system_share else []
    return {"messages": [*system, {"role": "user", "content": text}]}


def chat_prompt(rng: random.Random) -> Prompt:
    if rng.random() < 0.12:
        slots = Slots(rng)
        ask, reply, follow = (
            render(rng.choice(TEMPLATES[f"chat.{part}"]), slots) for part in ("topics", "reply", "follow_up")
        )
        prompt = chat(ask, rng)
        turns = [{"role": "assistant", "content": reply}, {"role": "user", "content": follow}]
        return {"messages": [*prompt["messages"], *turns]}  # type: ignore[misc]
    weights = {
        "topics": 28,
        "tasks": 12,
        "pairs": 8,
        "writing": 16,
        "text": 12,
        "places": 8,
        "food": 6,
        "maths": 6,
        "play": 4,
    }
    group = rng.choices(list(weights), list(weights.values()))[0]
    return chat(fill(f"chat.{group}", rng), rng)


def code_prompt(rng: random.Random) -> Prompt:
    if rng.random() < 0.5:
        return raw("code.raw", rng, 0.4)
    return chat(fill(rng.choice(["code.ask", "code.chat"]), rng), rng, 0.08)


def structured_prompt(rng: random.Random) -> Prompt:
    if rng.random() < 0.5:
        return raw("structured.raw", rng)
    return chat(fill("structured.chat", rng), rng, 0.08)


def build(count: int, seed: int) -> list[Prompt]:
    """Make the prompts of each domain, drop exact repeats, number them and shuffle everything."""
    rng = random.Random(seed)
    made: list[Prompt] = []
    shares: list[tuple[str, float, Callable[[random.Random], Prompt]]] = [
        ("chat", 0.45, chat_prompt),
        ("code", 0.35, code_prompt),
        ("structured", 0.20, structured_prompt),
    ]
    for domain, share, make in shares:
        seen: set[str] = set()
        for _ in range(round(count * share) * 20):
            if len(seen) == round(count * share):
                break
            prompt = make(rng)
            messages = prompt.get("messages")
            turns = (
                [m["content"] for m in messages if m["role"] == "user"]
                if isinstance(messages, list)
                else [prompt["prompt"]]
            )
            key = json.dumps(turns)
            if key in seen or sum(len(str(turn)) for turn in turns) > MAX_CHARS:
                continue
            seen.add(key)
            made.append({"id": f"train-{domain}-{len(seen):04d}", "domain": domain, **prompt})
    rng.shuffle(made)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the training prompts.")
    parser.add_argument("--count", type=int, default=9000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("train.jsonl"))
    args = parser.parse_args()
    prompts = build(args.count, args.seed)
    args.out.write_text(
        "".join(json.dumps(p, ensure_ascii=False) + "\n" for p in prompts), encoding="utf-8", newline="\n"
    )
    print(f"{len(prompts)} prompts, {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
