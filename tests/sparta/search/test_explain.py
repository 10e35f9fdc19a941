import json
import random
import types
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta.api import Index
from sparta.base.errors import InputError
from sparta.index.build import write_index
from sparta.index.folder import IndexFolder
from sparta.index.inputs.options import IndexOptions
from sparta.index.inputs.sources import vectors_source
from sparta.index.jobs import WriteOptions
from sparta.index.pipeline import build_index
from sparta.models.quantize import Quantizer
from sparta.search.explain import explain, top_terms
from sparta.search.searcher import Searcher
from sparta.search.snippet import marked_snippet, word_snippets

pytestmark = pytest.mark.jvm

WORDS = ["moon", "earth", "sun", "river", "road", "town", "queen", "brain", "park", "##s", "的"]
STEP = 0.25  # 255 steps of a quarter


@pytest.fixture(scope="module")
def index_of(tmp_path_factory, tiny_tokenizer) -> Callable[..., Path]:
    """Write vectors `{id: {term: impact}}` into a new index."""

    def make(vectors: dict[str, dict[str, int]], weights: np.ndarray | None = None) -> Path:
        folder = tmp_path_factory.mktemp("made")
        tiny_tokenizer.save(str(folder / "tokenizer.json"))
        path = folder / "vectors.jsonl"
        lines = [{"id": i, "contents": "", "vector": vector} for i, vector in vectors.items()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        source = vectors_source([path], folder)
        side = replace(source.side, weights=weights, quantizer=Quantizer(255 * STEP))
        write_index(IndexFolder(folder / "index"), replace(source, side=side), WriteOptions(ram_buffer_mb=16))
        return folder / "index"

    return make


@pytest.fixture(scope="module")
def vectors() -> dict[str, dict[str, int]]:
    rng = random.Random(2)
    return {f"p{i}": {w: rng.randint(1, 4) for w in rng.sample(WORDS, rng.randint(0, 6))} for i in range(120)}


@pytest.fixture(scope="module")
def searcher(index_of, vectors):
    with Searcher(index_of(vectors)) as opened:
        yield opened


@pytest.mark.slow
def test_shares_sum_to_the_score_and_the_rank_is_the_place_in_search(searcher, vectors):
    rng = random.Random(4)
    for _ in range(15):
        asked = " ".join(rng.choices(["moon", "moons", "earth", "road", "的", "queen"], k=rng.randint(1, 6)))
        hits = searcher.search(asked, 1000)
        places = {hit.passage_id: (place, hit.score) for place, hit in enumerate(hits, 1)}
        for passage_id in vectors:
            why = explain(searcher, asked, passage_id)
            assert why.passage_id == passage_id
            assert (why.rank, why.score) == places.get(passage_id, (0, 0.0))
            assert why.score == sum(term.contribution for term in why.terms)
            assert {s.term: (s.count, s.impact) for s in why.terms} == {
                term: (count, vectors[passage_id].get(term, 0))
                for term, count in searcher.tokenizer.terms(asked).items()
            }


def test_shares_strongest_first_and_their_weights(index_of):
    index = index_of({"a": {"moon": 4, "earth": 9, "sun": 200}, "b": {"sun": 1}})
    with Searcher(index) as searcher:
        shares = explain(searcher, "earth moon, moon moon sun town", "a").terms
        shown = [(s.term, s.count, s.impact, s.weight, s.contribution) for s in shares]
        assert shown == [
            ("sun", 1, 200, 200 * STEP, 200),
            ("moon", 3, 4, 4 * STEP, 12),
            ("earth", 1, 9, 9 * STEP, 9),
            ("town", 1, 0, 0, 0),
        ]
        assert explain(searcher, "town", "a").rank == 0
        assert explain(searcher, "", "a") == replace(explain(searcher, "town", "a"), terms=())
        with pytest.raises(InputError, match="no passage with the id 'c'"):
            explain(searcher, "moon", "c")


def test_weighted_questions(index_of, tiny_tokenizer):
    weights = np.zeros(tiny_tokenizer.get_vocab_size(), np.int32)
    for term, weight in {"moon": 3, "earth": 15}.items():
        weights[tiny_tokenizer.token_to_id(term)] = weight
    with Searcher(index_of({"a": {"moon": 7, "sun": 9}, "b": {"earth": 5, "moon": 1}}, weights)) as searcher:
        for hit in searcher.search("the sun, moon and moon and earth"):
            why = explain(searcher, "the sun, moon and moon and earth", hit.passage_id)
            assert why.score == hit.score
            assert {s.term for s in why.terms} == {"moon", "earth"}


def test_top_terms(index_of):
    vector = {"moon": 3, "earth": 9, "sun": 3, "##s": 3, "的": 9, "road": 1}
    with Searcher(index_of({"a": vector, "b": {"moon": 255}, "c": {}})) as searcher:
        order = [("earth", 9), ("的", 9), ("##s", 3), ("moon", 3), ("sun", 3), ("road", 1)]
        assert top_terms(searcher, "a") == [(t, i, i * STEP) for t, i in order]
        assert top_terms(searcher, "a", 2) == top_terms(searcher, "a")[:2]
        assert top_terms(searcher, "a", 99) == top_terms(searcher, "a")
        assert top_terms(searcher, "b") == [("moon", 255, 255 * STEP)]
        assert top_terms(searcher, "c") == []
        with pytest.raises(InputError, match="no passage with the id 'd'"):
            top_terms(searcher, "d")


# ---------------------------------------------------------------- snippets


def marked(searcher: Any, text: str, question: str, words: int = 6) -> str:
    return marked_snippet(searcher.tokenizer, text, set(searcher.tokenizer.terms(question)), words).shown(
        "[{}]".format
    )


@pytest.mark.parametrize(
    ("text", "question", "expected"),
    [
        ("The moon.", "moon", "The [moon]."),
        ("The Moon, the MOON!", "the moon", "[The] [Moon], [the] [MOON]!"),
        ("Nothing of it here", "moon", "Nothing of it here"),
        ("moons", "moon", "[moons]"),  # one of its wordpieces is asked for
        ("moon moons earths", "moons", "[moon] [moons] earths"),  # no other word with the same ending
        ("The moon", "", "The moon"),
        ("", "moon", ""),
        ("  \n ", "moon", ""),
        ("a   moon\n\nof\tearth", "moon", "a [moon] of earth"),
        ("the moon, the sun", ",", "the moon, the sun"),  # punctuation is not marked
        ("a b c d e f g h", "q", "a b c d e f …"),
        ("a b moon d e f", "moon", "a b [moon] d e f"),
        ("moon b c d e f g h", "moon", "[moon] b c d e f …"),
        ("a b c d e f g moon", "moon", "… c d e f g [moon]"),
        ("a b c d e f g h i moon k l m n o p q", "moon", "… [moon] k l m n o …"),
        ("moon b c d e f g h i moon earth l m", "moon earth", "… h i [moon] [earth] l m"),
        ("月亮绕地球", "绕", "月亮绕地球"),  # not in the vocabulary
        ("地球的月亮", "球", "地[球]的月亮"),
        ("Google是的", "的", "Google是[的]"),
    ],
)
def test_snippets(searcher, text, question, expected):
    assert marked(searcher, text, question) == expected


def test_a_snippet_shows_the_window_with_the_most_matches(searcher):
    rng = random.Random(5)
    for _ in range(200):
        words = rng.choices(["moon", "a", "b", "c", "d", "e", "f"], [1, *[2] * 6], k=rng.randint(1, 40))
        text = marked(searcher, " ".join(words), "moon", 8)
        most = max(words[i : i + 8].count("moon") for i in range(max(1, len(words) - 7)))
        assert text.count("[moon]") == most
        assert len(text.replace("…", "").split()) == min(8, len(words))
        shown = text.replace("[", "").replace("]", "").replace("… ", "").replace(" …", "")
        assert shown in " ".join(words)


def test_a_rare_term_is_worth_more_than_a_common_one_many_times(searcher):
    """By the shares of the score: five times "the" is less than "moon" once, and is not marked beside it."""
    text = " ".join(["the"] * 5 + ["b"] * 50 + ["the", "moon"] + ["c"] * 50)
    shares = {"moon": 200.0, "the": 7.0}
    shown = marked_snippet(searcher.tokenizer, text, shares, 8).shown("[{}]".format)
    assert shown.split()[-5:] == ["[moon]", "c", "c", "c", "…"] or "[moon]" in shown
    assert "[the]" not in shown
    assert "[the]" in marked_snippet(searcher.tokenizer, "the " * 5, {"the": 7.0}, 8).shown("[{}]".format)


@pytest.mark.slow
def test_a_long_text_is_not_tokenized_whole(searcher, monkeypatch):
    """Only words that may hold a term, each once."""
    tokenizer = searcher.tokenizer
    asked: list[str] = []

    def pieces(word: str) -> list[tuple[str, int, int]]:
        asked.append(word)
        return tokenizer.pieces(word)

    counting = types.SimpleNamespace(pieces=pieces, language=tokenizer.language, lexical=None)
    text = " ".join(f"word{i % 20_000}" for i in range(200_000)) + " the moon " * 3
    shown = marked_snippet(counting, text, {"moon": 1.0}, 8).shown("[{}]".format)
    assert shown.count("[moon]") == 3
    assert asked == [" moon"]


def test_a_match_does_not_stand_at_the_very_end(searcher):
    text = " ".join(["b"] * 50 + ["moon"] + ["c"] * 50)
    shown = marked(searcher, text, "moon", 40).split()
    assert shown.index("[moon]") == 6  # after the dots and five words
    assert len(shown) == 42


@pytest.mark.slow
@pytest.mark.parametrize(
    "word", ["x" * 100_000, "ab1/" * 30_000, "ก" * 3000, "的" * 3000, "a " * 3000 + "b" * 9000]
)
@pytest.mark.parametrize("words", [None, 2000])
def test_a_snippet_has_at_most_500_characters(searcher, word, words):
    for text, found in ((word, False), (f"{word} the moon {word}", True)):
        shown = marked_snippet(searcher.tokenizer, text, {"moon": 1.0}, words)
        assert 30 < len(shown.text) <= 500 + len("…  …")
        assert [shown.text[start:end] for start, end, _ in shown.marks] == ["moon"] * found
        assert shown.text.endswith(" …")


def test_a_long_word_is_cut_where_a_term_stands(searcher):
    for term in ("月亮", "moon"):
        text = "ก" * 4000 + term + "ก" * 4000
        shown = word_snippets(searcher, term)(text)
        assert len(shown.text) <= 500 + len("…  …")
        assert (term in shown.text, bool(shown.marks)) == (True, True)


# ---------------------------------------------------------------- by BM25


@pytest.fixture(scope="module")
def bm25_of(tmp_path_factory) -> Callable[[str], Searcher]:
    def make(language: str) -> Searcher:
        path = tmp_path_factory.mktemp(language) / "index"
        options = IndexOptions(channels="bm25", language=language)
        build_index(path, [{"id": "a", "text": "moon"}], options=options)
        return Searcher(path, channel="bm25")

    return make


@pytest.mark.parametrize(
    ("language", "query", "text", "expected"),
    [
        ("en", "kodak unforgiven", "Unforgettable kodak, Kodak's", "Unforgettable [kodak], [Kodak's]"),
        ("en", "The believe", "The believers of dakota", "The [believers] of dakota"),
        ("en", "U.S. 3.5", "the U.S. has 3.5 of U and S", "the [U.S]. has [3.5] of U and S"),
        ("en", "cafe\u0301", "🌕🌕 caf\u00e9 or cafe\u0301", "🌕🌕 [caf\u00e9] or [caf\u00e9]"),
        ("en", "nothing", "The moon", "The moon"),
        ("en", "the", "the", "the"),
        ("en", "moon", "", ""),
        ("zh", "地球轉", "月亮绕着地球转", "月亮绕着[地球转]"),
        ("zh", "中國的首都", "黃河是中國第二長的河流", "黃河是[中國]第二長的河流"),
        ("zh", "首都的", "第二長的河流", "第二長[的]河流"),
        ("zh", "的", "中國的河流", "中國[的]河流"),
        pytest.param(
            *("ja", "東京の大学", "大学は京都にある", "[大学]は京都にある"),
            marks=pytest.mark.skipif(find_spec("pyserini") is None, reason="Pyserini brings the analyzer"),
        ),
        ("de", "Häuser", "Das Haus, die Hauser", "Das [Haus], die [Hauser]"),
    ],
)
def test_by_bm25_what_its_analyzer_takes_for_words_of_the_query(bm25_of, language, query, text, expected):
    with bm25_of(language) as opened:
        assert word_snippets(opened, query)(text).shown("[{}]".format) == expected


def test_bm25_contributions_sum_to_the_score_of_the_hit(tmp_path: Path, make_records: Any) -> None:
    """To the last bit: Lucene adds in double precision and rounds once."""
    records = make_records(200, seed=3, longest=30)
    with Index.create(tmp_path / "ix", records, options=IndexOptions(channels="bm25")) as index:
        for record in records[:20]:
            query = record["text"]
            for rank, hit in enumerate(index.search(query, 5, channel="bm25"), 1):
                explanation = index.explain(query, hit.passage_id, channel="bm25")
                assert (explanation.score, explanation.rank) == (hit.score, rank)


def test_a_blank_query_explains_nothing(tmp_path: Path) -> None:
    """Also in a language whose words are what white space separates."""
    records, options = [{"id": "1", "text": "habari ... dunia"}], IndexOptions(channels="bm25", language="sw")
    with Index.create(tmp_path / "ix", records, options=options) as index:
        assert not index.search("...", channel="bm25")
        assert index.explain("...", "1", channel="bm25").score == 0


def test_sentences_have_their_context_after_deletions(tmp_path: Path) -> None:
    text = " ".join(f"The moon number {i} is round." for i in range(45))
    options = IndexOptions(channels="bm25", unit="sentence")
    with Index.create(tmp_path / "ix", [{"id": "p", "text": text}], options=options) as index:
        index.delete([f"p#{i}" for i in range(33)])
        hits = index.search("number 40", 1, channel="bm25")
        (hit,) = index.searcher.in_context(hits)
        assert hit.metadata["context"].strip() == text[text.index("The moon number 33") :]
