"""TASER's two-stage training: train, mine hard negatives with the trained model, train again (§3.3, §B)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dense.models.bi_encoder import DenseModel
from dense.training.train import DenseTraining, Recipe, exact_scorer
from sparta.base.errors import InputError
from sparta.base.files import atomic_write, short_hash
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.base.renames import renamed_arguments
from sparta.data.languages import language_of
from sparta.models.resolve import encoder_identity
from sparta.neural.processes import process_group, training_device, wait_for_all
from sparta.training.known import keys_of
from sparta.training.negatives import HardNegatives, mine, read_negatives, write_negatives
from sparta.training.options import TrainResult, check_same
from sparta.training.paragraphs import Paragraph, ParagraphSet
from sparta.training.ranking import table_of
from sparta.training.run import check_output, only_training, sweep

DEPTH = 100
MINED = "mined.json"
STARTED = "started.json"


@renamed_arguments(p2_alone="only_p2")
def train_in_two_stages(
    sets: Sequence[ParagraphSet],
    recipe: Recipe,
    output: str | Path,
    *,
    only_p2: bool = False,
    collection: Sequence[Passage] = (),
    resume: bool = False,
    command: str = "",
) -> TrainResult:
    """Train with hard negatives as TASER does. The best model of stage two ends in `output/best`.

    Stage one (`output/stage-1`) uses the hard negatives P1: BM25's, and those in the files. Its best model
    ranks all texts of a set, and the passages of `collection`, for each question. The first 100 texts that
    are not right and hold no answer are P2 (`output/mined.json`). Stage two (`output/stage-2`) starts again
    from the pretrained encoder, with P1 ∪ P2 for one set, and with P2 alone for several sets.

    Differences from the paper: Texts that hold an answer are left out, as in DPR. Without a collection, the
    model ranks the texts of the training set only. The 100 texts belong to a paragraph, the best over all its
    questions, and a batch draws `recipe.negatives` of them. With P1, half of the groups take neighboring
    texts of the file.

    With `resume`, an interrupted training continues with the same result, also between the stages.

    :param recipe: its `steps` are the steps of each stage
    :param only_p2: use P2 alone even with a single set
    :param collection: the whole passages that the paper's P2 comes from, such as all passages of an index
    :param command: the command that the card shows; empty shows the recipe
    """
    output = check_output(output, resume=resume)
    if recipe.mine_every:
        raise InputError(
            "two stages cannot be combined with mining during training",
            remedy=remedy("omit {}, or omit {}", Option("mine_every"), Option("two_stages")),
        )
    first = recipe.training(sets, output / "stage-1")  # fails for a bad encoder or set, before any writing
    with only_training(output):
        _check_start(output, recipe.encoder, collection, only_p2=only_p2)
        first.run(resume=True)
        del first  # frees the model's and the optimizer's memory
        wait_for_all()
        second = recipe.training(sets, output / "stage-2")
        second.sets = [_with_collection(data, collection) for data in second.sets]
        mined = zip(second.sets, _mine_all(second, output, recipe), strict=True)
        single = len(second.sets) == 1 and not only_p2
        second.sets = [second_stage_set(data, negatives, with_p1=single) for data, negatives in mined]
        state = second.run(resume=True)
        if not process_group()[0]:
            _publish(output / "stage-2" / "best", output / "best")
        return second.finish(state, recipe, table_of(sets), command, output / "best")


def _with_collection(data: ParagraphSet, collection: Sequence[Passage]) -> ParagraphSet:
    """Return a set with the passages of a collection before its texts, as candidates for its negatives.

    Texts after a positive are its negatives from the file, so the passages come first.
    """
    if not collection:
        return data
    language = language_of(data.known.language)
    known = {key for paragraph in data.paragraphs for key in keys_of(paragraph.whole())}
    known.update(data.known.all_right())  # also the whole text of a truncated paragraph
    folded = (
        Paragraph(item.text, item.title, passage_id=item.passage_id).folded(language) for item in collection
    )
    passages = tuple(item for item in folded if known.isdisjoint(keys_of(item.whole())))
    shifted = tuple(tuple(len(passages) + i for i in numbers) for numbers in data.hard_negatives)
    negatives = (*((),) * len(passages), *shifted) if shifted else ()
    return replace(data, paragraphs=(*passages, *data.paragraphs), hard_negatives=negatives)


def _check_start(output: Path, encoder: str, collection: Sequence[Passage], *, only_p2: bool) -> None:
    """Raise an error if a resumed training has other values that checkpoints do not store."""
    texts = ((item.passage_id, item.title, item.text) for item in collection)
    current = {
        "encoder": encoder_identity(encoder),
        "p2_alone": "yes" if only_p2 else "no",
        "collection": short_hash(texts) if collection else "",
    }
    path = output / STARTED
    if not process_group()[0]:
        sweep(output)
        if not path.exists():
            atomic_write(path, json.dumps(current).encode())
    wait_for_all()
    stored = json.loads(path.read_text(encoding="utf-8"))
    check_same({**current, "collection": "", **stored}, current, path)


def _mine_all(training: DenseTraining, output: Path, recipe: Recipe) -> list[HardNegatives]:
    """Return P2 of each set, mined by the best model of stage one, or read from the file if it exists."""
    path = output / MINED
    if not path.exists():
        model = DenseModel.load(output / "stage-1" / "best").to(training_device(recipe.device))
        sets = [
            mine(data, exact_scorer(model, texts), DEPTH, above=training.score_floor)
            for data, texts in (
                (data, [paragraph.whole() for paragraph in data.paragraphs]) for data in training.sets
            )
        ]
        if not process_group()[0]:
            write_negatives(path, sets)
    wait_for_all()
    return read_negatives(path)


def second_stage_set(data: ParagraphSet, mined: HardNegatives, *, with_p1: bool) -> ParagraphSet:
    """Return a set with the negatives of stage two: P1 ∪ P2, or P2 alone."""
    if not with_p1:
        return replace(data, hard_negatives=mined, hard_negative_share=1.0)
    first = data.hard_negatives or ((),) * len(mined)
    both = (tuple(dict.fromkeys([*p1, *p2])) for p1, p2 in zip(first, mined, strict=True))
    return replace(data, hard_negatives=tuple(both))


def _publish(best: Path, folder: Path) -> None:
    """Copy the best model. The configuration comes last, because it makes the folder a model folder."""
    folder.mkdir(exist_ok=True)
    for file in sorted(best.iterdir(), key=lambda p: p.name == "config.json"):
        atomic_write(folder / file.name, file.read_bytes())
