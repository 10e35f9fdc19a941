"""Tasks: markers, query encoders of their own, a mention in a long text, sampling by size."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from dense.encoding.question_encoder import BertQuestionEncoder
from dense.encoding.skills import Skills
from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from dense.models.mentions import around_mention, mention_span, with_marks, without_marks
from dense.models.resolve import dense_model_folder
from dense.models.tasks import class_of
from dense.training.skill_data import SkillFile, read_skill_sets
from dense.training.skill_train import train_skills
from sparta.base.errors import InputError
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.neural.stored import read_json
from tests.dense.training.skill_sets import of_tasks, recipe, sets_of, training

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("fever.train.jsonl.gz", "fact checking"),
        ("aidayago2-dev-kilt.jsonl", "entity linking"),
        ("structured_zeroshot-train-kilt.jsonl", "slot filling"),
        ("nq.test.tsv", "question answering"),
        ("wow", "dialogue"),
    ],
)
def test_classes(name: str, task: str) -> None:
    assert class_of(name) == task


def test_unknown_tasks() -> None:
    with pytest.raises(InputError, match=r"named after a task \(fever, hover"):
        class_of("feverish.train.jsonl")


def whole_words() -> Tokenizer:
    """Each word and each mark is one piece, but those of letters: one piece a letter."""
    tokenizer = Tokenizer(WordLevel({"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = Split(Regex(r"\[[A-Z_]+\]|[0-9]+|[a-z]"), "removed", invert=True)
    return tokenizer


def test_a_mention_in_a_long_text() -> None:
    words = whole_words()
    numbers = [str(n) for n in range(100)]
    text = " ".join([*numbers[:60], "[START_ENT]", "x", "[END_ENT]", *numbers[60:]])
    assert around_mention(text, words, 12) == "56 57 58 59 [START_ENT] x [END_ENT] 60 61 62 63 64"
    late = " ".join([*numbers, "[START_ENT]", "x", "[END_ENT]"])
    assert around_mention(late, words, 8) == "95 96 97 98 99 [START_ENT] x [END_ENT]"
    assert around_mention("[START_ENT] x [END_ENT] " + text, words, 5) == "[START_ENT] x [END_ENT] 0 1"
    long = text.replace(" x ", " abcdefgh ")
    assert around_mention(long, words, 12) == "58 59 [START_ENT] abcdefgh [END_ENT]"
    assert around_mention(long, words, 4) == "[START_ENT] abc"
    unclosed = text.replace("[END_ENT] ", "")
    assert around_mention(unclosed, words, 6) == "58 59 [START_ENT] x 60 61"
    plain = " ".join(numbers)
    assert around_mention(plain, words, 12) == plain
    assert around_mention(text, words, 200) == text


def test_marks_around_a_mention() -> None:
    text = "the moon of Mars"
    marked = with_marks(text, (4, 8))
    assert marked == "the [START_ENT] moon [END_ENT] of Mars"
    assert without_marks(marked) == (text, (4, 8))
    assert marked[slice(*mention_span(marked) or ())] == " moon "
    assert mention_span("[END_ENT] the [START_ENT] moon") is None
    with pytest.raises(InputError, match=r"no mention between \[START_ENT\] and \[END_ENT\]"):
        without_marks("the [START_ENT] [END_ENT]")


def test_a_mention_among_long_words_is_read() -> None:
    """Few words may be many wordpieces: the mention is read whole, behind the marker of its task."""
    folder = dense_model_folder("multi-task-bge-small-en")
    tokenizer = load_tokenizer(folder)
    config = DenseConfig.from_dict(read_json(folder / "config.json")["dense"], str(folder))
    assert config.skills is not None
    config = replace(config, skills=replace(config.skills, markers=("entity linking",)))
    text = "honorificabilitudinitatibus " * 9 + "[START_ENT] moon [END_ENT] " + "honorificabilitudo " * 9
    read = config.question_input(text, tokenizer, "entity linking").ids
    shown = tokenizer.decode(read)
    assert len(read) <= config.question_length
    assert shown.startswith("entity linking :")
    assert "[ start _ ent ] moon [ end _ ent ]" in shown


def test_markers(encoder: str, words: list[str], tmp_path: Path) -> None:
    """A marked question is its class, a colon and the question; an unknown task and none are not marked."""
    train_skills(of_tasks(words), recipe(encoder, steps=2, markers=True), tmp_path / "out")
    skills = Skills.open(tmp_path / "out")
    assert skills.config.markers == ("dialogue", "fact checking")
    asked = skills.encode_questions(["the moon"], "fact checking")
    np.testing.assert_array_equal(asked, skills.encode_questions(["fact checking: the moon"]))
    own = skills.model.encode_questions(["the moon"], "fact checking")
    np.testing.assert_array_equal(own, skills.model.encode_questions(["fact checking: the moon"]))
    plain = skills.encode_questions(["the moon"])
    assert not np.array_equal(asked, plain)
    np.testing.assert_array_equal(plain, skills.encode_questions(["the moon"], "slot filling"))


def test_query_experts(encoder: str, words: list[str], tmp_path: Path) -> None:
    """Each class has an expert for questions that only its batches teach; passages share one."""
    one = training(encoder, of_tasks(words), tmp_path / "out", query_experts=True)
    assert one.skills.config.experts | {"question of dialogue": 6, "question of fact checking": 7} == (
        one.skills.config.experts
    )
    batch = one.batches.draw(one.sets[0], random.Random(1))
    assert batch.task == "fact checking"
    one.batch_loss(batch).backward()
    taught = {
        int(name.split(".experts.")[1].split(".")[0])
        for name, p in one.model.named_parameters()
        if ".experts." in name and p.grad is not None and p.grad.abs().sum() > 0
    }
    assert taught == {1, 7}
    one.model.save_pretrained(tmp_path / "model")
    again = DenseModel.load(tmp_path / "model")
    before = again.encode_questions(["the moon"])
    np.testing.assert_array_equal(before, again.encode_questions(["the moon"], "dialogue"))  # all begin alike
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            BertQuestionEncoder(tmp_path / "model").encode_questions(["the moon"]), before, atol=1e-4
        )


def test_questions_of_no_task_are_read_by_what_was_trained(
    encoder: str, words: list[str], tmp_path: Path
) -> None:
    """Where each question is of a class, expert 0 learns nothing: that of most questions reads the others."""
    fever, wow = of_tasks(words)
    sets = [replace(fever, examples=fever.examples[:-1]), wow]
    model = training(encoder, sets, tmp_path / "out", query_experts=True).model
    with torch.no_grad():
        for name, p in model.named_parameters():
            if ".experts." in name:
                p += 0.1 * int(name.split(".experts.")[1].split(".")[0])
    model.save_pretrained(tmp_path / "model")
    again = DenseModel.load(tmp_path / "model")
    assert again.config.skills is not None
    assert again.config.skills.general == "dialogue"
    asked, fact, own = (again.encode_questions(["the moon"], t) for t in ("", "fact checking", "dialogue"))
    np.testing.assert_array_equal(asked, own)
    np.testing.assert_array_equal(asked, again.encode_questions(["the moon"], "slot filling"))
    assert not np.array_equal(asked, fact)
    np.testing.assert_allclose(
        BertQuestionEncoder(tmp_path / "model").encode_questions(["the moon"]), asked, atol=1e-4
    )
    plain = replace(fever, name="x", task="")
    mixed = training(encoder, [plain, wow], tmp_path / "mixed", query_experts=True).model
    assert mixed.config.skills is not None
    assert mixed.config.skills.general == ""
    mixed.save_pretrained(tmp_path / "plain")
    for begin, more, general in (
        ("plain", {"query_experts": True}, ""),
        ("model", {"markers": True}, "dialogue"),
    ):
        later = training(str(tmp_path / begin), sets, tmp_path / f"{begin}-later", **more).model
        assert later.config.skills is not None
        assert later.config.skills.general == general, "what was trained before stays"
    with pytest.raises(InputError) as caught:
        training(encoder, sets, tmp_path / "none", query_experts=True, placement="none")
    assert [option.name for option in caught.value.remedy.options] == ["query_experts", "placement"]


def test_a_model_without_tasks_is_written_as_before(encoder: str, words: list[str], tmp_path: Path) -> None:
    one = training(encoder, sets_of(words)[:1], tmp_path / "out")
    assert one.model.config.skills is not None
    assert set(one.model.config.as_dict()["skills"]) == {"skills", "experts", "placement"}


def test_sampling(write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
    """By size, and with a largest size: how often each set's batches are drawn."""
    row = {"positive": "a text"}
    files = [
        SkillFile(
            "single", write_jsonl(tmp_path / f"{n}.jsonl", [{"question": f"q{i}", **row} for i in range(n)])
        )
        for n in (10, 40)
    ]
    assert [s.weight for s in read_skill_sets(files, ())] == [1, 1]
    assert [s.weight for s in read_skill_sets(files, (), by_size=True)] == [10, 40]
    assert [s.weight for s in read_skill_sets(files, (), by_size=True, largest=15)] == [10, 15]
    with pytest.raises(InputError, match="named after a task"):
        read_skill_sets(files, (), tasks=True)


