"""Converts records of training files into skill examples, by the format of the file."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dense.models.mentions import without_marks
from dense.models.skill_config import EXPANDED, LINK, RERANK, SINGLE, SPAN
from dense.models.skill_inputs import Span, check_span
from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.base.remedies import Command, remedy
from sparta.data.kilt import Provenance, evidence_of, well_mapped
from sparta.data.languages import DEFAULT_LANGUAGE, language_of
from sparta.data.parsing import string_field

PARAGRAPHS, TABLE_ROWS, KILT, PAIRS = "paragraphs with links", "table rows with links", "KILT rows", "pairs"
PASSAGES = "passages without questions"
_PARAGRAPHS_OF_PAGE, _USES_OF_TITLE = 30, 10  # Appendix B.1
_SHORTEST, _LONGEST = 0.1, 0.5  # share of a passage's words in a crop (Contriever)
_FEWEST_WORDS = 20
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A reference to a passage in another file: by id, or the first passage of a title."""

    passage_id: str = ""
    title: str = ""


Named = Wanted | Passage


@dataclass(frozen=True, slots=True)
class Draft:
    """An example whose passages may still be references."""

    query: str
    positives: tuple[Named, ...] = ()
    negatives: tuple[Named, ...] = ()
    evidence: Named | None = None
    spans: tuple[Span, ...] = ()
    answers: tuple[str, ...] = ()


def form_of_record(record: Record) -> str:
    """Return the format of a file, from its first record."""
    if "links" in record:
        return TABLE_ROWS if "cells" in record else PARAGRAPHS
    if "input" in record and "output" in record:
        return KILT
    query_fields = record.keys() & {"question", "positive", "passages"}
    return PASSAGES if not query_fields and record.keys() & {"text", "contents"} else PAIRS


def drafts_of(records: Iterable[Record], form: str, skill: str) -> Iterator[Draft]:
    """Yield the examples of a skill in the records of a file.

    :raises InputError: the format has no examples of the skill, or a record lacks a required field.
    """
    if (form, skill) not in _READERS:
        available_skills = sorted({available for f, available in _READERS if f == form})
        raise InputError(
            f"files of {form} have no examples of the skill {skill}, only of {', '.join(available_skills)}",
            remedy="name another file: docs/chains.md lists the files for each skill",
        )
    if skill == EXPANDED and form == PARAGRAPHS:
        return _pseudo_queries(records)
    drafts = (draft for record in records for draft in _READERS[form, skill](record))
    return _merge_spans(drafts) if (form, skill) == (KILT, SPAN) else drafts


# ---------------------------------------------------------------- hyperlinks


def row_text(record: Record) -> tuple[str, list[Span]]:
    """Return a table row as a text, and the span of each link in the text.

    The text is `page title, section title. column is cell. column is cell.`
    """
    title = string_field(record, "page_title", of="page_title")
    section = str(record.get("section_title") or "")
    text, cell_starts = f"{title}, {section}." if section else f"{title}.", []
    for name, cell in zip(record["header"], record["cells"], strict=True):
        prefix = f" {name} is " if name else " "
        cell_starts.append(len(text) + len(prefix))
        text += f"{prefix}{cell}."
    spans = []
    for link in record["links"]:
        column, anchor = link["column"], str(link["anchor"])
        if type(column) is not int or not 0 <= column < len(cell_starts):
            raise InputError(f"the column of a link must be 0 to {len(cell_starts) - 1}, found {column!r}")
        offset = str(record["cells"][column]).find(anchor)
        start = cell_starts[column] + max(0, offset)
        spans.append((start, start + len(anchor if offset >= 0 else record["cells"][column])))
    return text, spans


