"""Eq. 1 to 5 of Chain-of-Skills, each written out in plain torch over plain BERTs; and whose gradients."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from dense.training.skill_batches import BatchMaker, SkillBatch
from dense.training.skill_examples import SkillExample, SkillSet
from dense.training.skill_losses import SpanScores, ranking_loss, span_loss
from dense.training.skill_train import SkillTraining
from sparta.base.records import Passage
from tests.dense.models.skill_models import expert_alone, read
from tests.dense.training.skill_sets import sets_of, training

pytestmark = pytest.mark.usefixtures("one_thread")
EXPERTS = {"single": {0, 1}, "expanded": {4, 1}, "span": {5}, "link": {2, 3}, "rerank": {4}}


@pytest.fixture
def made(encoder: str, words: list[str], tmp_path: Path) -> SkillTraining:
    """A training whose experts differ."""
    one = training(encoder, sets_of(words), tmp_path / "out")
    torch.manual_seed(8)
    with torch.no_grad():
        for name, parameter in one.model.passage_encoder.named_parameters():
            if ".experts." in name and parameter.dim() == 2:
                parameter.normal_(std=0.3)
        assert one.model.spans is not None
        one.model.spans.anchor.normal_()
    return one


def examples(one: SkillTraining, skill: str) -> list[SkillExample]:
    return list(next(s for s in one.sets if s.skill == skill).examples[:4])


def negative_log_share(positive: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
    """-log(exp(p) / (exp(p) + Σ exp(n))), as eq. 1 to 5 have it."""
    return -torch.log(positive.exp() / (positive.exp() + sum(n.exp() for n in others)))


def passage_text(p: Passage) -> str:
    return f"{p.title} [SEP] {p.text}" if p.title else p.text


@pytest.mark.parametrize("skill", ["single", "expanded", "link"])
def test_equations_1_and_4(skill: str, made: SkillTraining, tiny_tokenizer: Any) -> None:
    """Each query against the positives and hard negatives of all in the batch; its own are no negatives."""
    own = examples(made, skill)
    shared = own[0].positives[0]
    own[1] = SkillExample(own[1].query, (shared,), own[1].negatives, own[1].evidence, own[1].spans)
    batch = made.batches.of(own, skill, random.Random(1))
    made.model.eval()
    with torch.no_grad():
        found = made.batch_loss(batch)
        asker, target = min(EXPERTS[skill] - {1, 3}), {"link": 3}.get(skill, 1)
        tokenizer = tiny_tokenizer  # which reads [SEP] in a text as a separator, as the model's does not
        askers, targets = expert_alone(made.model, asker), expert_alone(made.model, target)
        candidates = {passage_text(p): p for e in own for p in (*e.positives, *e.negatives[:1])}
        vectors = {text: read(targets, tokenizer, text)[0] for text in candidates}
        losses = []
        for example in own:
            if skill == "link":
                start, end = example.spans[0]
                encoded = tokenizer.encode(example.query)
                inside = [i for i, (a, b) in enumerate(encoded.offsets) if a < end and b > start and b > a]
                states = read(askers, tokenizer, example.query)
                query = (states[inside[0]] + states[inside[-1]]) / 2
            elif example.evidence is not None:
                query = read(askers, tokenizer, f"{example.query} [SEP] {passage_text(example.evidence)}")[0]
            else:
                query = read(askers, tokenizer, example.query)[0]
            gold = passage_text(example.positives[0])
            right = {gold, *(passage_text(p) for p in [example.evidence] if p)}
            others = [query @ v for text, v in vectors.items() if text not in right]
            losses.append(negative_log_share((query @ vectors[gold]).double(), [o.double() for o in others]))
    assert len(candidates) < sum(1 + len(e.negatives[:1]) for e in own), "the shared positive is there once"
    torch.testing.assert_close(found, torch.stack(losses).mean().float(), rtol=1e-3, atol=1e-4)


def test_equation_5(made: SkillTraining, tiny_tokenizer: Any) -> None:
    """[CLS] · first [SEP] of each pair, against the same question with its own negatives."""
    own = examples(made, "rerank")
    made.batches.negatives = 2
    batch = made.batches.of(own, "rerank", random.Random(1))
    made.model.eval()
    with torch.no_grad():
        found = made.batch_loss(batch)
        encoder, tokenizer, losses = expert_alone(made.model, 4), tiny_tokenizer, []
        for example in own:
            scores = []
            for passage in (example.positives[0], *example.negatives):
                states = read(encoder, tokenizer, f"{example.query} [SEP] {passage_text(passage)}")
                separator = tokenizer.encode(example.query).ids.index(tokenizer.token_to_id("[SEP]"))
                scores.append((states[0] @ states[separator]).double())
            losses.append(negative_log_share(scores[0], scores[1:]))
    torch.testing.assert_close(found, torch.stack(losses).mean().float(), rtol=1e-3, atol=1e-4)


def test_equations_2_and_3(made: SkillTraining) -> None:
    """Each entity against the other spans and [CLS]; [CLS] against the other spans; the mean of both."""
    own = examples(made, "span")
    batch = made.batches.of(own, "span", random.Random(1))
    made.model.eval()
    assert made.model.spans is not None
    head = made.model.spans
    with torch.no_grad():
        found = made.batch_loss(batch)
        encoder, entities, thresholds = expert_alone(made.model, 5), [], []
        for example, spans, others in zip(own, batch.entities, batch.others, strict=True):
            states = read(encoder, made.model.tokenizer, example.query)

            def score(span: tuple[int, int], states: torch.Tensor = states) -> torch.Tensor:
                joined = torch.cat([states[span[0]], states[span[1]]])
                vector = torch.tanh(head.projection.weight @ joined + head.projection.bias)
                return (head.anchor @ vector).double()

            cls = (head.anchor @ states[0]).double()
            negatives = [score(s) for s in others]
            assert len(spans) == 1
            assert not set(spans) & set(others)
            assert len(set(others)) == 12
            assert all(0 <= b - a < 10 for a, b in others)
            entities += [negative_log_share(score(s), [*negatives, cls]) for s in spans]
            thresholds.append(negative_log_share(cls, negatives))
        expected = (torch.stack(entities).mean() + torch.stack(thresholds).mean()) / 2
    torch.testing.assert_close(found, expected.float(), rtol=1e-3, atol=1e-4)


def test_losses_by_hand() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]])
    e = math.exp
    first, second = -math.log(e(2) / (e(2) + e(1) + 1)), -math.log(e(3) / (1 + e(3) + e(1)))
    assert float(ranking_loss(scores, [0, 1])) == pytest.approx((first + second) / 2)
    hidden = -math.log(e(2) / (e(2) + 1))  # candidate 1 also answers the first question
    found = ranking_loss(scores, [0, 1], [frozenset({0, 1}), frozenset({1})])
    assert float(found) == pytest.approx((hidden + second) / 2)
    two = SpanScores(torch.tensor([1.0, 2.0]), torch.tensor([0.0]), torch.tensor(0.5))
    none = SpanScores(torch.tensor([]), torch.tensor([1.0]), torch.tensor(2.0))
    entities, thresholds = span_loss([two, none])
    below = 1 + e(0.5)
    expected = (-math.log(e(1) / (e(1) + below)) - math.log(e(2) / (e(2) + below))) / 2
    assert float(entities) == pytest.approx(expected), "an entity is no negative of another"
    expected = (-math.log(e(0.5) / below) - math.log(e(2) / (e(1) + e(2)))) / 2
    assert float(thresholds) == pytest.approx(expected)
    assert float(span_loss([none])[0]) == 0


@pytest.mark.parametrize("placement", ["attention", "feed-forward"])
@pytest.mark.parametrize("skill", list(EXPERTS))
def test_whose_gradients(skill: str, placement: str, encoder: str, words: list[str], tmp_path: Path) -> None:
    """Of all experts, those of the skill alone learn from its batches; what is shared learns from all."""
    sets = [s for s in sets_of(words) if s.skill == skill]
    one = training(encoder, [*sets, *sets_of(words)], tmp_path / "out", placement=placement)
    chosen = next(s for s in one.sets if s.skill == skill)
    one.model.train()
    one.batch_loss(one.batches.draw(chosen, random.Random(2))).backward()
    moved, still = set(), set()
    for name, parameter in one.model.passage_encoder.named_parameters():
        if ".experts." in name:
            number = int(name.split(".experts.")[1].split(".")[0])
            (moved if parameter.grad is not None and bool(parameter.grad.any()) else still).add(number)
        else:
            assert parameter.grad is not None, name
    assert moved == EXPERTS[skill]
    assert not moved - EXPERTS[skill]
    assert still >= set(range(6)) - EXPERTS[skill]
    assert one.model.spans is not None
    assert (one.model.spans.anchor.grad is not None) == (skill == "span")


def test_batches_are_of_one_set(encoder: str, words: list[str], tmp_path: Path) -> None:
    """And in proportion to the weights; a batch is a function of seed and step."""
    weights = {"single": 1.0, "expanded": 1.0, "span": 1.0, "link": 4.0, "rerank": 1.0}
    sets = [SkillSet(s.name, s.skill, s.examples, weights[s.skill], s.batch_size) for s in sets_of(words)]
    one, again = (training(encoder, sets, tmp_path / "out") for _ in range(2))
    other = training(encoder, sets, tmp_path / "out", seed=4)
    batches = [one.batch(step) for step in range(200)]
    counts = {skill: sum(b.skill == skill for b in batches) for skill in weights}
    assert 70 < counts["link"] < 130
    assert all(10 < n < 50 for skill, n in counts.items() if skill != "link")
    assert all(again.batch(step) == batches[step] for step in (7, 3))
    assert any(other.batch(step) != batches[step] for step in range(3))


def test_a_question_in_two_examples(encoder: str, words: list[str], tmp_path: Path) -> None:
    """The positive of one is no negative of the other."""
    one = training(encoder, sets_of(words), tmp_path / "out")
    first, second, third = (e.positives[0] for e in examples(one, "single")[:3])
    twice = [SkillExample("who", (first,)), SkillExample("who", (second,)), SkillExample("when", (third,))]
    batch = one.batches.of(twice, "single", random.Random(1))
    assert batch.gold == [0, 1, 2]
    assert batch.masked == [frozenset({0, 1}), frozenset({0, 1}), frozenset({2})]


def test_reranking_needs_no_negatives_of_its_own(encoder: str, words: list[str], tmp_path: Path) -> None:
    """What lacks is taken from other questions, and is never a positive."""
    one = training(encoder, sets_of(words), tmp_path / "out")
    bare = [SkillExample(e.query, e.positives) for e in examples(one, "rerank")]
    batch: SkillBatch = BatchMaker(one.skills, 3).of(bare, "rerank", random.Random(1))
    assert batch.width == 4
    rows = [batch.queries[i : i + 4] for i in range(0, 16, 4)]
    for example, row in zip(bare, rows, strict=True):
        assert row[0] == one.skills.pair(example.query, example.positives[0])
        assert len({tuple(pair.ids) for pair in row}) == 4
