"""Options of the commands that measure answers beside rankings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from cli._numbers import Finite
from cli._options import options, output_type, typed
from sparta.base.errors import InputError
from sparta.base.files import check_place

if TYPE_CHECKING:
    from hybrid.evaluation.answering import Answering

answering_options = options(
    click.option(
        "--answers",
        is_flag=True,
        help="Also read the best passages, and measure the answers: EM and F1; of a chain that reads its"
        " paths, its own answers, whatever --depths says.",
    ),
    click.option(
        "--reader", metavar="FOLDER", help="With --answers: reader's folder [default: the one that ships]."
    ),
    click.option(
        "--depths",
        metavar="N,…",
        default="10",
        show_default=True,
        help="With --answers: how many passages are read; several numbers are compared.",
    ),
    click.option(
        "--weight",
        type=Finite(0, 1),
        help="With --answers: the ranker's share of an answer's score [default: as the reader was tuned].",
    ),
    click.option(
        "--output-answers", type=output_type, help="With --answers: also write every answer here, as JSONL."
    ),
)


def answering_of(
    given: Mapping[str, Any], retrieved: int, *others: str, language: str = "en"
) -> Answering | None:
    """How answers are read, if they are.

    :param retrieved: how many passages of a question are retrieved
    :param language: of the texts, whose reader is opened where none is named
    :param others: options of the command that mean something with --answers only
    """
    if not given["answers"]:
        if wrong := typed("reader", "depths", "weight", "output_answers", *others):
            raise InputError(f"expected --answers with {wrong[0]}, found none", remedy="add --answers")
        return None
    from hybrid.evaluation.answering import Answering
    from hybrid.evaluation.plots import check_plot
    from hybrid.evaluation.tune import parse_candidates

    check_plot(given["plot"])
    check_place(given["output_answers"], "file")
    depths = sorted(set(parse_candidates(given["depths"], "depths")))
    if depths[-1] > retrieved:
        raise InputError(
            f"expected --depths of at most the {retrieved} passages that are retrieved, found {depths[-1]}",
            remedy="raise --candidates" if "candidates" in given else "raise -k",
        )
    from sparta.reader.config import reader_folder

    folder = reader_folder(given["reader"], language)
    from sparta.neural.encoding import parse_devices
    from sparta.reader.reader import Reader

    device = next(iter(parse_devices(given.get("device"))), None)  # of several, a reader takes the first
    return Answering(Reader.open(folder, device=device), depths, given["weight"])
