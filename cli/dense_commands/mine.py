"""`dense mine`: find hard negatives in an index."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import Needs, arguments, command, flag, one_of, option, output_type, takes, whole
from cli._options import index_option, quiet_option, threads_option
from cli._output import counted
from sparta.base.errors import InputError
from sparta.base.files import unreadable


@arguments
class _Mining:
    index: Path | None = index_option
    paths: tuple[Path, ...] = option(
        "Questions with answers (DPR's TSV, SQuAD JSON, MRQA JSONL, JSON lines), DPR training JSON, a BEIR"
        " folder, or tasks of KILT.",
        "--dataset",
        required=True,
    )
    output: Path = option("File for the training data, .json or .json.gz.", required=True, type=output_type)
    channel: str = option(
        "Channel that ranks the passages: bm25 for a first training, dense for a second one.",
        type=click.Choice(["bm25", "dense", "impact", "sparta"]),  # sparta: the former name of impact
        metavar="[bm25|dense|impact]",
        default="bm25",
    )
    depth: int = whole(100, "Number of retrieved passages per question.")
    negatives: int = whole(100, "Number of negatives kept per question.")
    match: str = one_of(["string", "regex"], "How answers are matched in passages; CuratedTREC needs regex.")
    keep: bool = flag("Keep the hard negatives of the file, before the mined ones.")
    with_answers: bool = flag(
        "Allow passages with an answer as negatives and exclude only the positives, as in TASER's P2."
    )
    skill: str = one_of(
        ["single", "expanded", "link"],
        "Skill that dense train-skills learns from the file: single questions, questions expanded by a"
        " passage,"
        " or links from entities to pages. For expanded and link, --dataset names files of dense"
        " train-skills.",
    )
    texts: tuple[Path, ...] = option(
        "Passages named by the files of --skill expanded or link [default: the passages of the index].",
        metavar="FILE",
    )
    model: str | None = option(
        "Model with skills that encodes the queries, for --channel dense with --skill expanded or link.",
        metavar="FOLDER|ID",
    )
    threads: int = threads_option
    quiet: bool = quiet_option
    RULES = (
        Needs("--skill expanded or link", ("texts", "model"), lambda a: a.skill != "single"),
        Needs("--channel dense", ("model",), lambda a: a.channel == "dense"),
    )


@command()
@takes(_Mining)
def mine(mining: _Mining) -> None:
    """Find hard negatives, to train a bi-encoder with.

    Hard negatives are passages that rank high for a question and do not answer it. Writes DPR training JSON.

    The positives are the positives or judged passages of the file. For a question with answers only, the
    positive is BM25's best passage with an answer; questions without one are left out. For KILT's tasks, the
    positives are the passages of the provenance with a BLEU score of at least 0.5, or the first passage of
    each page if only pages are named. A question without any of these passages in the index is left out,
    unless it has answers and marks no entity.

    \b
    dense mine --dataset nq-train.tsv --negatives 1 --output first.json
    dense mine --dataset first.json --channel dense --keep --output second.json
    dense mine --skill link --dataset hyperlinks.jsonl --negatives 10 --output links.json
    """  # noqa: D301 (click looks for the backspace)
    from tqdm import tqdm

    from dense.training.mining import MiningOptions, mine_index
    from hybrid.replications.question_mining import is_dpr, mining_questions

    index, output, skill = mining.index, mining.output, mining.skill
    for path in mining.paths:
        if not path.exists():
            raise unreadable(path, FileNotFoundError())
        if mining.keep and skill == "single" and not is_dpr(path):
            raise InputError(
                "--keep needs DPR training JSON, but the file has another format",
                where=str(path),
                remedy="omit --keep; dense train-skills --single reads the negatives of KILT's rows",
            )
    names = ("channel", "depth", "negatives", "match", "keep", "with_answers", "threads")
    settings = {name: getattr(mining, name) for name in names}
    with tqdm(unit="question", disable=True if mining.quiet else None) as bar:
        options = MiningOptions(advance=bar.update, **settings)
        if skill == "single":
            questions = (question for path in mining.paths for question in mining_questions(path, index))
            mined = mine_index(index, questions, output, options)
        else:
            from hybrid.replications.skill_mining import mine_skill

            mined = mine_skill(
                index, mining.paths, skill, output, options, texts=mining.texts, model=mining.model
            )
    without = f", {mined.left_out:,} left out for lack of a positive passage" if mined.left_out else ""
    click.echo(
        f"{output}: {counted(mined.written, 'question')} with {mined.negatives / mined.written:.1f}"
        f" negatives on average{without}"
    )
