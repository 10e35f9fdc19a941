"""Bi-encoders: what they compute, what they learn, what they leave on disk."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from dense.encoders import DenseConfig, DenseModel
from dense.train import DenseTraining, train_dense
from sparta.base.errors import InputError, ModelError
from sparta.base.records import Passage
from sparta.inputs import InputLayout
from sparta.neural.trainer import TrainerConfig
from sparta.ranking import RankingConfig
from sparta.traindata import Paragraph, ParagraphSet

pytestmark = pytest.mark.usefixtures("one_thread")
LAYOUT = InputLayout(
    use_title=True, use_context=True, answer_segment=0, share_context=True, max_length=64, overlap=8
)
STORY = "the moon was west of the earth. larry page founded google"
SPANS = ((0, 31), (32, 57))
PASSAGES = [
    *(Passage("", STORY[a:b], "King", STORY, a, b) for a, b in SPANS),
    Passage("", "the earth", "King"),
    Passage("", "the sun"),
]


@pytest.fixture
def make(make_tiny_model: Callable[..., Any]) -> Callable[..., DenseModel]:
    def build(codes: int = 0, shared: bool = True, seed: int = 0) -> DenseModel:
        tiny = make_tiny_model(seed=seed)
        torch.manual_seed(seed)
        return DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(LAYOUT, codes, shared)).eval()

    return build


def states(model: DenseModel, encoder: Any, text: str) -> torch.Tensor:
    ids = torch.tensor([model.tokenizer.encode(text).ids])
    with torch.no_grad():
        return encoder(input_ids=ids, token_type_ids=torch.zeros_like(ids)).last_hidden_state[0]


def own_states(model: DenseModel) -> list[torch.Tensor]:
    """Of each of PASSAGES: the title's and the answer's, read by plain BERT from the whole text."""
    whole = states(model, model.passage_encoder, f"King {STORY}")
    first = len(model.tokenizer.encode("King", add_special_tokens=False).ids)
    title = whole[1 : 1 + first]
    n = len(model.tokenizer.encode(STORY[:31], add_special_tokens=False).ids)
    answers = [whole[1 + first : 1 + first + n], whole[1 + first + n : -1]]
    alone = [states(model, model.passage_encoder, text)[1:-1] for text in ("King the earth", "the sun")]
    return [*(torch.cat([title, a]) for a in answers), *alone]


@pytest.mark.parametrize("shared", [True, False])
def test_vectors_are_means_of_the_own_states(make: Callable[..., DenseModel], shared: bool) -> None:
    model = make(shared=shared)
    if not shared:
        with torch.no_grad():
            model.question_encoder.get_input_embeddings().weight.add_(0.1)
    root = math.sqrt(20.0)
    expected = [functional.normalize(own.mean(0), dim=0) * root for own in own_states(model)]
    inputs = [model.config.layout.windows(p, model.tokenizer)[0] for p in PASSAGES]
    with torch.no_grad():
        found = model.passages(inputs)
    assert found.shape == (4, 1, 32)
    np.testing.assert_allclose(found[:, 0], torch.stack(expected), atol=1e-5)
    questions = model.encode_questions(["the moon", "who founded google"])
    by_hand = [
        states(model, model.question_encoder, t)[1:-1].mean(0) for t in ("the moon", "who founded google")
    ]
    by_hand = [functional.normalize(v, dim=0) * root for v in by_hand]
    np.testing.assert_allclose(questions, torch.stack(by_hand), atol=1e-5)
    scores = model.score(torch.stack(by_hand), found)
    np.testing.assert_allclose(scores, torch.stack(by_hand) @ found[:, 0].T, atol=1e-4)
    assert float(scores.abs().max()) <= 20.0001
    np.testing.assert_allclose(model.encode_passages(PASSAGES), found, atol=0.2)


def test_a_poly_encoder_attends_with_its_codes(make: Callable[..., DenseModel]) -> None:
    model = make(codes=4)
    inputs = [model.config.layout.windows(p, model.tokenizer)[0] for p in PASSAGES]
    with torch.no_grad():
        found = model.passages(inputs)
    assert found.shape == (4, 4, 32)
    for vectors, own in zip(found, own_states(model), strict=True):
        with torch.no_grad():
            attention = (own @ model.codes.T).softmax(0)
            expected = functional.normalize(attention.T @ own, dim=1) * math.sqrt(20)
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    question = torch.from_numpy(model.encode_questions(["the moon"]))
    products = found @ question[0]
    expected = (products.softmax(1) * products).sum(1)
    np.testing.assert_allclose(model.score(question, found)[0], expected, atol=1e-4)


@pytest.mark.parametrize(("codes", "shared"), [(0, True), (0, False), (3, False)])
def test_saved_and_loaded_is_the_same(
    make: Callable[..., DenseModel], tmp_path: Path, codes: int, shared: bool
) -> None:
    model = make(codes, shared)
    model.save_pretrained(tmp_path / "m")
    again = DenseModel.load(tmp_path / "m")
    assert again.config == model.config
    np.testing.assert_array_equal(again.encode_questions(["the moon"]), model.encode_questions(["the moon"]))
    np.testing.assert_array_equal(again.encode_passages(PASSAGES), model.encode_passages(PASSAGES))
    assert (again.question_encoder is again.passage_encoder) == shared
    (tmp_path / "m" / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="expected a dense object"):
        DenseModel.load(tmp_path / "m")


def questions_on(words: list[str]) -> ParagraphSet:
    """The question asks with two words for which two others stand in the answer."""
    paragraphs = []
    for i in range(60):
        own = [(7 * i + 3 * j) % len(words) for j in range(5)]
        text = " ".join(words[n] for n in own)
        question = " ".join(words[(n + 11) % len(words)] for n in own[:2])
        paragraphs.append(Paragraph(text, "", ((0, len(text)),), ((question, 0),)))
    return ParagraphSet("made", tuple(paragraphs), 1.0, 8)


def test_the_loss_is_the_cross_entropy_of_dot_products(
    make: Callable[..., DenseModel], tiny_vocabulary: list[str], tmp_path: Path
) -> None:
    model = make(codes=2, shared=False)
    words = [t for t in tiny_vocabulary if t.isascii() and t.isalpha() and len(t) > 3]
    config = RankingConfig(trainer=TrainerConfig(10, bf16=False), held_out=0, mined=False)
    training = DenseTraining(model, [questions_on(words)], config, tmp_path)
    model.eval()
    batch = training.batch(0)
    loss, _ = training.loss(0)
    with torch.no_grad():
        texts = [batch.candidates[g] for g in batch.gold_sentence]
        inputs = [model.config.layout.windows(p, model.tokenizer)[0] for p in texts]
        questions = torch.from_numpy(model.encode_questions(batch.questions))
        scores = model.score(questions, torch.cat([model.passages([i]) for i in inputs]))
    expected = functional.cross_entropy(scores, torch.arange(len(texts)))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("codes", [0, 2])
def test_training_learns_resumes_and_repeats(
    make_tiny_model: Callable[..., Any],
    tiny_tokenizer: Any,
    tiny_vocabulary: list[str],
    tmp_path: Path,
    codes: int,
) -> None:
    folder = tmp_path / "encoder"
    make_tiny_model().encoder.save_pretrained(folder)
    tiny_tokenizer.save(str(folder / "tokenizer.json"))
    words = [t for t in tiny_vocabulary if t.isascii() and t.isalpha() and len(t) > 3]

    def run(name: str, steps: int = 60, **change: Any) -> Any:
        return train_dense(
            [questions_on(words)],
            encoder=str(folder),
            output=tmp_path / name,
            **{
                "steps": steps,
                "learning_rate": 3e-3,
                "validate_every": 20,
                "seed": 1,
                "codes": codes,
                "device": "cpu",
                **change,
            },
        )

    first, again = run("first"), run("again")
    assert first.validation == again.validation
    weights = [(r.folder / "model.safetensors").read_bytes() for r in (first, again)]
    assert weights[0] == weights[1]
    lines = [json.loads(line) for line in (tmp_path / "first" / "log.jsonl").read_text().splitlines()]
    losses = [line["ranking"] for line in lines if "ranking" in line]
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])
    model = DenseModel.load(first.folder)
    assert model.encode_passages([Passage("", "the moon")]).shape == (1, max(1, codes), 32)
    with pytest.raises(InputError, match="expected the same training settings"):
        run("first", steps=61, resume=True)
