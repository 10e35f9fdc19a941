"""Options of the commands that fuse channels, and the fusions and question sets that the options name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._arguments import arguments, made, one_of, option, typed, whole
from cli._output import counted
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from hybrid.evaluation.testsets import QuestionSet
    from hybrid.retrieval.fusion import Fusion

_IN_PLACE = "Weight of each channel, instead of --base and --alpha: bm25=1.2,impact=1,dense=1."


@arguments
class MethodArguments:
    """Options for combining the scores of several channels."""

    SECTION = "Fusion"
    method: str = one_of(["linear", "rrf"], "Weighted sum of normalized scores, or of reciprocal ranks.")
    normalization: str = one_of(
        ["minmax", "zscore", "none"],
        "Normalization of the scores of each query and channel; minmax maps them to −0.5 to 0.5.",
    )

    def fusion(self, weights: Mapping[str, float], candidates: int) -> Fusion:
        """Return the fusion of the weighted channels.

        :param candidates: number of passages fused from each channel
        """
        from hybrid.retrieval.fusion import Fusion

        if self.method == "rrf" and typed("normalization"):
            raise InputError(
                "--normalization has no effect with --method rrf, which uses ranks",
                remedy="omit --normalization, or use --method linear",
            )
        return made(Fusion, self, weights=weights, candidates=candidates)


@arguments
class FusionArguments(MethodArguments):
    """Options for combining the scores of several channels, and the number of hits of each channel."""

    candidates: int = whole(
        100,
        "Number of passages that each channel contributes to the fusion; a larger --rerank-depth raises the"
        " default.",
    )


alpha_option = option("Weight of BM25 (α).", "--alpha", type=float, default=1.0, section="Fusion")
sample_option = option(
    "Use N questions of each set, drawn with a fixed seed.", "--sample", type=click.IntRange(1), metavar="N"
)


@arguments
class QuestionArguments:
    """The sets of questions to measure with."""

    SECTION = "Questions"
    datasets: tuple[Path, ...] = option(
        "Set of questions: a BEIR folder, a folder with questions.jsonl, DPR's TSV or JSON, SQuAD JSON, MRQA"
        " JSONL, KILT's or other JSON lines, the folder of EntityQuestions, or irds:NAME, a dataset of"
        " ir_datasets. Repeat the option for several sets [default: the questions beside the index's"
        " corpus].",
        "--dataset",
    )
    sample: int | None = sample_option
    matches: tuple[str, ...] = option(
        "How answers are matched in passages, for all sets or for the set NAME; CuratedTREC needs regex.",
        "--match",
        metavar="[NAME=]string|regex",
    )


def base_option(shown: str) -> Any:
    """Declare the option of the channel that BM25 is added to.

    :param shown: the default, in words
    """
    return option(
        f"Channel that BM25 is added to [default: {shown}].",
        "--base",
        type=click.Choice(["impact", "dense", "sparta"]),  # sparta: the former name of impact
        metavar="[impact|dense]",
        section="Fusion",
    )


def weights_option(shown: str = _IN_PLACE) -> Any:
    """Declare the option of weights, which replace base and α."""
    return option(shown, "--weights", metavar="NAME=NUMBER,…", section="Fusion")


def channel_weights(weights: str | None, base: str | None, alpha: float) -> dict[str, float]:
    """Return the weight of each channel: the typed weights, else base 1 and BM25 α."""
    from hybrid.retrieval.channels import CHANNELS, channel

    if weights is not None:
        return typed_weights(weights, CHANNELS)
    return {channel(base or "impact"): 1.0, "bm25": alpha}


def typed_weights(text: str, known: Sequence[str]) -> dict[str, float]:
    """Return the parsed weights of --weights.

    :raises InputError: --base or --alpha is typed as well
    """
    from hybrid.retrieval.fusion import parse_weights

    if others := typed("base", "alpha"):
        raise InputError(
            f"--weights cannot be combined with {' and '.join(others)}",
            remedy=f"omit {' and '.join(others)}: --weights sets the weight of every channel",
        )
    return parse_weights(text, known)


def query_sets(questions: QuestionArguments, index: Path | None) -> list[QuestionSet]:
    """Return the sets of questions for an index, with --match and --sample applied.

    Prints on standard error how many questions no measure covers.

    :param index: None is an index on a server
    """
    from hybrid.evaluation.questions import question_sets

    matches = dict(map(_match, questions.matches))
    sets = question_sets(questions.datasets, index, matches, questions.sample)
    for note in itertools.chain.from_iterable(map(_unmeasured, sets)):
        click.echo(note, err=True)
    return sets


def _match(text: str) -> tuple[str, str]:
    """Return the name of the set, empty for all sets, and the matching of one value of --match."""
    name, _, match = text.rpartition("=")
    if match not in ("string", "regex"):
        raise InputError(
            f"--match must be string, regex or SET=regex, found {text}",
            remedy="write --match regex, or --match SET=regex",
        )
    return name, match


def _unmeasured(questions: QuestionSet) -> Iterator[str]:
    """Yield notes: how many questions no measure covers, and which judgments cover only some questions."""
    total, n_labels = len(questions.queries), len(questions.answers) - len(questions.text_answers)
    if questions.omitted_questions:
        n_left_out = counted(questions.omitted_questions, "question")
        yield f"{questions.name}: {n_left_out} left out, without answers and without judged passages"
    if n_labels:
        n_left_out = counted(n_labels, "question")
        yield (
            f"{questions.name}: answer_recall leaves out {n_left_out} whose answers are only labels, such as"
            " yes or SUPPORTS"
        )
    for judgments, n_covered in questions.known().items():
        if 0 < n_covered < total:
            yield f"{questions.name}: measures of {judgments} cover {n_covered:,} of {total:,} questions"
