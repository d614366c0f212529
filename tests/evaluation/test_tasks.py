"""Local tasks from YAML and JSONL: scores equal to lm-eval's hf model, the same at every depth; errors in a line."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from foretell.errors import DataError, ForetellError, UsageError
from foretell.evaluation.lm import ForetellLM
from foretell.evaluation.tasks import load_tasks, run_tasks
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests import fixtures

COMMON = """
dataset_path: json
dataset_kwargs:
  data_files: {{test: {folder}/letters.jsonl}}
test_split: test
target_delimiter: ""
doc_to_text: "{{{{text}}}}"
metadata: {{version: 2}}
"""
WRITES = """
task: writes
output_type: generate_until
doc_to_target: "{{{{next}}}}"
generation_kwargs: {{until: ["h"], max_gen_toks: 8}}
metric_list: [{{metric: exact_match}}]
"""
CHOOSES = """
task: chooses
output_type: multiple_choice
doc_to_choice: "{{{{[next, wrong]}}}}"
doc_to_target: 0
metric_list: [{{metric: acc}}]
"""
ROLLS = """
task: rolls
output_type: loglikelihood_rolling
doc_to_target: "{{{{text}}}}{{{{next}}}}"
metric_list: [{{metric: bits_per_byte}}, {{metric: word_perplexity}}]
"""
DOCUMENTS = [
    {"text": "ab", "next": "cdefg", "wrong": "zq"},
    {"text": "d", "next": "efg", "wrong": "fe"},
    {"text": "mn", "next": "efg", "wrong": "opq"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """writes.yaml, chooses.yaml, rolls.yaml, all.yaml (a group) and their data."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "letters.jsonl").write_text("".join(json.dumps(d) + "\n" for d in DOCUMENTS))
    for text in (WRITES, CHOOSES, ROLLS):
        name = text.split()[1]
        (folder / f"{name}.yaml").write_text((text + COMMON).format(folder=folder))
    group = "group: both\ntask: [writes, chooses]\naggregate_metric_list: [{metric: acc}]\n"
    (folder / "both.yaml").write_text(group)
    return folder


@pytest.fixture(scope="module")
def cycle() -> MTPModel:
    trunk = fixtures.script_trunk("abcdefghijklmnopqrstuvwxyza", max_positions=128)
    return MTPModel(trunk, fixtures.scripted_heads(trunk, "mixed", wrong_after=fixtures.encode("e")))


def paths(folder: Path, *names: str) -> list[str]:
    return [str(folder / f"{name}.yaml") for name in names]


@pytest.mark.parametrize("depth", [0, 3])
def test_scores_are_those_of_lm_evals_hf_model(folder: Path, cycle: MTPModel, depth: int) -> None:
    lm = ForetellLM(cycle, depth=depth, batch_size=2)
    found = run_tasks(lm, load_tasks(paths(folder, "writes", "chooses", "rolls")))
    assert found["results"]["writes"]["exact_match,none"] == pytest.approx(2 / 3)
    assert found["results"]["chooses"]["acc,none"] == pytest.approx(2 / 3)
    assert found["n-samples"]["rolls"] == {"original": 3, "effective": 3} and found["versions"]["writes"] == 2
    assert (lm.speculation["writes"].stats.num_accepted_tokens > 0) == (depth > 0)
    model = copy.deepcopy(cycle.trunk.model)
    model.set_attn_implementation("eager")
    manager = TaskManager(include_defaults=False)
    theirs = simple_evaluate(
        HFLM(pretrained=model, tokenizer=fixtures.byte_tokenizer()),
        tasks=paths(folder, "writes", "chooses", "rolls"),
        task_manager=manager,
        bootstrap_iters=0,
    )
    for task, values in theirs["results"].items():
        for name, value in values.items():
            if "," in name and isinstance(value, float) and "_stderr" not in name:
                assert found["results"][task][name] == pytest.approx(value, rel=1e-5), (task, name)


def test_groups_limits_and_examples(folder: Path, cycle: MTPModel) -> None:
    tasks = load_tasks(["both"], folder)
    found = run_tasks(ForetellLM(cycle), tasks, limit=2, num_fewshot=1)
    assert set(tasks["tasks"]) == {"writes", "chooses"} and found["groups"]["both"]["acc,none"] == 1.0
    assert {count["effective"] for count in found["n-samples"].values()} == {2}
    assert found["n-shot"]["writes"] == 1


