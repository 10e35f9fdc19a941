"""One record of a training file as examples of a skill, by the form of the file."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dense.models.skill_config import EXPANDED, LINK, RERANK, SINGLE, SPAN
from dense.models.skill_inputs import Span, check_span
from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.base.remedies import Command, remedy
from sparta.data.kilt import Provenance, evidence_of, well_mapped
from sparta.data.languages import DEFAULT_LANGUAGE, language_of
from sparta.data.parsing import string_field
from sparta.training.known import Context

PARAGRAPHS, TABLE_ROWS, KILT, PAIRS = "paragraphs with links", "table rows with links", "KILT rows", "pairs"
PASSAGES = "passages without questions"
_PARAGRAPHS_OF_PAGE, _USES_OF_TITLE = 30, 10  # Appendix B.1
_SHORTEST, _LONGEST = 0.1, 0.5  # share of a passage's words in a crop (Contriever)
_FEWEST_WORDS = 20
_MARK_BEFORE, _MARK_BEHIND = "[START_ENT]", "[END_ENT]"
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A passage that stands in another file: by its id, or the first one of this title."""

    passage_id: str = ""
    title: str = ""


Named = Wanted | Passage


@dataclass(frozen=True, slots=True)
class Draft:
    """An example whose passages may still be names."""

    query: str
    positives: tuple[Named, ...] = ()
    negatives: tuple[Named, ...] = ()
    evidence: Named | None = None
    spans: tuple[Span, ...] = ()
    answers: tuple[str, ...] = ()


def form_of_record(record: Record) -> str:
    """Return which form a file has, by its first record."""
    if "links" in record:
        return TABLE_ROWS if "cells" in record else PARAGRAPHS
    if "input" in record and "output" in record:
        return KILT
    asks = record.keys() & {"question", "positive", "passages"}
    return PASSAGES if not asks and record.keys() & {"text", "contents"} else PAIRS


def drafts_of(records: Iterable[Record], form: str, skill: str) -> Iterator[Draft]:
    """Yield the examples of a skill in the records of a file.

    :raises InputError: files of this form hold none of the skill; a record lacks what it must have.
    """
    if (form, skill) not in _READERS:
        able = sorted({s for f, s in _READERS if f == form})
        raise InputError(
            f"expected a file with examples of the skill {skill}, found {form}, which have those of"
            f" {', '.join(able)}",
            remedy="docs/chains.md says which files each skill can be trained on",
        )
    if skill == EXPANDED and form == PARAGRAPHS:
        return _pseudo_queries(records)
    drafts = (draft for record in records for draft in _READERS[form, skill](record))
    return _gathered(drafts) if (form, skill) == (KILT, SPAN) else drafts


# ---------------------------------------------------------------- hyperlinks


def row_text(record: Record) -> tuple[str, list[Span]]:
    """Return a table row as a text, and the span in it of each of its links.

    `page title, section title. column is cell. column is cell.`
    """
    title = string_field(record, "page_title", of="page_title")
    section = str(record.get("section_title") or "")
    text, cells = f"{title}, {section}." if section else f"{title}.", []
    for name, cell in zip(record["header"], record["cells"], strict=True):
        before = f" {name} is " if name else " "
        cells.append(len(text) + len(before))
        text += f"{before}{cell}."
    spans = []
    for link in record["links"]:
        column, anchor = link["column"], str(link["anchor"])
        if type(column) is not int or not 0 <= column < len(cells):
            raise InputError(f"expected a column from 0 to {len(cells) - 1} of a link, found {column!r}")
        place = str(record["cells"][column]).find(anchor)
        start = cells[column] + max(0, place)
        spans.append((start, start + len(anchor if place >= 0 else record["cells"][column])))
    return text, spans


def _linked(record: Record) -> tuple[str, list[Span], list[str]]:
    """Return the text of a record with links, their spans, and the titles that they lead to."""
    links = record["links"]
    if "cells" in record:
        text, spans = row_text(record)
    else:
        text = string_field(record, "text", of="text")
        spans = [(link["start"], link["end"]) for link in links]
        if wrong := [span for span in spans if {type(place) for place in span} != {int}]:
            raise InputError(f"expected start and end of a link as whole numbers, found {wrong[0]}")
    for span in spans:
        check_span(text, span)
    return text, spans, [string_field(link, "target_title", of="target_title") for link in links]