def _read_links(record: Record) -> tuple[str, list[Span], list[str]]:
    """Return the text of a record, the spans of its links, and the titles of the linked pages."""
    links = record["links"]
    if "cells" in record:
        text, spans = row_text(record)
    else:
        text = string_field(record, "text", of="text")
        spans = [(link["start"], link["end"]) for link in links]
        if bad_spans := [span for span in spans if {type(place) for place in span} != {int}]:
            raise InputError(f"start and end of a link must be whole numbers, found {bad_spans[0]}")
    for span in spans:
        check_span(text, span)
    return text, spans, [string_field(link, "target_title", of="target_title") for link in links]


def _links(record: Record) -> Iterator[Draft]:
    """Yield an example per link: the text with the mention, and the linked page's first passage."""
    text, spans, titles = _read_links(record)
    for span, title in zip(spans, titles, strict=True):
        yield Draft(text, (Wanted(title=title),), spans=(span,))


def _entities(record: Record) -> Iterator[Draft]:
    text, spans, _ = _read_links(record)
    if spans:
        yield Draft(text, spans=tuple(dict.fromkeys(spans)))


def _pseudo_queries(records: Iterable[Record]) -> Iterator[Draft]:
    """Yield expanded queries: a paragraph and its page's first passage, with linked pages as positives.

    Chain-of-Skills, §3.2. At most 30 paragraphs of a page are used, and at most 10 of them for the same
    linked page (Appendix B.1). A batch draws one of a paragraph's linked pages.
    """
    pages: dict[str, list[tuple[str, list[str]]]] = {}
    for record in records:
        text, _, titles = _read_links(record)
        if titles:
            pages.setdefault(string_field(record, "title", of="title"), []).append((text, titles))
    for page, paragraphs in pages.items():
        rng, uses = random.Random(page), Counter[str]()
        for text, titles in rng.sample(paragraphs, min(_PARAGRAPHS_OF_PAGE, len(paragraphs))):
            usable = [
                title for title in dict.fromkeys(titles) if title != page and uses[title] < _USES_OF_TITLE
            ]
            uses.update(usable)
            if usable:
                yield Draft(text, tuple(Wanted(title=title) for title in usable), evidence=Wanted(title=page))


def _crops(record: Record) -> Iterator[Draft]:
    """Yield two random crops of a passage as query and positive, each 10 % to 50 % of its words (§3.2)."""
    text = " ".join(str(record.get("text") or record["contents"]).split())
    words = [match.span() for match in language_of(DEFAULT_LANGUAGE).units.finditer(text)]
    if len(words) < _FEWEST_WORDS:
        return
    rng = random.Random(text)

    def crop() -> str:
        size = rng.randint(int(_SHORTEST * len(words)), int(_LONGEST * len(words)))
        start = rng.randint(0, len(words) - size)
        return text[words[start][0] : words[start + size - 1][1]]

    yield Draft(crop(), (Passage("", crop()),))


# ---------------------------------------------------------------- KILT rows


def _mapped_evidence(record: Record) -> list[Provenance]:
    """Return a record's evidence, without entries that were mapped with a low BLEU score.

    :raises InputError: the evidence has no passage ids, but spans or pages of the knowledge source.
    """
    evidence = [place for output in well_mapped(evidence_of(record["output"])) for place in output]
    if evidence and not any(place.passage_ids for place in evidence):
        raise InputError(
            "the provenance names pages or spans, but training needs passage_ids",
            remedy=remedy(
                "for the skills single, rerank and link, find the passages of the provenance with: {}; for"
                " the others, the file itself must have passage_ids",
                Command.of("dense mine", dataset="FILE", output="FILE.json"),
            ),
        )
    return evidence


def _provenance(record: Record) -> tuple[Wanted, ...]:
    """Return references to the passages of a record's evidence."""
    names = (
        Wanted(passage_id=passage_id)
        for place in _mapped_evidence(record)
        for passage_id in place.passage_ids
    )
    return tuple(dict.fromkeys(names))