def test_crops(write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
    """Two parts of a passage, each a tenth to a half of it; a short one gives none."""
    texts = [" ".join(f"{i}w{n}" for n in range(60)) for i in range(20)]
    records = [{"_id": str(i), "title": "t", "text": t} for i, t in enumerate([*texts, "too short"])]
    [one] = read_skill_sets([SkillFile("single", write_jsonl(tmp_path / "p.jsonl", records))], ())
    assert len(one.examples) == 20
    sizes = set()
    for text, example in zip(texts, one.examples, strict=True):
        for crop in (example.query, example.positives[0].text):
            assert crop in text
            sizes.add(len(crop.split()))
    assert 6 <= min(sizes) <= max(sizes) <= 30
    assert len({(e.query, e.positives[0].text) for e in one.examples}) == 20


def test_hyperlinks_of_a_page(write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
    """Of a page 30 paragraphs; at most 10 lead to one page."""
    link = {"start": 0, "end": 1}
    rows = [
        {"title": "A", "text": f"x {n}", "links": [{**link, "target_title": t} for t in (str(n), "A")]}
        for n in range(50)
    ]
    rows += [{"title": "E", "text": f"x {n}", "links": [{**link, "target_title": "B"}]} for n in range(50)]
    titles = [*"ABE", *map(str, range(50))]
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"id": t, "title": t, "text": "a text"} for t in titles])
    [one] = read_skill_sets([SkillFile("expanded", write_jsonl(tmp_path / "l.jsonl", rows))], [corpus])
    found = Counter(e.evidence.title for e in one.examples if e.evidence)
    assert found == {"A": 30, "E": 10}
    assert all(p.title != "A" for e in one.examples for p in e.positives)


