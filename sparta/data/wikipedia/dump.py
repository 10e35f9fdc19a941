"""Wikipedia's XML dump, or what WikiExtractor made of one, as pages with links."""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from sparta.base.errors import InputError
from sparta.base.files import atomic_path, numbered_lines, open_decompressed, reading
from sparta.base.records import Advance
from sparta.data.kilt import PASSAGE_WORDS
from sparta.data.parsing import decoded, identifier, parse_object, placed, string_field
from sparta.data.wikipedia.wikitext import ENGLISH, Namespaces, Paragraph, anchored, paragraphs_of

_DOC = re.compile(r'<doc id="([^"]*)".*?title="(.*)">\s*')
_NO_TEXT_SPACES = ("6", "14")  # pictures and categories
_FORMS = "a Wikipedia dump (pages-articles.xml.bz2), or a folder or file of WikiExtractor's with --links"


class Page(NamedTuple):
    """A page with its paragraphs."""

    page_id: str
    title: str
    paragraphs: tuple[Paragraph, ...]


class DumpReport(NamedTuple):
    """What was written."""

    pages: int
    paragraphs: int
    links: int
    passages: int


def write_links(dump: Path, output: Path, passages: Path, advance: Advance | None = None) -> DumpReport:
    """Write the paragraphs with links of a dump as JSONL, and the passages of its pages.

    `output` has the form of files with hyperlinks: `title`, `section`, `paragraph`, `text`, `links`. Links to
    redirects lead to the page that these name. `passages` is a corpus: 100 words each, of a page in order,
    `PAGE-n`. Both files are there when all is written.

    :raises InputError: another form, a damaged file, no page with text; one file for two of these.
    """
    if len({path.resolve() for path in (dump, output, passages)}) < 3:
        raise InputError(
            f"expected three different files, found {dump}, {output} and {passages}",
            remedy="name another file for the paragraphs (--output) or the passages (--passages)",
        )
    redirects = dict(_redirects(dump)) if _is_xml(dump) else {}
    pages = paragraphs = links = written = 0
    with (
        atomic_path(output) as own,
        atomic_path(passages) as texts,
        own.open("w", encoding="utf-8") as lines,
        texts.open("w", encoding="utf-8") as corpus,
    ):
        for page in pages_of(dump):
            pages += 1
            for number, one in enumerate(page.paragraphs):
                found = [_link(one, link, redirects) for link in one.links]
                if found:
                    paragraphs, links = paragraphs + 1, links + len(found)
                    record: dict[str, Any] = {
                        "title": page.title,
                        "section": one.section,
                        "paragraph": number,
                    }
                    lines.write(_json({**record, "text": one.text, "links": found}))
            for record in page_records(page):
                written += 1
                corpus.write(_json(record))
            if advance:
                advance(1)
        if not pages:
            raise InputError(f"expected {_FORMS}, found no page with text", where=str(dump))
    return DumpReport(pages, paragraphs, links, written)


def page_records(page: Page) -> Iterator[dict[str, Any]]:
    """Yield the passages of a page as records of a corpus."""
    words = [word for one in page.paragraphs for word in one.text.split()]
    for number, some in enumerate(itertools.batched(words, PASSAGE_WORDS)):
        yield {"id": f"{page.page_id}-{number}", "title": page.title, "text": " ".join(some)}


def pages_of(dump: Path) -> Iterator[Page]:
    """Yield the articles of a dump that have text; redirects and pages of other namespaces are left out."""
    if _is_xml(dump):
        yield from _xml_pages(dump)
        return
    files = sorted(p for p in dump.rglob("*") if p.is_file()) if dump.is_dir() else [dump]
    for path in files:
        yield from _extracted(path)


def _link(one: Paragraph, link: Any, redirects: dict[str, str]) -> dict[str, Any]:
    target, met = link.target, set[str]()
    while target in redirects and target not in met:
        met.add(target)
        target = redirects[target]
    anchor = one.text[link.start : link.end]
    return {"start": link.start, "end": link.end, "anchor": anchor, "target_title": target}


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


# ---------------------------------------------------------------- XML


