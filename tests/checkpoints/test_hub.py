"""Names on the hub: one short question, an answer in one line, and the local cache where there is no network."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from foretell.checkpoints import hub
from foretell.checkpoints.load import load
from foretell.errors import CheckpointError
from tests.fixtures import byte_tokenizer, tiny_llama

NAME = "owner/tiny"


class FakeHub(BaseHTTPRequestHandler):
    """Answers every question with ``status`` and counts the questions."""

    status, reason, num_asked = 200, "", 0

    def do_HEAD(self) -> None:
        """The only kind of question there is."""
        type(self).num_asked += 1
        self.send_response(self.status)
        self.send_header("X-Error-Code", self.reason)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeHub]]:
    class Handler(FakeHub):
        pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        point_at(monkeypatch, server.server_port)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Handler
        server.shutdown()
        thread.join()


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        point_at(monkeypatch, free.getsockname()[1])


def point_at(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(hub, "hf_hub_url", lambda name, file: f"http://127.0.0.1:{port}/{name}/{file}")


def refusal(name: str = NAME) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_hub_knows_the_name(fake_hub: type[FakeHub]) -> None:
    assert hub.hub_answers(NAME)
    fake_hub.status, fake_hub.reason = 404, "EntryNotFound"
    assert hub.hub_answers(NAME)


def test_a_name_the_hub_does_not_know_is_one_line(fake_hub: type[FakeHub]) -> None:
    fake_hub.status, fake_hub.reason = 404, "RepoNotFound"
    assert refusal() == (
        "owner/tiny: no folder of that name here, no copy in the hub's cache, and the hub knows no such model; "
        "for a private one, run: hf auth login"
    )
    fake_hub.status, fake_hub.reason = 403, "GatedRepo"
    assert "on request" in refusal()
    assert fake_hub.num_asked == 2


def test_a_hub_that_is_down_is_asked_once(fake_hub: type[FakeHub]) -> None:
    fake_hub.status = 503
    assert "the hub cannot be asked" in refusal() and fake_hub.num_asked == 1


def test_without_a_network_it_takes_no_retries(no_hub: None) -> None:
    start = time.monotonic()
    message = refusal()
    assert time.monotonic() - start < 2
    assert "owner/tiny: no folder of that name here" in message and "the hub cannot be asked" in message


def test_a_hub_that_never_answers_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub._TIMEOUT_S <= 5
    monkeypatch.setattr(hub, "_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        point_at(monkeypatch, silent.getsockname()[1])
        start = time.monotonic()
        assert "the hub cannot be asked" in refusal()
        assert time.monotonic() - start < 2


def test_offline_mode_asks_nobody(fake_hub: type[FakeHub], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "offline mode" in refusal() and fake_hub.num_asked == 0


def test_the_cached_copy_is_used_without_a_network(no_hub: None, empty_cache: Path) -> None:
    repository = empty_cache / "models--owner--tiny"
    snapshot = repository / "snapshots" / ("0" * 40)
    tiny_llama().save_pretrained(snapshot)
    byte_tokenizer().save_pretrained(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    start = time.monotonic()
    model = load(NAME)
    assert time.monotonic() - start < 5
    assert model.trunk.name == NAME and model.tokenizer is not None
    assert hub.cached_folder(NAME) == snapshot and hub.cached_folder("owner/other") is None
