"""Weights equal a brute-force reading of SPARTA, eq. 2 to 6."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sparta.base.records import Passage
from sparta.models.backends.torch import TorchBackend
from sparta.models.config import Lexical, SpartaConfig
from sparta.models.sparta import SpartaModel
from sparta.neural.inputs import CONTEXT, InputLayout
from tests.sparta.models.brute_force import TEXTS, Make, brute_force, dense, passages

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_weights_equal_brute_force(make_tiny_model: Make, tied: bool, special: bool) -> None:
    model = make_tiny_model(SpartaConfig(tied=tied, pool_special=special))
    rows = dense(model, TEXTS)
    for row, text in zip(rows, TEXTS, strict=True):
        np.testing.assert_allclose(row, brute_force(model, text, special=special), atol=1e-5)
    assert (rows[0] > 0).sum() > 10
    assert not rows[:, :15].any(), "special and unused entries have no weights"


@pytest.mark.parametrize("shared", [False, True])
def test_occurrences_add_to_the_weights(make_tiny_model: Make, tmp_path: Path, shared: bool) -> None:
    """Those in the title and the answer, not those around it; in a sum of their own, whatever the batch."""
    layout = InputLayout(use_title=True, use_context=True, share_context=True) if shared else InputLayout()
    text = "the moon of the earth. larry page founded google google."
    passages = [
        Passage("0", text[:22], "moon", text, 0, 22),
        Passage("1", text[23:], "moon", text, 23, len(text)),
        Passage("2", "earth", "moon"),
        Passage("3", ""),
    ]
    plain, model = (make_tiny_model(SpartaConfig(layout=layout)) for _ in range(2))
    torch.manual_seed(1)
    gains = torch.rand(len(plain.term_matrix())) - 0.2
    lexical = Lexical(6.0)
    model.add_lexical(lexical, gains)
    model.save_pretrained(tmp_path)
    again = SpartaModel.load(tmp_path)
    assert again.config.lexical == lexical
    added = dense(again, passages) - dense(plain, passages)
    expected = np.zeros_like(added)
    title = "" if not layout.use_title else "moon "
    for row, passage in enumerate(passages):
        own = model.tokenizer.encode(
            f"{title if passage.title else ''}{passage.text}", add_special_tokens=False
        ).ids
        for term in set(own):
            n = own.count(term)
            saturated = n / (n + 0.9 * (0.6 + 0.4 * len(own) / 6))
            expected[row, term] = max(0.0, float(gains[term])) * saturated
    expected[:, :15] = 0
    expected[:, model.tokenizer.token_to_id(".")] = 0
    np.testing.assert_allclose(added, expected, atol=1e-5)
    assert (expected > 0).sum() > 5
    np.testing.assert_allclose(dense(again, passages[:1])[0], dense(again, passages)[0], atol=1e-6)


def test_a_part_that_all_states_share_costs_no_bits(tiny_model: SpartaModel) -> None:
    """Adding it to the terms changes only the bias, also where the last LayerNorm has a scale of 0."""
    torch.manual_seed(3)
    norm = tiny_model.last_norm()
    assert norm is not None
    with torch.no_grad():
        norm.weight.copy_(0.4 + 0.2 * torch.rand_like(norm.weight))
        norm.weight[1] *= -1
        norm.bias.copy_(0.1 * torch.randn_like(norm.bias))
    before = {dtype: dense(tiny_model, TEXTS, dtype=dtype) for dtype in ("fp32", "bf16")}
    inverse = 1 / norm.weight.detach()
    shared = 100 * inverse / inverse.norm()
    with torch.no_grad():
        tiny_model.term_matrix().add_(shared)
        tiny_model.bias.sub_(tiny_model.scale * (shared @ norm.bias))
    after = {dtype: dense(tiny_model, TEXTS, dtype=dtype) for dtype in ("fp32", "bf16")}
    np.testing.assert_allclose(after["fp32"], before["fp32"], atol=1e-5)
    np.testing.assert_allclose(after["fp32"][0], brute_force(tiny_model, TEXTS[0]), atol=1e-4)
    error, error_before = (np.abs(rows["bf16"] - rows["fp32"]).mean() for rows in (after, before))
    assert error < 1.2 * error_before
    with torch.no_grad():
        norm.weight[3] = 0
    np.testing.assert_allclose(dense(tiny_model, TEXTS[:1])[0], brute_force(tiny_model, TEXTS[0]), atol=1e-4)


def test_a_large_bias_costs_no_bits_on_a_cpu(tiny_model: SpartaModel) -> None:
    """A CPU's 16-bit results are rounded after the bias, so their error is relative to the weight."""
    norm = tiny_model.last_norm()
    assert norm is not None
    with torch.no_grad():
        norm.weight[:2] = 0
        norm.bias[:2] = 0
    before = {dtype: dense(tiny_model, TEXTS, dtype=dtype) for dtype in ("fp32", "bf16")}
    with torch.no_grad():
        norm.bias[:2] = torch.tensor([16.0, -16.0])
        tiny_model.term_matrix()[:, :2] = torch.tensor([8.0, -8.0])
        tiny_model.bias.sub_(256 * tiny_model.scale)
    after = {dtype: dense(tiny_model, TEXTS, dtype=dtype) for dtype in ("fp32", "bf16")}
    np.testing.assert_allclose(after["fp32"], before["fp32"], atol=1e-3)
    error, error_before = (np.abs(rows["bf16"] - rows["fp32"]).mean() for rows in (after, before))
    assert error < 1.2 * error_before


