"""C39: nobody waits for the engine but those who asked it something; who leaves takes nothing along."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.responses import JSONResponse

from foretell.serving import app, run
from foretell.serving.listener import bind
from tests.fixtures import encode
from tests.serving.live import ALPHABET, Live, live, scripted, slow_down

LONG: dict[str, Any] = {"prompt": ">", "max_tokens": 400, "temperature": 0, "speculative": {"depth": 0}}


def open_stream(server: Live, path: str = "/v1/completions", **fields: Any) -> http.client.HTTPConnection:
    """A client that has sent a request and may leave."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    body = json.dumps(LONG | fields)
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    return connection


def wait_until(condition: Any, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def test_health_and_short_requests_beside_a_long_one() -> None:
    service = scripted(max_batch=8)
    slow_down(service, 0.02)
    with live(service) as server, ThreadPoolExecutor(8) as pool:
        long = pool.submit(server.post, "/v1/completions", LONG)
        wait_until(lambda: service.engine.num_running)
        slowest = 0.0
        for path in ["/health", "/v1/models", "/metrics", "/v1/status"] * 5:
            start = time.monotonic()
            assert server.get(path)[0] == 200
            slowest = max(slowest, time.monotonic() - start)
        assert slowest < 0.2
        short = [pool.submit(server.complete, start, max_tokens=3) for start in "aeio"]
        assert [f.result()[1]["choices"][0]["text"] for f in short] == ["bcd", "fgh", "jkl", "pqr"]
        assert not long.done()
        assert long.result()[1]["choices"][0]["text"] == (ALPHABET[1:] * 20)[:400]
        server.settle()


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_is_aborted(stream: bool) -> None:
    """Running or waiting; what it held comes back, and others go on."""
    service = scripted(max_batch=1)
    slow_down(service, 0.02)
    with live(service) as server:
        running = open_stream(server, stream=stream)
        wait_until(lambda: service.engine.num_running == 1)
        waiting = open_stream(server, stream=stream)
        wait_until(lambda: service.engine.num_waiting == 1)
        waiting.close()
        wait_until(lambda: service.engine.num_waiting == 0, 1)
        running.close()
        wait_until(lambda: service.engine.num_running == 0, 1)
        server.settle()
        assert server.complete(max_tokens=2)[1]["choices"][0]["text"] == "ab"


def test_a_full_queue_says_come_again() -> None:
    service = scripted(max_batch=1, max_waiting=1)
    slow_down(service, 0.02)
    with live(service) as server:
        held = [open_stream(server, stream=True) for _ in range(2)]
        wait_until(lambda: service.num_rows == 2)
        refused = open_stream(server)
        answer = refused.getresponse()
        assert answer.status == 429 and int(answer.headers["Retry-After"]) >= 1
        assert json.loads(answer.read())["error"]["code"] == "queue_full"
        for connection in held:
            connection.close()
        server.settle()
        assert server.complete(max_tokens=1)[0] == 200
        status, body = server.complete(n=3)  # more than ever fit
        assert (status, body["error"]["param"]) == (400, "n")


def test_who_does_not_read_holds_no_place() -> None:
    """The answer is longer than what sockets hold; its rows end all the same, and in time so does the connection."""
    service = scripted(max_batch=8, send_timeout_s=1.0, window=1024)
    with live(service, unread_s=3) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.connect((host, int(port)))
            body = json.dumps(LONG | {"stream": True, "n": 8, "max_tokens": 1000, "logprobs": 20}).encode()
            head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            silent.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_until(lambda: service.num_rows == 8)
            wait_until(lambda: service.num_rows == 0, 60)
            assert server.complete(max_tokens=1)[0] == 200
            wait_until(lambda: server.num_connections == 0, 30)
        server.settle()


HALF = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
WHOLE = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


BODY_TO_COME = b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n"


@pytest.mark.parametrize(
    "says", [[], [HALF], [WHOLE], [WHOLE, HALF], [WHOLE + WHOLE, HALF], [BODY_TO_COME, b"x", b"x"]]
)
def test_who_says_nothing_whole_is_let_go(says: list[bytes]) -> None:
    with live(scripted(), idle_s=1) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 10) as idle:
            for part in says:
                idle.sendall(part)
                time.sleep(0.1)
            answers = b""
            while part := _received(idle):
                answers += part
            assert answers.count(b"HTTP/1.1 200") == b"".join(says).count(b"GET")
            wait_until(lambda: server.num_connections == 0)


def _received(client: socket.socket) -> bytes:
    try:
        return client.recv(4096)
    except ConnectionResetError:
        return b""


