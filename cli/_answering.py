"""Options of the commands that measure answers beside rankings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cli._arguments import Finite, Needs, arguments, flag, option, output_type
from sparta.base.errors import InputError
from sparta.base.files import check_place

if TYPE_CHECKING:
    from hybrid.evaluation.answering import Answering


@arguments
class AnsweringArguments:
    """How answers are read and measured, if they are."""

    answers: bool = flag(
        "Also read the best passages, and measure the answers: EM and F1; of a chain that reads"
        " its paths, its own answers, whatever --depths says."
    )
    reader: str | None = option(
        "With --answers: reader's folder [default: the one that ships].", metavar="FOLDER"
    )
    depths: str = option(
        "With --answers: how many passages are read; several numbers are compared.",
        metavar="N,…",
        default="10",
    )
    weight: float | None = option(
        "With --answers: the ranker's share of an answer's score [default: as the reader was tuned].",
        type=Finite(0, 1),
    )
    output_answers: Path | None = option(
        "With --answers: also write every answer here, as JSONL.", type=output_type
    )
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
        """Open what reads answers; None without --answers.

        :param retrieved: how many passages of a question are retrieved
        :param raise_by: the option that raises this number
        :param language: of the texts, whose reader is opened where none is named
        """
        if not self.answers:
            return None
        from hybrid.evaluation.answering import Answering
        from hybrid.evaluation.plots import check_plot
        from hybrid.evaluation.tune import parse_candidates

        check_plot(plot)
        check_place(self.output_answers, "file")
        depths = sorted(set(parse_candidates(self.depths, "depths")))
        if depths[-1] > retrieved:
            raise InputError(
                f"expected --depths of at most the {retrieved} passages that are retrieved,"
                f" found {depths[-1]}",
                remedy=f"raise {raise_by}",
            )
        from sparta.neural.encoding import parse_devices
        from sparta.reader.config import reader_folder
        from sparta.reader.reader import Reader

        folder = reader_folder(self.reader, language)
        first = next(iter(parse_devices(device)), None)  # a reader takes the first of several devices
        return Answering(Reader.open(folder, device=first), depths, self.weight)
