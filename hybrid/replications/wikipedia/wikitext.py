"""Converts Wikipedia's markup to paragraphs of plain text with their links."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from hybrid.replications.wikipedia.templates import LONGEST_TEMPLATE, template_text


class Link(NamedTuple):
    """A link in a text: start and end (exclusive) of its characters, and the linked title."""

    start: int
    end: int
    target: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a page, with the heading above it."""

    text: str
    links: tuple[Link, ...]
    section: str = ""


_NO_TEXT = "ref|math|gallery|timeline|syntaxhighlight|pre|score|imagemap|chem"
# No pattern reads a part of the text twice, so that each takes linear time.
_OPENING = re.compile(rf"<!--|<(nowiki|{_NO_TEXT})\b[^<>]*?(/?)>", re.IGNORECASE)
_CLOSING = re.compile(rf"</(nowiki|{_NO_TEXT})\s*>", re.IGNORECASE)
_MARKUP = re.compile(r"[&<>\[\]{|}='*#:;_!-]")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_BREAK = re.compile(r"<br\b[^<>]*>(?!\s*[.,;:!?)])", re.IGNORECASE)
_BRACES = re.compile(r"\{\{|\}\}|\{\||\|\}")
_BRACKETS = re.compile(r"\[\[|\]\]")
_LEVELS = 6  # levels of headings
_LONGEST_SPACE = 100  # characters: a namespace's name is shorter
_PROTOCOLS = (
    "https? ftps? sftp ircs? news nntp git svn ssh telnet gopher mailto tel sips? xmpp urn geo magnet"
)
_WEB_LINK = re.compile(
    rf"\[(?://|(?:{_PROTOCOLS.replace(' ', '|')}):)[^\s\[\]]++\s*+((?:[^\[\]]|\[\[[^\[\]]*+\]\])*+)\]",
    re.IGNORECASE,
)
_SWITCH = re.compile(
    r"__(?:(?:FORCE|NO)?TOC|NOEDITSECTION|(?:NO)?NEWSECTIONLINK|NOGALLERY|HIDDENCAT|(?:NO)?INDEX|NOCONTENTCONVERT"
    r"|NOTITLECONVERT|NOCC|NOTC|STATICREDIRECT|DISAMBIG|EXPECTUNUSED(?:CATEGORY|TEMPLATE)|NOGLOBAL|ARCHIVEDTALK"
    r"|NOTALK)__",
    re.IGNORECASE,
)
# A line of switches in another language.
_SWITCHES = re.compile(r"\s*(?:__[^\W\d_]++(?:_[^\W\d_]++)*+__\s*)++")
_RULE = re.compile(r"^-{4,}+")
_EMPHASIS = re.compile(r"'{2,5}")
_TRAIL = re.compile(r"[a-z]+")
_ANCHOR = re.compile(r'<a href="([^"<>]*)"[^<>]*>|</a>')
# A number larger than any character's. Python refuses to parse more than 4,300 digits.
_LONG_NUMBER = re.compile(r"&#(\d{8,});?")


class Namespaces(NamedTuple):
    """Names of namespaces (before the colon of a title), in lower case.

    Links to `dropped` (pictures, categories) are removed with their text; links to `others` become text.
    """

    dropped: frozenset[str] = frozenset(("file", "image", "category"))
    others: frozenset[str] = frozenset(
        ("wikipedia", "help", "template", "portal", "special", "user", "talk", "wiktionary", "module")
    )


ENGLISH = Namespaces()


def paragraphs_of(wikitext: str, spaces: Namespaces = ENGLISH) -> Iterator[Paragraph]:
    """Yield the paragraphs of a page that have text, in order: lines of prose and items of lists.

    Tables, references, pictures, categories and most templates are left out; see `template_text`.
    """
    section = ""
    for line in _prose(_without_dropped(_without_braces(_shown(wikitext)), spaces).split("\n")):
        if (heading := _heading(line)) is not None:
            section = _Text().add(_untagged(heading)).joined()
            continue
        line_text = _line(_RULE.sub("", line).lstrip("*#:; \t"), spaces)
        if text := line_text.joined():
            yield Paragraph(text, tuple(line_text.links), section)


