"""Snippets: the best window of a text, with the words that match a query marked."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from sparta.data.languages import Language
from sparta.lucene.packing import composed
from sparta.models.query_encoder import QueryTokenizer, without_mark
from sparta.search.searcher import Searcher

_LEAD_FRACTION = 8  # an eighth of a snippet's words precedes the first match
_LONGEST_SNIPPET = 500  # characters of a snippet
_LONGEST_WORD = 50  # characters; addresses and base64 have no spaces, so longer words are split
_SMALLEST_MARKED_FRACTION = 0.1  # as a fraction of the highest contribution
_DIGITS = 6


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


def word_snippets(searcher: Searcher, query: str) -> Callable[[str], Snippet]:
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
        return _window(language, text, places, dict.fromkeys((place.term for place in places), 1.0))

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
    words: int | None = None,
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

    Words of scripts without spaces and long words are split at term borders.
    """
    edges = sorted({edge for place in places for edge in (place.start, place.end)})
    spans = [
        part
        for word in language.words.finditer(text)
        for part in (_parts(*word.span(), edges) if _is_divisible(language, word[0]) else [word.span()])
    ]
    starts = [start for start, _ in spans]
    inside: dict[int, dict[str, None]] = {}
    for term, start, end in places:
        for i in range(max(0, bisect_right(starts, start) - 1), bisect_left(starts, end)):
            if spans[i][1] > start:
                inside.setdefault(i, {})[term] = None
    return [_Word(start, end, tuple(inside.get(i, ()))) for i, (start, end) in enumerate(spans)]


def _is_divisible(language: Language, word: str) -> bool:
    """Return whether a snippet may split a word: it is too long, or its script has no spaces."""
    return len(word) > _LONGEST_WORD or language.is_unspaced(word)


def _parts(start: int, end: int, edges: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Return the spans of the pieces of a word, cut at the edges of terms and where it is too long."""
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
    places = []
    for start, end in (word.span() for word in tokenizer.language.joined_words.finditer(text)):
        first = start - (text[start - 1 : start] == " ")
        places += [_Place(term, first + a, first + b) for term, a, b in matches[text[first:end]]]
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

    The cache saves time because texts may be long. A word includes the space before it, if there is one:
    byte-level tokenizers have different terms for a word with and without a space.
    """

    def __init__(self, tokenizer: QueryTokenizer, terms: Collection[str]) -> None:
        super().__init__()
        self.tokenizer, self.terms = tokenizer, set(terms)
        self.letters = [without_mark(term).lower() for term in terms]

    def __missing__(self, word: str) -> Sequence[_Place]:
        self[word] = places = self._places_in(word)
        return places

    def _places_in(self, spaced_word: str) -> Sequence[_Place]:
        word = spaced_word.removeprefix(" ")
        lower = word.lower()
        possible = not word.isascii() or any(letters in lower for letters in self.letters)
        if not possible or not word[0].isalnum():
            return ()
        places = [_Place(*piece) for piece in self.tokenizer.pieces(spaced_word) if piece[0] in self.terms]
        if not places or _is_divisible(self.tokenizer.language, word):
            return places
        matched = sum(place.end - place.start for place in places)
        # Many words share a prefix or an ending with the query term, such as un- or -s.
        is_at_start = places[0].start == len(spaced_word) - len(word)
        return places if is_at_start and 2 * matched >= len(word) else ()


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
