"""Wikipedia's markup as paragraphs of plain text with their links."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote


class Link(NamedTuple):
    """A link in a text: from the first to behind the last character, and the title that it leads to."""

    start: int
    end: int
    target: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a page, with the heading that it stands under."""

    text: str
    links: tuple[Link, ...]
    section: str = ""


_NO_TEXT = "ref|math|gallery|timeline|syntaxhighlight|pre|score|imagemap|chem"
_OPENING = re.compile(rf"<!--|<(nowiki|{_NO_TEXT})\b[^>]*?(/?)>", re.IGNORECASE)
_CLOSING = re.compile(rf"</(nowiki|{_NO_TEXT})\s*>", re.IGNORECASE)
_MARKUP = re.compile(r"[&<>\[\]{|}='*#:;]")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_BREAK = re.compile(r"<br\b[^<>]*>(?!\s*[.,;:!?)])", re.IGNORECASE)
_BRACES = re.compile(r"\{\{|\}\}|\{\||\|\}")
_BRACKETS = re.compile(r"\[\[|\]\]")
_HEADING = re.compile(r"(={2,6})\s*(.*?)\s*\1\s*")
_WEB_LINK = re.compile(r"\[(?:https?:)?//[^\s\]]+\s*([^\]]*)\]")
_EMPHASIS = re.compile(r"'{2,5}")
_TRAIL = re.compile(r"[a-z]+")
_ANCHOR = re.compile(r'<a href="([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)


class Namespaces(NamedTuple):
    """What stands before the colon of titles, in lower case: of pictures and categories, and of other pages
    that are no articles.
    """

    dropped: frozenset[str] = frozenset(("file", "image", "category"))
    others: frozenset[str] = frozenset(
        ("wikipedia", "help", "template", "portal", "special", "user", "talk", "wiktionary", "module")
    )


ENGLISH = Namespaces()


def paragraphs_of(wikitext: str, spaces: Namespaces = ENGLISH) -> Iterator[Paragraph]:
    """Yield the paragraphs of a page that have text, in order: lines of prose and items of lists.

    Templates, tables, references, pictures and categories are left out.
    """
    section = ""
    for line in _without_braces(_shown(wikitext)).split("\n"):
        if heading := _HEADING.fullmatch(line.strip()):
            section = _Text().add(_untagged(heading[2])).text
        elif line.strip() and not line.startswith(("|", "!", "----")):
            made = _line(line.lstrip("*#:; \t"), spaces)
            if made.text:
                yield Paragraph(made.text, tuple(made.links), section)


def _shown(wikitext: str) -> str:
    """Leave out comments and what stands in tags that hold no text; a tag that never ends hides nothing.

    What stands in <nowiki> stays, and is no markup.
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
            closing = next(one for one in _CLOSING.finditer(wikitext, place) if one[1].lower() == name)
            if name == "nowiki":
                inside = html.unescape(wikitext[place : closing.start()])
                shown.append(_MARKUP.sub(lambda mark: f"&#{ord(mark[0])};", inside))
            place = closing.end()
    return "".join((*shown, wikitext[place:]))


def anchored(text: str) -> Paragraph:
    """Return a paragraph of WikiExtractor's, whose links are HTML: `<a href="Max%20Planck">…</a>`."""
    made, place = _Text(), 0
    for match in _ANCHOR.finditer(text):
        made.add(_untagged(text[place : match.start()]))
        made.add(_untagged(match[2]), target_of(unquote(match[1])))
        place = match.end()
    made.add(_untagged(text[place:])).strip()
    return Paragraph(made.text, tuple(made.links))


def target_of(target: str, spaces: Namespaces = ENGLISH) -> str:
    """Return the title of the article that a link names; "" where it names none."""
    title = " ".join(html.unescape(target).replace("_", " ").partition("#")[0].lstrip(": ").split())
    space, found, _ = title.partition(":")
    known = space.lower() in spaces.dropped or space.lower() in spaces.others
    if (found and (known or re.fullmatch(r"[a-z]{2,3}(-[a-z]+)?", space))) or "//" in target:
        return ""
    return title[:1].upper() + title[1:]


def _untagged(text: str) -> str:
    """Leave out tags; a line break stands between words."""
    return _TAG.sub("", _BREAK.sub(" ", text))


def _without_braces(text: str) -> str:
    """Leave out what stands in {{…}} and {|…|}, which may hold each other; what never ends stays."""
    closed: list[tuple[int, int]] = []
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
            _, start = opened.pop()
            while closed and closed[-1][0] > start:
                closed.pop()  # inside this one
            closed.append((start, end))
    starts, ends = [start for start, _ in closed], [end for _, end in closed]
    return "".join(text[a:b] for a, b in zip([0, *ends], [*starts, len(text)], strict=True))


class _Text:
    """A text that grows: white space counts once, links keep their places."""

    def __init__(self) -> None:
        self.text, self.links = "", list[Link]()

    def add(self, piece: str, target: str = "") -> _Text:
        words = html.unescape(_EMPHASIS.sub("", piece)).replace("\xa0", " ")
        if not self.text or self.text.endswith(" "):
            words = words.lstrip()
        start = len(self.text)
        self.text += re.sub(r"\s+", " ", words)
        start += len(self.text[start:]) - len(self.text[start:].lstrip())
        end = len(self.text.rstrip())
        if target and start < end:
            self.links.append(Link(start, end, target))
        return self

    def strip(self) -> _Text:
        self.text = self.text.rstrip()
        return self


def _line(line: str, spaces: Namespaces) -> _Text:
    line = _WEB_LINK.sub(r"\1", _untagged(line))
    made, place, opened = _Text(), 0, list[int]()
    for match in _BRACKETS.finditer(line):
        if match[0] == "[[":
            opened.append(match.end())
        elif opened:
            start = opened.pop()
            if opened:
                continue  # inside a picture's caption
            made.add(line[place : start - 2])
            inside, place = line[start : match.start()], match.end()
            named, _, shown = inside.partition("|")
            if named.strip().partition(":")[0].strip().lower() in spaces.dropped:
                continue
            trail = _TRAIL.match(line, place)  # [[bus]]es is a link as a whole
            tail = trail[0] if trail else ""
            place += len(tail)
            made.add((shown.rpartition("|")[2] or named.lstrip(":")) + tail, target_of(named, spaces))
    return made.add(line[place:]).strip()
