"""encode_document, encode_query, decode; a model opened by its name."""

from __future__ import annotations

import numpy as np
import pytest

from sparta.base.errors import InputError, ModelError
from sparta.base.records import Passage
from sparta.models.sparta import SpartaModel
from tests.sparta.models.brute_force import TEXTS, Make, dense

pytestmark = pytest.mark.usefixtures("one_thread")


def test_encode_document_shapes(tiny_model: SpartaModel) -> None:
    vocabulary = tiny_model.tokenizer.get_vocab_size()
    assert tiny_model.encode_document("moon").shape == (1, vocabulary)
    assert tiny_model.encode_document(Passage("x", "moon")).shape == (1, vocabulary)
    assert tiny_model.encode_document([]).shape == (0, vocabulary)
    matrix = tiny_model.encode_document(["moon", Passage("x", "earth")], show_progress_bar=True, device="cpu")
    assert matrix.shape == (2, vocabulary)
    assert matrix.dtype == np.float32
    assert tiny_model.encode_query("moon").shape == (1, vocabulary)
    assert tiny_model.encode_query([]).shape == (0, vocabulary)


@pytest.mark.parametrize("top_k", [1, 5, 20])
def test_max_active_dims_keeps_the_strongest(tiny_model: SpartaModel, top_k: int) -> None:
    for whole, cut in zip(
        dense(tiny_model, TEXTS), dense(tiny_model, TEXTS, max_active_dims=top_k), strict=True
    ):
        order = [i for i in np.lexsort((np.arange(len(whole)), -whole))[:top_k] if whole[i] > 0]
        expected = np.zeros_like(whole)
        expected[order] = whole[order]
        np.testing.assert_array_equal(cut, expected)


def test_max_active_dims_above_the_vocabulary_is_the_identity(tiny_model: SpartaModel) -> None:
    np.testing.assert_array_equal(dense(tiny_model, TEXTS, max_active_dims=10**6), dense(tiny_model, TEXTS))


def test_decode(tiny_model: SpartaModel) -> None:
    matrix = tiny_model.encode_document(["the moon", "", "larry page"], dtype="fp32")
    decoded = tiny_model.decode(matrix, top_k=3)
    assert [len(terms) for terms in decoded] == [3, 0, 3]
    assert {"the", "moon"} <= {term for term, _ in decoded[0]}
    for terms, row in zip(tiny_model.decode(matrix), matrix.toarray(), strict=True):
        weights = [weight for _, weight in terms]
        assert weights == sorted(weights, reverse=True)
        np.testing.assert_allclose(sorted(weights), sorted(row[row > 0]))
    for wrong in (0, -1, 2.5):
        with pytest.raises(InputError, match="top_k must be"):
            tiny_model.decode(matrix, top_k=wrong)


def test_query_side_without_a_quantizer_is_refused(make_tiny_model: Make) -> None:
    with pytest.raises(ModelError, match="no quantizer"):
        make_tiny_model().query_side()


def test_gradients_are_not_kept(tiny_model: SpartaModel) -> None:
    tiny_model.encode_document(TEXTS)
    assert all(parameter.grad is None for parameter in tiny_model.parameters())
