"""Where answers stand in texts, and when two answers agree."""

from collections.abc import Callable

import pytest

from sparta.base.errors import InputError
from sparta.data.answers import answer_spans, exact_match, has_answer, normalized, token_f1
from sparta.data.languages import LANGUAGES, Language

SPANS = {
    "every mention": ("Ada met Ada.", ["ada"], ["Ada", "Ada"]),
    "whole tokens only": ("Norway is not Nor.", ["nor"], ["Nor"]),
    "punctuation between": ("born in Washington, D.C., in 1900", ["washington d.c"], ["Washington, D.C"]),
    "punctuation as written": (
        "born in Washington, D.C., in 1900",
        ["Washington, D.C."],
        ["Washington, D.C."],
    ),
    "punctuation that does not count": (
        "the U.S.S. Enterprise",
        ["the (U S S) Enterprise"],
        ["U.S.S. Enterprise"],
    ),
    "an article too many": ("He joined United Nations in 1945.", ["the United Nations"], ["United Nations"]),
    "accents": ("Café Müller opened", ["cafe muller"], []),
    "composed and decomposed": ("Cafe\u0301 opened", ["café"], ["Cafe\u0301"]),
    "marks in another order": (
        "\u0645\u062d\u0645\u0651\u064e\u062f",
        ["\u0645\u062d\u0645\u064e\u0651\u062f"],
        ["\u0645\u062d\u0645\u0651\u064e\u062f"],
    ),
    "marks of which some are composed": (
        "in Vi\u00ea\u0323t Nam",
        ["Vi\u1ec7t Nam"],
        ["Vi\u00ea\u0323t Nam"],
    ),
    "several answers": ("in 1998 by Larry Page", ["Larry Page", "1998"], ["1998", "Larry Page"]),
    "none": ("nothing here", ["elsewhere"], []),
    "an empty answer": ("some text", ["", " "], []),
    "signs that SQuAD counts": ("It cost $5.", ["€5"], []),
    "only an article": ("the end", ["the"], ["the"]),
}


@pytest.mark.parametrize(("text", "answers", "expected"), SPANS.values(), ids=SPANS.keys())
def test_spans(text, answers, expected):
    assert [text[a:b] for a, b in answer_spans(text, answers)] == expected


def test_spans_agree_with_has_answer():
    for text, answers, _ in SPANS.values():
        if has_answer(text, answers):
            assert answer_spans(text, answers)


def test_regular_expressions():
    text = "Signed in July 1998, again in August 1999."
    assert [text[a:b] for a, b in answer_spans(text, [r"(July|August) \d{4}"], match="regex")] == [
        "July 1998",
        "August 1999",
    ]
    assert answer_spans(text, ["(broken"], match="regex") == []
    decomposed = "le cafe\u0301 noir"
    assert answer_spans(decomposed, ["caf\u00e9"], match="regex") == [(3, 8)]
    assert answer_spans("le caf\u00e9 noir", ["cafe\u0301"], match="regex") == [(3, 7)]


def test_squad_normalization():
    assert normalized("The  Quick, brown-fox!") == "quick brownfox"
    assert exact_match("the Beatles.", ["Beatles"])
    assert not exact_match("Beatle", ["Beatles"])
    assert exact_match("Jose\u0301", ["José"])
    assert exact_match("July 4", [r"july\s?4"], match="regex")
    assert not exact_match("on July 4", [r"july\s?4"], match="regex")
    assert exact_match("pneumonia", ["pneumo|lung"], match="regex"), "as DrQA has it"


def test_f1_worked_by_hand():
    # 2 words in common of 3 found and 4 wanted: 2·2 / (3 + 4)
    assert token_f1("New York City", ["City of New Orleans"]) == pytest.approx(2 * 2 / (3 + 4))
    assert token_f1("a b b", ["b b c"]) == pytest.approx(2 * 2 / (2 + 3))  # "a" is an article
    assert token_f1("", ["x"]) == 0.0
    assert token_f1("the", ["a"]) == 1.0
    assert token_f1("x", ["y", "x"]) == 1.0


CHINESE = {
    "same": ("北京", ["北京"], True, 1.0),
    "punctuation does not count": ("《红楼梦》。", ["红楼梦"], True, 1.0),
    "a part": ("中国北京", ["北京"], False, 2 * 2 / (4 + 2)),
    "the longest stretch, not all that is shared": ("北大京", ["北京"], False, 2 * 1 / (3 + 2)),
    "a number is one token": ("1998年", ["1998"], False, 2 * 1 / (2 + 1)),
    "Latin words are tokens": ("google公司", ["Google 公司"], False, 1.0),
    "the best of several": ("上海市", ["北京", "上海"], False, 2 * 2 / (3 + 2)),
    "nothing": ("", ["北京"], False, 0.0),
}


@pytest.mark.parametrize(("answer", "expected", "same", "f1"), CHINESE.values(), ids=CHINESE.keys())
def test_chinese_answers_are_compared_as_cmrc_does(answer, expected, same, f1):
    assert exact_match(answer, expected, language="zh") is same
    assert token_f1(answer, expected, language="zh") == pytest.approx(f1)


def test_texts_without_spaces_hold_answers():
    text = "中国的首都是北京。"
    assert has_answer(text, ["北京"])
    assert not has_answer(text, ["京北"])
    assert [text[a:b] for a, b in answer_spans(text, ["北京", "首都"], language="zh")] == ["首都", "北京"]


def test_another_language_is_another_entry(monkeypatch):
    assert normalized("Die „kleine“ Stadt", "de") == "kleine stadt"
    assert exact_match("das Meer", ["Meer"], language="de")
    assert not exact_match("das Meer", ["Meer"])
    monkeypatch.setitem(LANGUAGES, "nl", Language(frozenset(("de", "het", "een"))))
    assert exact_match("het huis.", ["huis"], language="nl")
    with pytest.raises(InputError, match="unknown language code"):
        normalized("x", "xx")


def test_a_regular_expression_is_taken_as_it_is_written() -> None:
    """Not put between others, which would mend a broken one and break one that ends in a comment."""
    assert not exact_match("a", ["a)|(b"], match="regex")
    assert exact_match("foo", ["(?x) foo  # a comment"], match="regex")
    assert exact_match("ab", ["a|ab"], match="regex")


@pytest.mark.parametrize("look", [has_answer, exact_match, answer_spans])
def test_a_regular_expression_that_does_not_end_is_refused(
    look: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparta.data.answers.LONGEST_MATCHING", 0.05)
    with pytest.raises(InputError, match=r"longer than 0.05 s.*\(a\|aa\)\+\$"):
        look("a" * 60 + "!", [r"(a|aa)+$"], match="regex")
