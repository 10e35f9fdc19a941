"""The loss (SPARTA, eq. 7), its teacher and penalty, and validation."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from sparta.base.errors import InputError
from tests.sparta.training.made_trainings import bags, dense, forget_the_words, hand_made

pytestmark = pytest.mark.usefixtures("one_thread")


class Taught:
    """A teacher with the scores of a table, `(n_questions, n_candidates)`."""

    name = "taught"

    def __init__(self, scores: Any) -> None:
        self.table = scores

    def scores(self, questions: Any, candidates: Any) -> Any:
        import torch

        return torch.tensor(self.table)


def expected_loss(made: Any, batch: Any) -> float:
    """Eq. 7 in plain NumPy: minus the log of the own share among all sentences; the same among all texts."""
    scores = bags(made.model, batch.questions) @ dense(made.model, batch.candidates).T
    assert scores.std() > 0.1
    means = []
    for gold, part in (
        (batch.gold_sentence, range(batch.n_sentences)),
        (batch.gold_paragraph, range(batch.n_sentences, len(batch.candidates))),
    ):
        losses = []
        for row, own in enumerate(gold):
            text = batch.candidates[own].text
            others = [j for j in part if j == own or batch.candidates[j].text != text]
            exponents = np.exp(scores[row, others])
            losses.append(-np.log(np.exp(scores[row, own]) / exponents.sum()))
        means.append(np.mean(losses))
    return float(np.mean(means))


def test_the_loss_is_eq_7(training):
    made = training(data=hand_made(), held_out=0)
    made.model.eval()
    loss, logs = made.loss(0)
    batch = made.batch(0)
    assert len(batch.questions) == 5
    assert loss.item() == pytest.approx(expected_loss(made, batch), rel=1e-4)
    assert logs["ranking"] == pytest.approx(loss.item())


def test_a_teacher_adds_the_divergence_from_its_scores(training):
    """A teacher who gives all the same score is met by a model that does."""
    import torch

    class Indifferent:
        name = "indifferent"

        def scores(self, questions: Any, candidates: Any) -> Any:
            return torch.full((len(questions), len(candidates)), 3.0)

    losses = {}
    for taught in (0.0, 0.25, 1.0):
        made = training(f"t{taught}", data=hand_made(), held_out=0, teacher=Indifferent(), taught=taught)
        made.model.eval()
        losses[taught] = made.loss(0)[0].item()
    plain = training("plain", data=hand_made(), held_out=0)
    plain.model.eval()
    assert losses[0.0] == pytest.approx(plain.loss(0)[0].item())
    assert losses[0.25] == pytest.approx(0.75 * losses[0.0] + 0.25 * losses[1.0])
    plain.model.scale.data.fill_(0)
    plain.model.bias.data.fill_(1)
    made.model.load_state_dict(plain.model.state_dict())
    assert made.loss(0)[0].item() == pytest.approx(0, abs=1e-6), "as indifferent as the teacher"
    assert losses[1.0] > 0.01


def test_the_divergence_worked_by_hand(training):
    """Mean over questions of the sum over candidates; what answers too is left out of both sides."""
    import torch

    from sparta.training.batches import Batch

    scores = np.array([[2.0, 1.0, 0.5], [0.3, 0.1, 0.9]])
    taught = np.array([[1.0, 3.0, 0.0], [0.0, 2.0, 7.0]])
    made = training(data=hand_made(), held_out=0, taught=1.0, teacher=Taught(taught))
    right = [frozenset({0}), frozenset({1, 2})]
    batch = Batch([], 3, ["a", "b"], [0, 1], [-1, -1], right)
    expected = []
    for row, goal, columns in ((scores[0], taught[0], [0, 1, 2]), (scores[1], taught[1], [0, 1])):
        p, q = (np.exp(values[columns]) / np.exp(values[columns]).sum() for values in (goal, row))
        expected.append(float((p * np.log(p / q)).sum()))
    assert made.ranking_loss(torch.tensor(scores), batch).item() == pytest.approx(np.mean(expected))


def test_what_the_teacher_did_not_score_is_left_out_of_the_divergence(training):
    """The first question loses a candidate; the second has only one with a score, so nothing is compared."""
    import torch

    from sparta.training.batches import Batch

    scores = np.array([[2.0, 1.0, 0.5], [0.3, 0.1, 0.9]])
    taught = np.array([[1.0, 3.0, np.nan], [np.nan, np.nan, 7.0]])
    made = training(data=hand_made(), held_out=0, taught=0.25, teacher=Taught(taught))
    batch = Batch([], 3, ["a", "b"], [0, 1], [-1, -1], [frozenset({0}), frozenset({1})])
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    cross_entropy = -np.log(chances[[0, 1], [0, 1]]).mean()
    p, q = (np.exp(row[:2]) / np.exp(row[:2]).sum() for row in (taught[0], scores[0]))
    expected = 0.75 * cross_entropy + 0.25 * float((p * np.log(p / q)).sum())
    assert made.ranking_loss(torch.tensor(scores), batch).item() == pytest.approx(expected)
    taught[0, 0] = np.nan
    assert made.ranking_loss(torch.tensor(scores), batch).item() == pytest.approx(cross_entropy)


def test_a_penalty_that_is_still_being_raised_gets_no_heavier(training):
    """There are too many terms at first anyway; lighter it gets at once."""
    trainer = {"steps": 12}
    for terms, step, sign in ((1, 3, 0), (1, 4, 1), (10_000, 3, -1), (10_000, 4, -1)):
        made = training(data=hand_made(), held_out=0, terms=terms, pressure=0.001, trainer=trainer)
        before = made.memory["log_pressure"]
        made.loss(step)  # the penalty is raised in the first third of the steps
        assert np.sign(made.memory["log_pressure"] - before) == sign, (terms, step)


def test_the_penalty_is_squared_mean_and_mean_weight(training):
    """Estimated on a sample; on many samples it comes near the sum over the vocabulary."""
    made = training(
        pressure=1.0,
        asked_share=None,
        sampled_terms=20_000,
        trainer={"steps": 3},
        data=hand_made(),
        held_out=0,
    )
    made.model.eval()
    without = made.loss(0)[1]["ranking"]
    assert made.loss(0)[0].item() == pytest.approx(without)  # it begins with none
    loss, logs = made.loss(3)
    batch = made.batch(3)
    weights = dense(made.model, batch.candidates)
    total = 0.0
    for part, share in ((weights[: batch.n_sentences], 1), (weights[batch.n_sentences :], 0.3)):
        total += share * ((part.mean(0) ** 2).sum() + 0.05 * part.mean(0).sum())
    terms = (weights > 0).sum(1)
    assert logs["terms"] == pytest.approx(terms[: batch.n_sentences].mean(), rel=0.05)
    assert logs["paragraph_terms"] == pytest.approx(terms[batch.n_sentences :].mean(), rel=0.05)
    assert loss.item() - logs["ranking"] == pytest.approx(total, rel=0.05)


def test_terms_that_questions_ask_for_are_penalised_less(training):
    """Half as much when the given share of the questions has them."""

    data = hand_made()
    questions = [q for p in data.paragraphs for q, _ in p.questions]
    given = {"pressure": 1.0, "sampled_terms": 20_000, "trainer": {"steps": 3}}
    made = training(asked_share=0.5, data=data, held_out=0, **given)
    alike = training("alike", asked_share=None, data=data, held_out=0, **given)
    counts = Counter(term for q in questions for term in made.tokenizer.bag(q))
    for term, count in counts.items():
        assert made.penalty_weights[term].item() == pytest.approx(0.5 / (0.5 + count / len(questions)))
    little = training("little", asked_share=1e-9, data=data, held_out=0)
    assert little.penalty_weights[next(iter(counts))] == pytest.approx(0.05), "never quite free"
    with pytest.raises(InputError, match="above 0"):
        training("none", asked_share=0.0)
    unasked = next(t for t in made.allowed.tolist() if t not in counts)
    assert made.penalty_weights[unasked] == 1
    assert (alike.penalty_weights == 1).all()
    penalties = []
    for one in (alike, made):
        one.model.scale.data.fill_(0)
        one.model.bias.data.fill_(1)  # every term has the same weight
        loss, logs = one.loss(3)
        penalties.append(loss.item() - logs["ranking"])
    dear, cheap = penalties
    assert cheap == pytest.approx(dear * made.penalty_weights[made.allowed].mean().item(), rel=1e-3)
    assert cheap < dear


def test_texts_without_tokens_leave_the_gradients_finite(training):
    from sparta.training.paragraphs import Paragraph, ParagraphSet

    texts = ["\u200b\u200b", "earth moon", "\u200b"]
    made = training(
        data=ParagraphSet(
            "odd", tuple(Paragraph(t, "", ((0, len(t)),), (("moon", 0),)) for t in texts), 1.0, 3
        ),
        held_out=0,
    )
    loss, _ = made.loss(0)
    loss.backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in made.model.parameters())


def test_validation_is_the_mean_reciprocal_rank(training, records):
    made = training(candidates=30)
    made.model.eval()
    forget_the_words(made.model)
    texts = [r["positive"] for r in records[72:]] + [r["positive"] for r in records[:30]]
    scores = bags(made.model, [r["question"] for r in records[72:]]) @ dense(made.model, texts).T
    ranks = [sum(score >= row[i] for score in row) for i, row in enumerate(scores)]  # of equals the last
    found = [row[i] > 0 for i, row in enumerate(scores)]  # a passage without a score is not found at all
    assert len(set(ranks)) > 3
    assert 0 < sum(found) < len(found)
    expected = np.mean([one / rank for one, rank in zip(found, ranks, strict=True)])
    assert made.validate() == pytest.approx(expected)


def test_a_dead_or_indifferent_model_gains_nothing(training):
    made = training(candidates=30)
    made.model.bias.data.fill_(-1e4)
    assert made.validate() == 0
    made.model.scale.data.fill_(0)
    made.model.bias.data.fill_(1)  # every passage has every term, with the same weight
    assert made.validate() == pytest.approx(1 / 38)


def test_a_text_of_one_sentence_is_taught_like_sentences_in_contexts(training):
    """Contexts add their scores: the score of a sentence without one would be half as large."""
    import torch

    class Overlap:
        name, reads_context = "overlap", False

        def scores(self, questions: Any, candidates: Any) -> Any:
            texts = [set(candidate.text.split()) for candidate in candidates]
            return torch.tensor([[float(len(set(q.split()) & text)) for text in texts] for q in questions])

    from sparta.training.teachers import Mixture

    made = training(data=hand_made(), held_out=0, teacher=Mixture([(Overlap(), 1.0)], 1.0))
    batch = made.batch(0)
    lone_sentence = next(i for i, c in enumerate(batch.candidates) if c.text == "paris")
    assert not batch.candidates[lone_sentence].context
    batch.questions[:] = ["paris"] * len(batch.questions)
    scores = made.teacher_scores(batch)
    assert scores[0, lone_sentence] == 2
    whole = next(i for i, c in enumerate(batch.candidates) if i >= batch.n_sentences and c.text == "paris")
    assert scores[0, whole] == 1, "whole texts have no contexts"


def test_gradients_are_summed_in_one_order(training):
    """Threads sum the gradient of an index in any order, so trainings would differ."""
    made = training(data=hand_made(), held_out=0)
    nodes, seen = [made.loss(0)[0].grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [parent for parent, _ in node.next_functions]
    names = Counter(node.name() for node in seen)
    assert names["EmbeddingBackward0"] >= 3
    assert names["IndexBackward0"] == 2, "the rows of scores of sentences and of paragraphs, each once"