def _links(record: Record) -> Iterator[Draft]:
    """Each link: its text with the mention, and the first passage of the page that it leads to."""
    text, spans, titles = _linked(record)
    for span, title in zip(spans, titles, strict=True):
        yield Draft(text, (Wanted(title=title),), spans=(span,))


def _entities(record: Record) -> Iterator[Draft]:
    text, spans, _ = _linked(record)
    if spans:
        yield Draft(text, spans=tuple(dict.fromkeys(spans)))


def _pseudo_queries(records: Iterable[Record]) -> Iterator[Draft]:
    """§3.2: a paragraph with the first passage of its page finds the first passage of a linked page.

    Of a page at most 30 paragraphs with links are drawn, and at most 10 of them lead to the same page
    (Appendix B.1). The pages that one links to are its positives, of which a batch draws one.
    """
    pages: dict[str, list[tuple[str, list[str]]]] = {}
    for record in records:
        text, _, titles = _linked(record)
        if titles:
            pages.setdefault(string_field(record, "title", of="title"), []).append((text, titles))
    for page, own in pages.items():
        draw, uses = random.Random(page), Counter[str]()
        for text, titles in draw.sample(own, min(_PARAGRAPHS_OF_PAGE, len(own))):
            free = [t for t in dict.fromkeys(titles) if t != page and uses[t] < _USES_OF_TITLE]
            uses.update(free)
            if free:
                yield Draft(text, tuple(Wanted(title=t) for t in free), evidence=Wanted(title=page))


def _crops(record: Record) -> Iterator[Draft]:
    """§3.2: two views of a passage, drawn apart, each a tenth to a half of its words: one finds the other."""
    text = " ".join(str(record.get("text") or record["contents"]).split())
    words = [found.span() for found in language_of(DEFAULT_LANGUAGE).units.finditer(text)]
    if len(words) < _FEWEST_WORDS:
        return
    draw = random.Random(text)

    def crop() -> str:
        size = draw.randint(int(_SHORTEST * len(words)), int(_LONGEST * len(words)))
        start = draw.randint(0, len(words) - size)
        return text[words[start][0] : words[start + size - 1][1]]

    yield Draft(crop(), (Passage("", crop()),))


# ---------------------------------------------------------------- KILT rows


def _places(record: Record) -> list[Provenance]:
    """What a record names as evidence, without what was mapped with a low BLEU score.

    :raises InputError: spans of the knowledge source, which only an index of it knows as passages.
    """
    places = [one for output in well_mapped(evidence_of(record["output"])) for one in output]
    if places and not any(one.passage_ids for one in places):
        raise InputError(
            "expected provenance with passage_ids, found spans or pages of the knowledge source",
            remedy=remedy(
                "find its passages: {}", Command.of("dense mine", dataset="FILE", output="FILE.json")
            ),
        )
    return places


def _provenance(record: Record) -> tuple[Wanted, ...]:
    found = (Wanted(passage_id=i) for place in _places(record) for i in place.passage_ids)
    return tuple(dict.fromkeys(found))


def _negatives(record: Record) -> tuple[Wanted, ...]:
    given = (record.get("meta") or {}).get("negatives") or []
    if not isinstance(given, list):
        raise InputError(f"expected meta.negatives as a list of ids, found {given!r}")
    flat = [str(i) for one in given for i in (one if isinstance(one, list) else [one])]
    evidence = {i for output in evidence_of(record["output"]) for place in output for i in place.passage_ids}
    return tuple(Wanted(passage_id=i) for i in flat if i not in evidence)


def _answers(record: Record) -> tuple[str, ...]:
    given = (output.get("answer") for output in record["output"])
    return tuple(dict.fromkeys(answer for answer in given if isinstance(answer, str)))


def _question(record: Record) -> Iterator[Draft]:
    """The input finds each passage of its provenance."""
    positives = _provenance(record)
    if positives:
        question = string_field(record, "input", of="input")
        yield Draft(question, positives, _negatives(record), answers=_answers(record))