def _prose(lines: Iterable[str]) -> Iterator[str]:
    """Yield the stripped lines without markup of tables, templates or pages.

    Complete tables and templates are already removed. The remaining ones never end, or end in a template.
    """
    is_in_markup = False
    for line in map(str.strip, lines):
        if line.startswith(("{|", "|-", "|+")):
            is_in_markup = True
        elif line.startswith("|}"):
            is_in_markup = False
        else:
            is_row = is_in_markup and line.startswith(("|", "!"))
            if line and not is_row and not (_SWITCHES.fullmatch(line) and line == line.upper()):
                yield line
            is_in_markup = "{{" in line or (is_in_markup and "}}" not in line)


def _heading(line: str) -> str | None:
    """Return the text of a heading `== … ==`; None for another line."""
    n_leading, n_trailing = (len(line) - len(strip("=")) for strip in (line.lstrip, line.rstrip))
    level = min(n_leading, n_trailing, _LEVELS)
    if level < 2 or (n_leading == len(line) < 4):
        return None
    return line[level:-level].strip()


def _shown(wikitext: str) -> str:
    """Return wikitext without comments and without the content of tags that hold no text.

    A tag that is never closed hides nothing. The content of <nowiki> stays, with its markup escaped.
    """
    last_closing = {tag[1].lower(): tag.start() for tag in _CLOSING.finditer(wikitext)}
    pieces, position = list[str](), 0
    while tag := _OPENING.search(wikitext, position):
        name = (tag[1] or "").lower()
        is_closed = not name or tag[2] or last_closing.get(name, -1) >= tag.end()
        pieces.append(wikitext[position : tag.start() if is_closed else tag.end()])
        position = tag.end()
        if not name:
            comment_end = wikitext.find("-->", position)
            position = len(wikitext) if comment_end < 0 else comment_end + 3
        elif is_closed and not tag[2]:
            closing = next(
                end_tag for end_tag in _CLOSING.finditer(wikitext, position) if end_tag[1].lower() == name
            )
            if name == "nowiki":
                content = unescaped(wikitext[position : closing.start()])
                pieces.append(_MARKUP.sub(lambda mark: f"&#{ord(mark[0])};", content))
            position = closing.end()
    return "".join((*pieces, wikitext[position:]))


def anchored(text: str) -> Paragraph:
    """Return a paragraph from WikiExtractor's text, with links such as `<a href="Max%20Planck">…</a>`."""
    paragraph, position, target, start = _Text(), 0, "", -1
    for tag in _ANCHOR.finditer(text):
        if tag[1] is not None and start < 0:
            target, start = tag[1], tag.end()
            paragraph.add(_untagged(text[position : tag.start()]))
            position = start
        elif tag[1] is None and start >= 0:
            paragraph.add(_untagged(text[start : tag.start()]), target_of(unquote(target)))
            position, start = tag.end(), -1
    paragraph.add(_untagged(text[position:]))
    return Paragraph(paragraph.joined(), tuple(paragraph.links))


def unescaped(text: str) -> str:
    """Return a text with HTML's character references replaced; numbers that are too large become U+FFFD."""
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text))


def target_of(target: str, spaces: Namespaces = ENGLISH) -> str:
    """Return the title of the article that a link names; "" if the link names no article."""
    title = " ".join(unescaped(target).replace("_", " ").partition("#")[0].lstrip(": ").split())
    space, colon, _ = title.partition(":")
    is_known_space = space.lower() in spaces.dropped or space.lower() in spaces.others
    if (colon and (is_known_space or re.fullmatch(r"[a-z]{2,3}(-[a-z]+)?", space))) or "//" in target:
        return ""
    return title[:1].upper() + title[1:]


def _untagged(text: str) -> str:
    """Return a text without tags; `<br>` becomes a blank."""
    return _TAG.sub("", _BREAK.sub(" ", text))


