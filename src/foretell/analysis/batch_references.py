"""transformers on many requests at a time: generate in padded batches, and generate_batch."""

from __future__ import annotations

import contextlib
import io
import time

import torch
from transformers import ContinuousBatchingConfig

from foretell.analysis.batch_systems import GroupSample
from foretell.analysis.records import Setting
from foretell.analysis.systems import greedy_config, plain_copy
from foretell.analysis.texts import PromptGroup
from foretell.models.trunk import Trunk

_STEP_TOKENS = 512
"""A step of generate_batch reads no more, as one of ours."""
_PAGE = 256
"""Tokens of a block of generate_batch; its own default."""


class CannotRun(Exception):
    """A reference cannot run here; the message says why."""


class GenerateBatches:
    """``generate()`` of transformers on ``batch`` prompts at a time, padded on the left, greedy, on the same weights.

    It hands texts out when the last one of a batch is done.
    """

    setting = Setting("transformers", 0)

    def __init__(self, trunk: Trunk, batch: int) -> None:
        self._model = plain_copy(trunk)
        self._config = greedy_config(trunk)
        self._eos_token_ids = trunk.eos_token_ids
        self._batch = batch

    @torch.inference_mode()
    def run(self, group: PromptGroup, max_tokens: int) -> GroupSample:
        """One padded batch after the other."""
        texts: list[list[int]] = []
        request_s: list[float] = []
        start = time.perf_counter()
        for first in range(0, len(group.prompts), self._batch):
            prompts = [prompt.token_ids for prompt in group.prompts[first : first + self._batch]]
            began = time.perf_counter()
            texts += self._generate(prompts, max_tokens)
            request_s += [time.perf_counter() - began] * len(prompts)
        return GroupSample(texts, time.perf_counter() - start, request_s)

    def _generate(self, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        length = max(map(len, prompts))
        pad = self._config.pad_token_id
        ids = torch.tensor([[pad] * (length - len(p)) + p for p in prompts], device=self._model.device)
        mask = torch.tensor([[0] * (length - len(p)) + [1] * len(p) for p in prompts], device=self._model.device)
        self._config.max_new_tokens = max_tokens
        output = self._model.generate(ids, attention_mask=mask, generation_config=self._config)
        return [self._ended(row) for row in output[:, length:].tolist()]

    def _ended(self, token_ids: list[int]) -> list[int]:
        """Without the padding behind the end."""
        end = next((i for i, token in enumerate(token_ids) if token in self._eos_token_ids), len(token_ids))
        return token_ids[: end + 1]


class GenerateBatch:
    """``generate_batch()`` of transformers: continuous batching over a paged cache, greedy, on the same weights.

    Its clock runs from the first request's start to the last one's end, so that making its cache and thread, which a
    server does once, is not in it. Raises CannotRun where it gives no texts.
    """

    setting = Setting("transformers generate_batch", 0)

    def __init__(self, trunk: Trunk, batch: int) -> None:
        self._model = plain_copy(trunk)
        self._config = greedy_config(trunk)
        self._batch = batch

    @torch.inference_mode()
    def run(self, group: PromptGroup, max_tokens: int) -> GroupSample:
        """All prompts at once; it lets ``batch`` of them in at a time."""
        prompts = [prompt.token_ids for prompt in group.prompts]
        pages = -(-(max(map(len, prompts)) + max_tokens) // _PAGE) + 1
        config = ContinuousBatchingConfig(
            page_size=_PAGE,
            num_blocks=self._batch * pages,
            max_batch_tokens=_STEP_TOKENS,
            max_requests_per_batch=self._batch,
            allow_block_sharing=False,
        )
        self._config.max_new_tokens = max_tokens
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints where its thread has died
                found = self._model.generate_batch(
                    prompts, generation_config=self._config, continuous_batching_config=config
                )
        except Exception as error:  # whatever a library of this kind may raise
            raise CannotRun(f"{type(error).__name__}: {error}") from error
        outputs = list(found.values())
        if failed := [output.error for output in outputs if output.error is not None]:
            raise CannotRun(failed[0])
        if len(outputs) < len(prompts):
            raise CannotRun(f"{len(prompts) - len(outputs)} of {len(prompts)} texts never came")
        spans = [output.lifespan for output in outputs]
        return GroupSample(
            [output.generated_tokens for output in outputs],
            max(end for _, end in spans) - min(start for start, _ in spans),
            [end - start for start, end in spans],
        )
