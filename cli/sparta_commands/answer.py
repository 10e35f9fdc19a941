"""`sparta answer`: answers to one question or many, each with its passage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from cli._arguments import (
    HIGHEST_COUNT,
    Finite,
    Text,
    argument,
    arguments,
    command,
    flag,
    group,
    option,
    output_type,
    takes,
    typed,
    whole,
)
from cli._chains import ChainArguments, chain_reads, open_chain
from cli._options import Bm25Arguments, index_option, refuse_unused_bm25
from cli._output import WHITE_SPACE, counted, dumps, visible
from cli._search import RerankArguments, begin_models, bold, channel_option, check_search, mark
from sparta.base.errors import InputError
from sparta.base.files import atomic_path, check_output_file

if TYPE_CHECKING:
    from hybrid.answering.answerer import Answerer
    from hybrid.answering.answers import Answer, AnswerList
    from hybrid.answering.path_answerer import PathAnswerer


NO_ANSWER = 3
"""The exit code of a question without an answer in the index."""


@arguments
class _Answering:
    query: str | None = argument("query", required=False, type=Text())
    index: Path | None = index_option
    n: int = option("Number of answers.", "-n", type=click.IntRange(1), default=1)
    channel: str | None = channel_option("Channel that retrieves passages")
    reader: str | None = option(
        "Reader's folder [default: the shipped reader].", metavar="FOLDER", section="Reader"
    )
    depth: int | None = option(
        "Number of passages retrieved per question. The reader skips passages that cannot change the answer"
        " [default: 10; with --rerank all reranked passages, if they are more].",
        type=click.IntRange(1, HIGHEST_COUNT),
        section="Reader",
    )
    weight: float | None = option(
        "Weight of the retrieval score in an answer's score; the rest is the reader's [default: as the reader"
        " was tuned].",
        type=Finite(0, 1),
        section="Reader",
    )
    device: str | None = option(
        "Device of the reader, such as cpu or cuda:0 [default: a GPU if there is one].",
        metavar="NAME",
        section="Reader",
    )
    threshold: float | None = option(
        "Lowest score of an answer: below it, the command gives no answer [default: the reader's, if it is"
        " calibrated for the channel and the depth; else 0].",
        type=Finite(0, 1),
    )
    bm25: Bm25Arguments = group(Bm25Arguments)
    rerank: RerankArguments = group(RerankArguments)
    chain: ChainArguments = group(ChainArguments)
    as_json: bool = flag("Print one JSON object per answer, each on its own line.", "--json")
    queries: str | None = option(
        "File of questions: TSV (id, text) or BEIR JSONL.", metavar="FILE", section="Many questions"
    )
    output: Path = option(
        "File for the answers, JSONL; - is standard output.", type=output_type, section="Many questions"
    )
    threads: int = whole(2, "Number of threads.", section="Many questions")

    def open(self) -> Answerer | PathAnswerer:
        """Return an open answerer: a chain that reads its paths, or a reader of retrieved passages."""
        chain = self.chain.chain
        if self.rerank.rerank is not None and chain is not None:
            raise InputError(
                "--rerank orders passages, but --chain finds paths of passages",
                remedy="omit one of the two",
            )
        if chain is not None and chain_reads(chain):
            from hybrid.answering.path_answerer import PathAnswerer

            if others := typed("reader", "depth", "weight"):
                raise InputError(
                    f"{others[0]} has no effect on a chain that reads its paths",
                    remedy=f"omit {others[0]}, or use a chain that only retrieves: --chain hop",
                )
            opened = open_chain(chain, self.chain.models, self.index, self.channel, self.device)
            return PathAnswerer(opened, threshold=self.threshold)
        begin_models(self.index, self.channel, self.rerank)
        from hybrid.answering.answerer import open_answerer

        return open_answerer(
            self.index,
            self.channel,
            chain=self.chain.open(self.index, self.channel, self.device),
            reader=self.reader,
            bm25=self.bm25.parameters,
            device=self.device,
            depth=self.depth,
            weight=self.weight,
            threshold=self.threshold,
            rerank=self.rerank.rerank,
            rerank_depth=self.rerank.rerank_depth,
        )


@command()
@takes(_Answering)
def answer(answering: _Answering) -> None:
    """Answer a question from the passages of an index.

    Retrieves passages, lets a reader extract the answer, and prints answer, score and passage. With --chain,
    the reader reads the passages of the best paths; a chain that reads its paths prints its own answers.

    If no answer reaches the threshold, the command prints its best guess. The exit code without an answer
    is 3.

    \b
    sparta answer "who founded google"
    sparta answer --queries questions.jsonl --output answers.jsonl
    """  # noqa: D301 (click looks for the backspace)
    check_search("sparta answer", answering, "answers.jsonl")
    check_output_file(answering.output, "file")
    with answering.open() as answerer:
        refuse_unused_bm25(answerer.retriever.channel)
        if answering.queries is not None:
            _answer_many(answerer, answering, answering.queries)
            return
        answers = answerer.answer(answering.query or "", answering.n)
    if not answers:
        _print_no_answer(answers, as_json=answering.as_json)
    for result in answers:
        if answering.as_json:
            click.echo(dumps(result.as_dict()))
            continue
        click.echo(f"  {bold(visible(result.answer))}   {result.score:.2f}   {_place(result)}")
        click.echo(f"  {_sentence(result)}")


def _place(answer: Answer) -> str:
    passage_id = visible(answer.passage_id)
    return f"{bold(visible(answer.title))} [{passage_id}]" if answer.title else f"[{passage_id}]"


def _sentence(answer: Answer) -> str:
    before, words, after = (visible(part, keep=WHITE_SPACE) for part in answer.around())
    marked = mark(words) if answer.start < answer.end else ""  # yes and no are not in the text
    return " ".join(f"{before}{marked}{after}".split())


def _no_answer(answers: AnswerList) -> dict[str, Any]:
    """Return the fields that JSON shows in place of an answer."""
    return {"answer": "", **answers.as_dict()}


def _print_no_answer(answers: AnswerList, *, as_json: bool) -> NoReturn:
    """Print the best guess if it is below the threshold, and end with exit code 3."""
    guess = answers.best_guess
    if as_json:
        click.echo(dumps(_no_answer(answers)))
    elif guess:
        click.echo(f"no sure answer (best guess: {visible(guess.answer)}, {guess.score:.2f})")
        click.echo(f"  {_place(guess)}\n  {_sentence(guess)}")
        hint = f"answers below {answers.threshold:.2f} are left out; print all: --threshold 0"
        click.echo(f"  → {hint}", err=True)
    else:
        click.echo("no answer: no passage was found")
    raise SystemExit(NO_ANSWER)


def _answer_many(answerer: Any, answering: _Answering, file: str) -> None:
    """Answer a file of questions and write the answers as JSON lines; "" for a question without an answer."""
    from sparta.data.queries import read_queries

    queries = list(read_queries(file))
    output, lines, abstained = answering.output, 0, 0
    with atomic_path(output) as temporary, temporary.open("w", encoding="utf-8") as stream:
        texts, ids = [q.text for q in queries], [q.query_id for q in queries]
        for query_id, answers in answerer.batch_answer(texts, ids, answering.n, answering.threads):
            abstained += answers.abstained
            for answer_fields in [answer.as_dict() for answer in answers] or [_no_answer(answers)]:
                stream.write(dumps({"query_id": query_id, **answer_fields}, unicode=True) + "\n")
            lines += len(answers)
    counts = answerer.counts
    report = (
        f"{output}: {counted(lines, 'answer')} to {counted(len(queries), 'question')};"
        f" the reader read {counts.read:,} of {counts.retrieved:,} retrieved passages"
    )
    reason = f", {counts.reason}" if counts.read < counts.retrieved else ""
    click.echo(f"{report}{reason}", err=True)
    if abstained:
        click.echo(f"no answer to {counted(abstained, 'question')}: the scores are too low", err=True)
