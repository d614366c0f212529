"""Made-up records for build_train.py: field values, record types, and records told in prose."""

import random
import re
from collections.abc import Callable

import train_words as w

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


def value(kind: str, rng: random.Random) -> object:
    """Make up one field value of the given kind (the part after '=' in a schema)."""
    name, *bounds = kind.split(",")
    if name == "int":
        return rng.randint(int(bounds[0]), int(bounds[1]))
    if "/" in kind:
        return rng.choice(kind.split("/"))
    lists = {
        "person": w.PEOPLE,
        "city": w.PLACES,
        "country": w.COUNTRIES,
        "job": w.JOBS,
        "dish": w.DISHES,
        "thing": w.THINGS,
        "opinion": w.OPINIONS,
        "topic": w.TOPICS,
        "word": w.WORDS,
        "chore": w.TASKS,
        "colour": ["red", "blue", "green", "black", "white", "yellow"],
        "month": MONTHS,
    }
    if name in lists:
        return rng.choice(lists[name])
    two = f"{rng.choice(w.ADJ).title()} {rng.choice(w.NOUN).title()}"
    makers: dict[str, Callable[[], object]] = {
        "title": lambda: rng.choice([f"The {two}", two, f"{two}s", f"{rng.choice(w.NOUN).title()} & {two.split()[1]}"]),
        "street": lambda: f"{rng.randint(1, 180)} {two} Street",
        "email": lambda: (
            f"{rng.choice(w.PEOPLE).lower().replace(' ', '.')}@example.{rng.choice(['com', 'org', 'net'])}"
        ),
        "bool": lambda: rng.random() < 0.5,
        "id": lambda: rng.randint(1, 9999),
        "code": lambda: (
            f"{rng.choice('ABCDEFGHKLMNPRSTVXZ')}{rng.choice('ABCDEFHKLMNPQRSTUVW')}-{rng.randint(100, 9999)}"
        ),
        "money": lambda: round(rng.uniform(2, 900), 2),
        "score": lambda: round(rng.uniform(1, 50), 1),
        "rate": lambda: rng.choice([0.1, 0.03, 0.01, 0.003, 0.001, 0.0003]),
        "date": lambda: f"{rng.randint(2019, 2025)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
        "time": lambda: f"{rng.randint(0, 23):02d}:{rng.choice([0, 10, 15, 30, 45, 50]):02d}",
        "ip": lambda: f"10.{rng.randint(0, 40)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}",
        "phone": lambda: f"555-{rng.randint(100, 999)}-{rng.randint(1000, 9999)}",
    }
    return makers[name]()


class Schema:
    """One record type: a name and three to all of its fields, in a random order after the first."""

    def __init__(self, rng: random.Random) -> None:
        self.name, fields = rng.choice(w.SCHEMAS).split(": ", 1)
        pairs = [field.split("=", 1) for field in re.split(r" (?=\w+=)", fields)]
        rest = rng.sample(pairs[1:], rng.randint(2, len(pairs) - 1))
        self.kinds: dict[str, str] = dict([pairs[0], *rest])
        self.rng = rng

    @property
    def plural(self) -> str:
        ending = {"y": "ies", "s": "ses", "x": "xes", "h": "hes"}.get(self.name[-1])
        if self.name[-2:] == "ey" or not ending:
            return self.name + "s"
        return (self.name[:-1] if self.name[-1] == "y" else self.name) + (ending if ending == "ies" else "es")

    def record(self) -> dict[str, object]:
        return {field: value(kind, self.rng) for field, kind in self.kinds.items()}

    def sql_columns(self) -> str:
        def sql_type(kind: str) -> str:
            known = {
                "int": "INTEGER",
                "id": "INTEGER PRIMARY KEY",
                "bool": "BOOLEAN",
                "money": "NUMERIC(10, 2)",
                "score": "REAL",
                "date": "DATE",
                "time": "TIME",
            }
            return known.get(kind.split(",")[0], "TEXT NOT NULL")

        return ",\n".join(f"    {field} {sql_type(kind)}" for field, kind in self.kinds.items())

    def python_fields(self) -> list[tuple[str, str]]:
        known = {"int": "int", "id": "int", "bool": "bool", "money": "float", "score": "float", "rate": "float"}
        return [(field, known.get(kind.split(",")[0], "str")) for field, kind in self.kinds.items()]


def prose(record: dict[str, object], rng: random.Random) -> str:
    """Describe a record in running text, for extraction tasks."""

    def say(field: str, item: object) -> str:
        name = field.replace("_", " ")
        item = {True: "yes", False: "no"}[item] if isinstance(item, bool) else item
        return rng.choice(
            [
                f"the {name} is {item}",
                f"{name}: {item}",
                f"we noted {item} as the {name}",
                f"its {name} was given as {item}",
                f"for {name} they wrote {item}",
            ]
        )

    parts = [say(field, item) for field, item in record.items()]
    joiner = rng.choice([". ", "; ", ", and "])
    text = joiner.join(part[0].upper() + part[1:] if joiner == ". " else part for part in parts)
    return text[0].upper() + text[1:] + "."
