"""Query-term weights on the model's integer grid, and queries without punctuation."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from sparta.base.errors import IndexStateError
from sparta.models.quantize import QueryQuantizer
from sparta.models.query_encoder import QuerySide, QueryTokenizer, is_punctuation
from sparta.models.resolve import known_query_side
from sparta.models.sparta import SpartaModel


def test_the_grid_by_hand(caplog: pytest.LogCaptureFixture) -> None:
    """4 bits of 1.5: a step is 0.1. What is above counts 15; what is below half a step is dropped."""
    weights = np.array([0, 0.04, 0.06, 0.94, 1, 1.5, 9], np.float32)
    caplog.set_level(logging.INFO)
    assert QueryQuantizer(1.5).integers(weights).tolist() == [0, 0, 1, 9, 10, 15, 15]
    assert "1 query-term weights below 0.05 are dropped" in caplog.text


def test_a_table_gets_a_grid_of_its_largest_weight() -> None:
    grid = QueryQuantizer.fit(np.array([0.58, 1.3261, 1], np.float32))
    assert (grid.max_weight, grid.bits) == (1.33, 4)
    assert QueryQuantizer.fit(np.zeros(3, np.float32)).integers(np.zeros(3, np.float32)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("stored", [None, QueryQuantizer(3.0, 2)])
def test_weights_travel_as_integers(
    make_tiny_model, tiny_model: SpartaModel, tmp_path: Path, stored: QueryQuantizer | None
) -> None:
    """From the model by torch, from its folder without torch, and from an index: the same integers."""
    tiny_model.add_query_weights()
    moon, earth, sun = (tiny_model.tokenizer.token_to_id(t) for t in ("moon", "earth", "sun"))
    assert tiny_model.query_term_weights is not None
    with torch.no_grad():
        tiny_model.query_term_weights[[moon, earth, sun]] = torch.tensor([3.0, 0.01, -1.0])
    tiny_model.config = replace(tiny_model.config, query_quantizer=stored)
    tiny_model.save_pretrained(tmp_path / "model")
    side = known_query_side(tmp_path / "model", None)
    assert side is not None
    side.save(tmp_path / "side")
    again = QuerySide.load(tmp_path / "side", side.identity())
    highest, one = (15, 5) if stored is None else (3, 1)  # 3.0 is the most, 1.0 a third of it
    for tokenizer in (tiny_model.query_tokenizer(), side.query_tokenizer(), again.query_tokenizer()):
        assert tokenizer.weights is not None
        assert tokenizer.weights.dtype == np.int32
        assert tokenizer.terms("moon Moon earth sun the") == {"moon": highest, "the": one}
        assert tokenizer.step == pytest.approx(3 / highest)
    row = tiny_model.encode_query("moon moon earth sun the")
    assert row[0, moon] == pytest.approx(3.0)
    assert row.nnz == 2
    (tmp_path / "side" / "query_weights.safetensors").unlink()
    with pytest.raises(IndexStateError, match="the file is missing"):
        QuerySide.load(tmp_path / "side", side.identity())


def test_occurrences_are_integers(tiny_tokenizer: Tokenizer) -> None:
    terms = QueryTokenizer(tiny_tokenizer).terms("the moon of the earth")
    assert terms == {"the": 2, "moon": 1, "of": 1, "earth": 1}
    assert {type(count) for count in terms.values()} == {int}


@pytest.mark.parametrize(
    "token", ["?", ".", ",", "##?", "##'", "...", ";", "(", "]", "「", "。", "؟", "_", "“", "▁,"]
)
def test_punctuation(token: str) -> None:
    assert is_punctuation(token)


@pytest.mark.parametrize(
    "token",
    [
        "c",
        "+",
        "##+",
        "#",
        "###",
        "##",
        "%",
        "$",
        "€",
        "°",
        "&",
        "@",
        "=",
        "a.",
        "##s",
        "1",
        "中",
        "▁a",
        "-",
        "—",
        "/",
    ],
)
def test_what_carries_meaning_is_no_punctuation(token: str) -> None:
    """C++ is the wordpieces c, + and +; C# is c and #; who-is-who keeps its dashes."""
    assert not is_punctuation(token)


def test_punctuation_has_no_impacts_and_no_place_in_a_query(tiny_model: SpartaModel) -> None:
    vocabulary = tiny_model.tokenizer.get_vocab()
    marks = {token for token in vocabulary if token.removeprefix("##") in set(".,:;!?'\"()[]")}
    assert marks
    excluded = tiny_model.excluded_terms()
    assert all(excluded[vocabulary[mark]] for mark in marks)
    assert not excluded[vocabulary["moon"]]
    document = tiny_model.encode_document("who? the moon, the earth! (the sun)")
    assert not document[0, [vocabulary[mark] for mark in marks]].toarray().any()
    tokenizer = tiny_model.query_tokenizer()
    assert tokenizer.terms("the moon?! (earth)") == tokenizer.terms("the moon earth")
