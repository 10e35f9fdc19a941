"""Lexical terms: words that a tokenizer splits, pairs of words, their weights, and what queries look up."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparta.base.errors import InputError, ModelError
from sparta.base.records import Passage
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.lexical_terms import TERMS_FILE, LexicalTerms, TermSettings, singular
from sparta.models.query_encoder import QueryTokenizer
from sparta.models.resolve import default_model_folder, hash_folder

TOKENIZER = load_tokenizer(default_model_folder())
LEXICAL = LexicalTerms(TermSettings(pair_bits=0), TOKENIZER)


def terms_of(text: str) -> list[str]:
    return [occurrence.term for occurrence in LEXICAL.occurrences(text)]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Kerensky", ["kerensky"]),  # the tokenizer splits the word
        ("Kerenskys", ["kerensky"]),
        ("Kerensky\u2019s", ["kerensky"]),
        ("moon", []),  # a wordpiece
        ("vacuums", []),  # a wordpiece and its plural's s
        ("r\u00e9sum\u00e9", ["r\u00e9sum\u00e9"]),  # the tokenizer drops the accents
        ("re\u0301sume\u0301", ["r\u00e9sum\u00e9"]),
        ("null\0char \u00e9", ["nullchar", "\u00e9", "nullchar e"]),  # the tokenizer drops the 0
        ("soft\u00adware r\u00e9su\u00adm\u00e9", ["r\u00e9sum\u00e9", "software resume"]),  # soft hyphens
        ("qz\ufffdqy\u00e9", ["qzqye", "qzqy\u00e9"]),  # the tokenizer drops the replacement character
        ("moon\U0001fae9 sun", ["moon\U0001fae9", "moon\U0001fae9 sun"]),  # new in Unicode 16: unknown, kept
        ("a\u0378b", ["a\u0378b"]),  # no character of Unicode yet
        ("qz\U0002ebf0qy", ["qz\U0002ebf0qy"]),  # a Chinese character of Unicode 15.1
        ("qz\u08e2qy", ["qz\u08e2qy"]),  # a format character that the tokenizer keeps
        ("\u0646\u0645\u06cc\u200c\u062f", ["\u0646\u0645\u06cc\u062f"]),  # a joiner in a Persian word
        ("\u0915\u094d\u200d\u0937", ["\u0915\u0937", "\u0915\u094d\u200d\u0937"]),  # also an accent
        ("\u0dc1\u0dca\u200d\u0dbb", ["\u0dc1\u0dca\u200d\u0dbb"]),  # the tokenizer knows no such letters
        ("node.js", ["js", "node js"]),
        ("COVID-19", ["covid", "covid 19"]),
        ("3.5 mm", ["3 5", "5 mm"]),
        ("\u20ac5", ["\u20ac5"]),  # the tokenizer joins them
        ("\u6771\u4eac", ["\u6771 \u4eac"]),
        ("the moons of rivers", ["moon river"]),  # stop words do not count
        ("moon. river", []),  # marks do
        ("moon . (river)", []),
        ("x" * 65, []),
        ("don't", ["don t"]),
        ("it's", []),
        ("", []),
    ],
)
def test_terms_of_a_text(text: str, terms: list[str]) -> None:
    assert terms_of(text) == terms


@pytest.mark.slow
def test_no_term_is_a_wordpiece() -> None:
    vocabulary = TOKENIZER.get_vocab()
    text = " ".join(vocabulary) + " ##ing [unused1] ##s-##s a.b.c"
    assert not {term for term in terms_of(text) if term in vocabulary}


def test_spans_cover_the_terms() -> None:
    text = "Alexander Kerensky\u2019s Bank of England"
    spans = {o.term: text[o.start : o.end] for o in LEXICAL.occurrences(text)}
    assert spans["alexander kerensky"] == "Alexander Kerensky"
    assert spans["kerensky"] == "Kerensky"
    assert spans["bank england"] == "Bank of England"


@pytest.mark.parametrize(
    ("word", "form"),
    [
        ("names", "name"),
        ("parties", "party"),
        ("glass", "glass"),
        ("virus", "virus"),
        ("trees", "trees"),  # Harman's rules keep `ees`
        ("gas", "gas"),
    ],
)
def test_plurals(word: str, form: str) -> None:
    assert singular(word) == form


def test_the_term_of_a_pair_is_a_hash_of_so_many_bits() -> None:
    lexical = LexicalTerms(TermSettings(pair_bits=4), TOKENIZER)
    words = ["moon", "river", "house", "bank", "city", "king", "war", "song"]
    text = ". ".join(f"{a} {b}" for a in words for b in words)
    terms = {term for term, _, _ in lexical.occurrences(text)}
    assert terms == {f"pair {i:x}" for i in range(16)}
    assert all(map(lexical.is_term, terms))
    assert not lexical.is_term("moon river")
    assert LEXICAL.is_term("moon river")


def network(weights: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    ids = sorted((TOKENIZER.token_to_id(piece), weight) for piece, weight in weights.items())
    return np.array([i for i, _ in ids], np.int32), np.array([w for _, w in ids], np.float32)


def test_a_word_has_the_weights_of_its_pieces() -> None:
    passage = Passage("p", "Kerensky met Kerensky.", title="Alexander Kerensky")
    row = network({"ke": 1.0, "##ren": 0.5, "##sky": 2.0, "moon": 3.0})
    settings, weights = LEXICAL.settings, LEXICAL.passage_terms(passage, *row)
    length = len(
        TOKENIZER.encode("Alexander Kerensky . Kerensky met Kerensky.", add_special_tokens=False).ids
    )
    norm = settings.k1 * (1 - settings.b + settings.b * length / settings.mean_length)
    gain = settings.word_gain * 3 / (3 + norm)
    assert weights["kerensky"] == pytest.approx((gain + 3.5) / settings.word_count)
    assert weights["alexander kerensky"] == pytest.approx(settings.pair_gain / (1 + norm))
    assert set(weights) == {"kerensky", "alexander kerensky", "kerensky met", "met kerensky"}
    assert LEXICAL.passage_terms(passage)["kerensky"] == pytest.approx(gain / settings.word_count)
    assert LEXICAL.passage_terms(Passage("p", "moon")) == {}


def test_a_sentence_has_the_terms_of_its_context() -> None:
    context = "Kerensky fled. He met Miliukov."
    sentence = Passage("p", "He met Miliukov.", context=context, start=15, end=31)
    share = LEXICAL.settings.context_share
    around = LEXICAL.passage_terms(Passage("p", context))
    assert LEXICAL.passage_terms(sentence) == pytest.approx({t: share * w for t, w in around.items()})


def test_the_norm_of_long_texts_is_that_of_a_window() -> None:
    text = "Kerensky " + "moon. " * 126
    longer = LEXICAL.passage_terms(Passage("p", text + "moon. " * 999))
    assert longer["kerensky"] == pytest.approx(
        LEXICAL.passage_terms(Passage("p", text))["kerensky"], rel=0.01
    )


def bag(query: str) -> dict[str, int]:
    return QueryTokenizer(TOKENIZER, lexical=LEXICAL).terms(query)


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("zzzxqw", {"zzzxqw": 3}),
        ("vacum cleaner", {"vacum": 3, "cleaner": 1, "vacum cleaner": 1}),
        ("kerensky. Kerenskys", {"kerensky": 6}),
        ("vacuums", {"vacuum": 1}),
        ("OpenSearch kubernetes", {"opensearch": 3, "kubernete": 3, "opensearch kubernete": 1}),
        ("r\u00e9sum\u00e9", {"resume": 1, "r\u00e9sum\u00e9": 3}),
        ("C++", {"c": 1, "+": 2}),
        ("c ***** = c ==== c", {"c": 3, "*": 2, "=": 2}),
        ("node.js", {"node": 1, "js": 3, "node js": 2}),  # written as one word
        ("node js", {"node": 1, "js": 3, "node js": 1}),
    ],
)
def test_a_query_looks_up_words_in_place_of_their_pieces(query: str, terms: dict[str, int]) -> None:
    assert bag(query) == terms


def scores(query: str, texts: Sequence[str]) -> list[float]:
    """Scores by the gains alone; each wordpiece of a text weighs 1."""
    pieces = QueryTokenizer(TOKENIZER)
    totals = []
    for text in texts:
        row = network(dict.fromkeys(pieces.terms(text), 1.0))
        weights = {
            **dict.fromkeys(pieces.terms(text), 1.0),
            **LEXICAL.passage_terms(Passage("p", text), *row),
        }
        totals.append(sum(n * weights.get(term, 0.0) for term, n in bag(query).items()))
    return totals


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("C++", ["Learn C++ today", "Learn C today"]),
        ("node.js", ["A node.js server", "A server node, and js"]),
        ("GPT-4", ["The GPT-4 model", "The GPT model of 4 men"]),
        ("COVID-19", ["The COVID-19 virus", "The COVID virus, 19 dead"]),
        ("3.5 mm", ["A jack of 3.5 mm", "A jack of 5.3 mm"]),
        ("AT&T", ["The AT&T company", "The T at company"]),
        ("r\u00e9sum\u00e9", ["My r\u00e9sum\u00e9 is old", "My resume is old"]),
        ("don't", ["I don't know", "I know a don"]),
        ("Kerenskys", ["Kerensky fled", "The sky of Rennes"]),
    ],
)
def test_the_same_spelling_comes_first(query: str, texts: list[str]) -> None:
    first, second = scores(query, texts)
    assert first > second


def test_a_batch_computes_the_wordpieces_of_each_query_once() -> None:
    lexical = LexicalTerms(TermSettings(), TOKENIZER)
    queries = [f"who founded Kerensky {number}" for number in range(40)]
    tokenizer = QueryTokenizer(TOKENIZER, lexical=lexical)
    assert tokenizer.all_terms(queries) == [tokenizer.terms(query) for query in queries]
    assert lexical.encoded.cache_info().misses == 80  # 40 in the batch, 40 one by one


def test_unknown_words_match_nothing() -> None:
    texts = ["A jazz quiz with wax", "A vacuum cleaner", "Buzz"]
    assert scores("zzzxqw", texts) == [0, 0, 0]
    assert scores("vacum cleaner", texts) == [0, 1, 0]


@pytest.mark.slow
def test_no_query_has_an_unsearched_wordpiece() -> None:
    vocabulary = TOKENIZER.get_vocab()
    text = " ".join(vocabulary) + " Kerensky's vacuums lorries \u20ac5 m\u00b2 foo_bar-quxx 1987654"
    searched = [vocabulary[term] for term in bag(text) if term in vocabulary]
    assert searched
    assert not LEXICAL.unsearched[searched].any()
    assert LEXICAL.unsearched.sum() == sum(token.startswith("##") for token in vocabulary)


def test_text_that_is_not_unicode_is_an_error() -> None:
    with pytest.raises(InputError, match="not valid Unicode"):
        terms_of("who \ud800")


def test_files_keep_the_definition(tmp_path: Path) -> None:
    assert LexicalTerms.load(tmp_path, TOKENIZER) is None
    empty = hash_folder(tmp_path)
    LEXICAL.save(tmp_path)
    assert hash_folder(tmp_path) == empty  # a model with lexical terms is the same model
    loaded = LexicalTerms.load(tmp_path, TOKENIZER)
    assert loaded is not None
    assert (loaded.name, loaded.settings) == (LEXICAL.name, LEXICAL.settings)
    other = LexicalTerms(replace(LEXICAL.settings, pair_gain=1.0), TOKENIZER)
    assert other.name != LEXICAL.name


def test_a_model_that_is_saved_again_keeps_its_terms(lexical_model: Path, tmp_path: Path) -> None:
    from sparta.models.sparta import SpartaModel

    SpartaModel.load(lexical_model).save_pretrained(tmp_path / "trained")
    assert (tmp_path / "trained" / TERMS_FILE).read_bytes() == (lexical_model / TERMS_FILE).read_bytes()


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format_version": 9}', '{"format_version": 1, "new": 2}']
)
def test_a_damaged_file_is_an_error(content: str, tmp_path: Path) -> None:
    (tmp_path / TERMS_FILE).write_text(content)
    with pytest.raises(ModelError, match="lexical terms"):
        LexicalTerms.load(tmp_path, TOKENIZER)


def test_weights_are_equal_in_each_process() -> None:
    program = (
        "from sparta.base.records import Passage;"
        "from sparta.models.lexical_terms import LexicalTerms, TermSettings;"
        "from sparta.models.folders.tokenizer import load_tokenizer;"
        f"t = LexicalTerms(TermSettings(), load_tokenizer({str(default_model_folder())!r}));"
        "print(t.name, t.passage_terms(Passage('p', 'Kerensky met Lenin in Petrograd')))"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    lexical = LexicalTerms(TermSettings(), TOKENIZER)
    terms = lexical.passage_terms(Passage("p", "Kerensky met Lenin in Petrograd"))
    assert printed.strip() == f"{lexical.name} {terms}"


def test_a_copy_and_a_pickle_have_the_same_terms() -> None:
    text = "Alexander Kerensky"
    for other in (copy.deepcopy(LEXICAL), pickle.loads(pickle.dumps(LEXICAL))):
        assert other.name == LEXICAL.name
        assert [*other.occurrences(text)] == [*LEXICAL.occurrences(text)]
