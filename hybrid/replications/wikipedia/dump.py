"""Reads Wikipedia's XML dump, or the output of WikiExtractor, as pages with links."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from hybrid.replications.wikipedia.wikitext import (
    ENGLISH,
    Namespaces,
    Paragraph,
    anchored,
    paragraphs_of,
    unescaped,
)
from sparta.base.disk.streams import input_errors, longest_line, numbered_lines, open_decompressed, too_long
from sparta.base.errors import InputError
from sparta.base.files import atomic_path
from sparta.base.records import Advance
from sparta.base.remedies import Option, remedy
from sparta.data.kilt import PASSAGE_WORDS
from sparta.data.parsing import decoded, identifier, parse_object, placed, string_field

_DOC = re.compile(r'<doc id="([^"]*)"')
_NO_TEXT_SPACES = ("6", "14")  # pictures and categories
_FIELDS = ("id", "title", "ns", "text")
_BUFFER = 1 << 16
_DEEPEST = 100
_PAGES_IN_A_LINE = 4
"""A page may have a quarter of the bytes of the longest line: Wikipedia refuses pages of more than 2 MB."""
_LINE_COSTS = 50  # bytes of memory for each string besides its text
_MOST_REDIRECTS = 10
_AGAIN = "download it again"
_FORMS = "a Wikipedia dump (pages-articles.xml.bz2), or what WikiExtractor wrote with its option for links"


class Page(NamedTuple):
    """A page with its paragraphs."""

    page_id: str
    title: str
    paragraphs: tuple[Paragraph, ...]


class DumpReport(NamedTuple):
    """Numbers of written pages, paragraphs, links and passages."""

    pages: int
    paragraphs: int
    links: int
    passages: int


def write_links(dump: Path, output: Path, passages: Path, advance: Advance | None = None) -> DumpReport:
    """Write the paragraphs with links of a dump as JSONL, and the passages of its pages.

    `output` has the fields `title`, `section`, `paragraph`, `text`, `links`. Links to redirects lead to the
    redirect's target. `passages` is a corpus of 100-word passages with ids `PAGE-n`. Both files appear only
    when they are complete.

    :raises InputError: the dump has an unknown format, is damaged or has no page with text; two of the three
        paths are the same
    """
    if len({path.resolve() for path in (dump, output, passages)}) < 3:
        raise InputError(
            f"the dump and the two outputs must be different files, found {dump}, {output}, {passages}",
            remedy=remedy("name another file for {} or {}", Option("output"), Option("passages")),
        )
    redirects = dict(_redirects(dump)) if _is_xml(dump) else {}
    pages = paragraphs = links = written = 0
    with (
        atomic_path(output) as temporary_output,
        atomic_path(passages) as temporary_passages,
        temporary_output.open("w", encoding="utf-8") as lines,
        temporary_passages.open("w", encoding="utf-8") as corpus,
    ):
        for page in pages_of(dump):
            pages += 1
            for number, paragraph in enumerate(page.paragraphs):
                link_objects = [_link(paragraph, link, redirects) for link in paragraph.links]
                if link_objects:
                    paragraphs, links = paragraphs + 1, links + len(link_objects)
                    record: dict[str, Any] = {
                        "title": page.title,
                        "section": paragraph.section,
                        "paragraph": number,
                    }
                    lines.write(_json({**record, "text": paragraph.text, "links": link_objects}))
            for record in page_records(page):
                written += 1
                corpus.write(_json(record))
            if advance:
                advance(1)
        if not pages:
            raise InputError(f"the dump has no page with text: expected {_FORMS}", where=str(dump))
    return DumpReport(pages, paragraphs, links, written)


def page_records(page: Page) -> Iterator[dict[str, Any]]:
    """Yield the passages of a page as records of a corpus."""
    words = [word for paragraph in page.paragraphs for word in paragraph.text.split()]
    for number, passage_words in enumerate(itertools.batched(words, PASSAGE_WORDS)):
        yield {"id": f"{page.page_id}-{number}", "title": page.title, "text": " ".join(passage_words)}


def pages_of(dump: Path) -> Iterator[Page]:
    """Yield the articles of a dump that have text; redirects and pages of other namespaces are left out."""
    if _is_xml(dump):
        yield from _xml_pages(dump)
        return
    files = sorted(path for path in dump.rglob("*") if path.is_file()) if dump.is_dir() else [dump]
    for path in files:
        yield from _extracted(path)


def _link(paragraph: Paragraph, link: Any, redirects: dict[str, str]) -> dict[str, Any]:
    """Return a link as a JSON object; its target is the page at the end of all redirects."""
    target = link.target
    for _ in range(_MOST_REDIRECTS):  # redirects may form a cycle
        if target not in redirects:
            break
        target = redirects[target]
    anchor = paragraph.text[link.start : link.end]
    return {"start": link.start, "end": link.end, "anchor": anchor, "target_title": target}


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


# ---------------------------------------------------------------- XML


def _is_xml(dump: Path) -> bool:
    if dump.is_dir():
        return False
    with input_errors(dump), open_decompressed(dump) as stream:
        return stream.read(200).lstrip(b"\xef\xbb\xbf \r\n").startswith((b"<mediawiki", b"<?xml"))


class _Entry(NamedTuple):
    """A page of a dump; `redirect` is the title of the redirect's target, None for an article."""

    page_id: str
    title: str
    space: str
    text: str
    redirect: str | None