def _negatives(record: Record) -> tuple[Wanted, ...]:
    negatives = (record.get("meta") or {}).get("negatives") or []
    if not isinstance(negatives, list):
        raise InputError(f"the field meta.negatives must be a list of passage ids, found {negatives!r}")
    passage_ids = [str(i) for item in negatives for i in (item if isinstance(item, list) else [item])]
    evidence = {i for output in evidence_of(record["output"]) for place in output for i in place.passage_ids}
    return tuple(Wanted(passage_id=i) for i in passage_ids if i not in evidence)


def _answers(record: Record) -> tuple[str, ...]:
    answers = (output.get("answer") for output in record["output"])
    return tuple(dict.fromkeys(answer for answer in answers if isinstance(answer, str)))


def _question(record: Record) -> Iterator[Draft]:
    """Yield a question with the passages of its evidence as positives."""
    positives = _provenance(record)
    if positives:
        question = string_field(record, "input", of="input")
        yield Draft(question, positives, _negatives(record), answers=_answers(record))


def _hops(record: Record) -> Iterator[Draft]:
    """Yield expanded queries: a passage of one page as evidence, the other pages' passages as positives.

    The pages of one output are needed together. Outputs are alternatives, so they are not combined.
    """
    drafts: list[Draft] = []
    for draft in _question(record):
        for output in well_mapped(evidence_of(record["output"])):
            pages: dict[str, list[Wanted]] = {}
            for number, place in enumerate(output):
                page = place.wikipedia_id or place.title or f"#{number}"
                pages.setdefault(page, []).extend(Wanted(passage_id=i) for i in place.passage_ids)
            for page, page_passages in pages.items():
                others = tuple(
                    dict.fromkeys(
                        passage for name, named in pages.items() if name != page for passage in named
                    )
                )
                if others:
                    drafts += [
                        replace(draft, positives=others, evidence=evidence) for evidence in page_passages
                    ]
    yield from dict.fromkeys(drafts)


def _marked(record: Record) -> Iterator[Draft]:
    """Yield the text of `… [START_ENT] mention [END_ENT] …` without marks, and the span of the mention."""
    text, span = without_marks(string_field(record, "input", of="input"))
    positives = _provenance(record)
    if positives:
        yield Draft(text, positives, _negatives(record), spans=(span,))


def _merge_spans(drafts: Iterable[Draft]) -> Iterator[Draft]:
    """Merge the spans of rows with the same text."""
    spans: dict[str, set[Span]] = {}
    for draft in drafts:
        spans.setdefault(draft.query, set()).update(draft.spans)
    for text, spans_of_text in spans.items():
        yield Draft(text, spans=tuple(sorted(spans_of_text)))


# ---------------------------------------------------------------- pairs, DPR's JSON


def _pair(record: Record) -> Iterator[Draft]:
    text, passage_id = str(record.get("context") or record["positive"]), str(record.get("passage_id") or "")
    first = Passage(passage_id, text, str(record.get("title") or ""))
    negative_texts = record.get("negative") or ()
    negatives = [
        Passage("", str(negative))
        for negative in ([negative_texts] if isinstance(negative_texts, str) else negative_texts)
    ]
    negatives += record.get("negative_ctxs") or ()
    yield Draft(
        record["question"],
        tuple(record.get("positive_ctxs") or [first]),
        tuple(negatives),
        record.get("evidence"),
        answers=record.get("answers") or (),
    )


def _hop_pair(record: Record) -> Iterator[Draft]:
    """Yield a question with its evidence, as `dense mine with skill expanded` writes it."""
    return (draft for draft in _pair(record) if draft.evidence)


def _marked_pair(record: Record) -> Iterator[Draft]:
    """Yield a text with a marked mention, as `dense mine` writes it for entity linking."""
    for draft in _pair(record):
        text, span = without_marks(draft.query)
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
    """Return the references to passages in drafts."""
    named = (passage for draft in drafts for passage in (*draft.positives, *draft.negatives, draft.evidence))
    return {passage for passage in named if isinstance(passage, Wanted)}