def test_log_count_and_no_answer_segment(make_tiny_model: Make) -> None:
    config = SpartaConfig(layout=InputLayout(answer_segment=CONTEXT), log_count=2)
    model = make_tiny_model(config)
    for row, text in zip(dense(model, TEXTS), TEXTS, strict=True):
        np.testing.assert_allclose(row, brute_force(model, text, segments=False, logs=2), atol=1e-5)


def test_vocabulary_chunks_change_nothing(tiny_model: SpartaModel) -> None:
    [inputs] = tiny_model.config.layout.windows_of(passages([" ".join(TEXTS)]), tiny_model.tokenizer)
    whole = TorchBackend(tiny_model, "fp32").encode(inputs, None)
    parts = TorchBackend(tiny_model, "fp32", chunk=37).encode(inputs, None)
    np.testing.assert_array_equal(parts.term_ids, whole.term_ids)
    np.testing.assert_allclose(parts.weights, whole.weights, atol=1e-6)
    assert len(whole.term_ids) > 37


def test_a_text_without_words_has_no_terms(make_tiny_model: Make) -> None:
    assert dense(make_tiny_model(), ["", " \t ", "moon"]).any(axis=1).tolist() == [False, False, True]


def test_questions_count_every_occurrence(tiny_model: SpartaModel) -> None:
    question = "the moon, the earth and the Moon"
    bag = tiny_model.query_tokenizer().terms(question)
    assert bag == {"the": 3, "moon": 2, "earth": 1, "and": 1}
    row = tiny_model.encode_query(question).toarray()[0]
    assert {tiny_model.tokenizer.id_to_token(int(i)): row[i] for i in row.nonzero()[0]} == bag


@pytest.mark.slow
def test_the_score_is_the_sum_over_question_tokens(tiny_model: SpartaModel) -> None:
    question = "moon moon earth"
    ids = tiny_model.tokenizer.encode(question, add_special_tokens=False).ids
    expected = [sum(brute_force(tiny_model, text)[i] for i in ids) for text in TEXTS]
    queries = tiny_model.encode_query([question, ""])
    documents = tiny_model.encode_document(TEXTS, dtype="fp32")
    scores = tiny_model.similarity(queries, documents)
    assert scores.shape == (2, len(TEXTS))
    np.testing.assert_allclose(scores[0], expected, atol=1e-4)
    assert not scores[1].any()


def test_unknown_tokens_of_a_question_do_not_count(tiny_model: SpartaModel) -> None:
    assert tiny_model.encode_query("☃").nnz == 0


def test_names_of_special_tokens_are_words_in_texts(tiny_model: SpartaModel) -> None:
    """A text that says "[SEP]" ends no segment, and a question of "[CLS]" asks for its letters."""
    special = {tiny_model.tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[MASK]")}
    assert not special & set(tiny_model.tokenizer.encode("[SEP] [MASK]", add_special_tokens=False).ids)
    assert tiny_model.encode_query("[CLS]").nnz > 0
