"""Data for the web page besides searches: sample questions, and the words to mark in a passage's text."""

from __future__ import annotations

import itertools
from pathlib import Path

from sparta.base.errors import SpartaError
from sparta.data.queries import read_queries
from sparta.search.explain import Explanation
from sparta.search.retriever import hit_of
from sparta.search.searcher import Searcher
from sparta.search.snippet import marked_words

_QUESTIONS = 6
_DIGITS = 4


def example_questions(index: Path) -> list[str]:
    """Return the first six questions of `questions.jsonl` beside an index folder; [] without a valid file.

    The path of the corpus in the manifest is not used: whoever made the index may have named any file.
    """
    try:
        path = index.absolute().with_name("questions.jsonl")
        questions = read_queries(path) if path.is_file() else ()
        return [query.text for query in itertools.islice(questions, _QUESTIONS)]
    except (SpartaError, OSError):
        return []  # sample questions are optional: the service starts without them


def marks_of_text(searcher: Searcher, why: Explanation) -> list[tuple[int, int, float]]:
    """Return the words to mark in a passage's text: (start, end, the word's share of the score)."""
    text = hit_of(why.passage_id, why.score, searcher.passage(why.passage_id)).text
    contributions = {term.term: float(term.contribution) for term in why.terms if term.contribution}
    words = marked_words(searcher.tokenizer, text, contributions)
    return [(start, end, round(added / why.score, _DIGITS)) for start, end, added in words]
