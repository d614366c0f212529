"""GET /: the page in one piece: index.html with its style sheet and scripts written into it."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from fastapi.responses import HTMLResponse

_FOLDER = Path(__file__).with_name("page")
_PART = re.compile(
    r'<link rel="stylesheet" href="(?P<style>[\w.]+)">|<script src="(?P<script>[\w.]+)"></script>', re.ASCII
)


def page_answer() -> HTMLResponse:
    """One response, so that nothing but / has to be open where an API key is set.

    Its policy lets the browser run these very scripts and styles and talk to this server, and nothing else.
    """
    text, policy = _page()
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}
    return HTMLResponse(text, headers=headers)


@cache
def _page() -> tuple[str, str]:
    hashes: dict[str, list[str]] = {"style": [], "script": []}

    def written(part: re.Match[str]) -> str:
        tag = str(part.lastgroup)
        source = (_FOLDER / part[tag]).read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        hashes[tag].append(f"'sha256-{digest}'")
        return f"<{tag}>{source}</{tag}>"

    text = _PART.sub(written, (_FOLDER / "index.html").read_text(encoding="utf-8"))
    policy = {
        "default-src": "'none'",
        "connect-src": "'self'",
        "img-src": "data:",
        "style-src": " ".join(hashes["style"]),
        "script-src": " ".join(hashes["script"]),
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return text, "; ".join(f"{name} {value}" for name, value in policy.items())
