"""Why a passage was found: terms, impacts, weights, and where they show in the text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparta.base.filters import Filter, FilterLike
from sparta.data.units import is_chunk, passage_of
from sparta.index.view import IndexView
from sparta.lucene.bridge import ImpactSearcher
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.searcher import Searcher, docid_of, docids_of

_LEAD = 8  # of the words shown, one in so many stands before the first match
_MARKED_FROM = 0.1  # of the highest share
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class TermShare:
    """One query term's part in a score: `count · impact`; `weight` is what the impact stands for.

    `count` is how often the term occurs in the query, or the model's weight for it in steps of its grid.
    """

    term: str
    count: int
    impact: int
    weight: float

    def as_dict(self) -> dict[str, float | str]:
        """For JSON."""
        weight = round(self.weight, 4)
        return {
            "term": self.term,
            "count": self.count,
            "impact": self.impact,
            "weight": weight,
            "share": self.share,
        }

    @property
    def share(self) -> int:
        """What the term adds to the score, in units of impact."""
        return self.count * self.impact


@dataclass(frozen=True, slots=True)
class Explanation:
    """A passage's score for a question, term by term; `rank` is 0 when the passage scores nothing."""

    passage_id: str
    rank: int
    score: int
    terms: tuple[TermShare, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        terms = [term.as_dict() for term in self.terms]
        return {"id": self.passage_id, "rank": self.rank, "score": self.score, "terms": terms}

    def __str__(self) -> str:
        lines = [f"{s.term}: {s.count} x {s.impact} = {s.share}" for s in self.terms]
        rank = f"rank {self.rank}" if self.rank else "no hit"
        return "\n".join([f"{self.passage_id}: score {self.score}, {rank}", *lines])


def explain(searcher: Searcher, query: str, passage_id: str, filter: FilterLike | None = None) -> Explanation:
    """Explain a passage's score by impacts for a query, whether or not it is among the first hits.

    Each query term's share is its count times the passage's impact (SPARTA, eq. 8 and 9), strongest first.

    :param filter: the rank is that among the passages that it keeps, 0 for another
    :raises InputError: the index holds no such passage.
    """
    kept = Filter.of(filter)
    with searcher.index.reading() as view:
        view.require_impacts()
        if kept:
            view.require_fields()
        bag = view.tokenizer.terms(query)
        docid, shares = _shares(view, passage_id, bag)
        rank = view.lucene.rank(bag, docid, kept)
        if rank and is_chunk(view.generation.unit):
            before = view.lucene.search_impacts([bag], rank, filter=kept)
            rank = len(set(map(passage_of, view.lucene.ids(before.docids))))
    return Explanation(passage_id, rank, sum(s.share for s in shares), shares)


def term_shares(searcher: Searcher, query: str, passage_ids: Iterable[str]) -> list[tuple[TermShare, ...]]:
    """What each query term adds to the score of each of some passages, as in `explain`, without ranks."""
    with searcher.index.reading() as view:
        view.require_impacts()
        bag = view.tokenizer.terms(query)
        return [_shares(view, passage_id, bag)[1] for passage_id in passage_ids]


def _shares(view: IndexView, passage_id: str, bag: Mapping[str, int]) -> tuple[int, tuple[TermShare, ...]]:
    docid, impacts = _best_part(view.lucene, passage_id, bag)
    step = view.quantizer.step
    rows = zip(bag.items(), impacts, strict=True)
    shares = [TermShare(term, count, int(impact), float(impact * step)) for (term, count), impact in rows]
    return docid, tuple(sorted(shares, key=lambda s: -s.share))


def _best_part(lucene: ImpactSearcher, passage_id: str, bag: Mapping[str, int]) -> tuple[int, list[int]]:
    """The docid and impacts of a passage or, where it was cut, of its part with the highest score."""
    rows = [(docid, lucene.impacts(docid, list(bag)).tolist()) for docid in docids_of(lucene, passage_id)]
    return max(rows, key=lambda row: sum(c * impact for c, impact in zip(bag.values(), row[1], strict=True)))


def top_terms(searcher: Searcher, passage_id: str, n: int | None = None) -> list[tuple[str, int, float]]:
    """The strongest terms of a passage, `(term, impact, weight)` (SPARTA, Table 6)."""
    with searcher.index.reading() as view:
        view.require_impacts()
        vector = view.lucene.vector(docid_of(view.lucene, passage_id))
        step = view.quantizer.step
    order = sorted(vector.items(), key=lambda item: (-item[1], item[0]))[:n]
    return [(term, impact, impact * step) for term, impact in order]


class Snippet(NamedTuple):
    """A part of a text; `marks` are words in it, `(start, end, share)`: the words that made the score."""

    text: str
    marks: list[tuple[int, int, float]]


def snippet(
    tokenizer: QueryTokenizer,
    text: str,
    terms: Mapping[str, float] | Collection[str],
    mark: Callable[[str], str],
    words: int | None = None,
) -> str:
    """The same as `marked_snippet` as one text, in which `mark` says how a word is shown."""
    found = marked_snippet(tokenizer, text, terms, words)
    pieces, at = [], 0
    for start, end, _ in found.marks:
        pieces += [found.text[at:start], mark(found.text[start:end])]
        at = end
    return "".join([*pieces, found.text[at:]])


def marked_snippet(
    tokenizer: QueryTokenizer,
    text: str,
    terms: Mapping[str, float] | Collection[str],
    words: int | None = None,
) -> Snippet:
    """About `words` words of a text: the window whose distinct terms have the highest shares together.

    Words are marked that contain a term with at least a tenth of the highest share. White space is one blank.

    :param terms: query terms with their shares of the score; without shares, all count alike
    :param words: None is as many as the language has it
    """
    shares = dict(terms) if isinstance(terms, Mapping) else dict.fromkeys(terms, 1.0)
    words = words or tokenizer.language.snippet
    found = list(tokenizer.language.words.finditer(text))
    if not found:
        return Snippet("", [])
    matched = _matched(tokenizer, text, found, shares)
    start = _best_window(matched, shares, words)
    last = min(len(found), start + words)
    shown, at = "… " if start else "", found[start].start()
    marks = []
    for m, own in zip(found[start:last], matched[start:last], strict=True):
        shown += " " * (m.start() > at)
        marks.append(_Mark(len(shown), len(shown) + len(m.group()), own))
        shown += m.group()
        at = m.end()
    shown += " …" if last < len(found) else ""
    return Snippet(shown, _marks(marks, shares, spaced=tokenizer.language.spaced))


def marked_words(
    tokenizer: QueryTokenizer, text: str, shares: Mapping[str, float]
) -> list[tuple[int, int, float]]:
    """The same words in a whole text as it is, `(start, end, share)`."""
    found = list(tokenizer.language.words.finditer(text))
    matched = _matched(tokenizer, text, found, shares)
    marks = [_Mark(*m.span(), own) for m, own in zip(found, matched, strict=True)]
    return _marks(marks, shares, spaced=tokenizer.language.spaced)


class _Mark(NamedTuple):
    """A word or a character of a text, and the terms in it."""

    start: int
    end: int
    terms: tuple[str, ...]


def _marks(
    words: Iterable[_Mark], shares: Mapping[str, float], *, spaced: bool
) -> list[tuple[int, int, float]]:
    """Those with a term that has a tenth of the highest share; characters of one term are marked as one."""
    least = max(shares.values(), default=0.0) * _MARKED_FROM
    marks: list[_Mark] = []
    for word in words:
        if not any(shares[term] >= least for term in word.terms):
            continue
        last = marks[-1] if marks else None
        if last and not spaced and last.end == word.start and set(last.terms) & set(word.terms):
            together = tuple(dict.fromkeys(last.terms + word.terms))
            marks[-1] = _Mark(last.start, word.end, together)
        else:
            marks.append(word)
    return [(start, end, sum(shares[term] for term in terms)) for start, end, terms in marks]


def _matched(
    tokenizer: QueryTokenizer, text: str, words: Sequence[re.Match[str]], terms: Collection[str]
) -> list[tuple[str, ...]]:
    """The terms in each word of a text; where no spaces are between words, the text is tokenized as one."""
    if tokenizer.language.spaced:
        matches = _Matches(tokenizer, terms)
        return [matches[m.group()] for m in words]
    inside: list[list[str]] = [[] for _ in text]
    for term, start, end in tokenizer.pieces(text):
        for place in range(start, end) if term in terms else ():
            inside[place].append(term)
    return [tuple(dict.fromkeys(t for own in inside[m.start() : m.end()] for t in own)) for m in words]


class _Matches(dict[str, tuple[str, ...]]):
    """The terms in each word. A word is tokenized once, and only if it may hold a term: texts may be long."""

    def __init__(self, tokenizer: QueryTokenizer, terms: Collection[str]) -> None:
        super().__init__()
        self.tokenizer, self.terms = tokenizer, set(terms)
        self.letters = [term.removeprefix("##") for term in terms]

    def __missing__(self, word: str) -> tuple[str, ...]:
        self[word] = found = self._found(word)
        return found

    def _found(self, word: str) -> tuple[str, ...]:
        lower = word.lower()
        possible = not word.isascii() or any(letters in lower for letters in self.letters)
        if not possible or not word[0].isalnum():
            return ()
        tokens = dict.fromkeys(token for token, *_ in self.tokenizer.pieces(word))
        return tuple(token for token in tokens if token in self.terms)


def _best_window(matched: Sequence[Sequence[str]], shares: Mapping[str, float], words: int) -> int:
    """The start of the best window, of equal ones that with most matches, a little before its first match."""
    last = len(matched) - words
    if last <= 0:
        return 0
    inside: Counter[str] = Counter()
    best, highest, score = 0, (-1.0, 0), 0.0
    for i, own in enumerate(matched):
        for term in own:
            inside[term] += 1
            score += shares[term] if inside[term] == 1 else 0.0
        if i >= words:
            for term in matched[i - words]:
                inside[term] -= 1
                score -= shares[term] if not inside[term] else 0.0
        key = (round(score, _DIGITS), inside.total())
        if i >= words - 1 and key > highest:
            best, highest = i - words + 1, key
    first = next((i for i in range(best, best + words) if matched[i]), best)
    return max(best, min(first - words // _LEAD, last))
