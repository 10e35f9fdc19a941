"""The script that checks the documentation finds long sentences, long tables and broken links."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "check_docs.py"
SCRIPT_NAMES = runpy.run_path(str(SCRIPT))


def words(count: int) -> str:
    """Return a sentence of this many words."""
    return " ".join(["word"] * count) + "."


def long_sentences(page: str) -> list[tuple[int, str]]:
    return list(SCRIPT_NAMES["long_sentences"](page))


def texts(page: str) -> list[str]:
    return [sentence.text for sentence in SCRIPT_NAMES["sentences"](page)]


def test_a_sentence_of_31_words_is_reported_with_its_line() -> None:
    page = f"# Title\n\nA short sentence.\nAnother short\nsentence. {words(31)}\n"
    assert long_sentences(page) == [(5, f"31 words, at most 30: {words(31)}")]
    assert long_sentences(page.replace(words(31), words(30))) == []


def test_a_mean_over_20_is_reported() -> None:
    assert long_sentences(f"{words(20)} {words(21)}") == [
        (0, "20.5 words per sentence on average, at most 20")
    ]
    assert long_sentences(f"{words(20)} {words(20)}") == []


@pytest.mark.parametrize(
    "page",
    [
        f"```\n{words(31)}\n```",
        f"````\n```\n{words(31)}\n```\n````",
        f"Type:\n\n    {words(31)}\n\nIt runs.",
        f"| a table |\n|---|\n| {words(31)} |",
        f"## {words(31)}",
        f"<details>\n{words(31)}\n</details>",
        f"A page <!-- {words(31)} --> has a comment.",
        f"![{words(31)}](a.png)",
        f"A sentence has `{words(31)}` as code.",
        "A sentence has [a link](" + "a" * 30 + ' "the title of the link") in it.',
    ],
)
def test_what_is_no_prose_does_not_count(page: str) -> None:
    assert long_sentences(page) == []


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("Use a field, e.g. a title. Then search.", ["Use a field, e.g. a title.", "Then search."]),
        ("Lucene 10.4 reads it in 0.5 ms.", ["Lucene 10.4 reads it in 0.5 ms."]),
        ("Open wiki.jsonl now. Or not!", ["Open wiki.jsonl now.", "Or not!"]),
        ("It ends (in brackets.) **It begins.** Why?", ["It ends (in brackets.)", "**It begins.**", "Why?"]),
        ("Maillard et al. cut pages.", ["Maillard et al. cut pages."]),
        ("Run `a. b` and stop.", ["Run `a. b` and stop."]),
        ("- an item\n  goes on\n- an item\n1. an item", ["an item goes on", "an item", "an item"]),
        ("- an item\n\n    goes on", ["an item", "goes on"]),
        ("> A quotation\n> goes on.", ["A quotation goes on."]),
        ("A [link. It](a.md) ends.", ["A link.", "It ends."]),
        ("A paragraph\n\n```\ncode\n```\n\nand its end", ["A paragraph", "and its end"]),
    ],
)
def test_sentences_are_told_apart(page: str, expected: list[str]) -> None:
    assert texts(page) == expected


def test_signs_are_no_words_and_code_is_one_word() -> None:
    (sentence,) = SCRIPT_NAMES["sentences"]("Two + two = `2 + 2` · α.")
    assert sentence.words == 4


def test_a_page_of_111_lines_and_a_table_of_8_rows_are_reported() -> None:
    table = "| a |\n|---|\n" + "| b |\n" * 8
    assert list(SCRIPT_NAMES["too_long"]("text\n\n" + table)) == [(3, "a table of 8 rows, at most 7")]
    assert list(SCRIPT_NAMES["too_long"]("\n" * 111)) == [(111, "111 lines, at most 110")]
    assert list(SCRIPT_NAMES["too_long"](table.removesuffix("| b |\n") + "\n" * 101)) == []


def test_a_table_that_a_blank_line_splits_is_reported() -> None:
    table = "| a | b |\n|:--|---|\n| c | d |\n"
    assert list(SCRIPT_NAMES["broken_tables"](f"text\n\n{table}\n```\n| x |\n```\n")) == []
    assert list(SCRIPT_NAMES["broken_tables"](f"{table}\n| e | f |\n")) == [(5, "a table without a header")]


def test_a_link_that_leads_nowhere_is_reported(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# The `first` part: 1.5 α_b\n\n## Same\n\n## Same\n")
    page = tmp_path / "page.md"
    good = "[a](there.md#the-first-part-15-α_b) [b](there.md#same-1) [c](#here) [d](https://x.example/#y)"
    good += " `[e](f.md)`"
    page.write_text(f"# Here\n\n{good}\n```\n[g](h.md)\n```\n")
    assert list(SCRIPT_NAMES["broken_links"](page)) == []
    page.write_text("[a](gone.md)\n[b](there.md#same-2)\n[c\nd](#gone)\n![e](gone.png)\n")
    assert [line for line, _ in SCRIPT_NAMES["broken_links"](page)] == [1, 2, 3, 5]


def test_the_command_prints_faults_and_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Short.\n{words(31)}\n")
    command = [sys.executable, str(SCRIPT), str(page)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, f"{page}:2: 31 words, at most 30: {words(31)}\n")
    page.write_text("Short.\n")
    assert subprocess.run(command, check=False).returncode == 0
