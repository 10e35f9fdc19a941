"""Check the documentation: python scripts/check_docs.py [FILE...]; exits 1 if any page breaks a rule.

1. A sentence has at most 30 words, and the sentences of a page have at most 20 on average.
2. README.md has at most 110 lines, and its tables have at most 7 rows.
3. Relative links lead to files that exist, and anchors to headings that exist.
4. The second line of a table separates its header from its rows.

Code blocks, tables, headings, link targets, images and HTML hold no sentences. A list item begins a sentence.
Code between backticks counts as one word. Decision records and generated pages only need working links.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
GENERATED = ("docs/cli.md", "docs/messages.md", "docs/replications.md")
MOST_WORDS = 30
MOST_WORDS_ON_AVERAGE = 20
MOST_LINES = 110
MOST_ROWS = 7

ABBREVIATIONS = {
    "e.g.",
    "i.e.",
    "vs.",
    "cf.",
    "al.",
    "fig.",
    "figs.",
    "sec.",
    "no.",
    "ca.",
    "approx.",
    "resp.",
}
"""Words whose period does not end a sentence, in lower case."""

_CODE_SPACE, _CODE_BREAK = "\x01", "\x02"  # in a code span, which is one word, also if it spans two lines
_CLOSING = ")]\"'”’*_"
_FENCE = re.compile(r"\s*(?:>\s*)*(```+|~~~+)")
_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*$")
_SEPARATOR = re.compile(r"\|(?:\s*:?-+:?\s*\|)+\s*$")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(
    r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]*(?:\([^()]*\)[^()\s]*)*)(?:\s+\"[^\"]*\")?\)"
)
_TAG = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>", re.DOTALL)


class Sentence(NamedTuple):
    """A sentence of a page: the line that it begins on, its number of words, and its text."""

    line: int
    words: int
    text: str


def sentences(page: str) -> Iterator[Sentence]:
    """Yield the sentences of a Markdown text."""
    for line, block in _blocks(page):
        yield from _sentences_of_block(line, _without_markup(block))


def _blocks(page: str) -> Iterator[tuple[int, str]]:
    """Yield the first line number and the text of each paragraph and each list item."""
    block: list[str] = []
    first = 0
    in_html = False
    for number, line in enumerate([*_without_code_blocks(page), ""], start=1):
        text = re.sub(r"^\s*(?:>\s?)+", "", line)
        in_html = bool(text.strip()) and (in_html or text.startswith("<"))
        is_prose = (
            bool(text.strip()) and not in_html and not text.startswith("|") and not _HEADING.match(text)
        )
        item = _ITEM.match(text)
        if block and (not is_prose or item):
            yield first, "\n".join(block)
            block = []
        if is_prose:
            first = first if block else number
            block.append(text[item.end() :] if item else text)


def _without_code_blocks(page: str) -> Iterator[str]:
    """Yield the lines of a page; lines of code blocks are empty."""
    fence = ""
    in_list = is_after_blank = is_code = False
    for line in page.splitlines():
        mark = _FENCE.match(line)
        is_code = line.startswith("    ") and not in_list and (is_after_blank or is_code)
        is_after_blank = not line.strip()
        if not is_after_blank:
            in_list = bool(_ITEM.match(line)) or (in_list and line.startswith(" "))
        if fence:
            if mark and mark[1].startswith(fence):
                fence = ""
            yield ""
        elif mark:
            fence = mark[1]
            yield ""
        else:
            yield "" if is_code else line


def _without_markup(block: str) -> str:
    """Remove images, HTML and the targets of links, but no line break."""
    block = _CODE.sub(lambda code: code[0].replace("\n", _CODE_BREAK).replace(" ", _CODE_SPACE), block)
    block = _LINK.sub(lambda link: "" if link[1] else link[2], block)
    return _TAG.sub(lambda tag: "\n" * tag[0].count("\n"), block)


def _sentences_of_block(first: int, block: str) -> Iterator[Sentence]:
    words: list[str] = []
    line = 0
    for match in re.finditer(r"\S+", block):
        if not words:
            line = first + len(re.findall(rf"[\n{_CODE_BREAK}]", block[: match.start()]))
        words.append(match[0])
        if _ends_sentence(match[0]):
            yield _sentence(line, words)
            words = []
    if words:
        yield _sentence(line, words)


def _ends_sentence(word: str) -> bool:
    bare = word.rstrip(_CLOSING)
    return bare.endswith((".", "!", "?")) and bare.lstrip("([\"'“‘*_").lower() not in ABBREVIATIONS


def _sentence(line: int, words: list[str]) -> Sentence:
    text = " ".join(words).replace(_CODE_SPACE, " ").replace(_CODE_BREAK, " ")
    return Sentence(line, sum(any(map(str.isalnum, word)) for word in words), text)


def long_sentences(page: str) -> Iterator[tuple[int, str]]:
    """Yield line and description of each sentence that is too long; line 0 for a mean that is too high."""
    all_sentences = [sentence for sentence in sentences(page) if sentence.words]
    for sentence in all_sentences:
        if sentence.words > MOST_WORDS:
            yield sentence.line, f"{sentence.words} words, at most {MOST_WORDS}: {sentence.text}"
    mean = sum(sentence.words for sentence in all_sentences) / max(len(all_sentences), 1)
    if mean > MOST_WORDS_ON_AVERAGE:
        yield 0, f"{mean:.1f} words per sentence on average, at most {MOST_WORDS_ON_AVERAGE}"


def too_long(page: str) -> Iterator[tuple[int, str]]:
    """Yield line and description where the README has too many lines, or a table too many rows."""
    lines = page.splitlines()
    if len(lines) > MOST_LINES:
        yield MOST_LINES + 1, f"{len(lines)} lines, at most {MOST_LINES}"
    rows = 0
    for number, line in enumerate([*_without_code_blocks(page), ""], start=1):
        if line.startswith("|"):
            rows += 1
            continue
        if rows - 2 > MOST_ROWS:
            yield number - rows, f"a table of {rows - 2} rows, at most {MOST_ROWS}"
        rows = 0


def broken_tables(page: str) -> Iterator[tuple[int, str]]:
    """Yield line and description of each table without a header, such as the part after a blank line."""
    lines = ["", *_without_code_blocks(page), ""]
    for number in range(1, len(lines) - 1):
        begins = lines[number].startswith("|") and not lines[number - 1].startswith("|")
        if begins and not _SEPARATOR.match(lines[number + 1]):
            yield number, "a table without a header"


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them, and of its HTML."""
    made: set[str] = set(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", page))
    for line in _without_code_blocks(page):
        if heading := _HEADING.match(line):
            title = _LINK.sub(lambda link: link[2], heading[1])
            anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            number = 0
            while (unique := f"{anchor}-{number}" if number else anchor) in made:
                number += 1
            made.add(unique)
    return made


def broken_links(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and description of each relative link of a page that leads nowhere."""
    text = "\n".join(_without_code_blocks(path.read_text(encoding="utf-8")))
    text = _CODE.sub(lambda code: re.sub(r"[\[\]()]", "x", code[0]), text)
    for link in _LINK.finditer(text):
        if re.match(r"[a-z]+:", link[3]):
            continue
        line = text.count("\n", 0, link.start()) + 1
        name, _, anchor = link[3].partition("#")
        target = path.parent / name if name else path
        if not target.exists():
            yield line, f"a link to {name}, which does not exist"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            yield line, f"a link to {link[3]}: {target.name} has no such heading"


def is_prose(path: Path) -> bool:
    """Return whether the rules on sentences hold for a page: not for decision records and generated pages."""
    return path.parent.name != "decisions" and not path.as_posix().endswith(GENERATED)


def faults(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and description of each fault of a page."""
    page = path.read_text(encoding="utf-8")
    if is_prose(path):
        yield from long_sentences(page)
    if path.resolve() == ROOT / "README.md":
        yield from too_long(page)
    yield from broken_tables(page)
    yield from broken_links(path)


def pages() -> list[Path]:
    """Return the pages of the documentation."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    """Print each fault as `file:line: description`."""
    count = 0
    for path in [Path(name) for name in sys.argv[1:]] or pages():
        resolved = path.resolve()
        shown = resolved.relative_to(ROOT) if resolved.is_relative_to(ROOT) else path
        for line, fault in faults(path):
            print(f"{shown}:{line}: {fault}" if line else f"{shown}: {fault}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
