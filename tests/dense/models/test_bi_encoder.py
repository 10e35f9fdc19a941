"""Vectors of bi-encoders, Poly-Encoders and TASER."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from dense.models.bi_encoder import DenseConfig, DenseModel
from dense.training.train import DenseTraining
from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.neural.inputs import InputLayout
from sparta.training.options import TrainerConfig
from sparta.training.ranking import RankingConfig
from tests.dense.models.bi_encoders import LAYOUT, bert, experts_of
from tests.dense.training.recipes import questions_on

pytestmark = pytest.mark.usefixtures("one_thread")

STORY = "the moon was west of the earth. larry page founded google"

SPANS = ((0, 31), (32, 57))

PASSAGES = [
    *(Passage("", STORY[a:b], "King", STORY, a, b) for a, b in SPANS),
    Passage("", "the earth", "King"),
    Passage("", "the sun"),
]


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


@pytest.mark.parametrize(
    ("shared", "routing", "experts", "millions"),
    [(False, "", 2, 217.8), (True, "", 2, 108.9), (True, "det", 2, 127.8), (True, "seq", 4, 165.6)],
)
def test_parameters_are_those_of_table_1(
    tiny_tokenizer: Any, shared: bool, routing: str, experts: int, millions: float
) -> None:
    """DPR, TASER Shared, Det-R and 4 experts on BERT-base, without poolers."""
    layout = InputLayout(answer_segment=0)
    config = DenseConfig(layout, 0, shared, routing, experts, pooling="cls", cosine=False)
    with torch.device("meta"):
        model = DenseModel(bert(), tiny_tokenizer, config)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)
    if routing:
        found = [
            i
            for i, layer in enumerate(model.passage_encoder.encoder.layer)
            if hasattr(layer.output, "experts")
        ]
        assert found == [2, 5, 8, 11], "the released placement"


def taser(tiny_tokenizer: Any, routing: str, experts: int = 2, pooling: str = "mean") -> DenseModel:
    torch.manual_seed(3)
    encoder = bert(4, 32, 2, 64, tiny_tokenizer.get_vocab_size())
    layout = (
        LAYOUT
        if pooling == "mean"
        else InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=8)
    )
    config = DenseConfig(layout, 0, True, routing, experts, 2, pooling)
    return DenseModel(encoder, tiny_tokenizer, config).eval()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize(("routing", "experts"), [("det", 2), ("seq", 3), ("tok", 2)])
def test_identical_experts_are_the_shared_model(
    tiny_tokenizer: Any, routing: str, experts: int, pooling: str
) -> None:
    plain, routed = (
        taser(tiny_tokenizer, "", pooling=pooling),
        taser(tiny_tokenizer, routing, experts, pooling),
    )
    passages = [Passage("", p.text, p.title) for p in PASSAGES] if pooling == "cls" else PASSAGES
    np.testing.assert_allclose(
        routed.encode_questions(["the moon", "a house"]),
        plain.encode_questions(["the moon", "a house"]),
        atol=1e-5,
    )
    inputs = [plain.config.layout.windows(p, plain.tokenizer)[0] for p in passages]
    with torch.no_grad():
        np.testing.assert_allclose(routed.passages(inputs), plain.passages(inputs), atol=1e-5)


def test_questions_and_passages_have_their_own_expert(tiny_tokenizer: Any) -> None:
    model = taser(tiny_tokenizer, "det")
    before = model.encode_questions(["the moon"]), model.encode_passages(PASSAGES)
    with torch.no_grad():
        experts_of(model)[0].experts[1].output.dense.bias[::2] += (
            1.0  # the normalization removes equal shifts
        )
    assert np.array_equal(model.encode_questions(["the moon"]), before[0])
    assert not np.allclose(model.encode_passages(PASSAGES), before[1])


@pytest.mark.parametrize("routing", ["seq", "tok"])
def test_a_router_decides_for_texts_or_tokens(tiny_tokenizer: Any, routing: str) -> None:
    """By hand: every layer once more, with the expert that the linear layer likes best."""
    model = taser(tiny_tokenizer, routing, 3)
    with torch.no_grad():
        for one in experts_of(model):
            for i, expert in enumerate(one.experts):
                expert.output.dense.bias.add_(0.3 * i)
            one.router.weight.mul_(40)
    ids = torch.tensor([tiny_tokenizer.encode("the moon of the earth").ids])
    seen = []
    with torch.no_grad():
        states = model.passage_encoder.embeddings(ids)
        for layer in model.passage_encoder.encoder.layer:
            attended = layer.attention(states)[0]
            if not hasattr(layer.output, "experts"):
                states = layer.output(layer.intermediate(attended), attended)
                continue
            logits = layer.output.router(attended)
            best = logits.argmax(-1)
            if routing == "seq":
                best = best[:, :1].expand_as(best)
            seen += best[0].tolist()
            states = torch.stack(
                [layer.output.experts[int(e)](attended[:, j : j + 1])[0, 0] for j, e in enumerate(best[0])]
            )[None]
        expected = functional.normalize(states[0, 1:-1].mean(0), dim=0) * math.sqrt(20)
    np.testing.assert_allclose(model.encode_questions(["the moon of the earth"])[0], expected, atol=1e-4)
    if routing == "tok":
        assert len(set(seen)) > 1


@pytest.mark.parametrize("routing", ["seq", "tok"])
def test_padding_has_no_part_in_the_entropy(tiny_tokenizer: Any, routing: str) -> None:
    """Eq. 5 over what is read: that of a batch is the mean of its texts', weighed by the choices in each."""
    model = taser(tiny_tokenizer, routing)
    with torch.no_grad():
        for one in experts_of(model):
            one.router.weight.mul_(20)
        texts = ["moon", "the moon of the earth and the sun and the sea of the moon"]
        alone = []
        for text in texts:
            model.questions([text])
            tokens = len(tiny_tokenizer.encode(text).ids)
            alone.append((float(model.entropy()), tokens if routing == "tok" else 1))
        model.questions(texts)
        expected = sum(e * n for e, n in alone) / sum(n for _, n in alone)
        assert float(model.entropy()) == pytest.approx(expected, rel=1e-3)
        plain = sum(e for e, _ in alone) / 2
        assert routing == "seq" or abs(expected - plain) > 1e-3 * expected, "lengths matter here"


