"""Training SPARTA (§3.3): a model is begun or taken up, and its best ends in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sparta.base.errors import InputError, ModelError
from sparta.models.config import SpartaConfig
from sparta.models.resolve import sparta_folder
from sparta.models.sparse import SpartaModel
from sparta.neural.checkpoint import is_int8
from sparta.neural.encoding import pick_dtype
from sparta.neural.inputs import ANSWER, CONTEXT, InputLayout, Lexical
from sparta.neural.trainer import TrainerConfig, training_device
from sparta.training.negatives import Bm25
from sparta.training.paragraphs import ParagraphSet
from sparta.training.ranking import check_length, check_output
from sparta.training.sparta_training import SpartaTraining, TrainConfig
from sparta.training.teachers import TeacherOpener, open_teacher
from sparta.weighing import WeightTraining

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
    pruned_to: int | None = None,
    only_terms: Sequence[str] = (),
    query_weights: int = 0,
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
    smaller, and follows the number of terms from there: terms that a penalty kills do not come back. With
    `pruned_to`, the model learns to rank by so many strongest terms of each text alone, too (decision 0015).
    With `only_terms`, a SPARTA model stays as it is, with its quantizer, but for the embeddings of these
    wordpieces, which begin anew: all other weights of a text are the same afterwards (decision 0017). With
    `query_weights`, it stays as it is altogether, and what is trained is how much that many terms, those
    which questions commonly ask, count in a question, each distinct term once (decision 0019). Where only a
    part is trained, the model is stored in as many bits as it was, or in full precision.

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
    only = _known_terms(only_terms, model, encoder, further=further)
    part = "only_terms" if only else "query_weights" if query_weights else ""
    if part:
        others = {"terms": terms, "pruned_to": pruned_to, "context_share": context_share is not None}
        _check_part(part, {**others, "mine_every": query_weights and mine_every})
    if query_weights:
        _check_weighed(encoder, only, teachers, further=further)
    if not part:
        model.config = replace(model.config, quantizer=None)
    if context_share is None and not further and layout.share_context:
        context_share = CONTEXT_SHARE
    if context_share is not None:
        model.config = replace(model.config, context_share=context_share)
    if lexical and model.config.lexical is None and not part:
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
        pruned_to=pruned_to,
        only_terms=only,
        query_weights=query_weights,
        mined=mined,
        mine_every=mine_every,
        int8=not full_precision and not (part and _in_full_precision(encoder)),
    )
    teacher = open_teacher(teachers, sets, model.query_tokenizer(), str(model.device), openers)
    kind = WeightTraining if query_weights else SpartaTraining
    training = kind(model, sets, config, output, teacher)
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


def _in_full_precision(name: str) -> bool:
    """Whether a SPARTA model is stored so: what of it stays as it is must not be rounded."""
    folder = sparta_folder(name)
    return folder is not None and not is_int8(folder / "model.safetensors")


def _check_part(part: str, others: Mapping[str, object]) -> None:
    """Refuse what means nothing where only a part of a model is trained.

    :raises InputError: it is asked for.
    """
    if given := [name for name, value in others.items() if value]:
        raise InputError(
            f"expected {' and '.join(given)} only where the whole model is trained, found them with {part}",
            remedy="leave out either: " + " or ".join(_option(name) for name in (part, *given)),
        )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_weighed(name: str, only: Sequence[int], teachers: Sequence[str], *, further: bool) -> None:
    """Refuse a training of query weights that cannot be.

    :raises InputError: other terms or teachers too, or no model to weigh questions for.
    """
    if only:
        raise InputError(
            "expected only_terms or query_weights, found both",
            remedy="train the terms first, then the weights of the model that came of it",
        )
    if teachers:
        raise InputError(
            f"expected no teacher for query_weights, found {', '.join(teachers)}",
            remedy="leave --teacher out: a question's weights learn from which text answers it",
        )
    if not further:
        raise InputError(
            "expected a SPARTA model for query_weights, found an encoder",
            where=name,
            remedy="name a model of sparta train, or leave --query-weights out",
        )


def _known_terms(terms: Sequence[str], model: SpartaModel, name: str, *, further: bool) -> tuple[int, ...]:
    """Return the ids of the terms that alone are trained.

    :raises InputError: a word that is no wordpiece of the model, or a model without embeddings to keep.
    """
    if not terms:
        return ()
    if not further or model.config.tied:
        raise InputError(
            "expected a SPARTA model with term embeddings of its own for only some terms, found "
            + ("one that shares them with its encoder" if further else "an encoder"),
            where=name,
            remedy="name a model of sparta train, or leave --only-terms out",
        )
    known, excluded = model.tokenizer.get_vocab(), model.excluded_terms()
    if unknown := [term for term in terms if term not in known or excluded[known[term]]]:
        raise InputError(
            f"expected wordpieces of the model as terms to train, found {', '.join(map(repr, unknown))}",
            where=name,
            remedy="--only-terms who,when: a word as sparta terms shows it",
        )
    return tuple(sorted({known[term] for term in terms}))


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
