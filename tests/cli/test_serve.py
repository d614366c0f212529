"""``foretell serve`` as users start and stop it: a process, a signal, an exit code."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from foretell.checkpoints.adapter import save_adapter
from foretell.models.trunk import Trunk
from tests.fixtures import byte_tokenizer, random_heads, tiny_llama


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("serve")
    trunk = Trunk(tiny_llama(max_position_embeddings=8192), byte_tokenizer(), name="tiny")
    trunk.model.save_pretrained(root / "tiny")
    trunk.tokenizer.save_pretrained(root / "tiny")
    save_adapter(random_heads(trunk), root / "heads")
    (root / "key").write_text("secret\n")
    (root / "empty").write_text("\n")
    return root


@contextmanager
def served(*options: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """The process, its URL, and what it said before."""
    line = [sys.executable, "-m", "foretell", "serve", *options, "--port", "0"]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env={**os.environ, **env})
    said: list[str] = []
    assert process.stderr is not None
    try:
        for text in process.stderr:
            said.append(text)
            if found := re.search(r"serving \S+ at (http://\S+)", text):
                break
        else:
            raise AssertionError("".join(said))
        yield process, found[1], said
    finally:
        process.kill()
        process.wait(10)


def get(url: str, **headers: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
        return json.loads(answer.read())


def ask(url: str, max_tokens: int, stream: bool) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    body = {"prompt": "abc", "max_tokens": max_tokens, "stream": stream, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection


def begun(url: str, max_tokens: int) -> http.client.HTTPResponse:
    """A stream that has sent something."""
    answer = ask(url, max_tokens, True).getresponse()
    answer.readline()
    return answer


def test_one_line_starts_it_and_says_what_it_does(folder: Path) -> None:
    with served(str(folder / "tiny"), "--heads", str(folder / "heads")) as (process, url, said):
        status = get(f"{url}/v1/status")
        assert (status["model"], status["policy"]["depth"], status["why_plain"]) == ("tiny", "auto", None)
        text = "".join(said)
        assert "heads: sequential" in text and "drafting: heads, depth auto" in text and "batch of 16" in text
        answer = begun(url, 300)
        process.send_signal(signal.SIGTERM)  # what runs is finished
        assert answer.read().decode().rstrip().endswith("data: [DONE]")
        assert process.wait(30) == 0


@pytest.mark.parametrize("stream", [True, False])
def test_what_does_not_end_in_time_is_told_so(folder: Path, stream: bool) -> None:
    """And the process ends well, in the middle of a step."""
    with served(str(folder / "tiny"), "--grace", "0.5") as (process, url, said):
        assert "plain decoding" in "".join(said) and "--drafter ngram" in "".join(said)
        connection = ask(url, 8000, stream)
        answer = connection.getresponse() if stream else None
        if answer is not None:
            answer.readline()
        else:
            time.sleep(1)
        process.send_signal(signal.SIGINT if stream else signal.SIGTERM)
        answer = answer or connection.getresponse()
        assert answer.status == (200 if stream else 503)
        assert "server_stopping" in answer.read().decode()
        assert process.wait(20) == 0
        assert process.stderr is not None and process.stderr.read() == ""


def test_a_key_from_a_file_or_the_environment(folder: Path) -> None:
    for options, env in ((("--api-key-file", str(folder / "key")), {}), ((), {"FORETELL_API_KEY": "secret"})):
        with served(str(folder / "tiny"), *options, **env) as (_, url, _said):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                get(f"{url}/v1/models")
            assert get(f"{url}/v1/models", Authorization="Bearer secret")["data"][0]["id"] == "tiny"


def test_bad_options(run: Any, folder: Path) -> None:
    model = str(folder / "tiny")
    cases = [
        (["--timeout", "0"], 2, "--timeout"),
        (["--grace", "-1"], 2, "--grace"),
        (["--memory", "nan"], 2, "--memory"),
        (["--memory", "1e-9"], 2, "--memory"),
        (["--port", "70000"], 2, "--port"),
        (["--host", "no.such.host.invalid"], 2, "--host"),
        (["--depth", "2"], 2, "no heads"),
        (["--depth", "many"], 2, "--depth"),
        (["--api-key-file", str(folder / "none")], 1, "--api-key-file"),
        (["--api-key-file", str(folder / "empty")], 2, "empty"),
        (["--api-key-file", str(folder)], 1, "--api-key-file"),
        (["--name", ""], 2, "name"),
        (["--draft-model", str(folder / "none")], 1, "none"),
    ]
    for options, code, word in cases:
        ran = run("serve", model, *options)
        assert (ran.code, ran.out) == (code, "") and word in ran.err, (options, ran.err)
        assert "Traceback" not in ran.err
    assert run("serve", str(folder / "nowhere")).code == 1


def test_a_port_in_use(run: Any, folder: Path) -> None:
    with served(str(folder / "tiny")) as (_, url, _said):
        ran = run("serve", str(folder / "tiny"), "--port", url.rsplit(":", 1)[1])
        assert ran.code == 2 and "in use" in ran.err and "another port" in ran.err


def test_open_to_others_without_a_key_is_said(folder: Path) -> None:
    with served(str(folder / "tiny"), "--host", "0.0.0.0") as (_, _url, said):
        assert "no API key" in "".join(said)
