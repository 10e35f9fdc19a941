"""Training a reader of paths: losses by hand, what is right, learning, resumed, its files."""

from __future__ import annotations

import json
import math
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hybrid.replications.path_examples import (
    PathExample,
    PathPassage,
    read_path_examples,
    without_gold_negatives,
)
from hybrid.replications.path_train import (
    Drawn,
    PathRecipe,
    PathTraining,
    answer_places,
    list_mle,
    replaced,
    split,
    supporting,
    train_path_reader,
)
from sparta.base.errors import InputError
from sparta.neural.checkpoint import load_state
from sparta.reader.path_reader import PathReader
from sparta.reader.records import Text
from tests.sparta.reader.made_data import COLORS, THINGS, USUAL, written

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Of four passages about things, the two of the north are needed; the first of these says the answer."""
    draw = random.Random(1)
    lines = []
    for _ in range(120):
        things, colors = draw.sample(THINGS, 4), draw.sample(COLORS, 4)
        passages = [
            {"title": "north" if i < 2 else "south", "text": f"the {c} {t}", "gold": i < 2}
            for i, (t, c) in enumerate(zip(things, colors, strict=True))
        ]
        draw.shuffle(passages)
        question = f"which {things[0]} and {things[1]}"
        lines.append({"question": question, "answers": [colors[0]], "passages": passages})
    return written(tmp_path, lines)


def recipe(encoder: Path, **changes: object) -> PathRecipe:
    return PathRecipe(**{**USUAL, "encoder": str(encoder), "max_length": 128, **changes})


def test_list_mle_by_hand() -> None:
    scores = torch.tensor([0.5, 2.0, -1.0, 1.0, 3.0])
    right = torch.tensor([True, False, False, True])
    below = math.exp(0.5) + math.exp(-1) + math.exp(1)
    of_right = [math.log(below + math.exp(one)) - one for one in (2.0, 3.0)]
    assert float(list_mle(scores, right)) == pytest.approx(sum(of_right) + math.log(below) - 0.5)
    # all right: each against the threshold alone; all wrong: the threshold against them
    assert float(list_mle(scores[:2], right[:1])) == pytest.approx(math.log(math.exp(0.5) + math.exp(2)) - 2)
    assert float(list_mle(scores[:2], ~right[:1])) == pytest.approx(
        math.log(math.exp(0.5) + math.exp(2)) - 0.5
    )


def passage(text: str, *, gold: bool, **known: Any) -> PathPassage:
    return PathPassage(Text(text, "title"), gold, **known)


def drawn(training: PathTraining, example: PathExample, *chosen: int) -> Drawn:
    passages = [example.passages[i] for i in chosen]
    texts, sentences = [p.text for p in passages], [p.sentences for p in passages]
    return Drawn(example, passages, training.model.make_input(example.question, texts, sentences))


@pytest.fixture
def training(data: Path, encoder_folder: Path, tmp_path: Path) -> PathTraining:
    return PathTraining(recipe(encoder_folder), read_path_examples(data), tmp_path / "own")


def test_what_is_right_in_an_input(training: PathTraining) -> None:
    two = [passage("the red red house", gold=True, spans=((4, 7), (8, 11))), passage("the sea", gold=True)]
    example = PathExample("which house", ("red",), (*two, passage("red sea", gold=False)))
    one = drawn(training, example, 2, 0)
    start = one.input.parts[1].text_start
    assert answer_places(one) == [(start + 1, start + 1), (start + 2, start + 2)]
    assert answer_places(drawn(training, example, 1, 2)) == [], "no passage says it"
    # yes and no: with all passages that are needed, and never in a text
    asked = PathExample("is it", ("No",), tuple(example.passages))
    whole = drawn(training, asked, 1, 0, 2)
    assert answer_places(whole) == [(whole.input.choices[1],) * 2]
    assert answer_places(drawn(training, asked, 0, 2)) == []
    many = PathExample("is it", ("No",), (*asked.passages, passage("a", gold=True)))
    assert answer_places(drawn(training, many, 0, 1)) == []
    # the loss is that of the three, sentences at half
    told = PathExample(
        "which house",
        ("red",),
        (
            passage(
                "red. sea.", gold=True, spans=((0, 3),), sentences=((0, 4), (5, 9)), supporting=(True, False)
            ),
            passage("sea.", gold=False, sentences=((0, 4),), supporting=(False,)),
        ),
    )
    both = drawn(training, told, 1, 0)
    assert supporting(both) == [False, True, False]
    assert supporting(one) == []
    silent = replace(
        told, passages=(told.passages[0], replace(told.passages[1], sentences=(), supporting=()))
    )
    assert supporting(drawn(training, silent, 1, 0)) == [True, False], "of sentences that are known"


def test_the_loss_is_that_of_eq_10(encoder_folder: Path, tmp_path: Path) -> None:
    first = passage("red.", gold=True, spans=((0, 3),), sentences=((0, 4),), supporting=(True,))
    second = passage("sea.", gold=False, sentences=((0, 4),), supporting=(False,))
    example = PathExample("which", ("red",), (first, second))
    training = PathTraining(recipe(encoder_folder, batch_size=1, held_out=0), [example], tmp_path / "one")
    step = next(n for n in range(100) if training.batch(n)[0].passages == [first, second])
    [one] = training.batch(step)
    scores = training.model([one.input])
    right = torch.tensor([True, False])
    of_passages, of_sentences = list_mle(scores.passages[0], right), list_mle(scores.sentences[0], right)
    at = one.input.parts[0].text_start
    of_answers = (scores.spans[:, 0].logsumexp(1) - scores.spans[:, 0, at]).mean()  # start and end are one
    loss, logs = training.loss(step)
    torch.testing.assert_close(loss, of_passages + of_answers + 0.5 * of_sentences)
    assert logs["sentences"] == pytest.approx(float(of_sentences.detach()))


def test_inputs_are_drawn_as_the_paper_draws_them(training: PathTraining) -> None:
    seen = set()
    for step in range(60):
        for one in training.batch(step):
            kinds = [passage.gold for passage in one.passages]
            seen.add((sum(kinds), len(kinds) - sum(kinds)))
            assert len(set(one.passages)) == len(one.passages)
    assert seen == {(1, 0), (2, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 1)}
    again = [one.input for one in training.batch(7)]
    assert [one.input for one in training.batch(7)] == again


@pytest.mark.slow
def test_it_learns(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    result = train_path_reader(
        [data], recipe(encoder_folder, steps=250, validate_every=250, layer_decay=1.0), tmp_path / "made"
    )
    assert 0.6 < result.validation <= 1, "by chance passage EM is near 0.2 and F1 near 0.12"
    reader = PathReader.open(tmp_path / "made", device="cpu")
    needed, other = Text("the red house", "north"), Text("the old park", "south")
    good, bad = reader.read("which house and river", [[needed], [other]])
    assert good.scores[0] > bad.scores[0]
    card = (tmp_path / "made" / "best" / "README.md").read_text()
    assert "| data.jsonl | 120 |" in card


@pytest.mark.slow
def test_killed_and_resumed_is_the_same(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    train_path_reader([data], recipe(encoder_folder), tmp_path / "whole")
    training = PathTraining(recipe(encoder_folder), read_path_examples(data), tmp_path / "parts")
    loss = training.loss

    def dying(step: int) -> Any:
        if step == 6:
            raise RuntimeError("killed")
        return loss(step)

    training.loss = dying
    with pytest.raises(RuntimeError, match="killed"):
        training.run()
    train_path_reader([data], recipe(encoder_folder), tmp_path / "parts", resume=True)
    whole, parts = (load_state(tmp_path / name / "best" / "model.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    with pytest.raises(InputError, match="training: seed"):
        train_path_reader([data], recipe(encoder_folder, seed=5), tmp_path / "parts", resume=True)


def test_rivals_and_held_out_questions() -> None:
    gold, others = [passage("a", gold=True), passage("b", gold=True)], [passage("c", gold=False)]
    assert replaced(gold, others) == [[others[0], gold[1]], [gold[0], others[0]]]
    examples = [PathExample(f"q{i // 2}", ("a",), tuple(gold)) for i in range(20)]
    trained, held = split(examples, 3)
    assert len(held) == 6, "questions that are the same are held out together"
    assert not {e.question for e in trained} & {e.question for e in held}


HOTPOT = {
    "question": "Which house?",
    "answer": "red",
    "supporting_facts": [["A", 1], ["B", 0]],
    "context": [["A", ["It is old.", " It is red."]], ["B", ["A house."]], ["C", ["The sea.", "  "]]],
}


def test_hotpotqa_is_read_as_published(tmp_path: Path) -> None:
    path = tmp_path / "hotpot.json"
    lacking = [{**HOTPOT, "supporting_facts": [["A", 1], other]} for other in (["Z", 0], ["B", 9], ["C", 1])]
    path.write_text(json.dumps([HOTPOT, *lacking]))
    [one] = read_path_examples(path)
    first, second, third = one.passages
    assert [p.text.title for p in one.gold] == ["A", "B"]
    assert first.text.text == "It is old. It is red."
    assert [first.text.text[a:b] for a, b in first.sentences] == ["It is old.", "It is red."]
    assert (first.supporting, second.supporting, third.supporting) == ((False, True), (True,), (False,))
    assert [first.text.text[a:b] for a, b in first.spans] == ["red"]
    assert third.spans == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"answers": "red"}, "must be of type list"),
        ({"answers": []}, "no answer"),
        ({"answers": [1]}, "must be of type str"),
        ({"passages": [{"text": "a", "gold": "yes"}]}, "must be of type bool"),
        ({"passages": [{"text": "a"}]}, "gold"),
        ({"question": None}, "must be of type str"),
    ],
)
def test_lines_of_another_form(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    line = {
        "question": "q",
        "answers": ["a"],
        "passages": [{"title": "", "text": "a", "gold": True}],
        **change,
    }
    (tmp_path / "bad.jsonl").write_text(json.dumps(line))
    with pytest.raises(InputError, match=said) as error:
        read_path_examples(tmp_path / "bad.jsonl")
    assert "bad.jsonl:1" in str(error.value)


@pytest.mark.slow
def test_bad_input(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    for change in ({"supporting_facts": [["A", "1"]]}, {"context": [["A", "It is"]]}, {"answer": ""}):
        (tmp_path / "bad.json").write_text(json.dumps([{**HOTPOT, **change}]))
        with pytest.raises(InputError, match="question 1"):
            read_path_examples(tmp_path / "bad.json")
    (tmp_path / "none.jsonl").write_text(
        json.dumps({"question": "q", "answers": ["a"], "passages": [{"text": "a", "gold": False}]})
    )
    with pytest.raises(InputError, match="no questions with evidence passages"):
        read_path_examples(tmp_path / "none.jsonl")
    (tmp_path / "same").mkdir()
    shutil.copy(data, tmp_path / "same" / data.name)
    result = train_path_reader(
        [data, tmp_path / "same" / data.name], recipe(encoder_folder, steps=1), tmp_path / "both"
    )
    assert (result.folder / "README.md").read_text().count("| data.jsonl | 120 |") == 2
    with pytest.raises(InputError, match="named twice"):
        train_path_reader([data, data], recipe(encoder_folder), tmp_path / "twice")
    with pytest.raises(InputError, match="a batch needs 101"):
        train_path_reader([data], recipe(encoder_folder, batch_size=101), tmp_path / "few")


def test_copies_of_what_a_question_needs_are_no_negatives(tmp_path: Path) -> None:
    def line(*passages: tuple[str, bool]) -> dict[str, Any]:
        read = [{"title": str(i), "text": text, "gold": gold} for i, (text, gold) in enumerate(passages)]
        return {"question": "which", "answers": ["x"], "passages": read}

    lines = [line(("a", True), ("a", False), ("b", False), ("c", False)), line(("b", True), ("d", False))]
    path = tmp_path / "paths.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert [[p.text.text for p in one.others] for one in read_path_examples(path)] == [["c"], ["d"]]


def test_copies_of_gold_passages_of_other_files_are_no_negatives() -> None:
    """Also copies with other white space."""
    of_files = [
        PathExample("q", ("x",), (passage("a  b", gold=True), passage("c d", gold=False))),
        PathExample("q", ("x",), (passage("c  d", gold=True), passage("a b", gold=False))),
        PathExample("another q", ("x",), (passage("e", gold=True), passage("a b", gold=False))),
    ]
    others = [
        [passage.text.text for passage in example.others] for example in without_gold_negatives(of_files)
    ]
    assert others == [[], [], ["a b"]]
