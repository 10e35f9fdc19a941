"""Lexical terms: words that a tokenizer splits, pairs of words, and their weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.models.lexical_terms import TERMS_FILE, IdfTable, LexicalTerms, TermSettings, hashes_of
from sparta.models.query_encoder import load_tokenizer
from sparta.models.resolve import default_model_folder

TABLE = IdfTable.of(hashes_of(["kerensky", "alexander kerensky", "covid"]), np.array([10, 4, 1000]), 1000)


@pytest.fixture(scope="module")
def lexical() -> LexicalTerms:
    """Terms of the default model's tokenizer, with a small table."""
    return LexicalTerms(TermSettings(), TABLE, load_tokenizer(default_model_folder()))


def terms_of(lexical: LexicalTerms, text: str) -> list[str]:
    return [occurrence.term for occurrence in lexical.occurrences(text)]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Kerensky", ["kerensky"]),  # the tokenizer splits the word
        ("moon", []),  # a wordpiece
        ("r\u00e9sum\u00e9", ["r\u00e9sum\u00e9"]),  # the tokenizer drops the accents
        ("re\u0301sume\u0301", ["r\u00e9sum\u00e9"]),
        ("node.js", ["node.js", "js"]),
        ("COVID-19", ["covid-19", "covid"]),
        ("AT&T", ["at&t"]),
        ("don\u2019t", ["don't"]),
        ("C++, C#", ["c++", "c#"]),
        ("Kerensky's", ["kerensky"]),
        ("the moon river", ["moon river"]),
        ("bank of the river", []),
        ("moon. river", []),
        ("", []),
    ],
)
def test_terms_of_a_text(lexical: LexicalTerms, text: str, terms: list[str]) -> None:
    assert terms_of(lexical, text) == terms


def test_no_term_is_a_wordpiece(lexical: LexicalTerms) -> None:
    vocabulary = load_tokenizer(default_model_folder()).get_vocab()
    text = " ".join(vocabulary) + " ##ing [unused1] ##s-##s a.b.c"
    assert not {term for term in terms_of(lexical, text) if term in vocabulary}


def test_spans_cover_the_terms(lexical: LexicalTerms) -> None:
    text = "Alexander Kerensky\u2019s COVID-19"
    spans = {o.term: text[o.start : o.end] for o in lexical.occurrences(text)}
    assert spans["alexander kerensky"] == "Alexander Kerensky"
    assert spans["covid-19"] == "COVID-19"
    assert spans["covid"] == "COVID"


def test_weights_do_not_depend_on_other_passages(lexical: LexicalTerms) -> None:
    passage = Passage("p", "Kerensky met Kerensky.", title="Alexander Kerensky")
    weights = lexical.passage_terms(passage)
    length, settings = 5, lexical.settings
    norm = settings.k1 * (1 - settings.b + settings.b * length / settings.mean_length)
    idf = np.log1p(990.5 / 10.5) / np.log1p(1000.5 / 0.5)
    assert weights["kerensky"] == pytest.approx(settings.word_gain * idf * 3 / (3 + norm), rel=0.01)
    assert set(weights) == {"kerensky", "alexander kerensky", "kerensky met", "met kerensky"}
    assert weights["kerensky met"] > weights["alexander kerensky"] > 0
    assert lexical.passage_terms(Passage("p", "moon")) == {}


def test_a_query_looks_up_each_occurrence(lexical: LexicalTerms) -> None:
    assert lexical.query_terms("kerensky or Kerensky met") == {
        "kerensky": 2,
        "kerensky met": 1,
    }


def test_unseen_terms_are_the_rarest() -> None:
    idf = TABLE.idf(["zzzxqw", "kerensky", "covid"])
    assert idf[0] == 1 > idf[1] > idf[2] >= 0
    assert IdfTable(np.zeros(0, np.uint32), np.zeros(0, np.uint8)).idf(["a"]).tolist() == [1]


def test_files_keep_the_definition(lexical: LexicalTerms, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(default_model_folder())
    assert LexicalTerms.load(tmp_path, tokenizer) is None
    lexical.save(tmp_path)
    loaded = LexicalTerms.load(tmp_path, tokenizer)
    assert loaded is not None
    assert (loaded.name, loaded.settings) == (lexical.name, lexical.settings)
    passage = Passage("p", "Alexander Kerensky met Lenin in Petrograd.")
    assert loaded.passage_terms(passage) == lexical.passage_terms(passage)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04"])
def test_a_damaged_file_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / TERMS_FILE).write_bytes(content)
    with pytest.raises(ModelError, match="lexical terms"):
        LexicalTerms.load(tmp_path, load_tokenizer(default_model_folder()))


def test_weights_are_equal_in_each_process(lexical: LexicalTerms, tmp_path: Path) -> None:
    lexical.save(tmp_path)
    program = (
        "from pathlib import Path; from sparta.base.records import Passage;"
        "from sparta.models.lexical_terms import LexicalTerms as L;"
        "from sparta.models.query_encoder import load_tokenizer;"
        f"t = L.load(Path({str(tmp_path)!r}), load_tokenizer({str(default_model_folder())!r}));"
        "print(t.passage_terms(Passage('p', 'Kerensky met Lenin in Petrograd')))"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert printed.strip() == str(lexical.passage_terms(Passage("p", "Kerensky met Lenin in Petrograd")))
