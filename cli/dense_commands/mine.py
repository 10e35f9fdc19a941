"""`dense mine`: hard negatives from an index."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import Needs, arguments, flag, one_of, option, output_type, takes, whole
from cli._options import index_option, quiet_option, threads_option
from cli._output import counted
from sparta.base.errors import InputError
from sparta.base.files import unreadable


@arguments
class _Mining:
    index: Path | None = index_option
    paths: tuple[Path, ...] = option(
        "Questions with answers (DPR's TSV, SQuAD JSON, MRQA JSONL, JSON lines), DPR training"
        " JSON, a BEIR folder, or KILT's tasks.",
        "--dataset",
        required=True,
    )
    output: Path = option("Training file to write: .json or .json.gz.", required=True, type=output_type)
    channel: str = option(
        "What ranks the passages: bm25 for a first training, dense for the second.",
        type=click.Choice(["bm25", "dense", "impact", "sparta"]),  # sparta: the former name of impact
        metavar="[bm25|dense|impact]",
        default="bm25",
    )
    depth: int = whole(100, "Passages per query that are looked at.")
    negatives: int = whole(100, "How many are kept for each question.")
    match: str = one_of(
        ["string", "regex"], "How answers are matched: as strings, or as regular expressions (CuratedTREC)."
    )
    keep: bool = flag("Keep the hard negatives that the file has, before the mined ones.")
    with_answers: bool = flag(
        "Passages that hold an answer may be negatives: only the positives are left out, as in TASER's P2."
    )
    skill: str = one_of(
        ["single", "expanded", "link"],
        "What dense train-skills learns from the file: questions, questions that go on from a"
        " passage, or entities and their pages. For the last two, --dataset names the files of"
        " dense train-skills.",
    )
    texts: tuple[Path, ...] = option(
        "With --skill expanded or link: passages that the files name [default: those of the index].",
        metavar="FILE",
    )
    model: str | None = option(
        "With --skill expanded or link and --channel dense: the model with skills that encodes the queries.",
        metavar="FOLDER|ID",
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
    from hybrid.replications.question_mining import is_dpr, mining_questions

    index, output, skill = mining.index, mining.output, mining.skill
    for path in mining.paths:
        if not path.exists():
            raise unreadable(path, FileNotFoundError())
        if mining.keep and skill == "single" and not is_dpr(path):
            raise InputError(
                "expected DPR training JSON with --keep, found another form",
                where=str(path),
                remedy="leave --keep out; dense train-skills --single reads the negatives of KILT's rows",
            )
    names = ("channel", "depth", "negatives", "match", "keep", "with_answers", "threads")
    settings = {name: getattr(mining, name) for name in names}
    with tqdm(unit="question", disable=True if mining.quiet else None) as bar:
        if skill == "single":
            questions = (question for path in mining.paths for question in mining_questions(path, index))
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
