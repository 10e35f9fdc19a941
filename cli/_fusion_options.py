"""What the commands on several channels share: options, and what they mean."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._arguments import arguments, made, one_of, option, typed, whole
from cli._output import counted
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from hybrid.evaluation.tables import Table
    from hybrid.evaluation.testsets import QuestionSet
    from hybrid.retrieval.fusion import Fusion

_IN_PLACE = "Channels and their weights, in place of --base and --alpha, as in bm25=1.2,impact=1,dense=1."


@arguments
class MethodArguments:
    """How scores of channels become one."""

    method: str = one_of(["linear", "rrf"], "How scores are combined: weighted sum, or reciprocal ranks.")
    normalization: str = one_of(
        ["minmax", "zscore", "none"],
        "Normalization of the scores, by query and channel; minmax is from −0.5 to 0.5.",
    )

    def fusion(self, weights: Mapping[str, float], candidates: int) -> Fusion:
        """Return the fusion of these channels."""
        from hybrid.retrieval.fusion import Fusion

        if self.method == "rrf" and typed("normalization"):
            raise InputError(
                "expected --method linear for --normalization, found rrf, which adds ranks",
                remedy="leave one of them out",
            )
        return made(Fusion, self, weights=weights, candidates=candidates)


@arguments
class FusionArguments(MethodArguments):
    """How scores of channels become one, and how many."""

    candidates: int = whole(100, "Passages from each channel.")


alpha_option = option("Weight of BM25.", "--alpha", type=float, default=1.0)
sample_option = option(
    "A sample of N queries of each set, always the same.", "--sample", type=click.IntRange(1), metavar="N"
)


@arguments
class QuestionArguments:
    """Questions to measure with."""

    datasets: tuple[Path, ...] = option(
        "Questions: a BEIR folder, one with questions.jsonl, DPR's TSV or JSON, SQuAD JSON, MRQA"
        " JSONL, KILT's or other JSON lines, or the folder of EntityQuestions; several may be given"
        " [default: beside the index's corpus].",
        "--dataset",
    )
    sample: int | None = sample_option
    matches: tuple[str, ...] = option(
        "How answers are matched, in all sets or in the one of this name; regex for CuratedTREC.",
        "--match",
        metavar="[NAME=]string|regex",
    )


def base_option(shown: str) -> Any:
    """Option of the channel that BM25 joins, with what is said of its default."""
    return option(
        f"The channel that BM25 is added to [default: {shown}].",
        "--base",
        type=click.Choice(["impact", "dense", "sparta"]),  # sparta: the former name of impact
        metavar="[impact|dense]",
    )


def weights_option(shown: str = _IN_PLACE) -> Any:
    """Option of weights, which stand in place of base and α."""
    return option(shown, "--weights", metavar="NAME=NUMBER,…")


def channel_weights(weights: str | None, base: str | None, alpha: float) -> dict[str, float]:
    """Return the weights as named, or those of base and α."""
    from hybrid.retrieval.channels import CHANNELS, channel

    if weights is not None:
        return typed_weights(weights, CHANNELS)
    return {channel(base or "impact"): 1.0, "bm25": alpha}


def typed_weights(text: str, known: Sequence[str]) -> dict[str, float]:
    """Read --weights, which stand in place of --base and --alpha."""
    from hybrid.retrieval.fusion import parse_weights

    if others := typed("base", "alpha"):
        raise InputError(
            f"expected --weights or {' and '.join(others)}, found both",
            remedy="leave one of them out: --weights names every channel with its weight",
        )
    return parse_weights(text, known)


def query_sets(questions: QuestionArguments, index: Path) -> list[QuestionSet]:
    """Return the sets of questions, matched and sampled as the options say."""
    from hybrid.evaluation.questions import judged, questions_beside, questions_of

    found = [questions_of(path) for path in questions.datasets] or [questions_beside(index)]
    if len({one.name for one in found}) < len(found):
        found = [replace(one, name=str(path)) for one, path in zip(found, questions.datasets, strict=True)]
    if len({one.name for one in found}) < len(found):
        raise InputError("expected different sets of questions, found one twice", remedy="name each once")
    for match in questions.matches:
        found = _matched(found, match)
    sampled = [one.sample(questions.sample) if questions.sample else one for one in found]
    sets = [judged(one, index) for one in sampled]
    for said in itertools.chain.from_iterable(map(_unmeasured, sets)):
        click.echo(said, err=True)
    return sets


def _unmeasured(one: QuestionSet) -> Iterator[str]:
    """Yield which questions of a set count in no measure, or only in some."""
    if one.left_out:
        without = counted(one.left_out, "question")
        yield f"{one.name}: not measured: {without} without answers and judged passages"
    for judgments, known in one.known().items():
        if 0 < known < len(one.queries):
            yield f"{one.name}: measures of {judgments} are over {known:,} of {len(one.queries):,} questions"


def _matched(sets: Sequence[QuestionSet], text: str) -> list[QuestionSet]:
    name, equals, match = text.rpartition("=")
    names = [one.name for one in sets]
    if match not in ("string", "regex") or (equals and name not in names):
        raise InputError(
            f"expected string, regex, or one of them for a set ({', '.join(names)}), found --match {text}",
            remedy=f"--match regex, or --match {names[-1]}=regex",
        )
    return [replace(one, match=match) if not equals or one.name == name else one for one in sets]


def notes(query_sets: Sequence[QuestionSet], fusions: Sequence[Fusion]) -> Iterator[str]:
    """What must be said with a table: samples, and the formula of its fusions, which differ in weights."""
    from hybrid.evaluation.testsets import SAMPLE_SEED
    from hybrid.retrieval.fusion import formula

    for one in query_sets:
        if one.of:
            yield f"{one.name}: a sample of {len(one.queries):,} of {one.of:,} questions (seed {SAMPLE_SEED})"
    if fusions:
        yield formula(*fusions)


def print_table(table: Table, form: str, below: Iterable[str] = ()) -> None:
    """Print a table, and notes below it, or on standard error where a program reads the table."""
    from hybrid.evaluation.results import LEGEND

    click.echo(table.write(form))
    marked = any(str(cell).endswith(("*↑", "*↓")) for row in table.rows for cell in row)
    for note in [LEGEND, *below] if marked else below:
        click.echo(f"\n{note}" if form == "markdown" else note, err=form in ("csv", "json"))