class _DumpReader:
    """Parses the XML of a dump in pieces, and keeps only the fields of `_Entry` of each page.

    `entries` are the pages parsed so far, `namespaces` the numbers and names of the namespaces.
    """

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.namespaces: list[tuple[str, str]] = []
        self._path: list[str] = []
        self._fields: dict[str, str] = {}
        self._key, self._text = "", list[str]()
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.buffer_size = _BUFFER
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text.append
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype

    def read(self, data: bytes) -> None:
        """Parse the next bytes; empty bytes end the dump.

        :raises InputError: the XML has a document type, or is nested too deeply
        """
        self._parser.Parse(data, not data)

    def _refuse_doctype(self, *_: object) -> None:
        raise InputError(
            "the dump has a document type (DOCTYPE), which Wikipedia dumps never have", remedy=_AGAIN
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) == _DEEPEST:
            raise InputError(f"the XML is nested more than {_DEEPEST} elements deep", remedy=_AGAIN)
        name = name.rpartition(":")[2]
        self._path.append(name)
        self._text.clear()
        if name == "page":
            self._fields = {}
        elif name == "redirect":
            self._fields[name] = attributes.get("title", "")
        self._key = attributes.get("key", "")

    def _end(self, _: str) -> None:
        name = self._path.pop()
        if name == "page":
            page_id, title, space, text = (
                self._fields.get(field, "") for field in ("id", "title", "ns", "text")
            )
            self.entries.append(_Entry(page_id, title, space, text, self._fields.get("redirect")))
            self._fields = {}
        elif name == "namespace":
            self.namespaces.append((self._key, "".join(self._text)))
        elif name in _FIELDS:
            # setdefault keeps the first id, which is the page's; later ids belong to revisions.
            self._fields.setdefault(name, "".join(self._text))
        self._text.clear()


def _entries(dump: Path, reader: _DumpReader) -> Iterator[_Entry]:
    """Yield the pages of a dump.

    :raises InputError: the dump is damaged, or a page is longer than a quarter of the longest line
    """
    most_bytes, unfinished_bytes = longest_line() // _PAGES_IN_A_LINE, 0
    with input_errors(dump), open_decompressed(dump) as stream, placed(str(dump)):
        piece = b"-"
        while piece:
            # Expat reads an unfinished tag again with each piece, so pieces grow with the unfinished page.
            piece = stream.read(max(_BUFFER, unfinished_bytes))
            try:
                reader.read(piece)
            except expat.ExpatError as error:
                raise InputError(
                    f"the XML of the dump is damaged or incomplete: {error}", remedy=_AGAIN
                ) from None
            unfinished_bytes = 0 if reader.entries else unfinished_bytes + len(piece)
            if unfinished_bytes > most_bytes:
                raise too_long(str(dump), "a page", most_bytes)
            yield from reader.entries
            reader.entries.clear()