def test_a_chat_template_is_applied(folder: Path) -> None:
    template = "{% for m in messages %}<{{ m['content'] }}>{% endfor %}"
    trunk = Trunk(fixtures.tiny_llama(), fixtures.byte_tokenizer(template), name="chat")
    lm = ForetellLM(MTPModel(trunk))
    run_tasks(lm, load_tasks(paths(folder, "writes")), chat=True)
    assert lm.speculation["writes"].prompts[0] == fixtures.encode("<ab>")
    trunk.tokenizer.chat_template = None
    with pytest.raises(UsageError, match="no chat template"):
        run_tasks(lm, load_tasks(paths(folder, "writes")), chat=True)


def test_what_is_no_number_is_null_in_json(folder: Path, cycle: MTPModel) -> None:
    (folder / "nan.py").write_text("def nan(items):\n    return float('nan')\n")
    (folder / "empty.yaml").write_text(
        (WRITES.replace("writes", "empty") + COMMON)
        .format(folder=folder)
        .replace("metric: exact_match", "metric: exact_match, aggregation: !function nan.nan, higher_is_better: true")
    )
    found = run_tasks(ForetellLM(cycle), load_tasks(paths(folder, "empty")))
    assert found["results"]["empty"]["exact_match,none"] is None
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("letters.jsonl", "gone.jsonl", "gone.jsonl"),
        ("{{text}}", "{{txt}}", "'txt' is undefined"),
        ("output_type: generate_until", "output_type: dances", "dances"),
        ("task: writes", "task: [", "ParserError"),
        ("test_split: test", "test_split: exam", "exam"),
    ],
)
def test_a_broken_task_is_named_in_one_line(
    folder: Path, cycle: MTPModel, tmp_path: Path, old: str, new: str, words: str
) -> None:
    text = (folder / "writes.yaml").read_text()
    assert old in text
    (tmp_path / "broken.yaml").write_text(text.replace(old, new))
    with pytest.raises(ForetellError) as caught:
        run_tasks(ForetellLM(cycle), load_tasks([str(tmp_path / "broken.yaml")]))
    assert words in str(caught.value) and "\n" not in str(caught.value) and "broken.yaml" in str(caught.value)


def test_a_task_that_fails_on_its_data(folder: Path, cycle: MTPModel, tmp_path: Path) -> None:
    data = tmp_path / "half.jsonl"
    data.write_text('{"text": "ab", "next": "cdefg"}\n{"text": "ab", "next": null}\n')
    text = (folder / "writes.yaml").read_text().replace(str(folder / "letters.jsonl"), str(data))
    (tmp_path / "half.yaml").write_text(text.replace('"{{next}}"', '"{{next.upper()}}"'))
    with pytest.raises(ForetellError, match="lm-eval cannot run these tasks .*upper"):
        run_tasks(ForetellLM(cycle), load_tasks([str(tmp_path / "half.yaml")]))


def test_a_task_named_twice(folder: Path) -> None:
    with pytest.raises(UsageError, match='"writes" comes twice'):
        load_tasks(["writes", "both"], folder)


def test_an_unknown_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(include_path: Any = None, include_defaults: bool = True) -> TaskManager:
        return TaskManager(include_path=str(folder), include_defaults=False)  # the built-in index takes seconds

    monkeypatch.setattr("foretell.evaluation.tasks.TaskManager", mine)
    with pytest.raises(UsageError, match='"write" is no YAML file here .* there are writes'):
        load_tasks(["write"])


def test_a_data_set_that_the_hub_would_have(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network it is one line, and at once."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    (tmp_path / "hub.yaml").write_text((folder / "writes.yaml").read_text().replace(": json", ": nobody/nothing"))
    with pytest.raises(DataError, match="hub.yaml: the task or its data cannot be loaded .*nobody/nothing"):
        load_tasks([str(tmp_path / "hub.yaml")])
    assert not huggingface_hub.constants.HF_HUB_OFFLINE
