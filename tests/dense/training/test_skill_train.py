"""Training skills: each loss falls, the same twice, killed and resumed, refused where it must be."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dense.encoding.skills import Skills
from dense.training.skill_examples import SkillExample, SkillSet, hold_out
from dense.training.skill_train import train_skills
from dense.training.skill_validation import validate_set
from sparta.base.errors import InputError, Interrupted, ModelError
from sparta.base.records import Passage
from sparta.neural import processes
from tests.dense.training.recipes import weights
from tests.dense.training.skill_sets import recipe, sets_of, training
from tests.moments import at, counted, ctrl_c

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
def test_the_same_twice_and_resumed(encoder: str, words: list[str], tmp_path: Path) -> None:
    sets = sets_of(words)
    result = train_skills(sets, recipe(encoder), tmp_path / "whole")
    assert result.validation > 0
    train_skills(sets, recipe(encoder), tmp_path / "again")
    assert weights(tmp_path / "whole" / "best") == weights(tmp_path / "again" / "best")
    log = (tmp_path / "whole" / "log.jsonl").read_text()
    in_step_6 = 1 + [json.loads(line)["step"] for line in log.splitlines()].index(6)
    with at("write", "log.jsonl", ctrl_c, nth=in_step_6), pytest.raises(Interrupted, match="4 steps kept"):
        train_skills(sets, recipe(encoder), tmp_path / "killed")
    with counted("write", "log.jsonl") as lines:
        train_skills(sets, recipe(encoder), tmp_path / "killed", resume=True)
    assert len(lines) == 5, "four steps and a validation, from the checkpoint of step 4"
    assert (tmp_path / "killed" / "log.jsonl").read_text() == log
    assert weights(tmp_path / "whole" / "best") == weights(tmp_path / "killed" / "best")
    states = [torch.load(tmp_path / n / "state.pt", weights_only=True)["model"] for n in ("whole", "killed")]
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name]), name
    with pytest.raises(InputError, match=r"started training: .*negatives"):
        train_skills(sets, recipe(encoder, negatives=2), tmp_path / "killed", resume=True)
    with pytest.raises(InputError, match="started training: sets"):
        train_skills(sets[:4] + sets[4:][::-1] + sets[:1], recipe(encoder), tmp_path / "killed", resume=True)
    card = (tmp_path / "whole" / "best" / "README.md").read_text()
    assert "| rerank | rerank | 1 | 24 |" in card


@pytest.mark.slow
@pytest.mark.parametrize("skill", ["single", "expanded", "span", "link", "rerank"])
def test_each_loss_falls(skill: str, encoder: str, words: list[str], tmp_path: Path) -> None:
    """Four examples, over and over, are learnt."""
    [one] = [s for s in sets_of(words, n=4) if s.skill == skill]
    given = {"learning_rate": 3e-3, "held_out": 0, "validate_every": 40, "checkpoint_every": 40}
    train_skills([one], recipe(encoder, steps=40, **given), tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    losses = [line[skill] for line in lines if skill in line]
    assert len(losses) == 40
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:3]), losses


def test_validation_by_hand(encoder: str, words: list[str], tmp_path: Path) -> None:
    one = training(encoder, sets_of(words), tmp_path / "out")
    single = next(s for s in one.held_out if s.skill == "single")
    asked = [e.query for e in single.examples]
    texts = list({p.text: p for e in single.examples for p in (*e.positives, *e.negatives)}.values())
    queries, passages = one.model.encode_questions(asked), one.model.encode_passages(texts, "fp32")[:, 0]
    expected = []
    for query, example in zip(queries, single.examples, strict=True):
        order = sorted(texts, key=lambda p: -float(query @ passages[texts.index(p)]))
        expected.append(1 / (1 + order.index(example.positives[0])))
    assert validate_set(one.skills, single) == pytest.approx(np.mean(expected))
    spans = next(s for s in one.held_out if s.skill == "span")
    found = one.skills.find_spans([e.query for e in spans.examples])
    right = sum(
        (f.start, f.end) in e.spans for e, own in zip(spans.examples, found, strict=True) for f in own
    )
    total = sum(map(len, found)) + len(spans.examples)
    assert validate_set(one.skills, spans) == pytest.approx(2 * right / total)


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_who_cannot_tell_passages_apart_has_found_none(
    value: float, encoder: str, words: list[str], tmp_path: Path
) -> None:
    """A model that collapsed, or whose weights are no numbers, is not the best one."""
    one = training(encoder, sets_of(words), tmp_path / "out")
    with torch.no_grad():
        for parameter in one.model.parameters():
            parameter.fill_(value)
    for held_out in one.held_out:
        assert validate_set(one.skills, held_out) < 0.51, held_out.skill


def test_what_is_held_out_is_trained_on_nowhere() -> None:
    passage = Passage("", "a text")
    many = [SkillExample(f"question {i}", (passage,)) for i in range(20) for _ in range(2)]
    sets = [SkillSet("a", "single", tuple(many)), SkillSet("b", "rerank", tuple(many[10:]))]
    rest, held_out = hold_out(sets, 6)
    assert [len({e.query for e in s.examples}) for s in held_out] == [6, 6]
    assert [len(s.examples) for s in held_out] == [12, 12], "a query with all its passages"
    taken = {e.query for s in held_out for e in s.examples}
    assert not taken & {e.query for s in rest for e in s.examples}
    assert hold_out(sets, 0) == (sets, [])
    with pytest.raises(InputError, match="held out"):
        hold_out([SkillSet("a", "single", (many[0], many[2]))], 1)


def test_training_goes_on_from_a_model(encoder: str, words: list[str], tmp_path: Path) -> None:
    """A model keeps the skills that it has."""
    sets = sets_of(words)
    first = [s for s in sets if s.skill in ("single", "link")]
    train_skills(first, recipe(encoder, steps=2), tmp_path / "first")
    assert Skills.open(tmp_path / "first").config.skills == ("single", "link")
    second = training(str(tmp_path / "first"), [s for s in sets if s.skill == "rerank"], tmp_path / "second")
    assert second.skills.config.skills == ("single", "link", "rerank")
    asked = ["the moon"]
    np.testing.assert_allclose(
        second.model.encode_questions(asked),
        Skills.open(tmp_path / "first", dtype="fp32").encode_questions(asked),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("skill", "example", "said"),
    [
        ("single", SkillExample("who"), "positive passage"),
        ("expanded", SkillExample("who", (Passage("", "a"),)), "evidence"),
        ("link", SkillExample("who", (Passage("", "a"),)), "skill link .*found 0"),
        ("link", SkillExample("who", (Passage("", "a"),), spans=((1, 9),)), "inside a text"),
        ("span", SkillExample("who"), "skill span .*found 0"),
    ],
)
def test_examples_that_cannot_be_trained_on(
    skill: str, example: SkillExample, said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said) as raised:
        training("no encoder is opened", [SkillSet("mine", skill, (example,) * 9)], tmp_path)
    assert "mine: example 1" in str(raised.value)


def test_gradients_of_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter that no process's batch needed stays without gradient, and so where it is."""
    model = torch.nn.Linear(2, 1)
    monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor: tensor.mul_(2))  # both have the same
    model.weight.grad = torch.ones_like(model.weight)
    processes.average_gradients(model, 2)
    assert model.bias.grad is None
    torch.testing.assert_close(model.weight.grad, torch.ones(1, 2))


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "pick_device", lambda name: torch.device(name or "cuda"))
    monkeypatch.setattr(processes, "process_group", lambda: (1, 2))
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert [str(processes.training_device(name)) for name in (None, "cuda", "cpu")] == [
        "cuda:1",
        "cuda:1",
        "cpu",
    ]
    with pytest.raises(InputError, match="CUDA_VISIBLE_DEVICES"):
        processes.training_device("cuda:0")


