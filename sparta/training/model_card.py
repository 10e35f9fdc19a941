"""The model card that a training leaves: what the model is, what it learnt from, and how to make it again."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparta.base.files import atomic_write, sha256_file
from sparta.neural.trainer import process_group, wait_for_all
from sparta.training.metrics import shown
from sparta.training.options import TrainOptions, TrainResult

if TYPE_CHECKING:
    from sparta.neural.trainer import TrainerState
    from sparta.training.paragraphs import ParagraphSet
    from sparta.training.ranking import RankingTraining

CARD = "README.md"
_TAGS = {"sparta": "sparse-retrieval", "dense": "dense-retrieval"}
_KINDS = {"sparta": "A SPARTA model: passages become sparse vectors.", "dense": "A bi-encoder."}


def finish(
    program: str,
    state: TrainerState,
    training: RankingTraining[Any, Any],
    sets: Sequence[ParagraphSet],
    recipe: TrainOptions,
    command: str = "",
    folder: Path | None = None,
) -> TrainResult:
    """End a training: the first process writes the card of its best model; return the result.

    :param folder: where the best model lies, if not in the training's own folder
    """
    best = folder or training.folder / "best"
    value = shown(training.ranking_config.validate_by, state.best)
    reached, on = f"none; the model of step {state.best_step:,}", ""
    if training.validated:
        reached = f"{value} at step {state.best_step:,}"
        on = f", on queries of {', '.join(training.validated)} that no step was trained on"
    rank, processes = process_group()
    if not rank:
        gathered = getattr(training.ranking_config, "gather", False)
        shared = "sharing each batch" if gathered else "each with its own batches"
        several = f"  # in {processes} processes of torchrun, {shared}"
        text = (command or str(recipe)) + (several if processes > 1 else "")
        write_card(best, program, text, recipe.encoder, sets, reached + on)
    wait_for_all()
    return TrainResult(best, state.best, state.best_step, training.validated, reached)


def write_card(
    folder: Path, program: str, command: str, encoder: str, sets: Sequence[ParagraphSet], validation: str
) -> None:
    """Write `README.md` into the folder of a model, in the form that the Hugging Face hub shows.

    A card of these very weights stays as it is, with what was written into it since.

    :param program: `sparta` or `dense`, which trained the model and can index with it.
    :param command: the command that trained it.
    :param encoder: what the training began with, a folder or a hub id.
    :param validation: the best value of the measure, at which step, and on which questions.
    """
    card, checksum = folder / CARD, sha256_file(folder / "model.safetensors")
    if card.is_file() and checksum in card.read_text(encoding="utf-8"):
        return
    rows = [
        f"| {one.name}{' (dev)' * one.dev} | {one.weight:g} | {len(one.paragraphs):,} | {one.n_questions:,} |"
        f" `{one.fingerprint()}` |"
        for one in sets
    ]
    from_hub = "/" in encoder and not Path(encoder).is_dir()
    base = [f"base_model: {encoder}"] if from_hub else []
    lines = [
        "---",
        "library_name: sparta",
        *base,
        f"tags: [{_TAGS[program]}, question-answering, sparta]",
        "---",
        "",
        f"# {folder.absolute().parent.name}",
        "",
        f"{_KINDS[program]} It began as `{encoder}`.",
        "",
        f"    {program} index --model {folder.absolute().parent.name}"
        + (" --corpus FILE" if program == "sparta" else " --index FOLDER"),
        "",
        "## Training",
        "",
        "| set | weight | texts | questions | fingerprint |",
        "|---|---|---|---|---|",
        *rows,
        "",
        "The command:",
        "",
        f"    {command}",
        "",
        f"sparta {_version()}. Validation: {validation}.",
        "",
        "## Before it is given away",
        "",
        "A training cannot know the licences of the encoder and of the data, for what the model serves and in"
        " which languages, nor how good it is on other data (`sparta eval`, `hybrid eval`): write it here.",
        "",
        "## Checksum",
        "",
        f"`model.safetensors` SHA-256 `{checksum}`",
    ]
    atomic_write(card, ("\n".join(lines) + "\n").encode())


def _version() -> str:
    try:
        return version("sparta-search")
    except PackageNotFoundError:
        return "of a checkout that is not installed"
