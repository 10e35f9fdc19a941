"""Start models for training with skills: pretrained encoders, sparta models, Chain-of-Skills' checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dense.models.bi_encoder import DenseModel
from dense.models.checkpoints import LONGEST, State, begin_from, blank_bert, dict_weights, side_of
from dense.models.config import FORMAT_VERSION, PASSAGE, QUESTION, DenseConfig
from dense.models.resolve import bi_encoder_folder
from dense.models.skill_config import (
    ASSIGNMENTS,
    EXPANDED,
    FEED_FORWARD,
    LINK,
    NONE,
    READ_BY,
    SINGLE,
    SKILLS,
    SkillConfig,
)
from sparta.base.errors import ModelError
from sparta.base.remedies import Option, remedy
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.neural.checkpoint import with_weights
from sparta.neural.inputs import InputLayout

_RELEASED = re.compile(
    r"(encoder\.layer\.\d+\.attention)\.(self|output)\.moe_(query|key|value|dense)\.(\d+)\.(.+)"
)
_EXPERT = re.compile(r"(.*\.experts\.)(\d+)(\..+)")


def begin_skills(name: str | Path, config: DenseConfig) -> DenseModel:
    """Return a model of this form to train, with the weights of a pretrained encoder or of a sparta model.

    A start model with skills keeps its experts (also its tasks' query encoders), task markers, span head and
    untrained skills, and whether [SEP] follows a title. A new task's query encoder starts as the expert for
    questions without a task; any other missing expert starts as expert 0. (The paper starts the span expert
    as BERT, Appendix B.2.) TASER with deterministic routing counts as a model with the skill single and two
    feed-forward experts. All other sparta models start as in `begin_from`.

    :raises ModelError: the start model has other pooling, scores, expert places or expert assignments.
    """
    folder = bi_encoder_folder(name)
    source = DenseModel.load(folder) if folder else None
    old_skills = _skills_of(source.config) if source else None
    new_skills = config.skills
    if source is None or old_skills is None:
        return begin_from(name, config)
    assert new_skills is not None
    common_readers = (old_skills.experts.keys() & new_skills.experts.keys()) - {
        "expanded",
        *old_skills.task_readers,
    }
    if old_skills.placement != new_skills.placement or any(
        old_skills.experts[k] != new_skills.experts[k] for k in common_readers
    ):
        raise ModelError(
            f"training needs {new_skills.placement} experts {new_skills.experts},"
            f" found {old_skills.placement} experts {old_skills.experts}",
            where=str(name),
            remedy=remedy("use the start model's {} and {}", Option("placement"), Option("assignment")),
        )
    if lost := {reader for skill in old_skills.skills for reader in READ_BY[skill]} - {*new_skills.experts}:
        raise ModelError(
            f"the start model has experts for {', '.join(sorted(lost))}, which the trained model lacks",
            where=str(name),
            remedy=remedy("use the start model's {}, and train all of its skills", Option("assignment")),
        )
    if new_skills.placement != NONE and source.config.period != config.period:
        raise ModelError(
            f"expected experts in every {config.period}th layer, found a period of {source.config.period}",
            where=str(name),
            remedy=remedy("train with {}", Option("period", source.config.period)),
        )
    form = source.config.pooling, source.config.cosine
    if form != (config.pooling, config.cosine):
        raise ModelError(
            f"expected {_form_in_words(config.pooling, config.cosine)}, found {_form_in_words(*form)}",
            where=str(name),
            remedy=remedy(
                f"train with {{}}{' and' if form[1] else ', without'} {{}}",
                Option("pooling", form[0]),
                Option("cosine"),
            ),
        )
    skills = replace(
        new_skills.with_tasks_of(old_skills),
        markers=tuple(dict.fromkeys((*old_skills.markers, *new_skills.markers))),
        skills=tuple(s for s in SKILLS if s in {*old_skills.skills, *new_skills.skills}),
        general=old_skills.general if SINGLE in old_skills.skills else new_skills.general,
    )
    layout = replace(config.layout, separate_title=source.config.layout.separate_title)
    model = DenseModel.like(source, replace(config, layout=layout).with_skills(skills, config.period))
    sources = _source_experts(old_skills, skills)
    weights = source.state_dict()
    model.load_state_dict(
        {k: weights.get(_source_name(k, sources), v) for k, v in model.state_dict().items()}
    )
    return model


def _skills_of(config: DenseConfig) -> SkillConfig | None:
    """Return the skills of a model.

    TASER with deterministic routing counts as a model with the skill single.
    """
    if config.routing == "det":
        return SkillConfig((SINGLE,), {"question": QUESTION, "passage": PASSAGE}, FEED_FORWARD)
    return config.skills


def _form_in_words(pooling: str, cosine: bool) -> str:
    return f"{pooling} pooling and {'cosines' if cosine else 'dot products'}"


def _source_experts(old: SkillConfig, new: SkillConfig) -> dict[int, int]:
    """Return the old expert that each new expert starts from, by number. Missing numbers mean expert 0."""
    sources = {new.experts[reader]: old.expert() for reader in new.task_readers if reader not in old.experts}
    # "expanded" comes last, because another input may share its expert.
    for name in sorted(new.experts, key=lambda name: name == "expanded"):
        if name in old.experts:
            sources.setdefault(new.experts[name], old.experts[name])
    return sources


def _source_name(name: str, sources: Mapping[int, int]) -> str:
    """Return the name of the old weight that a new weight starts from."""
    return _EXPERT.sub(lambda m: f"{m[1]}{sources.get(int(m[2]), 0)}{m[3]}", name)


def is_released(weights: State) -> bool:
    """Return whether weights come from Chain-of-Skills' code: its attention experts are named `moe_query`."""
    return any(".moe_query." in name for name in weights)


def load_released(path: str | Path, tokenizer: str | Path) -> DenseModel:
    """Return the model of a checkpoint of Chain-of-Skills' code (`mod2:attn`).

    Such a file stores one encoder under two names, and `span_proj` and `span_query` if spans were trained. A
    model with six experts has all skills. A model with the four experts of pretraining has single and
    expanded retrieval and linking. Vectors are the states of [CLS]; the score is the dot product.

    :param tokenizer: a folder or hub id, such as bert-base-uncased, because the file has no tokenizer
    :raises ModelError: the file has another layout.
    """
    weights = dict_weights(Path(path))
    encoder = side_of(weights, "ctx_model.")
    matches = [m for k in encoder if (m := _RELEASED.fullmatch(k))]
    experts = 1 + max((int(m[4]) for m in matches), default=-1)
    names = {4: "pretraining", 6: "paper"}
    if experts not in names or (experts == 6) != ("span_proj.weight" in weights):
        raise ModelError(
            "expected 4 attention experts without span_proj, or 6 with span_proj, found"
            f" {experts} {'with' if 'span_proj.weight' in weights else 'without'} span_proj",
            where=str(path),
        )
    layers = sorted({int(m[1].split(".")[2]) for m in matches})
    skills = SKILLS if experts == 6 else (SINGLE, EXPANDED, LINK)
    layout = InputLayout(use_title=True, answer_segment=0, max_length=LONGEST, overlap=0, separate_title=True)
    plain = DenseConfig(layout, pooling="cls", cosine=False, question_length=LONGEST)
    config = plain.with_skills(SkillConfig(skills, dict(ASSIGNMENTS[names[experts]])), layers[0] + 1)
    model = DenseModel(blank_bert(encoder, str(path)), load_tokenizer(tokenizer), config)
    encoder_weights = {_our_name(k): v for k, v in encoder.items()}
    state = {f"{side}_encoder.{k}": v for side in ("passage", "question") for k, v in encoder_weights.items()}
    state["log_scale"] = model.log_scale.detach()
    if model.spans is not None:  # span_query's bias is not needed: it adds the same to spans and to [CLS]
        state |= {f"spans.projection.{k}": weights[f"span_proj.{k}"] for k in ("weight", "bias")}
        state["spans.anchor"] = weights["span_query.weight"][0]
    return with_weights(model, state, str(path))


def _our_name(name: str) -> str:
    """Return sparta's name of a weight: `…self.moe_query.3.weight` becomes `…self.query.experts.3.weight`."""
    return _RELEASED.sub(r"\1.\2.\3.experts.\4.\5", name)


def without_unread(model: DenseModel) -> DenseModel:
    """Return a copy of the model without the experts that its skills do not use.

    Other models are returned unchanged.
    """
    skills = model.config.skills
    if skills is None or skills.placement == NONE:
        return model
    smaller = skills.without_unread()
    old_numbers = {number: skills.experts[name] for name, number in smaller.experts.items()}
    smaller_model = DenseModel.like(model, model.config.with_skills(smaller, model.config.period))
    weights = model.state_dict()
    smaller_model.load_state_dict(
        {k: weights[_source_name(k, old_numbers)] for k in smaller_model.state_dict()}
    )
    return smaller_model.eval()


def single_expert_model(model: DenseModel, reader: str) -> DenseModel:
    """Return a plain bi-encoder with the weights of one expert, such as `passage` or `entity`.

    `dense index` can use it to index descriptions of entities: the command does not support skills.

    :raises ModelError: the model has no skills, or no expert of this name.
    """
    skills = model.config.skills
    if skills is None or reader not in skills.experts:
        known = ", ".join(skills.experts) if skills else "no skills"
        raise ModelError(f"expected a model with an expert for {reader}, found {known}")
    plain = replace(model.config, skills=None, routing="", format_version=FORMAT_VERSION)
    bi_encoder = DenseModel.like(model, plain)
    state, expert_part = {}, f".experts.{skills.experts[reader]}."
    for name, tensor in model.state_dict().items():
        if name.startswith("spans."):
            continue
        before, separator, after = name.partition(expert_part)
        if not separator:
            if ".experts." not in name:
                state[name] = tensor
        elif skills.placement == FEED_FORWARD:  # an expert holds the layer's intermediate and output
            state[f"{before.removesuffix('.output')}.{after}"] = tensor
        else:
            state[f"{before}.{after}"] = tensor
    bi_encoder.load_state_dict(state)
    return bi_encoder.eval()