def _without_braces(text: str) -> str:
    """Return a text without templates {{…}} and tables {|…|}, which may be nested; unclosed ones stay.

    A template within a sentence is replaced by its text.
    """
    replacements: list[tuple[int, int, str]] = []
    open_marks: list[tuple[str, int]] = []
    end = 0
    while match := _BRACES.search(text, end):
        mark, end = match[0], match.end()
        if mark in ("{{", "{|"):
            open_marks.append((mark, match.start()))
            continue
        if mark == "|}" and open_marks and open_marks[-1][0] == "{{" and text[end : end + 1] == "}":
            mark, end = "}}", end + 1  # the last parameter of a template is empty
        if open_marks and open_marks[-1][0] == ("{{" if mark == "}}" else "{|"):
            start = open_marks.pop()[1]
            inner_replacements = _taken(replacements, start)
            is_short = mark == "}}" and end - start <= LONGEST_TEMPLATE
            replacement = template_text(_replaced(text, inner_replacements, start, end)) if is_short else ""
            replacements.append((start, end, replacement))
    return _replaced(text, replacements, 0, len(text))


def _without_dropped(text: str, spaces: Namespaces) -> str:
    """Return a text without pictures and categories; line breaks in the text of other links become blanks."""
    replacements: list[tuple[int, int, str]] = []
    open_starts: list[int] = []
    is_innermost = False
    for match in _BRACKETS.finditer(text):
        if match[0] == "[[":
            open_starts.append(match.start())
            is_innermost = True
        elif open_starts:
            start, end = open_starts.pop(), match.end()
            if _space_of(text[start + 2 : start + 2 + _LONGEST_SPACE]) in spaces.dropped:
                _taken(replacements, start)
                replacements.append((start, end, ""))
            elif is_innermost and "|" in text[start:end].partition("\n")[0]:
                replacements.append((start, end, text[start:end].replace("\n", " ")))
            is_innermost = False
    return _replaced(text, replacements, 0, len(text))


def _space_of(target: str) -> str:
    """Return the namespace of a title (before its colon) in lower case, without blanks around."""
    return target.partition(":")[0].strip().lower()


def _taken(spans: list[tuple[int, int, str]], start: int) -> list[tuple[int, int, str]]:
    """Remove the spans that begin after `start` from the end of `spans`, and return them in order."""
    n_kept = len(spans)
    while n_kept and spans[n_kept - 1][0] > start:
        n_kept -= 1
    taken = spans[n_kept:]
    del spans[n_kept:]
    return taken


def _replaced(text: str, spans: Sequence[tuple[int, int, str]], start: int, end: int) -> str:
    """Return `text[start:end]` with each span (start, end, replacement) replaced."""
    pieces = []
    for span_start, span_end, replacement in spans:
        pieces += [text[start:span_start], replacement]
        start = span_end
    return "".join([*pieces, text[start:end]])


class _Text:
    """Builds a text from pieces: repeated white space becomes one blank; links get their positions."""

    def __init__(self) -> None:
        self.links = list[Link]()
        self._pieces, self._length, self._ends_blank = list[str](), 0, True

    def add(self, piece: str, target: str = "") -> _Text:
        """Append a piece without its emphasis marks; a piece with a target becomes a link."""
        words = unescaped(_EMPHASIS.sub("", piece)).replace("\xa0", " ")
        words = re.sub(r"\s+", " ", words.lstrip() if self._ends_blank else words)
        start = self._length + len(words) - len(words.lstrip())
        end = self._length + len(words.rstrip())
        if words:
            self._pieces.append(words)
            self._length += len(words)
            self._ends_blank = words.endswith(" ")
        if target and start < end:
            self.links.append(Link(start, end, target))
        return self

    def joined(self) -> str:
        """Return the text, without a blank at its end."""
        return "".join(self._pieces).rstrip()


def _line(line: str, spaces: Namespaces) -> _Text:
    """Return a line of wikitext as text with links."""
    line = _SWITCH.sub("", _WEB_LINK.sub(r"\1", _untagged(line)))
    text, position, start = _Text(), 0, -1
    for match in _BRACKETS.finditer(line):
        if match[0] == "[[":
            start = match.end()
            continue
        if start < 0:
            continue
        text.add(line[position : start - 2])
        title, _, label = line[start : match.start()].partition("|")
        trail = _TRAIL.match(line, match.end())  # [[bus]]es is a link as a whole
        tail = trail[0] if trail else ""
        position, start = match.end() + len(tail), -1
        text.add((label.rpartition("|")[2] or title.lstrip(":")) + tail, target_of(title, spaces))
    return text.add(line[position:])
