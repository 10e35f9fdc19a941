"""Explain a hit: its terms with impacts and weights, and the matching words of its text."""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparta.base.checks import limit, query_of
from sparta.base.filters import Filter, FilterLike
from sparta.base.renames import renamed_attributes
from sparta.data.languages import Language
from sparta.data.units import is_chunk, is_sentence_of_passage, passage_of
from sparta.index.snapshot import IndexSnapshot
from sparta.lucene.packing import composed
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.contexts import passages_of
from sparta.search.searcher import Searcher, docids_of

_LEAD_FRACTION = 8  # an eighth of a snippet's words precedes the first match
_LONGEST_SNIPPET = 500  # characters of a snippet
_LONGEST_WORD = 50  # characters; Thai, addresses and base64 have no spaces, so longer words are split
_SMALLEST_MARKED_FRACTION = 0.1  # as a fraction of the highest contribution
_DIGITS = 6


@renamed_attributes(share="contribution")
@dataclass(frozen=True, slots=True)
class TermContribution:
    """A query term's contribution to a score: `count · impact`.

    `weight` is the impact converted back to a weight.
    `count` is how often the query contains the term, or the model's weight of the term in steps of the
    quantizer's grid. `word` is the word of the query that the term is from, or a pair of words.
    """

    term: str
    count: int
    impact: int
    weight: float
    word: str = ""

    def as_dict(self) -> dict[str, float | str]:
        """Return the fields as a dictionary for JSON."""
        weight = round(self.weight, 4)
        return {
            "term": self.term,
            "word": self.word or self.term,
            "count": self.count,
            "impact": self.impact,
            "weight": weight,
            "share": self.contribution,
        }

    @property
    def contribution(self) -> int:
        """The term's contribution to the score, in units of impact."""
        return self.count * self.impact

    @property
    def name(self) -> str:
        """The term; of a pair of words, whose term is a hash, the words."""
        return self.word if self.word and " " in self.term else self.term


class WordContribution(NamedTuple):
    """A query word's contribution to a score: that of its terms, which are wordpieces and lexical terms."""

    word: str
    terms: tuple[TermContribution, ...]

    @property
    def contribution(self) -> int:
        """The word's contribution to the score, in units of impact."""
        return sum(term.contribution for term in self.terms)


