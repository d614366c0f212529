"""ForetellLM: the model class through which lm-eval's tasks run on Foretell's trunk and engine.

Importing this module registers it: ``import foretell.evaluation.lm``, then
``lm_eval.simple_evaluate(model="foretell", model_args={"pretrained": ..., "heads": ..., "depth": 3}, ...)``.
Prompts, truncation, windows and stop strings follow lm-eval's own ``hf`` model (lm_eval/models/huggingface.py, 0.4.13).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from jinja2.exceptions import TemplateError
from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import DEFAULT_MAX_LENGTH

from foretell.checkpoints.load import load
from foretell.decoding.engine import Engine
from foretell.errors import UsageError
from foretell.evaluation.generation_kwargs import Request, request_of
from foretell.evaluation.nll import continuation_logprobs
from foretell.evaluation.speculation import Speculation
from foretell.evaluation.text import prefix_token
from foretell.models.mtp_model import MTPModel
from foretell.types import Completion, Depth

OnProgress = Callable[[str, int, int], None]
"""(what is done, how many of them are, how many there are)"""


@register_model("foretell")
class ForetellLM(TemplateLM):
    """A loaded model, or what ``foretell.load`` takes (``pretrained``, ``heads``, ``dtype``, ``device``).

    ``depth``: drafted tokens a step when generating; scores are the same at every depth. ``batch_size``: rows decoded,
    or scored, at a time. ``max_length``: context in tokens, by default the trunk's. ``seed``: of the first sampled
    request; the next one's is one higher. ``speculation``: what decoding did, by task; ``num_truncated``: requests that
    lost their beginning, as they were longer than the context.
    """

    def __init__(
        self,
        pretrained: str | MTPModel,
        heads: str | None = None,
        depth: Depth = 0,
        batch_size: int = 1,
        max_length: int | None = None,
        dtype: str | None = None,
        seed: int = 0,
        on_progress: OnProgress | None = None,
        device: str | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise UsageError(f"batch_size {batch_size!r} is not allowed; give an integer of at least 1")
        del max_batch_size  # a limit for batch_size="auto", which there is not
        model = load(pretrained, heads, dtype, device or "cpu") if isinstance(pretrained, str) else pretrained
        self.trunk = model.trunk
        self.engine = Engine(model, batch_size)
        self.engine.check_depth(depth)
        self.depth = depth
        self.batch_size = batch_size
        self.tokenizer: Any = self.trunk.tokenizer
        self._prefix = prefix_token(self.trunk)
        known = self.trunk.max_positions if self.trunk.max_positions < 2**31 - 1 else DEFAULT_MAX_LENGTH
        self.max_length = known if max_length is None else max_length
        if (
            isinstance(self.max_length, bool)
            or not isinstance(self.max_length, int)
            or not 1 < self.max_length <= known
        ):
            raise UsageError(f"max_length {max_length!r} is not allowed; give an integer from 2 to {known}")
        self.seed = seed
        self.speculation: dict[str, Speculation] = {}
        self.num_truncated = 0
        self.notes: set[str] = set()
        self._on_progress = on_progress

    @property
    def eot_token_id(self) -> int:
        """The tokenizer's EOS, or the prefix token where it has none."""
        return self._prefix if self.tokenizer.eos_token_id is None else int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text without context: BOS, or EOS where there is none."""
        return self._prefix

    @property
    def max_gen_toks(self) -> int:
        """Tokens generated where a task names no number: 256, as in lm-eval's other models."""
        return 256

    @property
    def tokenizer_name(self) -> str:
        """For the keys of lm-eval's request cache."""
        return str(self.tokenizer.name_or_path or self.trunk.name).replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_unused: Any) -> list[int]:
        """Token ids; the tokenizer's special tokens are added unless the text begins with the prefix token's text."""
        if add_special_tokens is None:
            add_special_tokens = not string.startswith(self.tokenizer.decode([self._prefix]))
        return list(self.tokenizer(string, add_special_tokens=add_special_tokens)["input_ids"])

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The chat as the model's template writes it; without the system message (noted) where it takes none."""

        def render(messages: list[dict[str, str]]) -> str:
            return str(
                self.tokenizer.apply_chat_template(
                    messages,
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt,
                    continue_final_message=not add_generation_prompt,
                )
            )

        if not getattr(self.tokenizer, "chat_template", None):
            raise UsageError(f"{self.trunk.name} has no chat template; leave the template out, or use a chat model")
        try:
            return render(chat_history)
        except TemplateError as error:
            rest = [message for message in chat_history if message["role"] != "system"]
            if len(rest) == len(chat_history):
                raise UsageError(f"the model's chat template refuses a task's messages ({error})") from error
            self.notes.add(f"system messages were left out, as the model's chat template refuses them ({error})")
            return render(rest)

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Log-probability in nats of every continuation, and whether greedy decoding would have written it."""
        for request in requests:
            if not request.args[1]:
                raise UsageError(f"task {request.task_name}: a continuation is empty, so there is nothing to score")
        return super().loglikelihood(requests, disable_tqdm=True)

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_unused: Any
    ) -> list[tuple[float, bool]]:
        pairs = [self._fitted(context, end) for _, context, end in requests]
        found = continuation_logprobs(self.trunk, pairs, self.batch_size, self._progress("continuations scored"))
        for (key, _, _), answer in zip(requests, found, strict=True):
            if key is not None:
                self.cache_hook.add_partial("loglikelihood", key, answer)
        return found

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-probability in nats of every text, each token once, in disjoint windows of the whole context."""
        pairs: list[tuple[list[int], list[int]]] = []
        owners: list[int] = []
        for owner, request in enumerate(requests):
            for pair in utils.get_rolling_token_windows(
                self.tok_encode(request.args[0]), self._prefix, self.max_length, context_len=1
            ):
                pairs.append(utils.make_disjoint_window(pair))
                owners.append(owner)
        totals = [0.0] * len(requests)
        found = continuation_logprobs(self.trunk, pairs, self.batch_size, self._progress("windows scored"))
        for owner, (logprob, _) in zip(owners, found, strict=True):
            totals[owner] += logprob
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """What the engine writes after every context, cut before the first stop string and EOS."""
        texts = [""] * len(requests)
        by_task: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            by_task.setdefault(request.task_name or "", []).append(index)
        for task, indices in by_task.items():
            asked = [self._request(task, requests[i].args[1], i) for i in indices]
            prompts = [self._prompt(task, requests[i].args[0], a) for i, a in zip(indices, asked, strict=True)]
            for i, a, done in zip(indices, asked, self._decode(task, prompts, asked), strict=True):
                texts[i] = self._text(done, a)
                self.cache_hook.add_partial("generate_until", requests[i].args, texts[i])
        return texts

    def _request(self, task: str, kwargs: dict[str, Any], index: int) -> Request:
        return request_of(kwargs, self.max_gen_toks, self.seed + index, f"task {task}")

    def _prompt(self, task: str, context: str, asked: Request) -> list[int]:
        room = self.max_length - asked.params.max_tokens
        if room < 1:
            raise UsageError(
                f"task {task}: it asks for {asked.params.max_tokens} tokens, and the context holds {self.max_length}, "
                "prompt included; give generation_kwargs a smaller max_gen_toks"
            )
        token_ids = self.tok_encode(context) or [self._prefix]
        self.num_truncated += len(token_ids) > room
        return token_ids[-room:]

    def _decode(self, task: str, prompts: list[list[int]], asked: list[Request]) -> list[Completion]:
        report, num_done = self._progress(f"answers ({task})"), 0

        def on_finish(_index: int, _done: Completion) -> None:
            nonlocal num_done
            num_done += 1
            if report:
                report(num_done, len(prompts))

        params = [a.params for a in asked]
        start = time.perf_counter()
        done = self.engine.generate(prompts, params, self.depth, on_finish, label=task)
        elapsed_s = time.perf_counter() - start
        spent = self.speculation.setdefault(task, Speculation(task))
        spent.add(done, elapsed_s, any(p.ignore_eos for p in params))
        return done

    def _text(self, done: Completion, asked: Request) -> str:
        """As lm-eval's hf model: the tokenizer's EOS ends a text too, also where the model's own is another."""
        eos = self.tokenizer.eos_token_id
        if asked.params.ignore_eos or eos not in done.token_ids:
            return done.text
        text = self.tokenizer.decode(done.token_ids[: done.token_ids.index(eos)], skip_special_tokens=True)
        return str(min((text.split(stop)[0] for stop in asked.stop), key=len, default=text))

    def _fitted(self, context: list[int], end: list[int]) -> tuple[list[int], list[int]]:
        """Without the beginning of what is too long: the last token is not read, so one more than the context fits."""
        if len(end) > self.max_length:
            raise UsageError(f"a continuation has {len(end)} tokens and the context holds {self.max_length}")
        room = self.max_length + 1 - len(end)
        self.num_truncated += len(context) > room
        return context[-room:], end

    def _progress(self, what: str) -> Callable[[int, int], None] | None:
        call = self._on_progress
        return None if call is None else lambda done, total: call(what, done, total)
