"""`sparta answer`: an answer to a question, or to many, with the passage it stands in."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._chains import chain_options, chain_reads, open_chain, optional_chain
from cli._numbers import HIGHEST_COUNT, Finite
from cli._options import (
    Text,
    bm25_of,
    bm25_options,
    counted,
    dumps,
    index_option,
    number,
    options,
    output_type,
    refuse_unused_bm25,
    threads_option,
    typed,
    visible,
)
from cli._search import bold, channel_option, check_search, mark
from sparta.base.errors import InputError
from sparta.base.files import atomic_path, check_place

if TYPE_CHECKING:
    from hybrid.answering.answerer import Answerer
    from hybrid.answering.path_answerer import PathAnswerer

reading_options = options(
    click.option("--reader", metavar="FOLDER", help="Reader's folder [default: the one that ships]."),
    number(
        "--depth",
        default=10,
        most=HIGHEST_COUNT,
        text="Passages retrieved per question; all are read, or, where the best mention counts, those"
        " that can change the answer.",
    ),
    click.option(
        "--weight",
        type=Finite(0, 1),
        help="The ranker's share of an answer's score; the rest is the reader's [default: as tuned].",
    ),
    click.option("--device", metavar="NAME", help="Device of the reader [default: the best there is]."),
)


@click.command()
@click.argument("query", required=False, type=Text())
@index_option
@click.option("-n", type=click.IntRange(1), default=1, show_default=True, help="How many answers.")
@channel_option("What retrieves")
@reading_options
@click.option(
    "--threshold",
    type=Finite(0, 1),
    default=0.0,
    show_default=True,
    help="Give no answer whose score is below this.",
)
@bm25_options
@chain_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each answer.")
@click.option("--queries", metavar="FILE", help="Many questions: TSV (id, text) or BEIR JSONL.")
@click.option(
    "--output", type=output_type, help="With --queries: file for the answers, JSONL; - is standard output."
)
@threads_option
def answer(**given: Any) -> None:
    """Answer a question from the passages of an index.

    Passages are retrieved, a reader finds the answer in them, and its score is shown with the passage.
    With --chain, those of its best paths are read; a chain that reads its paths gives their answers.

    \b
    sparta answer "who founded google"
    sparta answer --queries questions.jsonl --output answers.jsonl
    """  # noqa: D301 (click looks for the backspace)
    check_search("sparta answer", given, "answers.jsonl")
    check_place(given["output"], "file")
    with _opened(given) as answerer:
        refuse_unused_bm25(answerer.retriever.channel)
        if given["queries"] is not None:
            _answer_many(answerer, given)
            return
        found = answerer.answer(given["query"], given["n"])
    if not found and not given["as_json"]:
        click.echo("no answer: no passage found, or no answer above --threshold")
    for one in found:
        if given["as_json"]:
            click.echo(dumps(one.as_dict()))
            continue
        passage_id = visible(one.passage_id)
        place = f"{bold(visible(one.title))} [{passage_id}]" if one.title else f"[{passage_id}]"
        click.echo(f"  {bold(visible(one.answer))}   {one.score:.2f}   {place}")
        before, own, after = (visible(part, keep="\n\t") for part in one.around())
        stands = mark(own) if one.start < one.end else ""  # yes and no do not
        click.echo(f"  {' '.join(f'{before}{stands}{after}'.split())}")


def _opened(given: dict[str, Any]) -> Answerer | PathAnswerer:
    """What answers: a chain that reads its paths, or a reader of passages."""
    if find_spec("torch") is None:  # the first package that is missing says which extra to install
        raise ModuleNotFoundError("readers need torch", name="torch")
    if given["chain"] is not None and chain_reads(given["chain"]):
        from hybrid.answering.path_answerer import PathAnswerer

        if others := typed("reader", "depth", "weight"):
            raise InputError(
                f"expected a chain that reads its paths without {others[0]}, found both",
                remedy="leave it out, or name a chain without a step read: --chain hop",
            )
        return PathAnswerer(open_chain(given, given["channel"]), threshold=given["threshold"])
    from hybrid.answering.answerer import open_answerer

    return open_answerer(
        given["index"],
        given["channel"],
        chain=optional_chain(given, given["channel"]),
        reader=given["reader"],
        bm25=bm25_of(given),
        device=given["device"],
        **{name: given[name] for name in ("depth", "weight", "threshold")},
    )


def _answer_many(answerer: Any, given: dict[str, Any]) -> None:
    from sparta.data.queries import read_queries

    queries = list(read_queries(given["queries"]))
    output: Path = given["output"]
    lines = 0
    with atomic_path(output) as temporary, temporary.open("w", encoding="utf-8") as stream:
        texts, ids = [q.text for q in queries], [q.query_id for q in queries]
        for query_id, found in answerer.batch_answer(texts, ids, given["n"], given["threads"]):
            for one in [answer.as_dict() for answer in found] or [{"answer": ""}]:
                stream.write(dumps({"query_id": query_id, **one}, unicode=True) + "\n")
            lines += len(found)
    counts = answerer.counts
    said = (
        f"{output}: {counted(lines, 'answer')} to {counted(len(queries), 'question')};"
        f" {counts.read:,} of {counts.retrieved:,} passages were read"
    )
    others = f", {counts.reason}" if counts.read < counts.retrieved else ""
    click.echo(f"{said}{others}", err=True)
