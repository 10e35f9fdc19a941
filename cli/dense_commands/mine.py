"""`dense mine`: hard negatives from an index."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._options import (
    choice,
    counted,
    index_option,
    number,
    output_type,
    quiet_option,
    threads_option,
    typed,
)
from cli._training import refuse_unused
from sparta.base.errors import InputError
from sparta.base.files import plain_name, unreadable

if TYPE_CHECKING:
    from dense.training.mining import Question


@click.command()
@index_option
@click.option(
    "--dataset",
    "paths",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="Questions with answers (DPR's TSV, SQuAD JSON, MRQA JSONL, JSON lines), DPR training JSON, a BEIR"
    " folder, or KILT's tasks.",
)
@click.option("--output", required=True, type=output_type, help="Training file to write: .json or .json.gz.")
@click.option(
    "--channel",
    type=click.Choice(["bm25", "dense", "impact", "sparta"]),  # sparta: the former name of impact
    metavar="[bm25|dense|impact]",
    default="bm25",
    show_default=True,
    help="What ranks the passages: bm25 for a first training, dense for the second.",
)
@number("--depth", default=100, text="Passages per query that are looked at.")
@number("--negatives", default=100, text="How many are kept for each question.")
@choice(
    "--match",
    values=["string", "regex"],
    text="How answers are matched: as strings, or as regular expressions (CuratedTREC).",
)
@click.option(
    "--keep", is_flag=True, help="Keep the hard negatives that the file has, before the mined ones."
)
@click.option(
    "--with-answers",
    is_flag=True,
    help="Passages that hold an answer may be negatives: only the positives are left out, as in TASER's P2.",
)
@choice(
    "--skill",
    values=["single", "expanded", "link"],
    text="What dense train-skills learns from the file: questions, questions that go on from a passage, or"
    " entities and their pages. For the last two, --dataset names the files of dense train-skills.",
)
@click.option(
    "--texts",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --skill expanded or link: passages that the files name [default: those of the index].",
)
@click.option(
    "--model",
    metavar="FOLDER|ID",
    help="With --skill expanded or link and --channel dense: the model with skills that encodes the queries.",
)
@threads_option
@quiet_option
def mine(index: Path | None, paths: tuple[Path, ...], output: Path, quiet: bool, **given: Any) -> None:
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

    skill, by_skill = given.pop("skill"), {name: given.pop(name) for name in ("texts", "model")}
    needed = [(o, "--skill expanded or link") for o in typed("texts", "model") if skill == "single"]
    needed += [(o, "--channel dense") for o in typed("model") if given["channel"] != "dense"]
    refuse_unused(needed)
    for path in paths:
        if not path.exists():
            raise unreadable(path, FileNotFoundError())
        if given["keep"] and skill == "single" and not _is_dpr(path):
            raise InputError(
                "expected DPR training JSON with --keep, found another form",
                where=str(path),
                remedy="leave --keep out; dense train-skills --single reads the negatives of KILT's rows",
            )
    with tqdm(unit="question", disable=True if quiet else None) as bar:
        if skill == "single":
            questions = (one for path in paths for one in _questions(path, index))
            found = mine_index(index, questions, output, advance=bar.update, **given)
        else:
            from hybrid.replications.skill_mining import mine_skill

            found = mine_skill(index, paths, skill, output, advance=bar.update, **by_skill, **given)
    without = f", {found.left_out:,} without a positive left out" if found.left_out else ""
    click.echo(
        f"{output}: {counted(found.written, 'question')} with {found.negatives / found.written:.1f}"
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
    asked, place = questions_of(path), index or default_index()
    known = every = judged(asked, place, least_bleu=LEAST_BLEU)
    if any(well_mapped(evidence) != evidence for evidence in known.evidence.values()):
        every = judged(asked, place)  # what was mapped badly is no positive, and no negative either
    of_pages = {q: one for q, one in known.evidence.items() if names_pages_alone(one)}
    first, pages = beginnings_of_pages(of_pages, place) if of_pages else ({}, {})
    noise = {q for q, evidence in known.evidence.items() if not well_mapped(evidence)}
    lacking = of_pages.keys() - first.keys()  # an entity's name stands on other pages too
    noise |= {q.query_id for q in known.queries if q.query_id in lacking and names_entity(q.text)}
    if checks_facts(path.name):  # SUPPORTS and REFUTES are no answers that a text may hold
        noise |= {q.query_id for q in known.queries} - known.qrels.keys() - first.keys()
    queries = (replace(q, answers=()) if q.query_id in noise else q for q in known.queries)
    return questions_of_queries(queries, {**known.qrels, **first}, {**every.qrels, **pages})