def _hops(record: Record) -> Iterator[Draft]:
    """A question of several pages: with a passage of one of them, those of the others are found.

    The pages of one output need each other; outputs are alternatives, of which one alone will do.
    """
    drafts: list[Draft] = []
    for draft in _question(record):
        for output in well_mapped(evidence_of(record["output"])):
            pages: dict[str, list[Wanted]] = {}
            for number, place in enumerate(output):
                page = place.wikipedia_id or place.title or f"#{number}"
                pages.setdefault(page, []).extend(Wanted(passage_id=i) for i in place.passage_ids)
            for page, own in pages.items():
                others = tuple(dict.fromkeys(p for name, o in pages.items() if name != page for p in o))
                if others:
                    drafts += [replace(draft, positives=others, evidence=e) for e in own]
    yield from dict.fromkeys(drafts)


def _marked(record: Record) -> Iterator[Draft]:
    """`… [START_ENT] mention [END_ENT] …`: the text without marks, and the span of the mention."""
    text, span = _mention(string_field(record, "input", of="input"))
    positives = _provenance(record)
    if positives:
        yield Draft(text, positives, _negatives(record), spans=(span,))


def _mention(marked: str) -> tuple[str, Span]:
    """Return a text without the marks of its mention, and where this is."""
    before, first, rest = marked.partition(_MARK_BEFORE)
    inside, last, behind = rest.partition(_MARK_BEHIND)
    mention = inside.strip()
    if not first or not last or not mention:
        raise InputError("expected a mention between [START_ENT] and [END_ENT] in the input, found none")
    return before + mention + behind, (len(before), len(before) + len(mention))


def _gathered(drafts: Iterable[Draft]) -> Iterator[Draft]:
    """Put together what is marked in several rows of the same text."""
    spans: dict[str, set[Span]] = {}
    for draft in drafts:
        spans.setdefault(draft.query, set()).update(draft.spans)
    for text, own in spans.items():
        yield Draft(text, spans=tuple(sorted(own)))


# ---------------------------------------------------------------- pairs, DPR's JSON


def _pair(record: Record) -> Iterator[Draft]:
    text, passage_id = str(record.get("context") or record["positive"]), str(record.get("passage_id") or "")
    first = Context(str(record.get("title") or ""), text, passage_id)
    given = record.get("negative") or ()
    negatives = [Context("", str(t)) for t in ([given] if isinstance(given, str) else given)]
    negatives += record.get("negative_ctxs") or ()
    positives, others = map(_passages, (record.get("positive_ctxs") or [first], negatives))
    [evidence] = _passages([record["evidence"]]) if record.get("evidence") else [None]
    yield Draft(record["question"], positives, others, evidence, answers=record.get("answers") or ())


def _passages(contexts: Iterable[Context]) -> tuple[Passage, ...]:
    return tuple(Passage(one.passage_id, one.text, one.title) for one in contexts)


def _hop_pair(record: Record) -> Iterator[Draft]:
    """A question with the passage that it goes on from, as `dense mine --skill expanded` writes it."""
    return (draft for draft in _pair(record) if draft.evidence)


def _marked_pair(record: Record) -> Iterator[Draft]:
    """A question with a marked mention, as `dense mine` writes those of entity linking."""
    for draft in _pair(record):
        text, span = _mention(draft.query)
        yield replace(draft, query=text, spans=(span,))


_READERS: Mapping[tuple[str, str], Callable[[Record], Iterable[Draft]]] = {
    (PARAGRAPHS, LINK): _links,
    (PARAGRAPHS, SPAN): _entities,
    (PARAGRAPHS, EXPANDED): lambda record: _pseudo_queries([record]),
    (PASSAGES, SINGLE): _crops,
    (TABLE_ROWS, LINK): _links,
    (TABLE_ROWS, SPAN): _entities,
    (KILT, SINGLE): _question,
    (KILT, EXPANDED): _hops,
    (KILT, RERANK): _question,
    (KILT, LINK): _marked,
    (KILT, SPAN): _marked,
    (PAIRS, SINGLE): _pair,
    (PAIRS, EXPANDED): _hop_pair,
    (PAIRS, RERANK): _pair,
    (PAIRS, LINK): _marked_pair,
}


def names_in(drafts: Sequence[Draft]) -> set[Wanted]:
    """Return the passages that are named and not there."""
    named = (p for d in drafts for p in (*d.positives, *d.negatives, d.evidence))
    return {p for p in named if isinstance(p, Wanted)}
