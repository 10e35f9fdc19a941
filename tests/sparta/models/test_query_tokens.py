"""Which wordpieces of a query count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparta.base.errors import InputError
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.query_encoder import QueryTokenizer


def test_unknown_words_and_special_tokens_do_not_count(tiny_tokenizer: Any) -> None:
    unknown = "\u2603"
    assert "[UNK]" in tiny_tokenizer.encode(unknown, add_special_tokens=False).tokens
    assert list(QueryTokenizer(tiny_tokenizer).terms(f"moon {unknown} moon").items()) == [("moon", 2)]


def test_special_tokens_in_a_text_are_its_characters(tiny_tokenizer: Any, tmp_path: Any) -> None:
    tiny_tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    encoded = tokenizer.encode("moon [SEP] sun", add_special_tokens=False)
    assert "[SEP]" not in encoded.tokens
    assert tokenizer.token_to_id("[SEP]") not in encoded.ids
    assert {"moon", "sun"} <= set(encoded.tokens)


def test_terms_beyond_the_table_of_weights_do_not_count(tiny_tokenizer: Any) -> None:
    moon, sun = (tiny_tokenizer.token_to_id(word) for word in ("moon", "sun"))
    low, high = sorted((moon, sun))
    weights = np.zeros(high, np.int32)  # one entry short of the higher id
    weights[low] = 7
    assert QueryTokenizer(tiny_tokenizer, weights).bag("moon sun moon") == {low: 7}


@pytest.mark.parametrize("text", ["who \ud800", None])
def test_what_is_no_unicode_text_is_told(tiny_tokenizer: Any, text: Any) -> None:
    with pytest.raises(InputError, match="the text is not valid Unicode"):
        QueryTokenizer(tiny_tokenizer).terms(text)
