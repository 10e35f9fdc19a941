"""A bi-encoder is trained and validated."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dense.models.bi_encoder import DenseConfig, DenseModel
from dense.training.train import DenseTraining, Recipe, exact_scorer, layer_groups, train_dense
from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.training.batches import make_batch
from sparta.training.negatives import Scorer, mine, read_negatives
from sparta.training.options import TrainerConfig
from sparta.training.paragraphs import Paragraph, ParagraphSet, open_set, read_paragraphs
from sparta.training.ranking import RankingConfig
from sparta.training.validation import measure_named, ranks, shown
from tests.dense.training.recipes import USUAL, WHOLE, questions_on

pytestmark = pytest.mark.usefixtures("one_thread", "own_logger")


def test_lower_layers_learn_slower(encoder: str, words: list[str], tmp_path: Path) -> None:
    """The first step of Adam moves every weight by the learning rate of its group."""
    recipe = Recipe(encoder=encoder, **{**USUAL, "steps": 1}, layer_decay=0.5, shared=False, validate_by="rr")
    training = recipe.training([questions_on(words)], tmp_path / "out")
    before = {name: p.detach().clone() for name, p in training.model.named_parameters()}
    training.run()
    moved: dict[float, set[float]] = {}
    for name, parameter in training.model.named_parameters():
        change = float((parameter.detach() - before[name]).abs().max())
        below = 2 if ".embeddings." in name else 1 if ".layer.0." in name else 0
        if "log_scale" not in name and change:
            moved.setdefault(3e-3 * 0.5**below, set()).add(change)
    assert sorted(moved) == [3e-3 / 4, 3e-3 / 2, 3e-3]
    for rate, found in moved.items():
        np.testing.assert_allclose(max(found), rate, rtol=0.01)


def test_layer_groups_hold_every_parameter_once(encoder: str) -> None:
    model = DenseModel.from_encoder(encoder, DenseConfig(WHOLE, routing="seq", period=2))
    named = list(model.named_parameters())
    groups = layer_groups(named, 0.8)
    assert [g["factor"] for g in groups] == [1.0, 0.8, pytest.approx(0.64)]
    assert sorted(id(p) for g in groups for p in g["params"]) == sorted(id(p) for _, p in named)
    assert id(model.log_scale) in {id(p) for p in groups[0]["params"]}
    router = next(p for n, p in named if "router" in n)
    assert any(p is router for p in groups[0]["params"]), "a router learns as its layer does"
    assert len(layer_groups(named, 1.0)) == 1


def test_resuming_with_another_decay_or_entropy_is_refused(
    encoder: str, words: list[str], tmp_path: Path
) -> None:
    def run(**change: Any) -> Any:
        recipe = {**USUAL, "encoder": encoder, "routing": "tok", "period": 2, "steps": 2, **change}
        return train_dense([questions_on(words)], Recipe(**recipe), tmp_path / "out", resume=True)

    run()
    run(layer_decay=1.0, entropy=0.01)
    for change in ({"layer_decay": 0.9}, {"entropy": 0.1}, {"validate_by": "recall@5"}, {"questions": 2}):
        with pytest.raises(InputError, match="the settings differ from the settings of the started training"):
            run(**change)


def test_beta_weighs_the_entropy(encoder: str, words: list[str], tmp_path: Path) -> None:
    recipe = Recipe(encoder=encoder, **USUAL, routing="seq", period=2, entropy=0.7)
    training = recipe.training([questions_on(words)], tmp_path / "out")
    loss, logs = training.loss(0)
    assert logs["entropy"] > 0.01
    assert loss.item() == pytest.approx(logs["ranking"] - 0.7 * logs["entropy"], abs=1e-5)


def test_ranks_are_those_of_a_sorted_list() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(-3, 4, (50, 9)).astype(np.float32)
    gold = rng.integers(0, 9, 50).tolist()
    others = [set(rng.choice(9, 2).tolist()) | {g} for g in gold]
    expected = []
    for row, g, own in zip(scores, gold, others, strict=True):
        standing = sorted((s for i, s in enumerate(row) if i == g or i not in own), reverse=True)
        last = max(place for place, s in enumerate(standing, 1) if s == row[g])
        expected.append(np.inf if row[g] == 0 else last)
    found = ranks(torch.from_numpy(scores), gold, others)
    np.testing.assert_array_equal(found, expected)
    assert np.isinf(expected).any()
    figures = {
        "rr": np.mean(1 / np.array(expected)),
        "average-rank": -np.mean(np.minimum(expected, 9)),
        "recall@3": np.mean(np.array(expected) <= 3),
    }
    for name, value in figures.items():
        figure = measure_named(name)(torch.from_numpy(scores), gold, others)
        assert figure == pytest.approx(value, rel=1e-6)
    assert shown("average-rank", -3.25) == "average rank 3.25"
    assert shown("recall@3", 0.5) == "recall@3 0.5000"
    for name in ("mrr", "recall@0", "recall", "average"):
        with pytest.raises(InputError, match="measure must be rr, average-rank or recall@K"):
            measure_named(name)


@pytest.mark.parametrize(("name", "least"), [("rr", 0.0), ("average-rank", -3.0), ("recall@1", 0.0)])
def test_scores_that_are_no_numbers_find_nothing(name: str, least: float) -> None:
    """A training that diverged must not be taken for the best there was."""
    figure = measure_named(name)
    nothing = torch.full((2, 3), torch.nan)
    assert figure(nothing, [0, 1], [set(), set()]) == least
    one = torch.tensor([[torch.nan, 1.0, 0.5]])
    assert ranks(one, [1], [set()]).tolist() == [2.0]


class Scored(DenseTraining):
    """Every text has the score 1, and a sentence the score of its text in `scores`.

    The texts of a paragraph are its sentences and then the whole, which may be its only sentence.
    """

    scores: Mapping[str, float] = {}

    def score(self, queries: torch.Tensor, candidates: Sequence[Passage]) -> torch.Tensor:
        texts = [passage.text for passage in candidates]
        whole = [text == before for before, text in zip(["", *texts], texts, strict=False)]
        scores = [
            1.0 if last else self.scores.get(text, 1.0) for last, text in zip(whole, texts, strict=True)
        ]
        return torch.tensor([scores])


def test_every_sentence_of_training_stands_in_the_way_when_validating(
    encoder: str, words: list[str], tmp_path: Path
) -> None:
    """The numbers of right paragraphs are no numbers of sentences."""
    text = f"{words[0]} {words[1]}"
    half = len(words[0])
    spans = ((0, half), (half + 1, len(text)))
    trainer = TrainerConfig(1, bf16=False)
    config = RankingConfig(trainer=trainer, held_out=0, candidates=10, mined=False)
    model = DenseModel.from_encoder(encoder, DenseConfig(WHOLE))
    training = Scored(model, [questions_on(words)], config, tmp_path / "out")
    held = (Paragraph(text, "", spans, (("where", 0),)),)
    training.validation = [ParagraphSet("made", held, distractors=training.sets[0].paragraphs)]
    training.measure = lambda *given: float(ranks(*given)[0])
    gold, *others = [words[0], words[1], *(p.text for p in training.sets[0].paragraphs[:10])]
    assert len({text, gold, *others}) == 1 + 2 + 10
    for better in others[1:]:
        training.scores = {**dict.fromkeys(others, 0.1), gold: 1.0, better: 2.0}
        assert training.validate() == (2 + 11) / 2


def test_the_best_is_the_one_of_the_lowest_average_rank(
    encoder: str, words: list[str], tmp_path: Path
) -> None:
    data = questions_on(words)
    recipe = {**USUAL, "encoder": encoder, "steps": 12, "validate_by": "average-rank"}
    result = train_dense([data], Recipe(**recipe), tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    figures = {line["step"]: line["validation"] for line in lines if "validation" in line}
    assert set(figures) == {3, 6, 9, 12}
    assert result.validation == pytest.approx(max(figures.values()), abs=1e-5)
    assert figures[result.step] == max(figures.values())
    model = DenseModel.load(result.folder)
    held, known = data.paragraphs[-4:], [*data.paragraphs[-4:], *data.paragraphs[:10]]
    vectors = model.encode_passages([p.whole() for p in known])[:, 0]
    scores = model.encode_questions([p.questions[0][0] for p in held]) @ vectors.T
    places = [int((row >= row[i]).sum()) for i, row in enumerate(scores)]
    assert -result.validation == pytest.approx(np.mean(places))


def test_without_questions_that_validate_the_last_model_is_kept(
    encoder: str, words: list[str], tmp_path: Path
) -> None:
    recipe = Recipe(encoder=encoder, **{**USUAL, "held_out": 0})
    training = recipe.training([questions_on(words)], tmp_path / "out")
    assert training.run().best_step == 6
    best = DenseModel.load(tmp_path / "out" / "best").state_dict()
    for name, tensor in training.model.state_dict().items():
        assert torch.equal(best[name], tensor)


def one_sentence(text: str, *questions: str) -> Paragraph:
    return Paragraph(text, "", ((0, len(text)),), tuple((q, 0) for q in questions))


def test_duplicates_of_any_answer_are_no_negatives() -> None:
    """Of the text that answers, of another that answers too; also where the question was not drawn."""
    paragraphs = [
        one_sentence("moon", "where"),
        one_sentence("earth", "where", "what"),
        one_sentence("sun", "who"),
        one_sentence("earth"),
        one_sentence("moon"),
        Paragraph("king moon", "", ((0, 4), (5, 9)), (("king", 0),)),
    ]
    drawn = set()
    for seed in range(20):
        batch = make_batch(paragraphs, random.Random(seed), 1)
        drawn.add(batch.questions[1])
        right = batch.masked[batch.questions.index("where")]
        moons, earths = {0, 4, 6, 7, 11}, {1, 3, 8, 10}
        assert right == moons | earths
        assert batch.masked[batch.questions.index("who")] == {2, 9}
        assert batch.masked[batch.questions.index("king")] == {5, 12}
    assert drawn == {"where", "what"}


def test_a_beir_folder_is_training_data(tmp_path: Path, write_jsonl: Callable[..., Path]) -> None:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    texts = {"a": "the moon", "b": "the earth", "c": "the sun", "d": "a king"}
    write_jsonl(
        folder / "corpus.jsonl", [{"_id": i, "title": i.upper(), "text": t} for i, t in texts.items()]
    )
    asked = {"1": "what is far", "2": "what is hot", "3": "not judged", "4": "who"}
    write_jsonl(folder / "queries.jsonl", [{"_id": i, "text": t} for i, t in asked.items()])
    with pytest.raises(InputError, match=r"lacks qrels/train\.tsv"):
        list(read_paragraphs(folder))
    judged = "query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\t2\n1\td\t0\n2\tc\t1\n4\tgone\t1\n"
    (folder / "qrels" / "train.tsv").write_text(judged)
    found = list(read_paragraphs(folder, "passages"))
    assert [(p.title, p.text, p.questions) for p in found] == [
        ("A", "the moon", (("what is far", -1),)),
        ("D", "a king", ()),
        ("B", "the earth", (("what is far", -1),)),
        ("D", "a king", ()),
        ("C", "the sun", (("what is hot", -1),)),
    ]
    assert open_set(f"{folder}=2", "pairs", 4).weight == 2


def test_a_model_mines_before_the_autocast_of_a_step(
    encoder: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The autocast of older versions of torch keeps the weights that mining casts, without gradients."""
    recipe = Recipe(encoder=encoder, **USUAL, mine_every=2)
    training = recipe.training([questions_on(words)], tmp_path)
    training.schedule = replace(training.schedule, steps=3, bf16=True)
    scorer, autocast, scorers = training.scorer, [], []

    def scorer_of_step(candidates: Sequence[Passage]) -> Scorer:
        autocast.append(torch.is_autocast_enabled("cpu"))
        scorers.append(exact_scorer(deepcopy(training.model), candidates))
        return scorer(candidates)

    monkeypatch.setattr(training, "scorer", scorer_of_step)
    training.run()
    assert autocast == [False]
    [stored] = tmp_path.glob("mined-*")
    assert stored.name == "mined-0001.json"
    expected = mine(training.sets[0], scorers[0], above=training.score_floor).hard_negatives
    assert any(expected)
    assert read_negatives(stored) == [expected]
