"""Wikipedia's markup as paragraphs of plain text with their links."""

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
# No pattern begins to read again what it has read: each takes time that grows with the length of a text.
_OPENING = re.compile(rf"<!--|<(nowiki|{_NO_TEXT})\b[^<>]*?(/?)>", re.IGNORECASE)
_CLOSING = re.compile(rf"</(nowiki|{_NO_TEXT})\s*>", re.IGNORECASE)
_MARKUP = re.compile(r"[&<>\[\]{|}='*#:;_!-]")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_BREAK = re.compile(r"<br\b[^<>]*>(?!\s*[.,;:!?)])", re.IGNORECASE)
_BRACES = re.compile(r"\{\{|\}\}|\{\||\|\}")
_BRACKETS = re.compile(r"\[\[|\]\]")
_LEVELS = 6  # of headings
_LONGEST_SPACE = 100  # characters in which the name of a namespace ends
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
_SWITCHES = re.compile(r"\s*(?:__[^\W\d_]++(?:_[^\W\d_]++)*+__\s*)++")  # a line of those of another language
_RULE = re.compile(r"^-{4,}+")
_EMPHASIS = re.compile(r"'{2,5}")
_TRAIL = re.compile(r"[a-z]+")
_ANCHOR = re.compile(r'<a href="([^"<>]*)"[^<>]*>|</a>')
_LONG_NUMBER = re.compile(r"&#(\d{8,});?")  # no character has such a number, and Python refuses to read it


class Namespaces(NamedTuple):
    """Prefixes before the colon of titles, in lower case.

    One set is for pictures and categories, the other for further pages that are no articles.
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
        made = _line(_RULE.sub("", line).lstrip("*#:; \t"), spaces)
        if text := made.joined():
            yield Paragraph(text, tuple(made.links), section)


def _prose(lines: Iterable[str]) -> Iterator[str]:
    """Yield the stripped lines without markup of tables, templates or pages.

    Complete tables and templates are removed earlier; the remaining ones never end, or end inside a template.
    """
    inside = False
    for line in map(str.strip, lines):
        if line.startswith(("{|", "|-", "|+")):
            inside = True
        elif line.startswith("|}"):
            inside = False
        else:
            is_row = inside and line.startswith(("|", "!"))
            if line and not is_row and not (_SWITCHES.fullmatch(line) and line == line.upper()):
                yield line
            inside = "{{" in line or (inside and "}}" not in line)


def _heading(line: str) -> str | None:
    """Return the text of a heading `== … ==`; None for another line."""
    before, behind = (len(line) - len(strip("=")) for strip in (line.lstrip, line.rstrip))
    level = min(before, behind, _LEVELS)
    if level < 2 or (before == len(line) < 4):
        return None
    return line[level:-level].strip()


def _shown(wikitext: str) -> str:
    """Return wikitext without comments and without the content of tags that hold no text.

    A tag that is never closed hides nothing. The content of <nowiki> stays, with its markup escaped.
    """
    last = {tag[1].lower(): tag.start() for tag in _CLOSING.finditer(wikitext)}
    shown, place = list[str](), 0
    while tag := _OPENING.search(wikitext, place):
        name = (tag[1] or "").lower()
        ends = not name or tag[2] or last.get(name, -1) >= tag.end()
        shown.append(wikitext[place : tag.start() if ends else tag.end()])
        place = tag.end()
        if not name:
            closed = wikitext.find("-->", place)
            place = len(wikitext) if closed < 0 else closed + 3
        elif ends and not tag[2]:
            closing = next(
                tag_end for tag_end in _CLOSING.finditer(wikitext, place) if tag_end[1].lower() == name
            )
            if name == "nowiki":
                inside = unescaped(wikitext[place : closing.start()])
                shown.append(_MARKUP.sub(lambda mark: f"&#{ord(mark[0])};", inside))
            place = closing.end()
    return "".join((*shown, wikitext[place:]))


def anchored(text: str) -> Paragraph:
    """Return a paragraph of WikiExtractor's, whose links are HTML: `<a href="Max%20Planck">…</a>`."""
    made, place, target, start = _Text(), 0, "", -1
    for tag in _ANCHOR.finditer(text):
        if tag[1] is not None and start < 0:
            target, start = tag[1], tag.end()
            made.add(_untagged(text[place : tag.start()]))
            place = start
        elif tag[1] is None and start >= 0:
            made.add(_untagged(text[start : tag.start()]), target_of(unquote(target)))
            place, start = tag.end(), -1
    made.add(_untagged(text[place:]))
    return Paragraph(made.joined(), tuple(made.links))


