"""Why a passage was found: terms, impacts, weights, and where they show in the text."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparta.base.checks import limit, query_of
from sparta.base.filters import Filter, FilterLike
from sparta.data.languages import Language
from sparta.data.units import is_chunk, passage_of
from sparta.index.snapshot import IndexSnapshot
from sparta.lucene.packing import composed
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.searcher import Searcher, docids_of

_LEAD = 8  # of the words shown, one in so many stands before the first match
_LONGEST = 500  # characters of a snippet
_LONGEST_WORD = 50  # characters that are shown as one: Thai, addresses and base64 have no spaces
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
    with searcher.reader.reading() as snapshot:
        snapshot.require_impacts()
        if kept:
            snapshot.require_fields()
        bag = snapshot.tokenizer.terms(query_of(query))
        docid, shares = _shares(snapshot, passage_id, bag)
        rank = snapshot.lucene.rank(bag, docid, kept)
        if rank and is_chunk(snapshot.generation.unit):
            before = snapshot.lucene.search_impacts([bag], rank, filter=kept)
            rank = len(set(map(passage_of, snapshot.lucene.ids(before.docids))))
    return Explanation(passage_id, rank, sum(s.share for s in shares), shares)


def term_shares(searcher: Searcher, query: str, passage_ids: Iterable[str]) -> list[tuple[TermShare, ...]]:
    """What each query term adds to the score of each of some passages, as in `explain`, without ranks."""
    with searcher.reader.reading() as snapshot:
        snapshot.require_impacts()
        bag = snapshot.tokenizer.terms(query)
        return [_shares(snapshot, passage_id, bag)[1] for passage_id in passage_ids]


def _shares(
    snapshot: IndexSnapshot, passage_id: str, bag: Mapping[str, int]
) -> tuple[int, tuple[TermShare, ...]]:
    docid, impacts = _best_part(snapshot, passage_id, bag)
    step = snapshot.quantizer.step
    rows = zip(bag.items(), impacts, strict=True)
    shares = [TermShare(term, count, int(impact), float(impact * step)) for (term, count), impact in rows]
    return docid, tuple(sorted(shares, key=lambda s: -s.share))


def _best_part(snapshot: IndexSnapshot, passage_id: str, bag: Mapping[str, int]) -> tuple[int, list[int]]:
    """The docid and impacts of a passage or, where it was cut, of its part with the highest score."""
    docids = docids_of(snapshot, passage_id)
    rows = [(docid, snapshot.lucene.impacts(docid, list(bag)).tolist()) for docid in docids]
    return max(rows, key=lambda row: sum(c * impact for c, impact in zip(bag.values(), row[1], strict=True)))


def top_terms(searcher: Searcher, passage_id: str, n: int | None = None) -> list[tuple[str, int, float]]:
    """The strongest terms of a passage, `(term, impact, weight)` (SPARTA, Table 6).

    Of a passage that was cut, each term has the highest of its impacts in the parts.
    """
    n = limit("n", n)
    with searcher.reader.reading() as snapshot:
        snapshot.require_impacts()
        vector: Counter[str] = Counter()
        for docid in docids_of(snapshot, passage_id):
            vector |= Counter(snapshot.lucene.vector(docid))
        step = snapshot.quantizer.step
    order = sorted(vector.items(), key=lambda item: (-item[1], item[0]))[:n]
    return [(term, impact, impact * step) for term, impact in order]


class Snippet(NamedTuple):
    """A part of a text; `marks` are words in it, `(start, end, share)`: the words that made the score."""

    text: str
    marks: list[tuple[int, int, float]]

    def shown(self, mark: Callable[[str], str]) -> str:
        """The same as one text, in which `mark` says how a word is shown."""
        pieces, at = [], 0
        for start, end, _ in self.marks:
            pieces += [self.text[at:start], mark(self.text[start:end])]
            at = end
        return "".join([*pieces, self.text[at:]])


def marked_snippet(
    tokenizer: QueryTokenizer,
    text: str,
    terms: Mapping[str, float] | Collection[str],
    words: int | None = None,
) -> Snippet:
    """About `words` words of a text: the window whose distinct terms have the highest shares together.

    Words are marked that begin with a term, and of which such terms are at least half, where the terms have
    at least a tenth of the highest share. White space is one blank. Of more than 500 characters, the window
    shows those about its first match.

    :param terms: query terms with their shares of the score; without shares, all count alike
    :param words: None is as many as the language has it
    """
    shares = dict(terms) if isinstance(terms, Mapping) else dict.fromkeys(terms, 1.0)
    return _window(tokenizer.language, text, _places(tokenizer, text, shares), shares, words)


def word_snippets(searcher: Searcher, query: str, words: int | None = None) -> Callable[[str], Snippet]:
    """What makes the same of texts by BM25: words are marked that its analyzer takes for a word of the query,
    and count alike.

    Of Chinese it reads pairs of characters and each character: single ones are marked where no pair is. The
    snippet is of the `composed` text, which the analyzer reads.
    """
    with searcher.reader.reading() as snapshot:
        language = snapshot.tokenizer.language
        asked = language.fold(query)
        whole = _whole_words(snapshot.lucene.word_places(asked, asked))

    def snippet(text: str) -> Snippet:
        text = composed(text)
        with searcher.reader.reading() as snapshot:
            found = snapshot.lucene.word_places(asked, language.fold(text))
        found = [place for place in found if place[0] in whole] or found
        places = [_Place(str(word), start, end) for word, start, end in found]
        return _window(language, text, places, dict.fromkeys((place.term for place in places), 1.0), words)

    return snippet


def _whole_words(places: Iterable[tuple[int, int, int]]) -> set[int]:
    """The words of a query that are somewhere no part of a longer one."""
    whole, begin, furthest = set(), -1, 0
    for word, start, end in sorted(places, key=lambda place: (place[1], -place[2])):
        if end > furthest or (start, end) == (begin, furthest):
            whole.add(word)
            begin, furthest = start, end
    return whole


def marked_words(
    tokenizer: QueryTokenizer, text: str, shares: Mapping[str, float]
) -> list[tuple[int, int, float]]:
    """The same words in a whole text as it is, `(start, end, share)`."""
    return _marks(_words(tokenizer.language, text, _places(tokenizer, text, shares)), shares)


class _Place(NamedTuple):
    """Where a term stands in a text."""

    term: str
    start: int
    end: int


class _Word(NamedTuple):
    """A word or a character of a text, or a part of a long word, and the terms in it."""

    start: int
    end: int
    terms: tuple[str, ...]


def _window(
    language: Language, text: str, places: Sequence[_Place], shares: Mapping[str, float], words: int | None
) -> Snippet:
    """The snippet of a text with terms at these places."""
    found = _words(language, text, places)
    if not found:
        return Snippet("", [])
    first, last = _bounded(found, *_best_window(found, shares, words or language.snippet))
    shown, at = "… " if first else "", found[first].start
    window = []
    for start, end, terms in found[first:last]:
        shown += " " * (start > at)
        window.append(_Word(len(shown), len(shown) + end - start, terms))
        shown += text[start:end]
        at = end
    return Snippet(shown + (" …" if last < len(found) else ""), _marks(window, shares))


def _marks(words: Iterable[_Word], shares: Mapping[str, float]) -> list[tuple[int, int, float]]:
    """Those with a term that has a tenth of the highest share; side by side, those of one term are one."""
    least = max(shares.values(), default=0.0) * _MARKED_FROM
    marks: list[_Word] = []
    for word in words:
        if not any(shares[term] >= least for term in word.terms):
            continue
        last = marks[-1] if marks else None
        if last and last.end == word.start and set(last.terms) & set(word.terms):
            together = tuple(dict.fromkeys(last.terms + word.terms))
            marks[-1] = _Word(last.start, word.end, together)
        else:
            marks.append(word)
    return [(start, end, sum(shares[term] for term in terms)) for start, end, terms in marks]


def _words(language: Language, text: str, places: Sequence[_Place]) -> list[_Word]:
    """The words of a text with the terms in them; a long word is cut, also where a term begins or ends."""
    spans = [m.span() for m in language.words.finditer(text)]
    if any(end - start > _LONGEST_WORD for start, end in spans):
        edges = sorted({edge for place in places for edge in (place.start, place.end)})
        spans = [part for span in spans for part in _parts(*span, edges)]
    starts = [start for start, _ in spans]
    inside: dict[int, dict[str, None]] = {}
    for term, start, end in places:
        for i in range(max(0, bisect_right(starts, start) - 1), bisect_left(starts, end)):
            if spans[i][1] > start:
                inside.setdefault(i, {})[term] = None
    return [_Word(start, end, tuple(inside.get(i, ()))) for i, (start, end) in enumerate(spans)]


def _parts(start: int, end: int, edges: Sequence[int]) -> Iterable[tuple[int, int]]:
    """A word, or the parts of one that is too long."""
    if end - start <= _LONGEST_WORD:
        return [(start, end)]
    own = edges[bisect_right(edges, start) : bisect_left(edges, end)]
    cuts = itertools.pairwise([start, *own, end])
    return itertools.pairwise([*(at for a, b in cuts for at in range(a, b, _LONGEST_WORD)), end])


def _places(tokenizer: QueryTokenizer, text: str, terms: Collection[str]) -> list[_Place]:
    """Where terms stand in a text; where no spaces are between words, the text is tokenized as one."""
    if not tokenizer.language.spaced:
        return [_Place(*piece) for piece in tokenizer.pieces(text) if piece[0] in terms]
    matches = _Matches(tokenizer, terms)
    return [
        _Place(term, m.start() + start, m.start() + end)
        for m in tokenizer.language.words.finditer(text)
        for term, start, end in matches[m.group()]
    ]


class _Matches(dict[str, Sequence[_Place]]):
    """The terms in each word. A word is tokenized once, and only if it may hold a term: texts may be long."""

    def __init__(self, tokenizer: QueryTokenizer, terms: Collection[str]) -> None:
        super().__init__()
        self.tokenizer, self.terms = tokenizer, set(terms)
        self.letters = [term.removeprefix("##") for term in terms]

    def __missing__(self, word: str) -> Sequence[_Place]:
        self[word] = found = self._found(word)
        return found

    def _found(self, word: str) -> Sequence[_Place]:
        lower = word.lower()
        possible = not word.isascii() or any(letters in lower for letters in self.letters)
        if not possible or not word[0].isalnum():
            return ()
        found = [_Place(*piece) for piece in self.tokenizer.pieces(word) if piece[0] in self.terms]
        if not found or len(word) > _LONGEST_WORD:
            return found
        matched = sum(place.end - place.start for place in found)
        # Other words share a prefix or an ending with it: un-, -s.
        return found if not found[0].start and 2 * matched >= len(word) else ()


def _best_window(found: Sequence[_Word], shares: Mapping[str, float], words: int) -> tuple[int, int]:
    """The best window, of equal ones that with most matches, from a little before its first match."""
    last = len(found) - words
    if last <= 0:
        return 0, len(found)
    inside: Counter[str] = Counter()
    best, highest, score, matches = 0, (-1.0, 0), 0.0, 0
    for i, own in enumerate(found):
        matches += len(own.terms) - (len(found[i - words].terms) if i >= words else 0)
        for term in own.terms:
            inside[term] += 1
            score += shares[term] if inside[term] == 1 else 0.0
        if i >= words:
            for term in found[i - words].terms:
                inside[term] -= 1
                score -= shares[term] if not inside[term] else 0.0
        key = (round(score, _DIGITS), matches)
        if i >= words - 1 and key > highest:
            best, highest = i - words + 1, key
    first = next((i for i in range(best, best + words) if found[i].terms), best)
    start = max(best, min(first - words // _LEAD, last))
    return start, start + words


def _bounded(found: Sequence[_Word], first: int, last: int) -> tuple[int, int]:
    """A window without what makes it too long: before its first match, then at its end."""
    match = next((i for i in range(first, last) if found[i].terms), first)
    while found[last - 1].end - found[first].start > _LONGEST and (
        found[match].start - found[first].start > _LONGEST // _LEAD
    ):
        first += 1
    while found[last - 1].end - found[first].start > _LONGEST and last > first + 1:
        last -= 1
    return first, last
