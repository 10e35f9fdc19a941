"""The long parts of experiments: indexes, trainings and measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hybrid.evaluation.results import SetResults
    from sparta.index.inputs.options import IndexOptions
    from sparta.reader.reader import Reader


class Parts:
    """The parts of an experiment. A subclass may run a part elsewhere, or a smaller one in its place."""

    def build(self, path: Path, corpus: Path, options: IndexOptions) -> None:
        """Build an index."""
        from sparta.index.pipeline import build_index

        build_index(path, corpus, options=options, progress=None)

    def train(
        self, training: Callable[..., Any], sets: Sequence[Any], recipe: Any, output: Path, **options: Any
    ) -> Path:
        """Train a model, or continue or keep a started training; return the folder of the best model."""
        return Path(training(sets, recipe, output, resume=True, **options).folder)

    def mrr(self, folder: Path, model: Path | None, dense: Sequence[Path]) -> SetResults:
        """Measure the MRR of SPARTA, BM25 and dense models on a test set."""
        from hybrid.evaluation.evaluate import evaluate_set
        from sparta.models.load import load_model
        from sparta.shards.encode import EncodeOptions

        return evaluate_set(folder, load_model(model), EncodeOptions(), measures=["RR"], dense=dense)

    def reader(self, language: str) -> Reader:
        """Open the shipped reader of a language."""
        from sparta.reader.config import reader_folder
        from sparta.reader.reader import Reader

        return Reader.open(reader_folder(None, language))
