"""Training SPARTA (§3.3): a model is begun or taken up, and its best ends in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sparta.base.errors import InputError, ModelError
from sparta.models.config import SpartaConfig
from sparta.models.resolve import sparta_folder
from sparta.models.sparse import SpartaModel
from sparta.neural.encoding import pick_dtype
from sparta.neural.inputs import ANSWER, CONTEXT, InputLayout, Lexical
from sparta.neural.trainer import TrainerConfig, training_device
from sparta.training.negatives import Bm25
from sparta.training.paragraphs import ParagraphSet
from sparta.training.ranking import check_length, check_output
from sparta.training.sparta_training import SpartaTraining, TrainConfig
from sparta.training.teachers import TeacherOpener, open_teacher

LEXICAL_START = 0.2
CONTEXT_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Where the best model lies and how well it validated, at which step, on questions of which sets."""

    folder: Path
    validation: float
    step: int
    validated: tuple[str, ...] = ()


def train_model(
    sets: Sequence[ParagraphSet],
    *,
    encoder: str,
    output: Path,
    steps: int,
    learning_rate: float,
    pressure: float,
    validate_every: int,
    seed: int,
    accumulate: int = 1,
    max_length: int = 256,
    alone: bool = False,
    segments: bool = False,
    terms: int | None = None,
    mined: bool = True,
    mine_every: int = 0,
    teachers: Sequence[str] = (),
    openers: Sequence[TeacherOpener] = (),
    tied: bool = False,
    lexical: bool = True,
    context_share: float | None = None,
    full_precision: bool = False,
    resume: bool = False,
    device: str | None = None,
) -> TrainResult:
    """Train a model on a pretrained encoder, or a SPARTA model further; the best by validation MRR ends in
    `output/best`. A SPARTA model may itself stay the best. With `terms`, its penalty begins a hundred times
    smaller, and follows the number of terms from there: terms that a penalty kills do not come back.

    An answer is read inside its context, once for all answers in it; with `segments` as in SPARTA, §4, where
    segment 1 marks the answer; with `alone` it is read without context. `max_length` is the longest text, in
    wordpieces, that the model will read at once. With `lexical`, a term weighs more when it stands in the
    answer, at first by BM25's measure (decision 0012); a model that has this cannot go without.
    `context_share` of an answer's weights are those of its context (decision 0014): of a new model that
    shares contexts 0.4, of one that is trained further its own, unless another is given. `openers` know
    teachers that are not of this package. Under torchrun every process does its share of each step.
    """
    check_output(output, resume=resume)
    torch.manual_seed(seed)
    layout = InputLayout(
        use_title=True,
        use_context=not alone,
        answer_segment=ANSWER if segments else CONTEXT,
        share_context=not alone and not segments,
        max_length=max_length,
        overlap=max_length // 8,
    )
    if context_share and not layout.share_context:
        raise InputError(
            "expected a context share only where answers share one, found --alone or --segments",
            remedy="leave out one of them",
        )
    model, further = _begin(encoder, SpartaConfig(layout, tied=tied))
    model.config = replace(model.config, quantizer=None)
    if context_share is None and not further and layout.share_context:
        context_share = CONTEXT_SHARE
    if context_share is not None:
        model.config = replace(model.config, context_share=context_share)
    if lexical and model.config.lexical is None:
        _add_lexical(model, sets)
    elif not lexical and model.config.lexical is not None:
        raise InputError(
            "expected a model without gains for terms that stand in the answer, found one that has them",
            where=encoder,
            remedy="leave --no-lexical (lexical=False) out, or train a new model from an encoder",
        )
    model = model.to(training_device(device))
    check_length(model.encoder, max_length)
    config = TrainConfig(
        trainer=TrainerConfig(
            steps=steps,
            learning_rate=learning_rate,
            clip=2.0,
            accumulate=accumulate,
            bf16=pick_dtype("auto", model.device) == torch.bfloat16,
            seed=seed,
            validate_every=validate_every,
        ),
        pressure=pressure,
        terms=terms,
        mined=mined,
        mine_every=mine_every,
        int8=not full_precision,
    )
    teacher = open_teacher(teachers, sets, model.query_tokenizer(), str(model.device), openers)
    training = SpartaTraining(model, sets, config, output, teacher)
    training.further = further
    state = training.run(resume=resume)
    return TrainResult(output / "best", state.best, state.best_step, training.validated)


def _begin(name: str, config: SpartaConfig) -> tuple[SpartaModel, bool]:
    """Return a new model on a pretrained encoder, or a SPARTA model as it is; and whether it is one.

    :raises ModelError: the model's form is another than that asked for.
    """
    folder = sparta_folder(name)
    if folder is None:
        return SpartaModel.from_encoder(name, config), False
    model = SpartaModel.load(folder)
    found, wanted = _form(model.config), _form(config)
    differing = [f"{key} {found[key]} and not {wanted[key]}" for key in found if found[key] != wanted[key]]
    if differing:
        raise ModelError(
            f"expected a model of the form that is asked for, found {', '.join(differing)}",
            where=name,
            remedy="repeat --tied, --alone, --segments and --max-length as when the model was trained",
        )
    return model, True


def _form(config: SpartaConfig) -> dict[str, Any]:
    values = config.as_dict()
    layout = values.pop("layout")
    others = ("lexical", "context_share", "weighted_queries", "quantizer", "format_version")
    return {k: v for k, v in {**values, **layout}.items() if k not in others}


def _add_lexical(model: SpartaModel, sets: Sequence[ParagraphSet]) -> None:
    """Let an occurrence of a term be worth a share of its inverse document frequency in the training."""
    bm25 = Bm25.of_sets(sets, model.query_tokenizer())
    gains = torch.zeros(len(model.term_matrix()))
    gains[: len(bm25.idf)] = LEXICAL_START * torch.from_numpy(bm25.idf)
    model.add_lexical(Lexical(round(bm25.mean_length, 1), bm25.k1, bm25.b), gains)
