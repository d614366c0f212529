"""GET /, read without a browser: one piece, closed to the world, legible, and true to the API it reads."""

from __future__ import annotations

import base64
import hashlib
import re
import typing
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foretell.serving
from foretell.types import Origin
from tests.serving.live import Live, live, scripted

FOLDER = Path(foretell.serving.__file__).with_name("page")
HTML = (FOLDER / "index.html").read_text(encoding="utf-8")
CSS = (FOLDER / "style.css").read_text(encoding="utf-8")
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.js"))}
JS = "\n".join(SCRIPTS.values())
CODE = re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*", "", JS, flags=re.DOTALL)
IDS = re.findall(r'\bid="([\w-]+)"', HTML)


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with live(scripted(depth="auto")) as server:
        yield server


@pytest.fixture(scope="module")
def page(server: Live) -> tuple[str, Any]:
    with urllib.request.urlopen(server.url + "/", timeout=30) as answer:
        return answer.read().decode(), answer.headers


def test_one_piece_with_every_file_in_it(page: tuple[str, Any]) -> None:
    text, headers = page
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert {path.name for path in FOLDER.iterdir()} == {"index.html", "style.css", *SCRIPTS}
    assert CSS in text and all(script in text for script in SCRIPTS.values())
    assert text.count("<script>") == text.count("</script>") == len(SCRIPTS)


def test_no_address_but_its_own(page: tuple[str, Any]) -> None:
    text = page[0].replace("'http://www.w3.org/2000/svg'", "")  # a name, which nothing fetches
    assert not re.search(r"https?:|//\w|@import|url\(", re.sub(r"//\s.*|/\*.*?\*/", "", text))
    assert re.findall(r"""\b(?:src|href)=["']?([^"'> ]*)""", text) == ["data:,"]
    assert set(re.findall(r"""(?:send\(|\? )'(/[^']*)'""", JS)) == {"/v1/status", "/v1/chat/completions"}


def test_the_policy_allows_these_scripts_alone(page: tuple[str, Any]) -> None:
    text, headers = page
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
    assert {policy[name] for name in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}
    for tag in ("script", "style"):
        sources = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() for source in sources]
        assert policy[f"{tag}-src"].split() == [f"'sha256-{digest}'" for digest in hashes] != []
    assert not re.search(r"""<[^>]*\s(?:style|on\w+)=""", HTML)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", JS)


def test_only_the_page_is_open_without_a_key() -> None:
    with live(scripted(api_key="secret")) as server:
        assert server.get("/")[0] == 200
        assert {server.get(path)[0] for path in ("/v1/status", "/v1/models")} == {401}


def test_ids_and_classes_are_there_and_used() -> None:
    assert len(IDS) == len(set(IDS))
    read = set(re.findall(r"(?:\$|number)\('([\w-]+)'\)", JS))
    assert read <= set(IDS)
    pointed = set(re.findall(r'(?:for|aria-describedby)="([\w-]+)"', HTML))
    assert pointed <= set(IDS)
    styled = set(re.findall(r"#([a-z][\w-]*)(?=[^{};]*\{)", CSS))
    assert styled <= set(IDS)
    assert set(IDS) <= read | pointed | styled
    words = set(re.findall(r"[\w-]+", HTML + JS.replace("line${", "line0 line1 line2 line3 line4 line5 ${")))
    assert set(re.findall(r"\.([a-z][\w-]*)(?=[^{};]*\{)", CSS)) <= words


READS = {  # variables of the scripts that hold what the API answered
    "event": "event",
    "choice": "choice",
    "token": "token",
    "usage": "usage",
    "drafts": "drafts",
    "status": "status",
    "known": "status",
    "counts": "counts",
    "heads": "heads",
    "policy": "policy",
    "said": "error",
}


def test_every_field_that_is_read_is_in_a_real_answer(server: Live) -> None:
    details = {"policy": "fixed", "depth": 2, "details": True}
    common: Any = {"max_tokens": 9, "speculative": details, "stream_options": {"include_usage": True}}
    events = server.events("/v1/chat/completions", messages=[{"role": "user", "content": ">"}], **common)
    texts = server.events("/v1/completions", prompt=">", **common)
    choices = [choice for event in events + texts for choice in event["choices"]]
    token = next(choice for choice in choices if "speculative" in choice)["speculative"]["tokens"][0]
    status = server.get("/v1/status")[1]
    error = server.post("/v1/completions", {"nonsense": 1})[1]
    assert {"message", "code"} <= error["error"].keys()
    real: dict[str, Any] = {
        "event": merged(events) | error,
        "choice": merged(choices),
        "token": token,
        "usage": events[-1]["usage"],
        "drafts": events[-1]["usage"]["speculative"],
        "status": status,
        "counts": status["classes"]["chat"],
        "heads": status["heads"],
        "policy": status["policy"],
        "error": error,
    }
    found = 0
    for name, chain in re.findall(rf"(?<![.\w$])({'|'.join(READS)})((?:\??\.\w+)+)", CODE):
        value = real[READS[name]]
        for field in re.findall(r"\w+", chain):
            if not isinstance(value, dict):
                break
            assert field in value, f"{name}{chain}"
            value, found = value[field], found + 1
    assert found > 40
    for chain in re.findall(r"const \{ (.*?) \} = status(.*?);", JS):
        value = status["policy"] if chain[1] == ".policy" else status
        assert {part.split(":")[0] for part in chain[0].split(", ")} <= value.keys()
    # Names with an underscore are the API's, read or sent: the scripts' own have none.
    sent = {"max_tokens", "stream_options", "include_usage", "no_template", "no_connection", "invalid_api_key"}
    names = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", CODE))
    assert names <= sent | {key for value in real.values() for key in value}


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """All keys of equal things; of two values the one that says more."""
    found: dict[str, Any] = {}
    for part in parts:
        found |= {key: value for key, value in part.items() if value or key not in found}
    return found


def test_origins_have_words_and_two_marks_each() -> None:
    origins = typing.get_args(Origin)
    words = re.search(r"const ORIGINS = \{(.*?)\n\};", JS, re.DOTALL)
    assert words and re.findall(r"^  (\w+):", words[1], re.MULTILINE) == sorted(origins, key=words[1].index)
    rules = {name: re.search(rf"\n\.{name} \{{ (.*?) \}}", CSS)[1] for name in origins}  # type: ignore[index]
    assert all(f"var(--{name})" in rule for name, rule in rules.items())
    assert len({re.search(r"solid|double|dotted|dashed", rule)[0] for rule in rules.values()}) == 3  # type: ignore[index]


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance of #rrggbb."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(scheme: str) -> None:
    """WCAG: 4.5 for text, 3 for marks and borders of controls."""
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", blocks[scheme == "dark"]))
    assert len(blocks) == 2 and len(colours) == 12 and contrast("#000000", "#ffffff") == pytest.approx(21)
    grounds = ("ground", "band", "accepted-tint", "bonus-tint")
    texts = [("ink", ground) for ground in grounds] + [("soft", "ground"), ("soft", "band"), ("warn", "ground")]
    marks = [(name, ground) for name in ("accepted", "bonus") for ground in ("ground", f"{name}-tint")]
    for names, least in ((texts, 4.5), ([*marks, ("recovered", "ground"), ("edge", "ground")], 3.0)):
        for one, other in names:
            assert contrast(colours[one], colours[other]) >= least, (one, other)
    lines = re.findall(r"\.line\d \{ color: (#\w{6});", CSS)
    assert len(lines) == 6 and all(contrast(line, colours["ground"]) >= 3 for line in lines)
