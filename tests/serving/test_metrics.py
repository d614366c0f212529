"""C42: the same numbers in usage, status and metrics, by class; they never fall."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from foretell.types import AcceptanceStats
from tests.fixtures import script_trunk
from tests.serving.live import ALPHABET, Live, live, scripted, service_of, slow_down


def samples(server: Live) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    _, text = server.get("/metrics")
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = re.fullmatch(r"([a-z_:A-Z0-9]+)(?:\{(.*)\})? (\S+)", line)
        assert match, line
        labels = frozenset(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
        found[match[1], labels] = float(match[3])
    return found


def counter(server: Live, name: str, label: str, **more: str) -> float:
    labels = {"model_name": "tiny", "request_class": label, **more}
    return samples(server).get((f"foretell:{name}_total", frozenset(labels.items())), 0.0)


@pytest.mark.parametrize(("kind", "rate"), [("perfect", 1.0), ("wrong", 0.0)])
def test_counts_agree_everywhere(kind: str, rate: float) -> None:
    with live(scripted(kind=kind)) as server:
        _, body = server.complete(max_tokens=13, speculative={"depth": 3, "details": True}, metadata={"class": "mine"})
        usage = body["usage"]["speculative"]
        assert usage["acceptance_rate"] == rate and usage["num_drafts"] > 0
        for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
            assert counter(server, f"spec_decode_{name}", "mine") == usage[name]
        for k in range(3):
            per_position = counter(server, "spec_decode_num_accepted_tokens_per_pos", "mine", position=str(k))
            assert per_position == usage["num_accepted_tokens_per_pos"][k]
            drafted = counter(server, "spec_decode_num_draft_tokens_per_pos", "mine", position=str(k))
            assert drafted == usage["num_draft_tokens_per_pos"][k]
        assert counter(server, "generation_tokens", "mine") == 13 and counter(server, "prompt_tokens", "mine") == 1
        assert counter(server, "decode_passes", "mine") == usage["num_passes"]
        status = server.get("/v1/status")[1]["classes"]["mine"]
        assert {name: status[name] for name in AcceptanceStats().as_dict()} == {
            name: usage[name] for name in AcceptanceStats().as_dict()
        }
        assert status["tokens_per_pass"] == pytest.approx(13 / usage["num_passes"])
        assert counter(server, "request_success", "mine", finished_reason="length") == 1
        before = samples(server)
        server.complete(max_tokens=5, metadata={"class": "mine"})
        after = samples(server)
        moved = [key for key in before if key[0].endswith(("_total", "_count", "_bucket"))]
        assert all(after[key] >= before[key] for key in moved)
        assert any(after[key] > before[key] for key in moved)


def test_classes() -> None:
    code = "look:\n```python\nx = 1\n```"
    with live(scripted()) as server:
        server.chat()
        server.chat(code)
        server.complete()
        server.chat(response_format={"type": "json_object"}, max_tokens=2)
        server.chat(metadata={"class": "a b"})
        server.post("/v1/completions", {"prompt": ">", "max_tokens": 2}, **{"X-Request-Class": "header"})
        classes = server.get("/v1/status")[1]["classes"]
        assert set(classes) == {"chat", "code:python", "text", "json", "a b", "header"}
        for i in range(80):
            server.complete(max_tokens=1, metadata={"class": f"c{i}"})
        assert len(server.get("/v1/status")[1]["classes"]) <= 65
        named = {value for _, labels in samples(server) for key, value in labels if key == "request_class"}
        assert len(named) <= 65 and "other" in named


def test_status_says_what_is_there() -> None:
    with live(scripted(depth="auto")) as server:
        status = server.get("/v1/status")[1]
        assert status["heads"]["kind"] == "sequential" and status["drafter"] == "heads"
        assert status["policy"] == {"depth": "auto", "fixed_depth": 3, "max_depth": None}
        assert status["why_plain"] is None
        assert status["window"] == 512 and status["kv_cache_usage"] == 0
        server.complete(max_tokens=200)
        found: Any = server.get("/v1/status")[1]["classes"]["text"]
        assert found["num_drafts"] > 0 and found["speedup"] is not None
        labels = frozenset({"model_name": "tiny", "request_class": "text"}.items())
        gauges = samples(server)
        for name in ("depth", "speedup"):
            assert gauges[f"foretell:spec_decode_{name}", labels] == pytest.approx(found[name])
        assert gauges["foretell:spec_decode_gated", labels] == found["is_gated"]
    with live(service_of(script_trunk(ALPHABET))) as plain:
        status = plain.get("/v1/status")[1]
        assert status["heads"] is None and "has no heads" in status["why_plain"]
        status, body = plain.complete(speculative={"depth": 2})
        assert status == 400 and "no heads" in body["error"]["message"]
    with live(scripted(depth=0)) as off:
        assert "--depth 0" in off.get("/v1/status")[1]["why_plain"]


def test_what_requests_ask_for_is_not_the_policy() -> None:
    with live(scripted(depth="auto")) as server:
        for _ in range(4):
            server.complete(max_tokens=20, speculative={"policy": "off"})
        found = server.get("/v1/status")[1]["classes"]["text"]
        assert (found["depth"], found["is_gated"], found["speedup"]) == (None, False, None)
        assert not any(name == "foretell:spec_decode_depth" for name, _ in samples(server))


def test_who_left_is_counted() -> None:
    with live(scripted(timeout_s=0.2)) as server:
        slow_down(server.service, 0.02)
        assert server.complete(max_tokens=300, n=2, speculative={"depth": 0})[0] == 504
        assert counter(server, "request_success", "text", finished_reason="abort") == 2


def test_gauges_and_times() -> None:
    with live(scripted()) as server:
        server.complete(max_tokens=9)
        found = {name: value for (name, _), value in samples(server).items()}
        assert found["foretell:num_requests_running"] == found["foretell:num_requests_waiting"] == 0
        assert found["foretell:kv_cache_usage_perc"] == 0
        for name in ("time_to_first_token", "time_per_output_token", "e2e_request_latency"):
            assert found[f"foretell:{name}_seconds_count"] == 1 and 0 < found[f"foretell:{name}_seconds_sum"] < 10


def test_passes_that_no_draft_could_help_do_not_gate() -> None:
    with live(scripted(depth="auto")) as server:
        server.complete(max_tokens=1)
        server.complete(max_tokens=2)
        found = server.get("/v1/status")[1]["classes"]["text"]
        assert found["num_passes"] == 3 and (found["depth"], found["is_gated"]) == (None, False)


def test_time_in_the_queue() -> None:
    """The second waits until the first is done, and no longer."""
    with live(scripted(max_batch=1)) as server:
        slow_down(server.service, 0.02)
        server.complete(max_tokens=20, n=2, speculative={"depth": 0})
        sums = {name: value for (name, _), value in samples(server).items()}
        assert sums["foretell:request_queue_time_seconds_count"] == 2
        queued, whole = (sums[f"foretell:{n}_seconds_sum"] for n in ("request_queue_time", "e2e_request_latency"))
        assert 0.38 < queued < whole / 2


def test_who_waits_is_counted_before_the_engine_sees_it() -> None:
    """It looks for new requests between its steps, and a step may be long."""
    service = scripted(max_batch=1)
    slow_down(service, 1.0)
    with live(service) as server, ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(server.complete, max_tokens=2, speculative={"depth": 0})]
        end = time.monotonic() + 10
        while not service.engine.num_running and time.monotonic() < end:
            time.sleep(0.005)
        asked += [pool.submit(server.complete, max_tokens=1, speculative={"depth": 0}) for _ in range(2)]
        end = time.monotonic() + 0.5  # within the step
        while service.num_rows < 3 and time.monotonic() < end:
            time.sleep(0.005)
        status = server.get("/v1/status")[1]
        assert (service.engine.num_waiting, status["num_running"], status["num_waiting"]) == (0, 1, 2)
        assert samples(server)["foretell:num_requests_waiting", frozenset({("model_name", "tiny")})] == 2
        assert all(found.result()[0] == 200 for found in asked)
        assert server.get("/v1/status")[1]["num_waiting"] == 0
