"""Shell blocks of a guide, run one after the other in one shell, as a reader would: servers in the background, curl."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PORT = "8000"
"""The port that guides name; a free one takes its place."""
_CURL = """\
curl() {
    if [ "$BASHPID" = "$$" ]; then command curl --max-time 60 -w '%{stderr}\\nHTTP %{http_code}\\n' "$@"
    else command curl --max-time 60 "$@"; fi
}
"""
"""Tells the answer's code on standard error, but for calls in the background and in pipes, which nobody waits for."""
_CALL = re.compile(r"^curl\b", re.MULTILINE)
_NOT_AWAITED = re.compile(r"&$| \| ", re.MULTILINE)
_EXPECTED = re.compile(r"# (\d{3})\b")


class Shell:
    """``port``: what stands for 8000. A call of curl is expected to get a 200, or what a comment behind it says."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("curl") is None or shutil.which("bash") is None:
            pytest.skip("the page's commands need bash and curl")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])
        self._log = folder / "shell.log"
        self._script = folder / "block.sh"
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._bash = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("w"),
            text=True,
            env={**os.environ, "PATH": path},
            start_new_session=True,
        )

    def run(self, text: str) -> str:
        """Its standard output. Fails where its last command does, or where a call of curl is answered otherwise."""
        assert self._bash.stdin is not None and self._bash.stdout is not None
        before = self._log.stat().st_size
        self._script.write_text(_CURL + text + "\n", encoding="utf-8")
        self._bash.stdin.write(f". {self._script} </dev/null\necho :END:$?\n")
        self._bash.stdin.flush()
        output = ""
        for line in self._bash.stdout:
            output += line
            if ":END:" in line:
                break
        output, _, code = output.rpartition(":END:")
        told = self._log.read_text(encoding="utf-8", errors="replace")[before:]
        assert code.strip() == "0", f"exit code {code.strip() or 'none'}: {told}"
        calls = [call for call in _CALL.split(text)[1:] if not _NOT_AWAITED.search(call.partition("\n")[0])]
        expected = [_EXPECTED.search(call) for call in calls]
        got = re.findall(r"^HTTP (\d+)$", told, re.MULTILINE)
        assert got == [found[1] if found else "200" for found in expected], f"answers {got}: {output}\n{told}"
        return output

    def close(self) -> None:
        """End the shell and what it has left running."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.communicate()
