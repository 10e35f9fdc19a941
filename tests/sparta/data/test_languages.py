"""The registry of languages: what an entry decides, and the two scripts of Chinese as one."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from sparta.base.records import Passage
from sparta.data import languages
from sparta.data.answers import answer_spans, exact_match, has_answer, token_f1
from sparta.data.languages import LANGUAGES, Language, folded, language_of, simplified
from sparta.data.sentences import sentence_splitter
from tests.chinese import RECORDS

ROOT = Path(__file__).parents[3]


def test_english_texts_are_read_as_they_are():
    own = language_of("en")
    passage = Passage("1", "a text", "T", "a text here", 0, 6)
    assert folded(passage, own) == passage
    assert own.fold(passage.text) is passage.text
    assert own.length("two words, 北京") == 4


@pytest.mark.parametrize("entry", LANGUAGES.values(), ids=LANGUAGES)
def test_folding_keeps_every_character_in_its_place(entry):
    pytest.importorskip("opencc")
    for text in ("", "x", "naïve 臺灣 🦘\n", "\ud800", *(record["text"] for record in RECORDS)):
        assert len(entry.fold(text)) == len(text)
        assert entry.fold(entry.fold(text)) == entry.fold(text)


def test_traditional_characters_become_simplified(monkeypatch):
    pytest.importorskip("opencc")
    assert simplified("臺灣的乾隆與乾燥") == "台湾的乾隆与干燥"  # 乾 by its word
    # a converter that is not one to one: character by character, those that it makes longer stay
    monkeypatch.setattr(
        languages, "_opencc", lambda: {"甲乙丙": "甲二", "甲": "一", "乙": "二三", "丙": "丙"}.get
    )
    assert simplified("甲乙丙") == "一乙丙"


def test_a_sentence_stands_in_its_folded_context(monkeypatch):
    context = "甲乙。丙"
    own = Language(fold=lambda text: text.replace("丙", "0" if len(text) > 1 else "1"))
    found = folded(Passage("1", "丙", "", context, 3, 4), own)
    assert found.text == found.context[3:4] == "0"


WITHOUT_OPENCC = """
import sys
sys.modules["opencc"] = None  # as if it were not installed
from sparta.base.errors import MissingPackageError
from sparta.data.languages import simplified
assert simplified("ascii") == "ascii"
try:
    simplified("\u81fa")
except MissingPackageError as error:
    print(error)
"""


def test_what_is_missing_is_named():
    """In a process of its own, which has not loaded it."""
    command = [sys.executable, "-c", WITHOUT_OPENCC]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "opencc" in ended.stdout.splitlines()[0]
    assert "sparta-search[zh]" in ended.stdout


def test_answers_in_both_scripts_are_the_same():
    pytest.importorskip("opencc")
    text = "臺北101高508公尺"
    assert has_answer(text, ["台北101"], language="zh")
    assert not has_answer(text, ["台北101"])
    assert [text[a:b] for a, b in answer_spans(text, ["台北"], language="zh")] == ["臺北"]
    assert exact_match("臺北", ["台北"], language="zh")
    assert token_f1("臺北市", ["台北"], language="zh") == pytest.approx(2 * 2 / (3 + 2))


def test_marks_and_quotes_are_those_of_the_language(monkeypatch):
    # a title that is never closed must not hold what follows: 70 characters are more than a usual sentence
    text = "《" + "字" * 70 + "。" + "词" * 10 + "。"
    assert len(sentence_splitter("zh")(text)) == 2
    monkeypatch.setitem(LANGUAGES, "xx", Language(marks="§"))
    assert len(sentence_splitter("xx")("one\n§ two")) == 2
    assert len(sentence_splitter("en")("one\n§ two")) == 1


def test_marks_belong_to_the_letters_before_them():
    """In Hindi and Thai, and where accents are characters of their own; those of emoji are no letters."""
    text = "दिल्ली भारत Zoe\u0308 lives, ❤\ufe0fgoogle กรุงเทพ"
    found = language_of("hi").words.findall(text)
    assert found == ["दिल्ली", "भारत", "Zoe\u0308", "lives", ",", "❤", "\ufe0f", "google", "กรุงเทพ"]
    assert language_of("zh").words.findall("北京e\u0301t") == ["北", "京", "e\u0301t"]


def test_all_marks_of_the_first_plane_are_known():
    words = Language(single_characters="x").words
    for c in map(chr, range(0x10000)):
        belongs = unicodedata.category(c)[0] == "M" or (re.match(r"\w", c) and c != "x")
        assert (words.fullmatch(f"a{c}") is not None) == bool(belongs), hex(ord(c))