def _is_xml(dump: Path) -> bool:
    if dump.is_dir():
        return False
    with reading(dump), open_decompressed(dump) as stream:
        return stream.read(200).lstrip(b"\xef\xbb\xbf \r\n").startswith((b"<mediawiki", b"<?xml"))


def _elements(dump: Path, name: str = "page") -> Iterator[ElementTree.Element]:
    """Yield the elements of a name; others than pages stand before the first one."""
    try:
        with reading(dump), open_decompressed(dump) as stream:
            above: list[ElementTree.Element] = []
            for event, element in ElementTree.iterparse(stream, ("start", "end")):
                if event == "start":
                    above.append(element)
                    continue
                above.pop()
                if _name(element) == name:
                    yield element
                    above[-1].clear()  # those that were read
                elif _name(element) == "page":
                    return
    except ElementTree.ParseError as error:
        raise InputError(
            f"expected a whole XML dump, found: {error}", where=str(dump), remedy="download it again"
        ) from None


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _child(page: ElementTree.Element, name: str) -> ElementTree.Element | None:
    return next((one for one in page.iter() if _name(one) == name), None)


def _text(page: ElementTree.Element, name: str) -> str:
    found = _child(page, name)
    return (found.text or "") if found is not None else ""


def _redirects(dump: Path) -> Iterator[tuple[str, str]]:
    for page in _elements(dump):
        if (redirect := _child(page, "redirect")) is not None:
            yield _text(page, "title"), redirect.get("title", "")


def _namespaces(dump: Path) -> Namespaces:
    """The names of namespaces in the language of a dump, which stand at its beginning, beside the English."""
    named = [(one.get("key", ""), (one.text or "").lower()) for one in _elements(dump, "namespace")]
    dropped = {name for key, name in named if key in _NO_TEXT_SPACES}
    others = {name for key, name in named if key not in _NO_TEXT_SPACES and name}
    return Namespaces(ENGLISH.dropped | dropped, ENGLISH.others | others)


def _xml_pages(dump: Path) -> Iterator[Page]:
    spaces = _namespaces(dump)
    for page in _elements(dump):
        if _text(page, "ns") in ("0", "") and _child(page, "redirect") is None:
            own = tuple(paragraphs_of(_text(page, "text"), spaces))
            if own:
                yield Page(_text(page, "id"), _text(page, "title"), own)


# ---------------------------------------------------------------- WikiExtractor


def _extracted(path: Path) -> Iterator[Page]:
    """`<doc id title>` … `</doc>`, or one JSON object a line, as WikiExtractor's --json has it."""
    page_id = title = ""
    lines: list[str] = []
    inside = False
    for number, raw in numbered_lines(path):
        with placed(f"{path}:{number}"):
            line = decoded(raw)
            if line.startswith("{") and not inside:
                record = parse_object(line)
                title, text = (string_field(record, name, of=name) for name in ("title", "text"))
                yield from _page(identifier(record), html.unescape(title), text.split("\n"))
            elif match := _DOC.fullmatch(line):
                if inside:
                    raise _unfinished(title, "another page")
                page_id, title, lines, inside = match[1], html.unescape(match[2]), [], True
            elif line.startswith("</doc>"):
                yield from _page(page_id, title, lines)
                inside = False
            elif inside:
                lines.append(line)
            else:
                raise InputError(f"expected {_FORMS}, found another line", where=f"{path}:{number}")
    if inside:
        with placed(str(path)):
            raise _unfinished(title, "the end of the file")


def _unfinished(title: str, found: str) -> InputError:
    return InputError(
        f"expected </doc> behind the page {title!r}, found {found}",
        remedy="run WikiExtractor again: it was interrupted",
    )


def _page(page_id: str, title: str, lines: list[str]) -> Iterator[Page]:
    """A page without the line that repeats its title."""
    texts = [html.unescape(line) if "&lt;a href" in line else line for line in lines]
    made = (anchored(text) for text in texts[[*map(html.unescape, texts[:1])] == [title] :])
    if own := tuple(one for one in made if one.text):
        yield Page(page_id, title, own)
