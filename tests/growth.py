"""How the time of each text parser grows with hostile input: `python -m tests.growth` prints a table."""

from __future__ import annotations

import contextlib
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from dense.models.mentions import without_marks
from dense.models.skill_inputs import text_windows
from hybrid.multihop import titles
from hybrid.replications.wikipedia.dump import pages_of
from hybrid.replications.wikipedia.wikitext import anchored, paragraphs_of, target_of
from sparta.base.errors import SpartaError
from sparta.base.filters import Filter
from sparta.base.normal_form import normal_form
from sparta.data import answers, qa_formats
from sparta.data.corpus import open_corpus
from sparta.data.formats.markdown import read_markdown
from sparta.data.jsonlist import json_list
from sparta.data.kilt import page_passages
from sparta.data.languages import language_of
from sparta.data.queries import read_queries
from sparta.data.sentences import sentence_splitter, split_units
from sparta.data.trec import read_qrels, read_run
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.lexical_terms import LexicalTerms, TermSettings
from sparta.models.query_encoder import QueryTokenizer, WordTokenizer
from sparta.models.resolve import default_model_folder
from sparta.reader.config import ReaderLayout
from sparta.reader.records import Text
from sparta.reader.windows import windows
from sparta.search.snippet import marked_snippet, marked_words

DOUBLINGS = 4
LONGEST = 0.2
"""Seconds that the longest input of a row takes at least."""
MOST = 1.2
"""The exponent at most: linear, with some noise."""
MOST_OF_A_DOUBLING = 3.0
_TRIES = 4  # other processes disturb: the shortest times count
_SHORTEST = 64  # repetitions
_MOST_CHARACTERS = 1 << 25  # half of the longest line: a parser that reads them in less time is fast enough
_MANY_CHARACTERS = 1 << 20

Parse = Callable[[str], object]


class Case(NamedTuple):
    """A parser, and input that grows: `before`, `unit` many times, `behind`."""

    parser: str
    parse: Parse
    unit: str
    before: str = ""
    behind: str = ""

    @property
    def name(self) -> str:
        """Parser and input, n repetitions between what stands around them."""
        before, unit, behind = (ascii(part)[1:-1] for part in (self.before, self.unit, self.behind))
        return f"{self.parser}: {before[-40:]}({unit[:40]}){{n}}{behind[:40]}"

    def seconds(self, n: int) -> float:
        """Processor time of this thread for n repetitions; input that is refused counts too."""
        text = self.before + self.unit * n + self.behind
        gc.disable()
        started = time.thread_time()
        try:
            with contextlib.suppress(SpartaError):
                self.parse(text)
            return time.thread_time() - started
        finally:
            gc.enable()


def rows() -> Iterator[Case]:
    """Yield all cases."""
    for parser, (parse, *inputs) in PARSERS.items():
        for given in inputs:
            parts = (given,) if isinstance(given, str) else given
            yield Case(parser, parse, *parts)


def start_of(case: Case, longest: float) -> int:
    """Return how often the unit is repeated in an input that takes at least so many seconds."""
    n = _SHORTEST
    while case.seconds(n) < longest and n * len(case.unit) < _MOST_CHARACTERS:
        n *= 2
    return n


def exponent(case: Case, longest: float = LONGEST) -> tuple[int, list[float], float]:
    """Return the most repetitions, the seconds of each doubling, and the exponent that fits them best.

    Input that is longer than half of the longest line is not tried, even if it takes less than `longest`.
    """
    most = start_of(case, longest)
    counts = [most >> i for i in range(DOUBLINGS, -1, -1)]
    seconds, slope = [float("inf")] * len(counts), float("inf")
    for _ in range(_TRIES):
        seconds = [min(before, case.seconds(n)) for before, n in zip(seconds, counts, strict=True)]
        slope = float(np.polyfit(np.log(counts), np.log(np.maximum(seconds, 1e-6)), 1)[0])
        if slope <= MOST:
            break
    return most, seconds, slope