def test_a_text_without_wordpieces_is_read_for_itself(make: Callable[..., DenseModel]) -> None:
    """Nothing but [CLS] and [SEP]: whoever stands beside it in the batch."""
    model = make()
    alone = model.encode_questions(["\u200b"])[0]
    for beside in ("who founded google", "the moon"):
        np.testing.assert_allclose(model.encode_questions([beside, "\u200b"])[1], alone, atol=1e-5)


def test_a_batch_that_does_not_fit_is_halved(make: Callable[..., DenseModel]) -> None:
    model = make()
    passages = [
        Passage("", f"the {word}", "King") for word in ("earth", "sun", "moon", "city", "house", "year")
    ]
    expected = model.encode_passages(passages, "fp32")
    sizes: list[int] = []

    def small(_encoder: torch.nn.Module, _: Any, inputs: dict[str, torch.Tensor]) -> None:
        sizes.append(len(inputs["input_ids"]))
        if sizes[-1] > 2:
            raise torch.cuda.OutOfMemoryError("out of memory")

    model.passage_encoder.register_forward_pre_hook(small, with_kwargs=True)
    np.testing.assert_allclose(model.encode_passages(passages, "fp32"), expected, atol=1e-5)
    assert max(sizes) > 2
    assert sum(n for n in sizes if n <= 2) == len(passages)
    assert model.encode_passages([]).shape == (0, *expected.shape[1:])


@pytest.mark.parametrize("routing", ["seq", "tok"])
def test_the_retrieval_loss_moves_the_router(
    tiny_tokenizer: Any, tiny_vocabulary: list[str], tmp_path: Path, routing: str
) -> None:
    """Without the entropy term: experts that differ make the choice matter."""
    model = taser(tiny_tokenizer, routing)
    with torch.no_grad():
        for one in experts_of(model):
            one.experts[1].output.dense.weight.normal_(std=0.5)
    words = [t for t in tiny_vocabulary if t.isascii() and t.isalpha() and len(t) > 3]
    config = RankingConfig(trainer=TrainerConfig(10, bf16=False), held_out=0, mined=False)
    training = DenseTraining(model, [questions_on(words, n=60, size=8)], config, tmp_path)
    model.train()
    batch = training.batch(0)
    scores = training.score(training.encode_queries(batch.questions), batch.candidates)
    training.ranking_loss(scores, batch).backward()
    for one in experts_of(model):
        assert float(one.router.weight.grad.abs().max()) > 1e-6
    model.zero_grad()
    loss, logs = training.loss(0)
    assert 0 < logs["entropy"] <= math.log(2) + 1e-6
    assert loss.item() == pytest.approx(logs["ranking"] - 0.01 * logs["entropy"], abs=1e-5)
