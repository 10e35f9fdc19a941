"""What the commands named search share: options, how a hit looks, runs of many questions."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import click

from cli._args import Text, counted, dumps, file_type, index_option, options
from cli._numbers import HIGHEST_COUNT
from sparta.base.errors import InputError

_QUESTIONS_AT_ONCE = 500  # bounds the memory that results take

search_options = options(
    click.argument("query", required=False, type=Text()),
    index_option,
    click.option(
        "-k",
        type=click.IntRange(1, HIGHEST_COUNT),
        default=10,
        show_default=True,
        help="How many passages.",
    ),
    click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each hit."),
    click.option("--queries", metavar="FILE", help="Many questions: TSV (id, text) or BEIR JSONL."),
    click.option("--output", type=file_type, help="With --queries: the TREC run to write."),
    click.option(
        "--threads", type=click.IntRange(1), default=1, show_default=True, help="With --queries: threads."
    ),
)


def check_search(command: str, given: dict[str, Any]) -> None:
    """Refuse options that do not go together."""
    query, queries, output = given["query"], given["queries"], given["output"]
    if (query is None) == (queries is None):
        raise InputError(
            f"expected a question or --queries FILE, found {'neither' if query is None else 'both'}",
            remedy=f'{command} "who founded google"',
        )
    if (queries is None) != (output is None):
        raise InputError(
            "expected --queries and --output together, found only one",
            remedy=f"{command} --queries questions.jsonl --output run.trec",
        )
    if queries is not None and given["as_json"]:
        raise InputError(
            "expected a TREC run, which is what --queries writes, found --json",
            remedy="leave --json out, or ask one question",
        )


def mark(word: str) -> str:
    """A word that matched, as a terminal or a file can show it."""
    return click.style(word, bold=True, underline=True) if sys.stdout.isatty() else f"*{word}*"


def print_hit(rank: int, hit: Any, record: dict[str, Any], score: str, text: str) -> None:
    """Rank, title, [id] and score; below them a part of the text."""
    title = record.get("title")
    heading = (
        f"{click.style(title, bold=True)}  [{hit.docid}]" if title else click.style(hit.docid, bold=True)
    )
    click.echo(f"{rank:>3}  {heading}  {score}")
    click.echo(f"     {text}")


def print_hits(
    searcher: Any, given: dict[str, Any], notes: Callable[[Any], tuple[str, dict[str, Any]]]
) -> None:
    """Search for the question and show what is found, with where its text has words of the question.

    `notes` says how the score of a hit is shown, and what else JSON tells of it.
    """
    words = set(searcher.terms(given["query"]))
    hits = searcher.search(given["query"], given["k"])
    if not hits and not given["as_json"]:
        click.echo("no passage has a word or a term of this question")
    for rank, hit in enumerate(hits, 1):
        score, more = notes(hit)
        show_hit(searcher, rank, hit, words, score, more if given["as_json"] else None)


def show_hit(
    searcher: Any, rank: int, hit: Any, words: Collection[str], score: str, more: dict[str, Any] | None
) -> None:
    """Print one hit, the words marked that it was found by; with `more`, as JSON that tells this too."""
    from sparta.search.explain import snippet

    record = hit.doc()
    as_json = more is not None
    text = snippet(searcher, record["contents"], words, "*{}*".format if as_json else mark)
    if as_json:
        click.echo(dumps({**hit_as_dict(rank, hit, record, text), **(more or {}), "record": record}))
    else:
        print_hit(rank, hit, record, score, text)


def hit_as_dict(rank: int, hit: Any, record: dict[str, Any], text: str) -> dict[str, Any]:
    """The same for --json; the record comes last."""
    return {
        "rank": rank,
        "score": hit.score,
        "id": hit.docid,
        "title": record.get("title", ""),
        "snippet": text,
    }


def search_many(open_searcher: Callable[[], Any], given: dict[str, Any]) -> None:
    """Answer a file of questions into a TREC run; what is wrong with the file is told first."""
    from sparta.base.records import ScoredPassage
    from sparta.data.queries import read_queries
    from sparta.data.trec import write_run

    asked = list(read_queries(given["queries"]))
    output: Path = given["output"]
    counts = {"lines": 0, "empty": 0}

    def runs() -> Iterator[tuple[str, list[ScoredPassage]]]:
        for block in itertools.batched(asked, _QUESTIONS_AT_ONCE):
            texts, qids = [q.text for q in block], [q.query_id for q in block]
            for qid, hits in searcher.batch_search(texts, qids, given["k"], given["threads"]).items():
                counts["lines"] += len(hits)
                counts["empty"] += not hits
                yield qid, [ScoredPassage(h.docid, h.score) for h in hits]

    with open_searcher() as searcher:
        write_run(output, runs(), tag=f"sparta-{searcher.channel}")
    none = f", {counts['empty']:,} without any hit" if counts["empty"] else ""
    said = f"{output}: {counted(counts['lines'], 'line')} for {counted(len(asked), 'question')}{none}"
    click.echo(said, err=not output.is_file())  # a run on standard output is a run alone