def test_a_slow_answer_is_not_idle() -> None:
    service = scripted()
    slow_down(service, 0.1)
    with live(service, idle_s=1) as server:
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
        for _ in range(2):  # one behind the other, on one connection
            body = json.dumps(LONG | {"max_tokens": 15})
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            assert json.load(connection.getresponse())["usage"]["completion_tokens"] == 15


def test_bodies_have_a_room_together() -> None:
    """Sixteen of the longest kind; who comes then is told so, and when some have gone there is room again."""
    with live(scripted(max_body_bytes=1000)) as server:
        host, port = server.url.removeprefix("http://").split(":")
        head = HALF + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        held = [socket.create_connection((host, int(port)), 10) for _ in range(16)]
        for connection in held:
            connection.sendall(head + b" " * 999)
        wait_until(lambda: server.complete(max_tokens=1)[0] == 503)
        status, body = server.complete(max_tokens=1)
        assert (status, body["error"]["code"]) == (503, "bodies_too_large")
        for connection in held:
            connection.close()
        wait_until(lambda: server.complete(max_tokens=1)[0] == 200)


def test_large_answers_are_written_outside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def noted(content: Any, *args: Any) -> JSONResponse:
        if "choices" in content:
            threads.append(threading.current_thread().name)
        return JSONResponse(content, *args)

    with live(scripted()) as server:
        monkeypatch.setattr(app, "JSONResponse", noted)
        assert server.complete(max_tokens=1)[0] == 200
    assert len(threads) == 1 and threads[0].startswith("asyncio_")


def test_a_signal_before_the_server_listens_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    late = threading.Timer(20, signal.raise_signal, [signal.SIGTERM])
    real = run._Server.run

    def early(server: Any, sockets: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        late.start()
        real(server, sockets)

    monkeypatch.setattr(run._Server, "run", early)
    listener = bind("127.0.0.1", 0)
    run.serve_app(app.make_app(scripted()), listener, 1, lambda: None)
    assert late.is_alive()
    late.cancel()


def test_a_request_has_its_time() -> None:
    service = scripted(timeout_s=0.3)
    slow_down(service, 0.02)
    with live(service) as server:
        status, body = server.post("/v1/completions", LONG)
        assert (status, body["error"]["code"]) == (504, "timeout")
        *_, last = server.events("/v1/completions", **LONG)
        assert last["error"]["code"] == "timeout"
        server.settle()
        assert service.trouble is None


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_fails_turns_red(stream: bool) -> None:
    """Those who wait are told, by an event where a stream has begun, and whoever comes later; no word of the inside."""
    service = scripted(max_batch=1)
    broken = threading.Event()

    def breaks(works: Any, times: Any) -> None:
        if broken.is_set():
            raise RuntimeError("/secret/path: the device is gone")
        time.sleep(0.02)

    service.engine.watch(breaks)
    with live(service) as server:
        clients = [open_stream(server, stream=stream) for _ in range(3)]
        wait_until(lambda: service.num_rows == 3)
        assert server.get("/health")[0] == 200
        broken.set()
        for connection in clients:
            answer = connection.getresponse()
            text = answer.read().decode()
            assert answer.status in ((200, 500) if stream else (500,)) and "engine_error" in text
            assert "secret" not in text and "device" not in text
        for path in ("/health", "/ready"):
            assert server.get(path)[0] == 503
        status, body = server.complete(max_tokens=1)
        assert (status, body["error"]["code"]) == (503, "engine_error")
        assert server.get("/v1/models")[0] == 200


def test_mixed_requests_equal_their_own_runs() -> None:
    """Many at once, of every depth, some with n, some leaving: each answer is what the engine gives alone."""
    service = scripted(max_batch=4)
    cycle = ALPHABET[1:] * 20
    with live(service) as server, ThreadPoolExecutor(12) as pool:

        def one(i: int) -> None:
            start, size, depth = i % 26, 3 + i * 7 % 60, i % 5
            prompt = cycle[start]
            right = cycle[start + 1 : start + 1 + size]
            fields: Any = {"max_tokens": size, "speculative": {"depth": depth}}
            if i % 4 == 3:
                open_stream(server, stream=True).close()
            elif i % 4 == 2:
                _, body = server.complete(prompt, n=2, temperature=1e-5, **fields)
                assert [c["text"] for c in body["choices"]] == [right] * 2
            elif i % 4 == 1:
                events = server.events("/v1/completions", prompt=prompt, **fields)
                assert "".join(c["text"] for e in events for c in e["choices"]) == right
            else:
                _, body = server.chat(prompt, return_token_ids=True, **fields)
                assert body["choices"][0]["token_ids"] == encode(right)

        list(pool.map(one, range(80)))
        server.settle()
        assert service.trouble is None
