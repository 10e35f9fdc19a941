"""TASER trains in two stages, and continues from other models."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from dense.models.bi_encoder import DenseConfig, DenseModel
from dense.models.checkpoints import begin_from
from dense.training.stages import train_in_two_stages
from dense.training.train import DenseTraining, Recipe
from sparta.base.errors import IndexStateError, InputError, ModelError
from sparta.base.files import TEMPORARY, temporary_name
from sparta.base.records import Passage
from sparta.neural.inputs import InputLayout
from sparta.training.negatives import mine as mine_set
from sparta.training.negatives import read_negatives
from sparta.training.paragraphs import ParagraphSet
from sparta.training.run import only_training
from tests.dense.training.recipes import USUAL, WHOLE, questions_on, weights
from tests.moments import at, ctrl_c

pytestmark = pytest.mark.usefixtures("one_thread", "own_logger")


class Begun(NamedTuple):
    """A training, and the weights that it began with."""

    training: DenseTraining
    weights: dict[str, bytes]


def watched(**options: Any) -> tuple[Recipe, list[Begun]]:
    """A recipe, and a list of the trainings that it makes."""
    begun: list[Begun] = []

    class Watched(Recipe):
        def training(self, sets: Sequence[ParagraphSet], folder: Path) -> DenseTraining:
            made = super().training(sets, folder)
            begun.append(
                Begun(made, {n: t.detach().numpy().tobytes() for n, t in made.model.state_dict().items()})
            )
            return made

    return Watched(**options), begun


@pytest.fixture
def staged(encoder: str, words: list[str], tmp_path: Path) -> Callable[..., Any]:
    def run(
        name: str, *, sizes: Sequence[int] = (30,), resume: bool = False, only_p2: bool = False, **change: Any
    ) -> Any:
        data = [questions_on(words, f"set{i}", size) for i, size in enumerate(sizes)]
        recipe, run.begun = watched(**{**USUAL, "encoder": encoder, "routing": "tok", "period": 2, **change})  # type: ignore[attr-defined]
        return train_in_two_stages(data, recipe, tmp_path / name, only_p2=only_p2, resume=resume)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [
        ("write", "stage-1/log.jsonl", 5),
        ("write", "stage-2/log.jsonl", 1),
        ("rename", "mined.json", 1),
        ("write", "stage-2/log.jsonl", 5),
    ],
    ids=["stage-1", "before", "mining", "stage-2"],
)
def test_two_stages_resume_as_if_never_stopped(
    staged: Callable[..., Any], tmp_path: Path, moment: tuple[str, str, int]
) -> None:
    """Stopped in a stage after a checkpoint, between the stages, and while the model mines."""
    whole = staged("whole")
    action, file, nth = moment
    with at(action, file, ctrl_c, nth=nth), pytest.raises(KeyboardInterrupt):
        staged("part")
    (tmp_path / "part" / "best").mkdir()
    for folder in (tmp_path / "part", tmp_path / "part" / "best"):
        (folder / temporary_name()).write_bytes(b"of a killed training")
    torch.manual_seed(99)
    again = staged("part", resume=True)
    assert (again.validation, again.step) == (whole.validation, whole.step)
    assert not list((tmp_path / "part").rglob(TEMPORARY))
    for folder in ("best", "stage-1/best", "stage-2/best"):
        assert weights(tmp_path / "part" / folder) == weights(tmp_path / "whole" / folder)
    for file in ("mined.json", "stage-1/log.jsonl", "stage-2/log.jsonl"):
        assert (tmp_path / "part" / file).read_text() == (tmp_path / "whole" / file).read_text()
    before = weights(tmp_path / "part" / "best")
    assert staged("part", resume=True) == again, "a finished one changes nothing"
    assert weights(tmp_path / "part" / "best") == before


@pytest.mark.slow
@pytest.mark.parametrize("alone", [False, True])
def test_other_hard_negatives_are_refused_when_resumed(staged: Callable[..., Any], *, alone: bool) -> None:
    staged("out", only_p2=alone)
    with pytest.raises(InputError) as caught:
        staged("out", only_p2=not alone, resume=True)
    assert caught.value.facts["differing"] == ["p2_alone"]


def test_a_second_training_in_two_stages_is_refused(encoder: str, words: list[str], tmp_path: Path) -> None:
    data, recipe = [questions_on(words, "set", 30)], Recipe(**{**USUAL, "encoder": encoder})
    with only_training(tmp_path / "out"), pytest.raises(IndexStateError) as caught:
        train_in_two_stages(data, recipe, tmp_path / "out", resume=True)
    assert caught.value.where == str(tmp_path / "out")
    assert not (tmp_path / "out" / "started.json").exists()


def test_a_collection_is_refused_when_resumed(encoder: str, words: list[str], tmp_path: Path) -> None:
    data, recipe = [questions_on(words, "set", 30)], Recipe(**{**USUAL, "encoder": encoder})
    with at("write", "stage-1/log.jsonl", ctrl_c), pytest.raises(KeyboardInterrupt):
        train_in_two_stages(data, recipe, tmp_path / "out")
    with pytest.raises(InputError) as caught:
        train_in_two_stages(data, recipe, tmp_path / "out", collection=[Passage("p", "a text")], resume=True)
    assert caught.value.facts["differing"] == ["collection"]


@pytest.mark.slow
@pytest.mark.parametrize(("sets", "alone"), [(1, False), (1, True), (2, False)])
def test_stage_two_begins_anew_with_what_stage_one_mined(
    staged: Callable[..., Any], tmp_path: Path, sets: int, *, alone: bool
) -> None:
    """P1 and P2 for one set, P2 alone for several or if asked for; weights as at the start of stage one."""
    result = staged("out", sizes=(30, 40)[:sets], only_p2=alone)
    (one, weights_one), (two, weights_two) = staged.begun  # type: ignore[attr-defined]
    assert [one.folder.name, two.folder.name] == ["stage-1", "stage-2"]
    assert weights_one == weights_two
    model = DenseModel.load(tmp_path / "out" / "stage-1" / "best")
    for first, second in zip(one.sets, two.sets, strict=True):
        assert first.paragraphs == second.paragraphs
        vectors = model.encode_passages([p.whole() for p in first.paragraphs])[:, 0]
        scores = model.encode_questions([p.questions[0][0] for p in first.paragraphs]) @ vectors.T
        assert (scores < 0).any(), "a negative score is a score"
        for i, (p1, near) in enumerate(zip(first.hard_negatives, second.hard_negatives, strict=True)):
            p2 = set(range(len(scores))) - {i}
            assert set(near) == (p2 | set(p1) if sets == 1 and not alone else p2)
        assert second.hard_negative_share == (0.5 if sets == 1 and not alone else 1.0)
    assert result.folder == tmp_path / "out" / "best"
    assert weights(result.folder) == weights(tmp_path / "out" / "stage-2" / "best")


@pytest.mark.slow
def test_both_stages_begin_from_one_encoder(staged: Callable[..., Any], encoder: str, tmp_path: Path) -> None:
    with at("write", "stage-1/log.jsonl", ctrl_c), pytest.raises(KeyboardInterrupt):
        staged("out")
    other = tmp_path / "other"
    shutil.copytree(encoder, other)
    with (other / "config.json").open("a") as config:
        config.write("\n")
    with pytest.raises(InputError) as caught:
        staged("out", resume=True, encoder=str(other))
    assert caught.value.facts["differing"] == ["encoder"]
    assert staged("out", resume=True).step


@pytest.mark.slow
def test_negatives_are_mined_from_the_100_best(staged: Callable[..., Any], tmp_path: Path) -> None:
    staged("out", sizes=(110, 120))
    mined = read_negatives(tmp_path / "out" / "mined.json")
    assert [{len(near) for near in negatives} for negatives in mined] == [{100}, {100}]


def test_two_stages_mine_between_and_not_on_the_way(staged: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="two stages"):
        staged("out", mine_every=2)


def test_near_texts_are_all_that_is_drawn_where_they_alone_are_wanted(words: list[str]) -> None:
    one = questions_on(words, n=30)
    mined = mine_set(one, lambda asked: np.tile(np.arange(30.0, dtype=np.float32), (len(asked), 1)), 2)
    from dataclasses import replace

    whole = replace(mined, hard_negative_share=1.0, batch_size=3)
    for seed in range(20):
        [first, *others] = whole.draw(random.Random(seed))
        at = whole.paragraphs.index(first)
        assert {whole.paragraphs.index(p) for p in others} <= set(range(27, 30)) - {at}


@pytest.fixture
def saved(encoder: str, tmp_path: Path) -> Callable[..., Path]:
    def make(name: str, **form: Any) -> Path:
        torch.manual_seed(5)
        model = DenseModel.from_encoder(encoder, DenseConfig(WHOLE, **form))
        with torch.no_grad():
            model.log_scale.fill_(2.0)
            for number, parameter in enumerate(model.parameters()):
                parameter.add_(0.01 * (number % 3))
        model.save_pretrained(tmp_path / name)
        return tmp_path / name

    return make


DET: dict[str, Any] = {"routing": "det", "period": 2}


@pytest.mark.parametrize(("own", "asked"), [(True, False), (False, True), (False, False)])
def test_what_is_taken_over_of_how_texts_are_read(
    encoder: str, tmp_path: Path, own: bool, asked: bool
) -> None:
    """[SEP] behind a title where either wants it, and questions as long as they were."""
    plain = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=0)
    source = DenseModel.from_encoder(
        encoder, DenseConfig(replace(plain, separate_title=own), question_length=128)
    )
    source.save_pretrained(tmp_path / "source")
    begun = begin_from(tmp_path / "source", DenseConfig(replace(plain, separate_title=asked)))
    assert begun.config.layout.separate_title == (own or asked)
    assert begun.config.question_length == 128


@pytest.mark.parametrize(
    ("source", "wanted"),
    [({}, {}), ({}, DET), ({}, {"shared": False}), (DET, DET), ({"shared": False}, {"shared": False})],
)
def test_a_model_of_ours_is_a_beginning(
    saved: Callable[..., Path], source: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """Untrained, the new model gives the vectors of the one that it begins from."""
    folder = saved("source", **source)
    old, new = DenseModel.load(folder), begin_from(folder, DenseConfig(WHOLE, **wanted)).eval()
    assert (new.config.shared, new.config.routing) == (wanted.get("shared", True), wanted.get("routing", ""))
    asked, passages = ["the moon", "a king"], [Passage("", "the earth", "King")]
    np.testing.assert_allclose(new.encode_questions(asked), old.encode_questions(asked), atol=1e-5)
    np.testing.assert_allclose(new.encode_passages(passages), old.encode_passages(passages), atol=1e-5)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [(DET, {}), ({"shared": False}, {}), ({"shared": False}, DET), (DET, {**DET, "period": 1})],
)
def test_no_form_is_made_from_several_encoders_or_experts(
    saved: Callable[..., Path], source: dict[str, Any], wanted: dict[str, Any]
) -> None:
    with pytest.raises(ModelError, match="the start model has"):
        begin_from(saved("source", **source), DenseConfig(WHOLE, **wanted))


@pytest.mark.slow
def test_p2_comes_from_all_passages_of_a_collection(encoder: str, words: list[str], tmp_path: Path) -> None:
    """The 100 highest dot products among texts and collection, without right passages and duplicates."""
    rng = random.Random(4)
    data = questions_on(words, n=20)
    collection = [Passage(f"c{n}", " ".join(rng.sample(words, 5)), "") for n in range(150)]
    collection.append(Passage("copy", data.paragraphs[0].text))
    recipe, begun = watched(**{**USUAL, "encoder": encoder, "held_out": 0, "mined": False})
    train_in_two_stages([data], recipe, tmp_path / "out", only_p2=True, collection=collection)
    [first], [second] = [one.training.sets for one in begun]
    assert first.paragraphs == data.paragraphs
    texts = [paragraph.text for paragraph in second.paragraphs]
    assert texts == [p.text for p in collection[:-1]] + [p.text for p in data.paragraphs]
    model = DenseModel.load(tmp_path / "out" / "stage-1" / "best")
    vectors = torch.from_numpy(model.encode_passages([p.whole() for p in second.paragraphs])[:, 0])
    for i, paragraph in enumerate(data.paragraphs):
        question = torch.from_numpy(model.encode_questions([paragraph.questions[0][0]]))[0]
        scores = vectors @ question
        scores[150 + i] = -torch.inf
        assert set(second.hard_negatives[150 + i]) == set(scores.topk(100).indices.tolist())
    with pytest.raises(InputError, match="collection"):
        train_in_two_stages(
            [data], recipe, tmp_path / "out", only_p2=True, collection=collection[1:], resume=True
        )
