"""Train a new SPARTA model, or train an existing one further (§3.3), and save the best model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sparta.base.errors import InputError, ModelError
from sparta.base.remedies import Option, remedy
from sparta.models.config import SpartaConfig
from sparta.models.resolve import sparta_folder
from sparta.models.sparta import SpartaModel
from sparta.neural.backbones import encoder_config
from sparta.neural.inputs import ANSWER, CONTEXT, InputLayout, Lexical
from sparta.neural.processes import training_device
from sparta.neural.stored import check_length
from sparta.training.negatives import Bm25Vectorizer
from sparta.training.options import SpartaRecipe, TrainResult, fields_of
from sparta.training.paragraphs import ParagraphSet
from sparta.training.ranking import table_of
from sparta.training.run import check_output, trainer_config
from sparta.training.sparta_training import SpartaTraining, TrainConfig
from sparta.training.teachers import TeacherOpener, open_teacher

LEXICAL_START = 0.2
CONTEXT_SHARE = 0.4
PAPER_FORM: dict[str, Any] = {
    "segments": True,
    "tied": True,
    "lexical": False,
    "pressure": 0.0,
    "mined": False,
}
"""The form of the model and of its training in the paper (§3.2, §3.3)."""
PAPER_LOSS: dict[str, Any] = {"negatives": 8, "scaled": False, "term_rate": 1.0, "scale_rate": 1.0}


def train_model(
    sets: Sequence[ParagraphSet],
    recipe: SpartaRecipe,
    output: str | Path,
    *,
    resume: bool = False,
    openers: Sequence[TeacherOpener] = (),
    command: str = "",
) -> TrainResult:
    """Train a SPARTA model.

    The model with the best validation MRR is saved in `output/best`, with a model card.

    Under torchrun, each process computes a share of each step.

    :param openers: functions that open teachers from other packages
    :param command: the command for the model card; empty means the recipe
    :raises ModelError: an encoder or model that cannot be trained with these options.
    :raises Interrupted: Ctrl-C; reports how many steps are kept.
    """
    output = check_output(output, resume=resume)
    torch.manual_seed(recipe.seed)
    form = replace(recipe, **PAPER_FORM, paper=False) if recipe.paper else recipe
    model, trained_before = _model(form, sets, use_title=not recipe.paper)
    config = TrainConfig(
        trainer=trainer_config(recipe, model.device),
        max_tokens=recipe.train_length,
        int8=not recipe.full_precision,
        **{**fields_of(form, TrainConfig), **(PAPER_LOSS if recipe.paper else {})},
    )
    teacher = open_teacher(recipe.teachers, sets, model.query_tokenizer(), str(model.device), openers)
    training = SpartaTraining(model, sets, config, output, teacher)
    training.trained_before, training.encoder = trained_before, recipe.encoder
    return training.train(recipe, table_of(sets), resume=resume, command=command)


def _model(
    recipe: SpartaRecipe, sets: Sequence[ParagraphSet], *, use_title: bool
) -> tuple[SpartaModel, bool]:
    """Return the model before its first step, on its device, and whether the model was trained before."""
    layout = InputLayout(
        use_title=use_title,
        use_context=recipe.context,
        answer_segment=ANSWER if recipe.segments else CONTEXT,
        share_context=recipe.context and not recipe.segments,
        max_length=recipe.max_length,
        overlap=recipe.max_length // 8,
    )
    if recipe.context_share and not layout.share_context:
        raise InputError(
            "context_share has an effect only with a shared context",
            remedy=remedy("omit {}, or train with a shared context", Option("context_share")),
        )
    model, trained_before = _new_or_trained(recipe.encoder, SpartaConfig(layout, tied=recipe.tied))
    share = recipe.context_share
    if share is None:
        share = CONTEXT_SHARE if layout.share_context and not trained_before else model.config.context_share
    model.config = replace(model.config, quantizer=None, context_share=share)
    if recipe.lexical and model.config.lexical is None:
        _add_lexical(model, sets)
    elif not recipe.lexical and model.config.lexical is not None:
        raise InputError(
            "the start model has lexical gains, but the options train without lexical gains",
            where=recipe.encoder,
            remedy=remedy("omit {}, or train a new model", Option("lexical", flag="no-lexical")),
        )
    model = model.to(training_device(recipe.device))
    check_length(recipe.max_length, encoder_config(model.encoder), option="max_length")
    return model, trained_before


def _new_or_trained(name: str, config: SpartaConfig) -> tuple[SpartaModel, bool]:
    """Return a new model on a pretrained encoder, or an existing SPARTA model; and whether the model existed.

    :raises ModelError: the existing model's form differs from the options.
    """
    folder = sparta_folder(name)
    if folder is None:
        return SpartaModel.from_encoder(name, config), False
    model = SpartaModel.load(folder)
    model_form, option_form = _form_of(model.config), _form_of(config)
    differing = [
        f"{key} {model_form[key]} and not {option_form[key]}"
        for key in model_form
        if model_form[key] != option_form[key]
    ]
    if differing:
        raise ModelError(
            f"the start model was trained with other options: {', '.join(differing)}",
            where=name,
            remedy=remedy(
                "set {}, {}, {} and {} as in the training of the start model",
                Option("tied"),
                Option("context", flag="no-context"),
                Option("segments"),
                Option("max_length"),
            ),
        )
    return model, True


def _form_of(config: SpartaConfig) -> dict[str, Any]:
    values = config.as_dict()
    layout = values.pop("layout")
    learned = ("lexical", "context_share", "weighted_queries", "query_quantizer", "quantizer")
    return {k: v for k, v in {**values, **layout}.items() if k not in (*learned, "format_version")}


def _add_lexical(model: SpartaModel, sets: Sequence[ParagraphSet]) -> None:
    """Add gains to the model: an occurrence of a term is worth a share of its inverse document frequency."""
    bm25 = Bm25Vectorizer.of_sets(sets, model.query_tokenizer())
    gains = torch.zeros(len(model.term_matrix()))
    gains[: len(bm25.idf)] = LEXICAL_START * torch.from_numpy(bm25.idf)
    model.add_lexical(Lexical(round(bm25.mean_length, 1), bm25.k1, bm25.b), gains)
