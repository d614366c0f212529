"""Who starts a server at a port in use is told at once, not after the seconds that a model takes."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

_START = """
import sys
from foretell.cli.serve import serve
from foretell.errors import UsageError
try:
    serve(sys.argv[1], port=int(sys.argv[2]))
except UsageError as error:
    print(error)
print([name for name in ("torch", "transformers", "fastapi", "uvicorn") if name in sys.modules])
"""


def test_a_port_in_use_is_told_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as other:
        command = [sys.executable, "-c", _START, str(tmp_path), str(other.getsockname()[1])]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    told, imported = ran.stdout.splitlines()
    assert "in use; choose another port" in told and imported == "[]", ran.stderr
