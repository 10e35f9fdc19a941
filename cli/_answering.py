"""Options of `sparta eval` and `hybrid eval` that measure answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cli._arguments import Finite, Needs, arguments, flag, option, output_type
from sparta.base.checks import parse_numbers
from sparta.base.errors import InputError
from sparta.base.files import check_output_file

if TYPE_CHECKING:
    from hybrid.evaluation.answering import Answering


@arguments
class AnsweringArguments:
    """Options that turn on the measurement of answers and configure the reader."""

    SECTION = "Answers"
    answers: bool = flag(
        "Also extract answers from the best passages and measure EM and F1. For a chain that reads its paths:"
        " measure the chain's own answers, at every depth."
    )
    reader: str | None = option("Reader's folder [default: the shipped reader].", metavar="FOLDER")
    depths: str | None = option(
        "Number of passages the reader reads per question; several numbers are compared [default: 10; of a"
        " reranked ranking all reranked passages, if they are more].",
        metavar="N,…",
    )
    weight: float | None = option(
        "Weight of the retrieval score in an answer's score; the rest is the reader's [default: as the reader"
        " was tuned].",
        type=Finite(0, 1),
    )
    output_answers: Path | None = option("Write every answer to this file, as JSONL.", type=output_type)
    RULES = (Needs("--answers", ("reader", "depths", "weight", "output_answers"), remedy="add --answers"),)

    def open(
        self,
        retrieved: int,
        raise_by: str,
        *,
        plot: Path | None,
        device: str | None = None,
        language: str = "en",
    ) -> Answering | None:
        """Return the reader and the depths to measure; None without --answers.

        :param retrieved: number of passages retrieved per question
        :param raise_by: the option that raises this number
        :param language: code of the language whose shipped reader is the default
        """
        if not self.answers:
            return None
        from hybrid.evaluation.answering import Answering
        from hybrid.evaluation.plots import check_plot

        check_plot(plot)
        check_output_file(self.output_answers, "file")
        depths = [] if self.depths is None else sorted(set(parse_numbers(self.depths, "depths")))
        if depths and depths[-1] > retrieved:
            raise InputError(
                f"--depths may be at most {retrieved}, the number of retrieved passages, found {depths[-1]}",
                remedy=f"raise {raise_by}",
            )
        from sparta.neural.devices import parse_devices
        from sparta.reader.config import reader_folder
        from sparta.reader.reader import Reader

        folder = reader_folder(self.reader, language)
        first_device = next(iter(parse_devices(device)), None)  # a reader takes the first of several devices
        return Answering(Reader.open(folder, device=first_device), depths, self.weight)
