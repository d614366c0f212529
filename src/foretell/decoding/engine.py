"""Engine: prompts in, completions out, for lists (``generate``) and one by one as they come (``stream``)."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from collections.abc import Sequence as Items
from contextlib import aclosing
from dataclasses import replace

from foretell.config import DrafterKind, SamplingParams
from foretell.decoding.blocks import FULL
from foretell.decoding.checks import check_draft, check_limits, check_prompts, one_each, warn_if_plain
from foretell.decoding.core import EngineCore, Limits, OnStep
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.policy import DepthPolicy
from foretell.decoding.prompts import encode_prompt
from foretell.decoding.sequence import Sequence
from foretell.decoding.step import StepTimes
from foretell.decoding.worker import Chunk, Worker
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel
from foretell.types import Completion, Depth, Prompt


class Engine:
    """Decodes with ``model``, at most ``max_batch`` rows at a time; rows join and leave between steps.

    ``drafter``: who guesses ahead; by default the heads, where the model has some. A name, or a DrafterConfig, which
    also takes a draft model. ``memory_budget``: bytes for keys and values, by default half of what is free; rows wait,
    or give their memory to older ones, where it is short. ``max_step_tokens``: a step reads no more; longer prompts
    come in chunks. ``reuse_prefixes``: texts with the same beginning share its keys and values. ``exact``: drafted and
    plain text are equal bit for bit, near ties included: every pass has one shape, and every row its own passes.
    ``prefill_times`` and ``decode_times`` add up over all calls.
    """

    def __init__(
        self,
        model: MTPModel,
        max_batch: int = 1,
        drafter: DrafterKind | DrafterConfig | None = None,
        memory_budget: int | None = None,
        max_step_tokens: int = 512,
        reuse_prefixes: bool = True,
        exact: bool = False,
    ) -> None:
        limits = Limits(max_batch, max_step_tokens, memory_budget, reuse_prefixes, exact)
        check_limits(model, limits)
        self.model = model
        self.max_batch = max_batch
        self.drafter = DrafterConfig.resolve(drafter, model)
        self.exact = exact
        self._core = EngineCore(model, limits, self.drafter)
        self._lock = threading.Lock()
        self._worker = Worker(self._core, self._lock)

    def generate(
        self,
        prompts: Items[Prompt],
        params: SamplingParams | Items[SamplingParams] | None = None,
        depth: Depth | Items[Depth] = 0,
        on_finish: Callable[[int, Completion], None] | None = None,
        num_nodes: int = 0,
        label: str = "",
    ) -> list[Completion]:
        """Complete every prompt, in order. ``depth``: drafted tokens a step, 0 = plain decoding, "auto" = as many as
        pay, by what steps cost and drafts gain; one for all or one a prompt.

        A prompt is text, token ids, or chat messages. ``params`` is one for all or one a prompt; with ``n`` above 1 a
        prompt has so many completions, one after the other. ``num_nodes``: draft a tree of so many nodes, ``depth``
        deep. ``label``: request class, by which depth "auto" tells acceptance apart. ``on_finish`` is called with
        (index, completion) as soon as each is done; with ``n`` completions are counted, not prompts. A prompt whose own
        rules fail raises when the others are done. Raises UsageError for a depth the drafter cannot reach and
        ContextLengthError for a prompt that leaves no room for a token.
        """
        prompts = check_prompts(prompts, on_finish)
        each = one_each(SamplingParams() if params is None else params, len(prompts), "sampling parameters")
        depths = one_each(depth, len(prompts), "depths")
        if all(d == 0 for d in depths):
            self.check_depth(0, num_nodes)
        warn_if_plain(self.model, self.drafter, depths)
        rows: list[Sequence] = []
        for index, (prompt, p, d) in enumerate(zip(prompts, each, depths, strict=True)):
            rows += self._sequences(prompt, p, d, num_nodes if d else 0, label, f"prompt {index}")
        unfinished = dict(enumerate(rows))
        try:
            with self._lock:
                for row in rows:
                    self._core.add(row)
            while unfinished:
                with self._lock:
                    self._core.advance()
                for index in [index for index, row in unfinished.items() if row.finish_reason is not None]:
                    row = unfinished.pop(index)
                    if on_finish and row.finish_reason != "abort":
                        on_finish(index, row.completion())
        finally:
            with self._lock:
                for row in rows:
                    self._core.abort(row)  # left over where something was raised
        if failed := [index for index, row in enumerate(rows) if row.error is not None]:
            error = rows[failed[0]].error
            assert error is not None
            error.add_note(f"Completions that failed: {', '.join(map(str, failed))}; this is the first one's error.")
            raise error
        return [row.completion() for row in rows]

    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        depth: Depth = 0,
        num_nodes: int = 0,
        label: str = "",
    ) -> AsyncIterator[Chunk]:
        """Chunks of one completion as they come; a caller that stops listening aborts the request.

        Many may run at a time; they share the steps, which run in a thread of their own. See ``generate``.
        """
        if isinstance(params, SamplingParams) and params.n > 1:
            raise UsageError(f"n is {params.n}, and a stream is one completion; use streams, which gives {params.n}")
        [stream] = self.streams(prompt, params, depth, num_nodes, label)
        async with aclosing(stream) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                yield chunk

    def streams(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        depth: Depth = 0,
        num_nodes: int = 0,
        label: str = "",
    ) -> list[AsyncIterator[Chunk]]:
        """A stream for each of the ``n`` completions of a prompt, which read it once; see ``stream``.

        All checks are made here, so that an odd request raises before anything runs. Text is encoded and grammars are
        compiled here too: in an event loop, call this in a thread. A stream's request begins when it is first read.
        """
        if self.model.trunk.tp_group is not None:
            raise UsageError(
                "streams come at times of their own in every process, and processes that share a trunk (tp_plan) must "
                "take the same steps; use generate, or serve this model with vLLM or SGLang"
            )
        warn_if_plain(self.model, self.drafter, [depth])
        rows = self._sequences(prompt, SamplingParams() if params is None else params, depth, num_nodes, label)
        return [self._worker.stream(row) for row in rows]

    def watch(self, on_step: OnStep) -> Callable[[], None]:
        """Call ``on_step`` after every step, for measuring, until the function that is returned is called.

        What it raises reaches whoever runs the step.
        """
        if not callable(on_step):
            raise UsageError(f"on_step is {on_step!r}; give a function of (works, times)")
        self._core.watchers.append(on_step)
        return lambda: self._core.watchers.remove(on_step)

    def check_depth(self, depth: Depth, num_nodes: int = 0) -> None:
        """Raise UsageError where this model cannot draft ``depth`` tokens a step, or a tree of ``num_nodes``."""
        check_draft(self.model, self.drafter, self.exact, depth, num_nodes)

    def encode(self, prompt: Prompt) -> list[int]:
        """Prompt -> token ids; see ``encode_prompt``."""
        return encode_prompt(prompt, self.model.trunk)

    @property
    def prefill_times(self) -> StepTimes:
        """Steps that read prompts."""
        return self._core.prefill_times

    @property
    def decode_times(self) -> StepTimes:
        """Steps in which every row decoded."""
        return self._core.decode_times

    @property
    def max_length(self) -> int:
        """Tokens that a prompt and its answer may come to: the model's window, or what memory holds of it."""
        return max(0, min(self.model.trunk.max_positions, self._core.room))

    @property
    def num_running(self) -> int:
        """Completions that have a place in the batch."""
        return len(self._core.scheduler.running)

    @property
    def num_waiting(self) -> int:
        """Completions that wait for a place, or for memory."""
        return len(self._core.scheduler.waiting)

    @property
    def cache_use(self) -> float:
        """Share of the blocks of keys and values that rows hold."""
        pool = self._core.pools[FULL]
        return pool.num_held / pool.num_blocks

    @property
    def cache_num_bytes(self) -> int:
        """Bytes that keys and values may come to, the drafter's with them."""
        return self._core.cache_num_bytes

    @property
    def policy(self) -> DepthPolicy:
        """What depth "auto" has learnt."""
        return self._core.depths.policy

    @property
    def drafter_num_bytes(self) -> int:
        """Memory that the drafter has come to hold; 0 before anything was drafted."""
        drafter = self._core.step.drafter
        return 0 if drafter is None else drafter.num_bytes

    def _sequences(
        self,
        prompt: Prompt,
        params: SamplingParams,
        depth: Depth,
        num_nodes: int,
        label: str = "",
        name: str = "the prompt",
    ) -> list[Sequence]:
        """One row for each of the prompt's completions; those after the first wait until its prompt is read."""
        self.check_depth(depth, num_nodes)
        trunk = self.model.trunk
        if not isinstance(params, SamplingParams):
            raise UsageError(f"sampling parameters of {name} are {params!r}; give foretell.SamplingParams(...)")
        if not isinstance(label, str):
            raise UsageError(f"label is {label!r}; give text, the name of a class of requests")
        token_ids = encode_prompt(prompt, trunk, name)
        if params.stop and trunk.tokenizer is None:
            raise UsageError("stop strings need a tokenizer, and this model folder has none")
        rows: list[Sequence] = []
        for i in range(params.n):
            own = (
                params
                if params.seed is None or i == 0
                else replace(params, seed=(params.seed + i * 0x9E3779B97F4A7C15) % 2**63)
            )
            row = Sequence(
                token_ids,
                own,
                depth,
                trunk.max_positions,
                trunk.eos_token_ids,
                trunk.tokenizer,
                trunk.vocab_size,
                num_nodes,
            )
            self._core.check_room(row)
            row.label = label
            row.leader = rows[0] if rows else None
            rows.append(row)
        return rows