def unescaped(text: str) -> str:
    """Return a text with HTML's references as characters; `html.unescape` refuses numbers of 4,301 digits."""
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text))


def target_of(target: str, spaces: Namespaces = ENGLISH) -> str:
    """Return the title of the article that a link names; "" if the link names no article."""
    title = " ".join(unescaped(target).replace("_", " ").partition("#")[0].lstrip(": ").split())
    space, colon, _ = title.partition(":")
    known = space.lower() in spaces.dropped or space.lower() in spaces.others
    if (colon and (known or re.fullmatch(r"[a-z]{2,3}(-[a-z]+)?", space))) or "//" in target:
        return ""
    return title[:1].upper() + title[1:]


def _untagged(text: str) -> str:
    """Leave out tags; a line break stands between words."""
    return _TAG.sub("", _BREAK.sub(" ", text))


def _without_braces(text: str) -> str:
    """Leave out what stands in {{…}} and {|…|}, which may hold each other; what never ends stays.

    A template that is a part of a sentence is replaced by its text.
    """
    closed: list[tuple[int, int, str]] = []
    opened: list[tuple[str, int]] = []
    end = 0
    while match := _BRACES.search(text, end):
        mark, end = match[0], match.end()
        if mark in ("{{", "{|"):
            opened.append((mark, match.start()))
            continue
        if mark == "|}" and opened and opened[-1][0] == "{{" and text[end : end + 1] == "}":
            mark, end = "}}", end + 1  # the last parameter of a template is empty
        if opened and opened[-1][0] == ("{{" if mark == "}}" else "{|"):
            start = opened.pop()[1]
            inside = _taken(closed, start)
            is_short = mark == "}}" and end - start <= LONGEST_TEMPLATE
            shown = template_text(_replaced(text, inside, start, end)) if is_short else ""
            closed.append((start, end, shown))
    return _replaced(text, closed, 0, len(text))


def _without_dropped(text: str, spaces: Namespaces) -> str:
    """Leave out pictures and categories; a line break in the text of another link becomes a blank."""
    closed: list[tuple[int, int, str]] = []
    opened: list[int] = []
    is_innermost = False
    for match in _BRACKETS.finditer(text):
        if match[0] == "[[":
            opened.append(match.start())
            is_innermost = True
        elif opened:
            start, end = opened.pop(), match.end()
            if _space_of(text[start + 2 : start + 2 + _LONGEST_SPACE]) in spaces.dropped:
                _taken(closed, start)
                closed.append((start, end, ""))
            elif is_innermost and "|" in text[start:end].partition("\n")[0]:
                closed.append((start, end, text[start:end].replace("\n", " ")))
            is_innermost = False
    return _replaced(text, closed, 0, len(text))


def _space_of(target: str) -> str:
    """Return what stands before the colon of a title, as `Namespaces` has it."""
    return target.partition(":")[0].strip().lower()


def _taken(spans: list[tuple[int, int, str]], start: int) -> list[tuple[int, int, str]]:
    """Take the last spans away that begin behind `start`, and return them in order."""
    kept = len(spans)
    while kept and spans[kept - 1][0] > start:
        kept -= 1
    taken = spans[kept:]
    del spans[kept:]
    return taken


def _replaced(text: str, spans: Sequence[tuple[int, int, str]], start: int, end: int) -> str:
    """Return `text[start:end]` with other texts in place of some spans."""
    pieces = []
    for first, last, shown in spans:
        pieces += [text[start:first], shown]
        start = last
    return "".join([*pieces, text[start:end]])


class _Text:
    """A growing text: adjacent white space counts once, and links keep their positions."""

    def __init__(self) -> None:
        self.links = list[Link]()
        self._pieces, self._length, self._ends_blank = list[str](), 0, True

    def add(self, piece: str, target: str = "") -> _Text:
        """Add a piece, without the emphasis in it; with a target it is a link."""
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
    line = _SWITCH.sub("", _WEB_LINK.sub(r"\1", _untagged(line)))
    made, place, start = _Text(), 0, -1
    for match in _BRACKETS.finditer(line):
        if match[0] == "[[":
            start = match.end()
            continue
        if start < 0:
            continue
        made.add(line[place : start - 2])
        named, _, shown = line[start : match.start()].partition("|")
        trail = _TRAIL.match(line, match.end())  # [[bus]]es is a link as a whole
        tail = trail[0] if trail else ""
        place, start = match.end() + len(tail), -1
        made.add((shown.rpartition("|")[2] or named.lstrip(":")) + tail, target_of(named, spaces))
    return made.add(line[place:])