def worst_doubling(case: Case, longest: float) -> float:
    """Return by what factor a doubling of the input multiplies the time at most, of three doublings.

    Of a parser that reads a million characters in less than `longest` it is 0.
    """
    n = max(1, _SHORTEST // len(case.unit))
    while (short := case.seconds(n) < longest) and n * len(case.unit) < _MANY_CHARACTERS:
        n *= 2
    if short:
        return 0.0
    times = [float("inf")] * 4
    factor = float("inf")
    for _ in range(_TRIES):
        times = [min(before, case.seconds(n << i)) for i, before in enumerate(times)]
        factor = max(after / before for before, after in pairwise(times))
        if factor <= MOST_OF_A_DOUBLING:
            break
    return factor


# ---------------------------------------------------------------- parsers


def _file(read: Callable[[Path], object], suffix: str) -> Parse:
    def parse(text: str) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"file{suffix}")
            path.write_text(text, "utf-8")
            return read(path)

    return parse


def _all(read: Callable[[Any], Any]) -> Callable[[Any], object]:
    return lambda given: sum(1 for _ in read(given))


def _corpus(path: Path) -> object:
    return sum(1 for _ in open_corpus(path, skip_invalid=True))


def _text_folder(path: Path) -> object:
    return sum(1 for _ in open_corpus(path.parent, skip_invalid=True))


@cache
def _splitter(language: str) -> Parse:
    return lambda text: sentence_splitter(language)(text)


@cache
def _shipped() -> QueryTokenizer:
    return QueryTokenizer(load_tokenizer(default_model_folder()), None, 1.0, language_of("en"))


def _lexical() -> LexicalTerms:
    """Lexical terms with empty caches: the time of a cached text would say nothing."""
    return LexicalTerms(TermSettings(), _shipped().tokenizer)


def _with_lexical_terms() -> QueryTokenizer:
    lexical = _lexical()
    return QueryTokenizer(lexical.tokenizer, lexical=lexical)


