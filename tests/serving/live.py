"""A real server on a free port, in a thread, and real clients for it."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import openai
import uvicorn

from foretell.decoding.engine import Engine
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.serving.app import make_app
from foretell.serving.listener import bind
from foretell.serving.run import config_of
from foretell.serving.service import Service
from foretell.serving.settings import Settings
from tests.fixtures import byte_tokenizer, script_trunk, scripted_heads

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}"
)
ALPHABET = ">abcdefghijklmnopqrstuvwxyz>"
"""A cycle: the text never ends by itself."""


@dataclass
class Live:
    """A running server: ``url``, and the service behind it."""

    url: str
    service: Service
    server: uvicorn.Server

    @property
    def num_connections(self) -> int:
        return len(self.server.server_state.connections)

    @property
    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=30)

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        return self._send(urllib.request.Request(self.url + path, headers=headers))

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **headers}
        return self._send(urllib.request.Request(self.url + path, data, headers))

    def chat(self, text: str = ">", **fields: Any) -> tuple[int, Any]:
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields}
        return self.post("/v1/chat/completions", body)

    def complete(self, prompt: Any = ">", **fields: Any) -> tuple[int, Any]:
        return self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})

    def events(self, path: str, **fields: Any) -> list[Any]:
        """Data of a streamed answer, [DONE] checked and taken off."""
        body = {"temperature": 0, "stream": True, **fields}
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            lines = [line for line in answer.read().decode().split("\n\n") if line]
        assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]

    def settle(self) -> None:
        """Wait until nothing runs."""
        end = time.monotonic() + 10
        engine = self.service.engine
        while (engine.num_running or engine.num_waiting or self.service.num_rows) and time.monotonic() < end:
            time.sleep(0.01)
        assert (engine.num_running, engine.num_waiting, self.service.num_rows) == (0, 0, 0)
        assert engine.cache_use == 0

    @staticmethod
    def _send(request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status, raw = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, raw = error.code, error.read()
        try:
            return status, json.loads(raw)
        except ValueError:
            return status, raw.decode()


@contextmanager
def live(service: Service, idle_s: int = 30, unread_s: float = 90.0) -> Iterator[Live]:
    listener = bind("127.0.0.1", 0, unread_s)
    server = uvicorn.Server(config_of(make_app(service), 10, idle_s))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield Live(f"http://127.0.0.1:{listener.getsockname()[1]}", service, server)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def service_of(
    trunk: Trunk, heads: Any = None, max_batch: int = 4, template: str | None = TEMPLATE, **settings: Any
) -> Service:
    trunk.tokenizer = byte_tokenizer(template)
    engine = Engine(MTPModel(trunk, heads), max_batch)
    return Service(
        engine, Settings(**{"name": "tiny", "depth": 0 if heads is None else 3, "fixed_depth": 3} | settings)
    )


def scripted(chain: str = ALPHABET, kind: Any = "perfect", window: int = 512, **settings: Any) -> Service:
    trunk = script_trunk(chain, max_positions=window)
    return service_of(trunk, scripted_heads(trunk, kind), **settings)


def slow_down(service: Service, step_s: float) -> None:
    """Every step takes at least so long."""
    service.engine.watch(lambda works, times: time.sleep(step_s))
