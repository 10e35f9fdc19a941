"""`dense mine`: hard negatives from an index."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli._arguments import Needs, arguments, choice, flag, number, option, output_type, takes
from cli._options import index_option, quiet_option, threads_option
from cli._output import counted
from sparta.base.errors import InputError
from sparta.base.files import plain_name, unreadable

if TYPE_CHECKING:
    from dense.training.mining import Question


@arguments
class _Mining:
    index: Path | None = index_option
    paths: tuple[Path, ...] = option(
        "--dataset",
        "paths",
        multiple=True,
        required=True,
        type=click.Path(path_type=Path),
        help="Questions with answers (DPR's TSV, SQuAD JSON, MRQA JSONL, JSON lines), DPR training JSON, a"
        " BEIR folder, or KILT's tasks.",
    )
    output: Path = option(
        "--output", required=True, type=output_type, help="Training file to write: .json or .json.gz."
    )
    channel: str = option(
        "--channel",
        type=click.Choice(["bm25", "dense", "impact", "sparta"]),  # sparta: the former name of impact
        metavar="[bm25|dense|impact]",
        default="bm25",
        show_default=True,
        help="What ranks the passages: bm25 for a first training, dense for the second.",
    )
    depth: int = number("--depth", default=100, text="Passages per query that are looked at.")
    negatives: int = number("--negatives", default=100, text="How many are kept for each question.")
    match: str = choice(
        "--match",
        values=["string", "regex"],
        text="How answers are matched: as strings, or as regular expressions (CuratedTREC).",
    )
    keep: bool = flag("--keep", text="Keep the hard negatives that the file has, before the mined ones.")
    with_answers: bool = flag(
        "--with-answers",
        text="Passages that hold an answer may be negatives: only the positives are left out, as in TASER's"
        " P2.",
    )
    skill: str = choice(
        "--skill",
        values=["single", "expanded", "link"],
        text="What dense train-skills learns from the file: questions, questions that go on from a passage,"
        " or entities and their pages. For the last two, --dataset names the files of dense train-skills.",
    )
    texts: tuple[Path, ...] = option(
        "--texts",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="With --skill expanded or link: passages that the files name [default: those of the index].",
    )
    model: str | None = option(
        "--model",
        metavar="FOLDER|ID",
        help="With --skill expanded or link and --channel dense: the model with skills that encodes the"
        " queries.",
    )
    threads: int = threads_option
    quiet: bool = quiet_option
    RULES = (
        Needs("--skill expanded or link", ("texts", "model"), lambda a: a.skill != "single"),
        Needs("--channel dense", ("model",), lambda a: a.channel == "dense"),
    )


@click.command()
@takes(_Mining)
def mine(mining: _Mining) -> None:
    """Find hard negatives in an index.

    These are passages that rank high for a question and do not answer it. Writes DPR training JSON. A
    positive is what the file gives or judges; of a question with answers only, the best passage of BM25 that
    holds one; without any, the question is left out. Of KILT's tasks, they are the passages of its provenance
    that was mapped with a BLEU score of 0.5 or more, or the first passage of the page, where it names pages
    alone; a question of which nothing of that is in the index is left out, but one with answers that marks
    no entity.

    \b
    dense mine --dataset nq-train.tsv --negatives 1 --output first.json
    dense mine --dataset first.json --channel dense --keep --output second.json
    dense mine --skill link --dataset hyperlinks.jsonl --negatives 10 --output links.json
    """  # noqa: D301 (click looks for the backspace)
    from tqdm import tqdm

    from dense.training.mining import mine_index

    index, output, skill = mining.index, mining.output, mining.skill
    for path in mining.paths:
        if not path.exists():
            raise unreadable(path, FileNotFoundError())
        if mining.keep and skill == "single" and not _is_dpr(path):
            raise InputError(
                "expected DPR training JSON with --keep, found another form",
                where=str(path),
                remedy="leave --keep out; dense train-skills --single reads the negatives of KILT's rows",
            )
    names = ("channel", "depth", "negatives", "match", "keep", "with_answers", "threads")
    settings = {name: getattr(mining, name) for name in names}
    with tqdm(unit="question", disable=True if mining.quiet else None) as bar:
        if skill == "single":
            questions = (question for path in mining.paths for question in _questions(path, index))
            mined = mine_index(index, questions, output, advance=bar.update, **settings)
        else:
            from hybrid.replications.skill_mining import mine_skill

            settings |= {"texts": mining.texts, "model": mining.model}
            mined = mine_skill(index, mining.paths, skill, output, advance=bar.update, **settings)
    without = f", {mined.left_out:,} without a positive left out" if mined.left_out else ""
    click.echo(
        f"{output}: {counted(mined.written, 'question')} with {mined.negatives / mined.written:.1f}"
        f" negatives on average{without}"
    )


def _is_dpr(path: Path) -> bool:
    """Whether this is DPR's training JSON, whose questions have positives."""
    from sparta.data.jsonlist import begins_list, json_list
    from sparta.training.formats import DPR_FORM

    if path.is_dir() or not plain_name(path.name).endswith(".json") or not begins_list(path):
        return False
    first = next(json_list(path, DPR_FORM), None)
    return isinstance(first, dict) and "positive_ctxs" in first


def _questions(path: Path, index: Path | None) -> Iterable[Question]:
    """Questions in any form: training data with positives, judged ones, or those with answers only."""
    from dataclasses import replace

    from dense.models.tasks import checks_facts, names_entity
    from dense.training.mining import questions_of_beir, questions_of_dpr, questions_of_queries
    from hybrid.evaluation.questions import judged, questions_of
    from hybrid.evidence.gold import beginnings_of_pages, names_pages_alone
    from sparta.data.kilt import LEAST_BLEU, well_mapped
    from sparta.index.folder import default_index

    if _is_dpr(path):
        return questions_of_dpr(path)
    if (path / "qrels" / "train.tsv").is_file():
        return questions_of_beir(path)
    questions, place = questions_of(path), index or default_index()
    known = every = judged(questions, place, least_bleu=LEAST_BLEU)
    if any(well_mapped(evidence) != evidence for evidence in known.evidence.values()):
        every = judged(questions, place)  # what was mapped badly is no positive, and no negative either
    of_pages = {q: evidence for q, evidence in known.evidence.items() if names_pages_alone(evidence)}
    first, pages = beginnings_of_pages(of_pages, place) if of_pages else ({}, {})
    noise = {q for q, evidence in known.evidence.items() if not well_mapped(evidence)}
    lacking = of_pages.keys() - first.keys()  # an entity's name stands on other pages too
    noise |= {q.query_id for q in known.queries if q.query_id in lacking and names_entity(q.text)}
    if checks_facts(path.name):  # SUPPORTS and REFUTES are no answers that a text may hold
        noise |= {q.query_id for q in known.queries} - known.qrels.keys() - first.keys()
    queries = (replace(q, answers=()) if q.query_id in noise else q for q in known.queries)
    return questions_of_queries(queries, {**known.qrels, **first}, {**every.qrels, **pages})
