"""Why a passage was found: terms, impacts, weights, and where they show in the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from sparta.models.query_encoder import QueryTokenizer
from sparta.search.searcher import Searcher, docid_of

_HAN = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # written without spaces: each character is a word
_WORD = re.compile(rf"[{_HAN}]|(?:(?![{_HAN}])\w)+|[^\w\s]")
_SNIPPET_WORDS = 40
_LEAD = 8  # of the words shown, one in so many stands before the first match


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


def explain(searcher: Searcher, query: str, passage_id: str) -> Explanation:
    """Explain a passage's score by impacts for a query, whether or not it is among the first hits.

    Each query term's share is its count times the passage's impact (SPARTA, eq. 8 and 9), strongest first.

    :raises InputError: the index holds no such passage.
    """
    with searcher.index.reading() as view:
        docid = docid_of(view.lucene, passage_id)
        bag = view.tokenizer.terms(query)
        impacts = view.lucene.impacts(docid, list(bag))
        step = view.quantizer.step
        rank = view.lucene.rank(bag, docid)
    shares = [
        TermShare(term, count, int(impact), float(impact * step))
        for (term, count), impact in zip(bag.items(), impacts, strict=True)
    ]
    shares.sort(key=lambda s: -s.share)
    return Explanation(passage_id, rank, sum(s.share for s in shares), tuple(shares))


def top_terms(searcher: Searcher, passage_id: str, n: int | None = None) -> list[tuple[str, int, float]]:
    """The strongest terms of a passage, `(term, impact, weight)` (SPARTA, Table 6)."""
    with searcher.index.reading() as view:
        vector = view.lucene.vector(docid_of(view.lucene, passage_id))
        step = view.quantizer.step
    order = sorted(vector.items(), key=lambda item: (-item[1], item[0]))[:n]
    return [(term, impact, impact * step) for term, impact in order]


def snippet(
    tokenizer: QueryTokenizer,
    text: str,
    terms: Collection[str],
    mark: Callable[[str], str],
    words: int = _SNIPPET_WORDS,
) -> str:
    """About `words` words of a text around the most matches, the words that contain a query term marked."""
    found = list(_WORD.finditer(text))
    matched = [_matches(tokenizer, m.group(), terms) for m in found]
    start = _best_window(matched, words)
    end = min(len(found), start + words)
    if not found:
        return ""
    pieces, at = [], found[start].start()
    for m, hit in zip(found[start:end], matched[start:end], strict=True):
        pieces += [text[at : m.start()], mark(m.group()) if hit else m.group()]
        at = m.end()
    before, after = "… " if start else "", " …" if end < len(found) else ""
    return before + " ".join("".join(pieces).split()) + after


def _matches(tokenizer: QueryTokenizer, word: str, terms: Collection[str]) -> bool:
    encoded = tokenizer.tokenizer.encode(word, add_special_tokens=False)
    return word[0].isalnum() and any(token in terms for token in encoded.tokens)


def _best_window(matched: list[bool], words: int) -> int:
    """Of the windows of `words` words one with the most matches, begun a little before the first of them."""
    if len(matched) <= words:
        return 0
    running = [0]
    for hit in matched:
        running.append(running[-1] + hit)
    last = len(matched) - words
    best = max(range(last + 1), key=lambda s: (running[s + words] - running[s], -s))
    first_match = next((i for i in range(best, best + words) if matched[i]), best)
    return max(best, min(first_match - words // _LEAD, last))