def test_refusals(encoder: str, words: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no training file is named"):
        training(encoder, [], tmp_path / "out")
    with pytest.raises(InputError, match="assignment"):
        training(encoder, sets_of(words), tmp_path / "out", assignment="mine")
    with pytest.raises(ModelError, match="skill span needs"):
        training(encoder, sets_of(words), tmp_path / "out", assignment="pretraining")


@pytest.mark.parametrize("skill", ["single", "rerank"])
def test_a_question_may_have_several_right_passages(
    skill: str, encoder: str, words: list[str], tmp_path: Path
) -> None:
    """One in each of its examples, as judgments have it: none of them is a wrong answer, or a negative."""
    one = training(encoder, sets_of(words), tmp_path / "out")
    passages = [Passage("", f"{word} {word}") for word in words[:6]]
    few = [SkillExample("who", (p,)) for p in passages[:5]] + [SkillExample("when", passages[5:])]
    only = SkillSet("a", skill, tuple(few[:5]))
    assert validate_set(one.skills, only) == 1, "there is nothing wrong to be found"
    batch = one.batches.of(few, "rerank", random.Random(1))
    wrong = [batch.queries[i + 1] for i in range(0, 10, 2)]
    assert set(map(repr, wrong)) == {repr(one.skills.pair("who", passages[5]))}


def test_sets_of_one_name_are_both_validated(encoder: str, words: list[str], tmp_path: Path) -> None:
    single = next(s for s in sets_of(words) if s.skill == "single")
    other = replace(single, examples=tuple(replace(e, query=f"{e.query} x") for e in single.examples))
    one = training(encoder, [single, other], tmp_path / "out")
    figures = [validate_set(one.skills, held_out) for held_out in one.held_out]
    assert len(set(figures)) == 2
    assert one.validate() == pytest.approx(np.mean(figures))


def test_nothing_held_out_is_no_validation(encoder: str, words: list[str], tmp_path: Path) -> None:
    result = train_skills(sets_of(words)[:1], recipe(encoder, held_out=0), tmp_path / "out")
    assert result.validated == ()
    card = (tmp_path / "out" / "best" / "README.md").read_text()
    assert "none; the model of step" in card