def by_word(terms: Iterable[TermContribution]) -> list[WordContribution]:
    """Return the contributions of words, the largest first. A pair counts only if it adds to the score."""
    grouped: dict[str, list[TermContribution]] = {}
    for term in terms:
        if term.impact or " " not in term.term:
            grouped.setdefault(term.word or term.term, []).append(term)
    words = [WordContribution(word, tuple(of_word)) for word, of_word in grouped.items()]
    return sorted(words, key=lambda word: -word.contribution)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A passage's impact score for a query, term by term; `rank` is 0 if the passage is not a hit."""

    passage_id: str
    rank: int
    score: int
    terms: tuple[TermContribution, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        terms = [term.as_dict() for term in self.terms]
        return {"id": self.passage_id, "rank": self.rank, "score": self.score, "terms": terms}

    @property
    def words(self) -> list[WordContribution]:
        """The contributions of the query's words, the largest first."""
        return by_word(self.terms)

    def __str__(self) -> str:
        lines = [f"{term.name}: {term.count} x {term.impact} = {term.contribution}" for term in self.terms]
        rank = f"rank {self.rank}" if self.rank else "no hit"
        return "\n".join([f"{self.passage_id}: score {self.score}, {rank}", *lines])


def explain(searcher: Searcher, query: str, passage_id: str, filter: FilterLike | None = None) -> Explanation:
    """Explain a passage's impact score for a query, even if the passage is not among the top k.

    Each query term's contribution is its count times the passage's impact (SPARTA, eq. 8 and 9); the largest
    contribution comes first. A split passage has the score of its best part. The rank of a document counts
    documents; the rank of a chunk, such as `d#3`, counts chunks.

    :param filter: rank only among passages that match the filter, and explain a split passage by its best
        part that matches; a passage that does not match has rank 0
    :raises InputError: the index lacks the passage.
    """
    checked_filter = Filter.of(filter)
    with searcher.reader.snapshot() as snapshot:
        snapshot.require_impacts()
        if checked_filter:
            snapshot.require_fields(checked_filter.fields)
        bag = snapshot.tokenizer.terms(query_of(query))
        words = snapshot.tokenizer.words_of_terms(query)
        docids = docids_of(snapshot, passage_id, checked_filter)
        docid, contributions = _contributions(snapshot, docids, bag, words)
        rank = snapshot.lucene.rank(bag, docid, checked_filter)
        if rank and is_chunk(snapshot.generation.unit) and passage_of(passage_id) == passage_id:
            better_hits = snapshot.lucene.search_impacts([bag], rank, filter=checked_filter)
            rank = len(set(map(passage_of, snapshot.lucene.ids(better_hits.docids))))
    return Explanation(passage_id, rank, sum(term.contribution for term in contributions), contributions)


def term_contributions(
    searcher: Searcher, query: str, hits: Iterable[tuple[str, int]]
) -> list[tuple[TermContribution, ...]]:
    """Return each query term's contribution to each hit's score, as in `explain`, without ranks.

    :param hits: the passage id and the `start` of each hit; a document is explained by its chunk at `start`
    """
    with searcher.reader.snapshot() as snapshot:
        snapshot.require_impacts()
        bag, words = snapshot.tokenizer.terms(query), snapshot.tokenizer.words_of_terms(query)
        return [_contributions(snapshot, _docids_of_hit(snapshot, *hit), bag, words)[1] for hit in hits]


def _docids_of_hit(snapshot: IndexSnapshot, passage_id: str, start: int) -> list[int]:
    """Return the docid of a hit; the hit of a document is the document's chunk at `start`."""
    docids = docids_of(snapshot, passage_id)
    if len(docids) == 1:
        return docids
    records = map(json.loads, snapshot.lucene.raws(docids))
    at_start = [docid for docid, record in zip(docids, records, strict=True) if record.get("start") == start]
    return at_start or docids


def _contributions(
    snapshot: IndexSnapshot, docids: Sequence[int], bag: Mapping[str, int], words: Mapping[str, str]
) -> tuple[int, tuple[TermContribution, ...]]:
    """Return the best-scoring docid, the first one of equal scores, and its contributions."""
    docid, impacts = _best_part(snapshot, docids, bag)
    step = snapshot.quantizer.step
    rows = zip(bag.items(), impacts, strict=True)
    contributions = [
        TermContribution(term, count, int(impact), float(impact * step), words.get(term, term))
        for (term, count), impact in rows
    ]
    return docid, tuple(sorted(contributions, key=lambda term: -term.contribution))


def _best_part(
    snapshot: IndexSnapshot, docids: Sequence[int], bag: Mapping[str, int]
) -> tuple[int, list[int]]:
    """Return the docid and impacts of the best-scoring part of a passage; the first part wins a tie."""
    rows = [(docid, snapshot.lucene.impacts(docid, list(bag)).tolist()) for docid in docids]
    return max(rows, key=lambda row: sum(c * impact for c, impact in zip(bag.values(), row[1], strict=True)))


def top_terms(searcher: Searcher, passage_id: str, n: int | None = None) -> list[tuple[str, int, float]]:
    """Return the strongest terms of a passage, `(term, impact, weight)` (SPARTA, Table 6).

    A split passage takes each term's maximum impact over its parts. A pair of words is named by its words.
    """
    n = limit("n", n)
    with searcher.reader.snapshot() as snapshot:
        snapshot.require_impacts()
        vector: Counter[str] = Counter()
        docids = docids_of(snapshot, passage_id)
        for docid in docids:
            vector |= Counter(snapshot.lucene.vector(docid))
        step = snapshot.quantizer.step
        pairs = _pairs(snapshot, docids)
    order = sorted(vector.items(), key=lambda item: (-item[1], item[0]))[:n]
    return [(pairs.get(term, term), impact, impact * step) for term, impact in order]


def _pairs(snapshot: IndexSnapshot, docids: Sequence[int]) -> dict[str, str]:
    """Return the words of each pair in passages, by the pair's term, as the texts spell the words first."""
    lexical, pairs = snapshot.tokenizer.lexical, dict[str, str]()
    records = [json.loads(raw) for raw in snapshot.lucene.raws(docids)] if lexical else []
    sentences = filter(is_sentence_of_passage, records)
    passages = passages_of(snapshot.lucene, (record["passage_id"] for record in sentences))
    for record in records:  # the pairs of a sentence are those of its context
        content = passages[record["passage_id"]] if is_sentence_of_passage(record) else record["contents"]
        context = record.get("context") or content
        text = snapshot.tokenizer.language.fold(f"{record.get('title') or ''} . {context}")
        for term, start, end in lexical.occurrences(text) if lexical else ():
            if " " in term:
                pairs.setdefault(term, " ".join(text[start:end].lower().split()))
    return pairs


class Snippet(NamedTuple):
    """A part of a text; `marks` lists the words behind the score as `(start, end, contribution)`."""

    text: str
    marks: list[tuple[int, int, float]]

    def shown(self, mark: Callable[[str], str]) -> str:
        """Return the text with each marked word passed through `mark`."""
        pieces, position = [], 0
        for start, end, _ in self.marks:
            pieces += [self.text[position:start], mark(self.text[start:end])]
            position = end
        return "".join([*pieces, self.text[position:]])


def marked_snippet(
    tokenizer: QueryTokenizer,
    text: str,
    terms: Mapping[str, float] | Collection[str],
    words: int | None = None,
) -> Snippet:
    """Return the window of about `words` words whose distinct query terms contribute most.

    A word is marked if it begins with a query term and such terms cover at least half of the word. The terms
    must have at least a tenth of the highest contribution. Stop words are marked only if no other word is.
    Runs of white space become one blank. A window of more than 500 characters is cut to the characters around
    its first match.

    :param terms: query terms with their contributions to the score; without contributions, all count equally
    :param words: the length of the window in words; None means the language's default
    """
    contributions = dict(terms) if isinstance(terms, Mapping) else dict.fromkeys(terms, 1.0)
    return _window(tokenizer.language, text, _places(tokenizer, text, contributions), contributions, words)


def word_snippets(searcher: Searcher, query: str, words: int | None = None) -> Callable[[str], Snippet]:
    """Return a function that makes a BM25 snippet of a text, with equal weights for all words.

    The function marks the words that BM25's analyzer matches with a word of the query. For Chinese, the
    analyzer reads pairs of characters and single characters; a single character is marked only if no pair
    matches. The snippet shows the `composed` text, which the analyzer reads.
    """
    with searcher.reader.snapshot() as snapshot:
        language = snapshot.tokenizer.language
        folded_query = language.fold(query)
        whole_words = _whole_words(snapshot.lucene.word_places(folded_query, folded_query))

    def snippet(text: str) -> Snippet:
        text = composed(text)
        with searcher.reader.snapshot() as snapshot:
            matches = snapshot.lucene.word_places(folded_query, language.fold(text))
        matches = [place for place in matches if place[0] in whole_words] or matches
        places = [_Place(str(word), start, end) for word, start, end in matches]
        return _window(language, text, places, dict.fromkeys((place.term for place in places), 1.0), words)

    return snippet


def _whole_words(places: Iterable[tuple[int, int, int]]) -> set[int]:
    """Return the numbers of the query's words that occur outside any longer word."""
    whole, begin, furthest = set(), -1, 0
    for word, start, end in sorted(places, key=lambda place: (place[1], -place[2])):
        if end > furthest or (start, end) == (begin, furthest):
            whole.add(word)
            begin, furthest = start, end
    return whole


def marked_words(
    tokenizer: QueryTokenizer, text: str, contributions: Mapping[str, float]
) -> list[tuple[int, int, float]]:
    """Return the marks of a whole text, `(start, end, contribution)`, by the rules of `marked_snippet`."""
    return _marks(_words(tokenizer.language, text, _places(tokenizer, text, contributions)), contributions)


class _Place(NamedTuple):
    """The place of a term in a text."""

    term: str
    start: int
    end: int


class _Word(NamedTuple):
    """A word, a character or a piece of a long word in a text, with the query terms in it."""

    start: int
    end: int
    terms: tuple[str, ...]


def _window(
    language: Language,
    text: str,
    places: Sequence[_Place],
    contributions: Mapping[str, float],
    words: int | None,
) -> Snippet:
    """Return the snippet of a text, given the places of the query terms."""
    all_words = _words(language, text, places)
    if not all_words:
        return Snippet("", [])
    first, last = _shortened(all_words, *_best_window(all_words, contributions, words or language.snippet))
    shown, position = "… " if first else "", all_words[first].start
    window = []
    for start, end, terms in all_words[first:last]:
        shown += " " * (start > position)
        window.append(_Word(len(shown), len(shown) + end - start, terms))
        shown += text[start:end]
        position = end
    return Snippet(shown + (" …" if last < len(all_words) else ""), _marks(window, contributions))


def _marks(words: Iterable[_Word], contributions: Mapping[str, float]) -> list[tuple[int, int, float]]:
    """Return the marks of words whose terms have at least a tenth of the highest contribution.

    Adjacent words with a common term become one mark.
    """
    smallest_contribution = max(contributions.values(), default=0.0) * _SMALLEST_MARKED_FRACTION
    marks: list[_Word] = []
    for word in words:
        if not any(contributions[term] >= smallest_contribution for term in word.terms):
            continue
        last = marks[-1] if marks else None
        if last and last.end == word.start and set(last.terms) & set(word.terms):
            merged_terms = tuple(dict.fromkeys(last.terms + word.terms))
            marks[-1] = _Word(last.start, word.end, merged_terms)
        else:
            marks.append(word)
    return [(start, end, sum(contributions[term] for term in terms)) for start, end, terms in marks]


def _words(language: Language, text: str, places: Sequence[_Place]) -> list[_Word]:
    """Return the words of a text with the query terms in each word.

    Long words are split, also at term borders.
    """
    spans = [word.span() for word in language.words.finditer(text)]
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
    """Return a word's span, or the spans of the pieces of a word that is too long."""
    if end - start <= _LONGEST_WORD:
        return [(start, end)]
    inner_edges = edges[bisect_right(edges, start) : bisect_left(edges, end)]
    cuts = itertools.pairwise([start, *inner_edges, end])
    return itertools.pairwise([*(at for a, b in cuts for at in range(a, b, _LONGEST_WORD)), end])


def _places(tokenizer: QueryTokenizer, text: str, terms: Collection[str]) -> list[_Place]:
    """Return the places of query terms in a text; stop words have places only if no other term has.

    Text without spaces between words is tokenized as a whole. Pairs have no places: their words have.
    """
    if not tokenizer.language.spaced:
        return [_Place(*piece) for piece in tokenizer.pieces(text) if piece[0] in terms]
    matches = _Matches(tokenizer, terms)
    places = [
        _Place(term, word.start() + start, word.start() + end)
        for word in tokenizer.language.words.finditer(text)
        for term, start, end in matches[word.group()]
    ]
    if tokenizer.lexical is None:
        return places
    words = {term for term in terms if " " not in term and not tokenizer.has_piece(term)}
    lower = text.lower()
    if words and not (text.isascii() and not any(word in lower for word in words)):  # reading takes a while
        occurrences = tokenizer.lexical.occurrences(tokenizer.language.fold(text))
        places += [_Place(*occurrence) for occurrence in occurrences if occurrence.term in words]
    stop_words = set(tokenizer.lexical.settings.stop_words.split())
    return [place for place in places if place.term not in stop_words] or places


class _Matches(dict[str, Sequence[_Place]]):
    """A cache of the query terms in each word. A word is tokenized once, and only if it may contain a term.

    The cache saves time because texts may be long.
    """

    def __init__(self, tokenizer: QueryTokenizer, terms: Collection[str]) -> None:
        super().__init__()
        self.tokenizer, self.terms = tokenizer, set(terms)
        self.letters = [term.removeprefix("##") for term in terms]

    def __missing__(self, word: str) -> Sequence[_Place]:
        self[word] = places = self._places_in(word)
        return places

    def _places_in(self, word: str) -> Sequence[_Place]:
        lower = word.lower()
        possible = not word.isascii() or any(letters in lower for letters in self.letters)
        if not possible or not word[0].isalnum():
            return ()
        places = [_Place(*piece) for piece in self.tokenizer.pieces(word) if piece[0] in self.terms]
        if not places or len(word) > _LONGEST_WORD:
            return places
        matched = sum(place.end - place.start for place in places)
        # Many words share a prefix or an ending with the query term, such as un- or -s.
        return places if not places[0].start and 2 * matched >= len(word) else ()


def _best_window(
    text_words: Sequence[_Word], contributions: Mapping[str, float], words: int
) -> tuple[int, int]:
    """Return the bounds of the best window: highest total contribution, then most matches.

    The window starts shortly before its first match.
    """
    last_start = len(text_words) - words
    if last_start <= 0:
        return 0, len(text_words)
    inside: Counter[str] = Counter()
    best, highest, score, matches = 0, (-1.0, 0), 0.0, 0
    for i, word in enumerate(text_words):
        matches += len(word.terms) - (len(text_words[i - words].terms) if i >= words else 0)
        for term in word.terms:
            inside[term] += 1
            score += contributions[term] if inside[term] == 1 else 0.0
        if i >= words:
            for term in text_words[i - words].terms:
                inside[term] -= 1
                score -= contributions[term] if not inside[term] else 0.0
        key = (round(score, _DIGITS), matches)
        if i >= words - 1 and key > highest:
            best, highest = i - words + 1, key
    first = next((i for i in range(best, best + words) if text_words[i].terms), best)
    start = max(best, min(first - words // _LEAD_FRACTION, last_start))
    return start, start + words


def _shortened(text_words: Sequence[_Word], first: int, last: int) -> tuple[int, int]:
    """Shorten a window that has too many characters: first before its first match, then at its end."""
    match = next((i for i in range(first, last) if text_words[i].terms), first)
    while text_words[last - 1].end - text_words[first].start > _LONGEST_SNIPPET and (
        text_words[match].start - text_words[first].start > _LONGEST_SNIPPET // _LEAD_FRACTION
    ):
        first += 1
    while text_words[last - 1].end - text_words[first].start > _LONGEST_SNIPPET and last > first + 1:
        last -= 1
    return first, last
