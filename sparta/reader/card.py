"""How the training of a reader ends: with a model card."""

from __future__ import annotations

from collections.abc import Sequence

from sparta.base.files import atomic_write, sha256_file
from sparta.neural.trainer import process_group, wait_for_all
from sparta.training.options import TrainResult


def finish(
    result: TrainResult,
    *,
    what: str,
    tags: str,
    encoder: str,
    data: Sequence[str],
    command: str,
    held_out: str,
) -> TrainResult:
    """End a training: the first process writes the card of its best model; return the result.

    :param what: the model in a sentence
    :param tags: as the Hugging Face hub has them
    :param data: the lines of the table of its data
    :param held_out: the questions of the validation
    """
    if not process_group()[0]:
        lines = [
            *("---", "library_name: sparta", f"tags: [question-answering, {tags}, sparta]", "---", ""),
            f"# {result.folder.absolute().parent.name}",
            "",
            f"{what} It began as `{encoder}`.",
            "",
            *(*data, ""),
            f"    {command}",
            "",
            f"Validation: {result.reached} at step {result.step:,}, on {held_out}.",
            "",
            f"`model.safetensors` SHA-256 `{sha256_file(result.folder / 'model.safetensors')}`",
        ]
        atomic_write(result.folder / "README.md", ("\n".join(lines) + "\n").encode())
    wait_for_all()
    return result
