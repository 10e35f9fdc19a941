"""Data that the web page needs besides searches: sample questions, and the words to mark in a full text."""

from __future__ import annotations

import itertools
from pathlib import Path

from sparta.base.errors import SpartaError
from sparta.data.queries import read_queries
from sparta.search.explain import Explanation, marked_words
from sparta.search.retriever import hit_of
from sparta.search.searcher import Searcher

_QUESTIONS = 6
_DIGITS = 4


def example_questions(index: Path) -> list[str]:
    """Return the first questions of the file `questions.jsonl` beside an index folder, where there is one.

    The path of the corpus in the manifest is not used: whoever made the index may have named any file.
    """
    try:
        path = index.absolute().with_name("questions.jsonl")
        questions = read_queries(path) if path.is_file() else ()
        return [query.text for query in itertools.islice(questions, _QUESTIONS)]
    except (SpartaError, OSError):
        return []  # a question fewer is no reason not to serve


def marks_of_text(searcher: Searcher, why: Explanation) -> list[tuple[int, int, float]]:
    """The words to mark in a passage's text, by share of its score."""
    text = hit_of(why.passage_id, why.score, searcher.passage(why.passage_id)).text
    contributions = {term.term: float(term.contribution) for term in why.terms if term.contribution}
    words = marked_words(searcher.tokenizer, text, contributions)
    return [(start, end, round(added / why.score, _DIGITS)) for start, end, added in words]