@cache
def _characters() -> Tokenizer:
    """A tokenizer for which each character is a wordpiece, combining marks too."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer


def _reader_windows(text: str) -> object:
    return windows("who is it", [Text(text, "a title")], _characters(), ReaderLayout())


@cache
def _titles() -> titles.TitleTable:
    return titles.TitleTable(np.array([titles.hashed(["moon"])], np.uint64), np.zeros(1, np.int32))


MARKS = "\u0301\u0316"
ZH = "“好。”他说"
PARSERS: dict[str, tuple[Any, ...]] = {
    "normal form": (lambda t: (normal_form("NFC", t), normal_form("NFD", t)), (MARKS, "a"), "é\u0316", ZH),
    "wikitext": (
        lambda t: list(paragraphs_of(t)),
        "The '''quick''' [[brown fox|fox]] jumps {{convert|3|km}} over.<ref>x</ref>\n",
        *(
            (" ", "==", "a"),
            ("= ", "==", "a"),
            "[//a",
            ("[//a [[b]] ", "", "]"),
            (" ", "[//a"),
            "<ref ",
            "<ref>",
        ),
        *(
            "<ref></math>",
            "<nowiki>",
            "<!--",
            "[[",
            "[[a|",
            ("[[a|", "", "\n]]"),
            ("[[File:a|", "", "]]"),
            "]]",
        ),
        *(
            "[[File:a\n|b]]",
            "[[a|b\nc]]",
            "[[a]]",
            "{{",
            "}}",
            "{{a|",
            "{|",
            "|}",
            "{{nowrap|",
            "''",
            "'",
            "<br> ",
        ),
        *(
            ("{{nowrap|", "", "}}"),
            ("{{convert|1|[[", "", "}}"),
            "<a",
            "&amp",
            ("9", "&#", ";"),
            "__TOC",
            "__A",
        ),
        *("__NOTOC__", "----", "|-\n", "{{\n|a\n", "!\n", ":", "&#95;", MARKS, "=\n", " \n"),
    ),
    "links of WikiExtractor": (
        anchored,
        '<a href="',
        '<a href="">',
        ('<a href="a">b</a>'),
        "</a>",
        "<a href=<",
    ),
    "title of a link": (target_of, ":", "a#", "_", "&amp;", "aa-"),
    "XML dump": (
        _file(_all(pages_of), ".xml"),
        ("a [[b]]\n", "<mediawiki><page><title>t</title><text>", "</text></page></mediawiki>"),
        ("<page><title>t</title><text>a</text></page>", "<mediawiki>", "</mediawiki>"),
        ("a", "<mediawiki><page><!--"),
        ("&amp;", "<mediawiki><page><title>t</title><text>", "</text></page></mediawiki>"),
    ),
    "WikiExtractor's lines": (
        _file(_all(pages_of), ""),
        ('<doc id="1" url="" title="a">\na\nb\n</doc>\n'),
        ('title="', '<doc id="1" ', "\n"),
    ),
    "sentences, en": (
        _splitter("en"),
        *(
            'Dr. Smith said "Hello there. How are you?" Then he left.\n',
            "Ab?",
            "Ab? ",
            "'",
            '"a. ',
            "(",
            "(a. b) ",
        ),
        *("A.", "\n", "\n\n", "\n-", "word ", "a", "1.", "a@b.c ", "[1]. ", "😀. A", "a\u0301", "! ", " "),
    ),
    "sentences, zh": (
        _splitter("zh"),
        "他说：“今天天气很好。”我们去公园。",
        ZH,
        "。",
        "“",
        "”",
        "好",
        "好！",
        "《",
    ),
    "sentences, ja": (_splitter("ja"), "「今日は。」いい天気。", "「", "。"),
    "sentences, others": (
        lambda t: [_splitter(language)(t) for language in ("ar", "de", "hi", "ru", "th", "tr")],
        *("Ab?", "यह है। ", "مرحبا؟ ", "„Am 3. Mai. “"),
    ),
    "units of a passage": (
        lambda t: sum(1 for _ in split_units(open_corpus([{"id": "p", "text": t}]), "sentence")),
        "Ab? ",
    ),
    "tokens, has_answer": (
        lambda t: [
            answers.has_answer(t, ["a b a c", t], language=language) for language in ("en", "zh", "th")
        ],
        *("a b ", "a ", "好", "ก", (MARKS, "a"), "…", "a" + MARKS),
    ),
    "answer spans": (
        lambda t: answers.answer_spans(t, ["a b a c", t, t[: len(t) // 2], t[len(t) // 2 :] + " b"]),
        *("a ", "a b ", "the ", ". ", (MARKS, "a"), "a" + MARKS, "好"),
    ),
    "token F1, en": (
        lambda t: answers.token_f1(t, [t, t[1:], t[::-1]]),
        "a ",
        "the ",
        "word",
        (MARKS, "a"),
        ".",
    ),
    "token F1, zh": (
        lambda t: answers.token_f1(t, [t, t[1:], t[::-1]], language="zh"),
        *("好", "好不", "a ", "1.5", "。", "".join(map(chr, range(0x4E00, 0x4F00))), (MARKS, "好")),
    ),
    "exact match": (lambda t: answers.exact_match(t, [t[1:], "a"]), "a ", "the ", "."),
    "Markdown": (
        read_markdown,
        *(
            "# ",
            ("# ", "", "a"),
            (" ", "# a", "b"),
            ("\t", "# a", "b"),
            (" ", "# a"),
            ("#", "# a "),
            "```\n",
            "``",
            "~~~\na\n",
            "<!--",
            "<pre>\n",
            "a\n",
        ),
        *("-\n", "- ", "> ", "=\n", "|-", ("a: b\n", "---\n", "---\n"), "---\n", "\n"),
        ("\t", "#", "#"),
    ),
    "text files": (_file(_text_folder, ".md"), "a # b\n", "\n"),
    "JSONL": (
        _file(_corpus, ".jsonl"),
        ("a", '{"id": "1", "text": "', '"}'),
        ("[", '{"id": "1", "text": "a", "m": '),
        ("[],", '{"id": "1", "text": "a", "m": [', "1]}"),
        ('"', '{"id": "1", "text": "a'),
        ("\\ud800", '{"id": "1", "text": "', '"}'),
        ("9", '{"id": "1", "text": "a", "m": ', "}"),
        ("{}\n",),
    ),
    "TSV": (
        _file(_corpus, ".tsv"),
        *(
            ('""', 'id\ttext\n1\t"', '"\n'),
            ('"\t', "id\ttext\n1\t"),
            ("a\t", "id\ttext\n"),
            ("1\ta\n", "id\ttext\n"),
        ),
    ),
    "JSON list": (
        _file(_all(lambda path: json_list(path, "a list")), ".json"),
        ("1,", "[", "1]"),
        ("[", ""),
        " ",
    ),
    "pages of KILT": (
        lambda t: list(page_passages({"wikipedia_id": "1", "wikipedia_title": "t", "text": t.split("\n")})),
        *("a ", "a\n", "Section::::a\n", "BULLET::::"),
    ),
    "marks of MRQA": (qa_formats.unmarked, "[PAR] ", "<P a", "<P>a", "[", " "),
    "queries": (_file(_all(read_queries), ".tsv"), ("a ", "1\t"), "\n"),
    "runs": (_file(read_run, ""), "1 Q0 d 1 1.0 s\n", "1 ", ("9", "1 Q0 d 1 ", " s")),
    "judgments": (_file(read_qrels, ""), "1 0 d 1\n", "1\t", ("9", "1 0 d ")),
    "filters": (
        lambda t: Filter.parse([t]),
        *(
            "a ",
            (" ", "a"),
            ("a in ", ""),
            ("a,", "f in "),
            "=",
            (" ", "a", "a"),
            ("[", '{"a": '),
            ("9", "a="),
            "a",
        ),
    ),
    "terms of queries": (
        lambda t: _shipped().terms(t),
        "a ",
        "a",
        (MARKS, "a"),
        ".",
        "##",
        "好",
        "[SEP]",
        "😀",
    ),
    "terms of queries, with lexical terms": (
        lambda t: _with_lexical_terms().terms(t),
        *("moon ", "kerensky ", "a's ", "r\u00e9sum\u00e9 "),
    ),
    "words of the terms of queries": (lambda t: _shipped().words_of_terms(t), "a ", "ke-"),
    "lexical terms": (
        lambda t: list(_lexical().occurrences(t)),
        *(
            "a ",
            "a",
            "moon.",
            "moon river ",
            ("a.", "", " "),
            "+",
            "a+",
            "'",
            "a's",
            "好",
            MARKS,
            (MARKS, "a"),
        ),
    ),
    "words of queries": (lambda t: WordTokenizer(language_of("zh")).terms(t), "a ", "好", (MARKS, "a"), "."),
    "snippets": (
        lambda t: marked_snippet(_shipped(), t, _shipped().terms("moon river play")),
        *("moon ", "moon", "a", (MARKS, "moon"), ".", "好", "moon-river/", "play" + MARKS),
    ),
    "marked words": (
        lambda t: marked_words(_shipped(), t, dict.fromkeys(_shipped().terms("moon river play"), 1.0)),
        *("moon ", "moon", (MARKS, "moon")),
    ),
    "windows of readers": (_reader_windows, "a ", "a", (MARKS, "a")),
    "windows of spans": (lambda t: text_windows(t, _characters(), 128), "a ", "a", (MARKS, "a")),
    "mentions": (
        lambda t: _titles().mentions([t]),
        *("Moon ", "moon ", "[START_ENT]", ("[END_ENT]", "[START_ENT]"), "(", ". A", (" ", "A", "A")),
    ),
    "words of titles": (
        lambda t: titles.words_of(titles.bare_title(t)),
        *(" ", "(", "() ", (" ", "(a)", "b"), "(a", (MARKS, "a")),
    ),
    "marked mentions": (
        without_marks,
        "[START_ENT]",
        (" ", "[START_ENT]", "a"),
        (" ", "[START_ENT]a"),
    ),
}


def main() -> int:
    """Print the table of all parsers; 1 if the exponent of one is too high."""
    failed = 0
    print("| parser and input | repetitions | seconds of five doublings | exponent |\n|---|---:|---|---:|")
    for case in rows():
        if len(sys.argv) > 1 and not any(word in case.name for word in sys.argv[1:]):
            continue
        most, seconds, slope = exponent(case)
        is_long = seconds[-1] >= LONGEST  # else the longest input is read in less
        failed += slope > MOST and is_long
        shown = " ".join(f"{value:.3f}" for value in seconds)
        name, fitted = case.name.replace("|", "\\|"), f"{slope:.2f}" if is_long else "fast"
        print(f"| `{name}` | {most:,} | {shown} | {fitted} |", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
