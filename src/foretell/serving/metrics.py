"""Metrics in Prometheus' form. Names behind the prefix are vLLM's, so dashboards for it need another prefix alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from foretell.decoding.engine import Engine
from foretell.decoding.scheduler import Work
from foretell.decoding.worker import Chunk

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2)
_MAX_LABELS = 64
"""Classes that are told apart; clients name them, and every one costs memory."""

OTHER = "other"
"""The label of classes that are counted together."""
OnChunk = Callable[[int, Chunk], None]


class Metrics:
    """Counters by request class, counted step by step in the engine's thread, and times of requests.

    As everywhere here, a draft is a pass that judged drafted tokens, and positions are unconditional (C42).
    """

    def __init__(self, engine: Engine, model_name: str, num_waiting: Callable[[], int]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.mean_seconds = 5.0  # of a completion, as long as none has ended
        self._num_ended = 0
        self._model = model_name
        self._labels: set[str] = set()
        by = ("model_name", "request_class")
        prefix = "foretell:spec_decode_num"
        self._drafts = self._counter(f"{prefix}_drafts", "Passes that judged drafted tokens.", by)
        self._draft_tokens = self._counter(f"{prefix}_draft_tokens", "Drafted tokens.", by)
        self._accepted = self._counter(f"{prefix}_accepted_tokens", "Drafted tokens that were accepted.", by)
        position = (*by, "position")
        self._per_position = self._counter(
            f"{prefix}_accepted_tokens_per_pos", "Drafts accepted up to this position (0 = the first).", position
        )
        self._drafted_per_position = self._counter(
            f"{prefix}_draft_tokens_per_pos", "Drafts that were as deep as this position (0 = the first).", position
        )
        self._passes = self._counter("foretell:decode_passes", "Passes, by row, that brought a token.", by)
        self._prompt_tokens = self._counter("foretell:prompt_tokens", "Tokens of prompts.", by)
        self._tokens = self._counter("foretell:generation_tokens", "Tokens of answers.", by)
        self._ended = self._counter(
            "foretell:request_success", "Completions by how they ended.", (*by, "finished_reason")
        )
        self._first = self._histogram("foretell:time_to_first_token_seconds", "From request to first token.", _SECONDS)
        self._queue = self._histogram(
            "foretell:request_queue_time_seconds", "From request to a place in the batch.", _SECONDS
        )
        self._each = self._histogram(
            "foretell:time_per_output_token_seconds", "Mean between a completion's tokens.", _TOKEN_SECONDS
        )
        self._whole = self._histogram("foretell:e2e_request_latency_seconds", "From request to last token.", _SECONDS)
        self._gauge("foretell:num_requests_running", "Completions in the batch.", lambda: engine.num_running)
        self._gauge("foretell:num_requests_waiting", "Completions that wait.", num_waiting)
        self._gauge(
            "foretell:kv_cache_usage_perc",
            "Share of the blocks of keys and values that rows hold (1 = all).",
            lambda: engine.cache_use,
        )
        engine.watch(lambda works, times: self._count(works))

    def text(self) -> bytes:
        """What GET /metrics answers."""
        return generate_latest(self.registry)

    @contextmanager
    def request(self, label: str, start: float, num_prompt_tokens: int, num_rows: int) -> Iterator[OnChunk]:
        """Give every chunk of a request that came at ``start`` (``time.perf_counter``) to what comes out of here."""
        by = (self._model, self.label(label))
        self._prompt_tokens.labels(*by).inc(num_prompt_tokens)
        first: dict[int, float] = {}
        ended: set[int] = set()

        def seen(index: int, chunk: Chunk) -> None:
            now = time.perf_counter()
            if index not in first:
                first[index] = now
                self._first.labels(*by).observe(now - start)
            if (done := chunk.completion) is None:
                return
            ended.add(index)
            if done.queue_s is not None:
                self._queue.labels(*by).observe(done.queue_s)
            self._ended.labels(*by, done.finish_reason).inc()
            self._whole.labels(*by).observe(now - start)
            self._num_ended += 1
            self.mean_seconds += (now - start - self.mean_seconds) / min(self._num_ended, 16)
            if len(done.token_ids) > 1:
                self._each.labels(*by).observe((now - first[index]) / (len(done.token_ids) - 1))

        try:
            yield seen
        finally:
            for _ in range(num_rows - len(ended)):
                self._ended.labels(*by, "abort").inc()

    def label(self, label: str) -> str:
        """``label``, or "other" where there are too many."""
        if label not in self._labels and len(self._labels) >= _MAX_LABELS:
            return OTHER
        self._labels.add(label)
        return label

    def _count(self, works: Sequence[Work]) -> None:
        for work in works:
            if not work.is_judged:
                continue
            by = (self._model, self.label(work.row.label))
            self._passes.labels(*by).inc()
            self._tokens.labels(*by).inc(work.num_taken)
            depth = max(work.draft.depths, default=0)
            if not depth:
                continue
            self._drafts.labels(*by).inc()
            self._draft_tokens.labels(*by).inc(len(work.draft))
            self._accepted.labels(*by).inc(work.num_accepted)
            for k in range(depth):
                self._drafted_per_position.labels(*by, str(k)).inc()
                self._per_position.labels(*by, str(k)).inc(k < work.num_accepted)

    def _counter(self, name: str, text: str, by: Sequence[str]) -> Counter:
        return Counter(name, text, by, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, ("model_name", "request_class"), registry=self.registry, buckets=buckets)

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        gauge = Gauge(name, text, ("model_name",), registry=self.registry)
        gauge.labels(self._model).set_function(value)