def _redirects(dump: Path) -> Iterator[tuple[str, str]]:
    for page in _entries(dump, _DumpReader()):
        if page.redirect is not None:
            yield page.title, page.redirect


def _namespaces(named: list[tuple[str, str]]) -> Namespaces:
    """Return the namespace names in the dump's language, from its head, and the English names."""
    lowercase_names = [(key, name.lower()) for key, name in named]
    dropped = {name for key, name in lowercase_names if key in _NO_TEXT_SPACES}
    others = {name for key, name in lowercase_names if key not in _NO_TEXT_SPACES and name}
    return Namespaces(ENGLISH.dropped | dropped, ENGLISH.others | others)


def _xml_pages(dump: Path) -> Iterator[Page]:
    reader, spaces = _DumpReader(), ENGLISH
    for number, page in enumerate(_entries(dump, reader)):
        if not number:
            spaces = _namespaces(reader.namespaces)
        if page.space in ("0", "") and page.redirect is None:
            paragraphs = tuple(paragraphs_of(page.text, spaces))
            if paragraphs:
                yield Page(page.page_id, page.title, paragraphs)


# ---------------------------------------------------------------- WikiExtractor


def _extracted(path: Path) -> Iterator[Page]:
    """Yield the pages of WikiExtractor's output: `<doc id title>` … `</doc>`, or JSON lines (its --json)."""
    page_id = title = ""
    lines: list[str] = []
    is_inside, most_bytes, page_bytes = False, longest_line() // _PAGES_IN_A_LINE, 0
    for number, raw in numbered_lines(path):
        with placed(f"{path}:{number}"):
            line = decoded(raw)
            if line.startswith("{") and not is_inside:
                record = parse_object(line)
                title, text = (string_field(record, name, of=name) for name in ("title", "text"))
                yield from _page(identifier(record), unescaped(title), text.split("\n"))
            elif doc_attributes := _doc(line):
                if is_inside:
                    raise _unfinished(title, "another page")
                page_id, title, lines, is_inside, page_bytes = *doc_attributes, [], True, 0
            elif line.startswith("</doc>"):
                yield from _page(page_id, title, lines)
                is_inside = False
            elif is_inside:
                lines.append(line)
                page_bytes += len(raw) + _LINE_COSTS
                if page_bytes > most_bytes:
                    raise too_long(f"{path}:{number}", "a page", most_bytes)
            else:
                raise InputError(
                    f"the line does not fit the format of the dump: expected {_FORMS}",
                    where=f"{path}:{number}",
                )
    if is_inside:
        with placed(str(path)):
            raise _unfinished(title, "the end of the file")


def _doc(line: str) -> tuple[str, str] | None:
    """Return the id and the title in a line `<doc id=… title=…>`; None for another line."""
    before, _, title = line.rstrip().partition('title="')
    match = _DOC.match(before)
    return (match[1], unescaped(title[:-2])) if match and title.endswith('">') else None


def _unfinished(title: str, reason: str) -> InputError:
    return InputError(
        f"the page {title!r} has no end: expected </doc>, found {reason}",
        remedy="run WikiExtractor again: it was interrupted",
    )


def _page(page_id: str, title: str, lines: list[str]) -> Iterator[Page]:
    """Yield the page without the line that repeats its title; nothing for a page without text."""
    texts = [unescaped(line) if "&lt;a href" in line else line for line in lines]
    paragraphs_and_blanks = (anchored(text) for text in texts[[*map(unescaped, texts[:1])] == [title] :])
    if paragraphs := tuple(paragraph for paragraph in paragraphs_and_blanks if paragraph.text):
        yield Page(page_id, title, paragraphs)
