"""The Grafana dashboard asks for what a server's /metrics has, by name and label, and adds it up as it must be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.conftest import ROOT
from tests.serving.live import live, scripted

DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana" / "foretell.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
EXPRESSIONS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
SELECTOR = re.compile(r"(foretell:\w+)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)=~"\$(\w+)"')
AGGREGATE = re.compile(r"\b(?:sum|max) by \(([^)]*)\)")


@pytest.fixture(scope="module")
def labels() -> Iterator[dict[str, set[str]]]:
    """Names in a real answer, with their labels."""
    found: dict[str, set[str]] = {}
    with live(scripted(depth="auto")) as server:
        server.chat(max_tokens=200)  # for a speed-up the policy must have seen several depths
        server.complete(max_tokens=9)
        _, text = server.get("/metrics")
    for name, inner in re.findall(r"^(foretell:\w+)\{(.*)\} ", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', inner))
    yield found


@pytest.mark.parametrize(("title", "target"), EXPRESSIONS, ids=str)
def test_names_and_labels_exist(labels: dict[str, set[str]], title: str, target: Any) -> None:
    expr = target["expr"]
    selectors = SELECTOR.findall(expr)
    assert selectors and len(selectors) == expr.count("foretell:")
    grouped = {name.strip() for by in AGGREGATE.findall(expr) for name in by.split(",")}
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    for name, inner in selectors:
        assert name in labels, f"{name} is in no answer"
        matchers = MATCHER.findall(inner)
        assert len(matchers) == len(inner.split(",")) and {label for label, _ in matchers} | grouped <= labels[name]
        assert {variable for _, variable in matchers} <= variables
        # Where classes are told apart, the choice of classes counts.
        assert ("request_class" in labels[name]) == ("$class" in inner)
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) == grouped - {"le"}
    assert expr.count("(") == expr.count(")") and expr.count("{") == expr.count("}")


@pytest.mark.parametrize(("title", "target"), EXPRESSIONS, ids=str)
def test_counters_are_rates_and_quotients_agree(title: str, target: Any) -> None:
    expr = target["expr"]
    for name, inner in SELECTOR.findall(expr):
        is_counter = name.endswith(("_total", "_bucket", "_count", "_sum"))
        assert (f"rate({name}{{{inner}}}[$__rate_interval])" in expr) == is_counter
        assert not name.endswith("_bucket") or expr.startswith("histogram_quantile(0.") and "by (le)" in expr
    parts = expr.split(" / ")
    assert len({tuple(AGGREGATE.findall(part)) for part in parts}) == 1, "sides are grouped otherwise"


def test_the_quotients_are_those_that_their_titles_say() -> None:
    quotients = {
        title: [name.removeprefix("foretell:").removesuffix("_total") for name, _ in SELECTOR.findall(target["expr"])]
        for title, target in EXPRESSIONS
        if " / " in target["expr"]
    }
    assert quotients == {
        "Tokens a pass, by class": ["generation_tokens", "decode_passes"],
        "Acceptance rate, by class": ["spec_decode_num_accepted_tokens", "spec_decode_num_draft_tokens"],
        "Acceptance by depth": ["spec_decode_num_accepted_tokens_per_pos", "spec_decode_num_draft_tokens_per_pos"],
        "Passes that drafted, by class": ["spec_decode_num_drafts", "decode_passes"],
    }


def test_nothing_that_a_server_tells_is_left_out(labels: dict[str, set[str]]) -> None:
    shown = {name for _, target in EXPRESSIONS for name, _ in SELECTOR.findall(target["expr"])}
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in labels}
    assert families == {re.sub(r"_bucket$", "", name) for name in shown}


def test_variables_ask_for_labels_that_exist(labels: dict[str, set[str]]) -> None:
    source, *queries = DASHBOARD["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    for variable in queries:
        match = re.fullmatch(r"label_values\((foretell:\w+)(?:\{.*\})?, (\w+)\)", variable["query"]["query"])
        assert match and match[2] in labels[match[1]] and variable["definition"] == variable["query"]["query"]


def test_the_layout() -> None:
    uid = f"${{{DASHBOARD['templating']['list'][0]['name']}}}"
    cells: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        own = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not own & cells and place["x"] + place["w"] <= 24
        cells |= own
        assert panel["title"] and panel["description"]
        assert {panel["datasource"]["uid"], *(t["datasource"]["uid"] for t in panel["targets"])} == {uid}
        assert len({t["refId"] for t in panel["targets"]}) == len(panel["targets"])
    assert len({panel["id"] for panel in PANELS}) == len(PANELS) and DASHBOARD["schemaVersion"] >= 39
