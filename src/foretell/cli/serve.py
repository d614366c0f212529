"""``foretell serve``: an OpenAI-compatible server, and a page to look at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foretell.cli.loading import check_model, load_drafter, load_model, naming_option
from foretell.cli.options import DepthChoice, Drafter, DraftModel, Dtype, Heads, Model, integer, parse_depth
from foretell.cli.output import counted, note
from foretell.errors import ForetellError, UsageError
from foretell.serving.listener import bind, listen

if TYPE_CHECKING:
    from foretell.decoding.engine import Engine
    from foretell.serving.settings import Settings

KEY_VARIABLE = "FORETELL_API_KEY"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_DEFAULT_DEPTH = 3


def serve(
    model: Model,
    /,
    *,
    heads: Heads = None,
    drafter: Drafter = None,
    draft_model: DraftModel = None,
    depth: Annotated[
        str | None,
        Parameter(
            help="Tokens drafted a step where a request says nothing: auto = as many as pay, 0 = plain decoding. "
            "Default: auto with heads or a drafter, else 0."
        ),
    ] = None,
    host: Annotated[str, Parameter(help="Address to listen at; 0.0.0.0 for everybody.")] = "127.0.0.1",
    port: Annotated[int, integer("Port to listen at; 0 = any free one.", 0)] = 8000,
    name: Annotated[
        str | None, Parameter(help="The model's name for clients. Default: the last part of MODEL.")
    ] = None,
    max_batch: Annotated[int, integer("Completions that are decoded at a time.", 1)] = 16,
    max_waiting: Annotated[int, integer("Completions that may wait; further requests get 429.", 0)] = 256,
    memory: Annotated[float | None, Parameter(help="GiB for keys and values. Default: half of what is free.")] = None,
    timeout: Annotated[float, Parameter(help="Seconds that a request may take.")] = 600.0,
    grace: Annotated[float, Parameter(help="Seconds that running requests have after SIGTERM.")] = 30.0,
    api_key_file: Annotated[
        Path | None,
        Parameter(help=f"File with the key that clients must send. Default: the variable {KEY_VARIABLE}; else none."),
    ] = None,
    dtype: Dtype = "auto",
) -> None:
    """Serve a model: OpenAI's chat and text completions at /v1, metrics at /metrics, a page at /.

    Every answer is what plain decoding would have given; drafts only make it come sooner. Stop it with Ctrl-C.

    Try:

        foretell serve demo --heads adapters/smollm2-135m-instruct
        foretell serve models/mine --drafter ngram --port 0
    """
    asked = None if depth is None else parse_depth(depth)
    for option, value in (("--timeout", timeout), ("--grace", grace), ("--memory", 1.0 if memory is None else memory)):
        if not 0 < value < 1e6:
            raise UsageError(f"{option}: {value} is not allowed; give a number above 0")
    api_key = _api_key(api_key_file)
    check_model(model, heads, drafter, draft_model)
    listener = bind(host, port)  # before what takes seconds, so that a port in use is told at once
    try:
        _check_installed()
        from foretell.decoding.engine import Engine
        from foretell.serving.app import make_app
        from foretell.serving.run import serve_app
        from foretell.serving.service import Service
        from foretell.serving.settings import Settings

        loaded = load_model(model, heads, dtype)
        drafting = load_drafter(loaded, drafter, draft_model, dtype)
        budget = None if memory is None else int(memory * 2**30)
        with naming_option("--memory"):
            engine = Engine(loaded, max_batch, drafting, budget)
        used = _depth(engine, asked)
        fixed = used if isinstance(used, int) and used else _fixed_depth(engine)
        settings = Settings(
            Path(model.rstrip("/")).name if name is None else name, used, fixed, max_waiting, timeout, api_key=api_key
        )
        service = Service(engine, settings)
        app = make_app(service)
        listen(listener)  # not before: who connects is answered
        _say(engine, settings, host, listener.getsockname()[1])
        serve_app(app, listener, grace, service.close)
    finally:
        listener.close()


def _check_installed() -> None:
    try:
        import fastapi  # noqa: F401
        import llguidance  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(f"serve needs {error.name}; pip install 'foretell[serve]'") from error


def _depth(engine: Engine, asked: DepthChoice | None) -> DepthChoice:
    if asked is None:
        return 0 if engine.drafter is None else "auto"
    with naming_option("--depth"):
        engine.check_depth(asked)
    return 0 if engine.drafter is None else asked


def _fixed_depth(engine: Engine) -> int:
    if engine.drafter is None:
        return 0
    heads = engine.model.heads
    trained = heads.config.num_depths if heads is not None and "heads" in engine.drafter.parts else _DEFAULT_DEPTH
    limit = engine.drafter.max_depth(engine.model)
    return trained if limit is None else min(trained, limit)


def _say(engine: Engine, settings: Settings, host: str, port: int) -> None:
    from foretell.decoding.memory import heads_num_bytes, weights_num_bytes

    shown = f"[{host}]" if ":" in host else host
    if engine.drafter is None:
        note(
            f"plain decoding: {engine.model.trunk.name} has no heads; give --heads an adapter, or --drafter ngram, "
            "which needs none"
        )
    else:
        note(f"drafting: {engine.drafter.kind}, depth {settings.depth}")
    gib, heads = 2**30, engine.model.heads
    parts = [f"weights {weights_num_bytes(engine.model.trunk.model) / gib:.2f} GiB"]
    if heads is not None:
        parts.append(f"heads {heads_num_bytes(heads) / gib:.2f} GiB")
    note(f"memory: {', '.join(parts)}, keys and values up to {engine.cache_num_bytes / gib:.2f} GiB (--memory)")
    room = f"up to {engine.max_length:,} tokens a request"
    note(f"batch of {engine.max_batch}, {counted(settings.max_waiting, 'place')} to wait in, {room}")
    if host not in _LOOPBACK and settings.api_key is None:
        note(f"warning: {host} is open to others and there is no API key; set {KEY_VARIABLE} or --api-key-file")
    note(f"serving {settings.name} at http://{shown}:{port} (API at /v1, page at /, metrics at /metrics); Ctrl-C stops")


def _api_key(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get(KEY_VARIABLE) or None
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no text in UTF-8"
        raise ForetellError(f"--api-key-file {path}: {reason}") from error
    if not key:
        raise UsageError(f"--api-key-file {path}: it is empty; write the key into it")
    return key