@pytest.mark.parametrize(
    ("provenance", "said"),
    [
        ({"passage_ids": ["p1"], "bleu_score": 0.4}, "no examples of the skill single"),
        ({"wikipedia_id": "1", "start_paragraph_id": 1, "end_paragraph_id": 1}, "dense mine"),
        ({"passage_ids": []}, "provenance without a page"),
        ({"passage_ids": ["elsewhere"]}, "with a known passage, among 1 examples"),
    ],
)
def test_provenance_that_names_no_passage(
    provenance: dict[str, Any], said: str, write_jsonl: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [{"id": "1", "input": "who", "output": [{"answer": "x", "provenance": [provenance]}]}]
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(json.dumps({"id": "p1", "title": "t", "text": "a text"}) + "\n")
    with pytest.raises(InputError, match=said):
        read_skill_sets([SkillFile("single", write_jsonl(tmp_path / "r.jsonl", rows))], [corpus])


def test_a_model_goes_on_with_the_experts_of_its_tasks(
    encoder: str, words: list[str], tmp_path: Path
) -> None:
    """On fewer tasks and on new ones: an expert stays its task's, a new one begins as what reads questions of
    no task, the dialogue expert here.
    """
    first = training(encoder, of_tasks(words), tmp_path / "first", query_experts=True).model
    with torch.no_grad():
        for name, p in first.named_parameters():
            if ".experts." in name:
                p += int(name.split(".experts.")[1].split(".")[0])
    first.save_pretrained(tmp_path / "model")
    some = [replace(one, name="trex.jsonl", task="slot filling") for one in of_tasks(words)[:1]]
    own = replace(of_tasks(words)[1], task="dialogue")
    slots = ["question of slot filling"]
    for sets, new in (
        ([own], []),
        (some, slots),
        ([*some, own], slots),
    ):
        again = training(str(tmp_path / "model"), sets, tmp_path / "again", query_experts=True).model
        assert again.config.skills is not None
        experts = again.config.skills.experts
        assert list(experts)[-2 - len(new) :] == ["question of dialogue", "question of fact checking", *new]
        state, before = again.state_dict(), first.state_dict()
        for name, tensor in state.items():
            if ".experts.8." in name:
                torch.testing.assert_close(tensor, before[name.replace(".experts.8.", ".experts.6.")])
            else:
                torch.testing.assert_close(tensor, before[name])
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
