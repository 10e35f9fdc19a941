"""Where a model with skills begins: a pretrained encoder, a model of ours, Chain-of-Skills' checkpoints."""

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
from sparta.models.query_encoder import load_tokenizer
from sparta.neural.checkpoint import with_weights
from sparta.neural.inputs import InputLayout

_RELEASED = re.compile(
    r"(encoder\.layer\.\d+\.attention)\.(self|output)\.moe_(query|key|value|dense)\.(\d+)\.(.+)"
)
_EXPERT = re.compile(r"(.*\.experts\.)(\d+)(\..+)")


def begin_skills(name: str | Path, config: DenseConfig) -> DenseModel:
    """Return a model of this form to be trained, from a pretrained encoder or from a model of ours.

    A model with skills keeps what it has: its experts, its tasks' query encoders among them, its tasks'
    markers, its span head, skills that are not trained again, and whether [SEP] stands behind a title. A new
    task's query encoder begins as that of questions without a task, other experts that it lacks as its expert
    0; the paper begins that of spans as BERT (Appendix B.2), which is not at hand here. TASER with
    deterministic routing counts as a model of the skill single, with two feed-forward experts. Other models
    of ours begin as `begin_from` has it.

    :raises ModelError: its texts become vectors otherwise than those of what is to be trained, or the experts
        are elsewhere, or assigned otherwise.
    """
    folder = bi_encoder_folder(name)
    source = DenseModel.load(folder) if folder else None
    old = _skills_of(source.config) if source else None
    new = config.skills
    if source is None or old is None:
        return begin_from(name, config)
    assert new is not None
    both = (old.experts.keys() & new.experts.keys()) - {"expanded", *old.task_readers}
    if old.placement != new.placement or any(old.experts[k] != new.experts[k] for k in both):
        raise ModelError(
            f"expected experts as they are trained ({new.placement}: {new.experts}), found {old.placement}:"
            f" {old.experts}",
            where=str(name),
            remedy=remedy("give the {} and {} that the model has", Option("placement"), Option("assignment")),
        )
    if new.placement != "none" and source.config.period != config.period:
        raise ModelError(
            f"expected experts every {config.period} layers, found them every {source.config.period}",
            where=str(name),
            remedy=remedy("train with {}", Option("period", source.config.period)),
        )
    form = source.config.pooling, source.config.cosine
    if form != (config.pooling, config.cosine):
        raise ModelError(
            f"expected a model of {_form(config.pooling, config.cosine)}, found one of {_form(*form)}",
            where=str(name),
            remedy=remedy(
                f"train with {{}}{' and' if form[1] else ', without'} {{}}",
                Option("pooling", form[0]),
                Option("cosine"),
            ),
        )
    skills = replace(
        new.with_tasks_of(old),
        markers=tuple(dict.fromkeys((*old.markers, *new.markers))),
        skills=tuple(s for s in SKILLS if s in {*old.skills, *new.skills}),
        general=old.general if SINGLE in old.skills else new.general,
    )
    layout = replace(config.layout, separate_title=source.config.layout.separate_title)
    model = DenseModel.like(source, replace(config, layout=layout).with_skills(skills, config.period))
    begins = _begins(old, skills)
    given = source.state_dict()
    model.load_state_dict({k: given.get(_renamed(k, begins), v) for k, v in model.state_dict().items()})
    return model


def _skills_of(config: DenseConfig) -> SkillConfig | None:
    """The skills of a model; TASER with deterministic routing counts as one of the skill single."""
    if config.routing == "det":
        return SkillConfig((SINGLE,), {"question": QUESTION, "passage": PASSAGE}, FEED_FORWARD)
    return config.skills


def _form(pooling: str, cosine: bool) -> str:
    return f"{pooling} pooling and {'cosines' if cosine else 'dot products'}"


def _begins(old: SkillConfig, new: SkillConfig) -> dict[int, int]:
    """As which expert of a model each new one begins, by what they read; one that is not here as expert 0, or
    of questions as that which reads questions of no task.
    """
    begins = {new.experts[one]: old.expert() for one in new.task_readers if one not in old.experts}
    for name in sorted(new.experts, key=lambda name: name == "expanded"):  # last: others may read it too
        if name in old.experts:
            begins.setdefault(new.experts[name], old.experts[name])
    return begins


def _renamed(name: str, begins: Mapping[int, int]) -> str:
    return _EXPERT.sub(lambda m: f"{m[1]}{begins.get(int(m[2]), 0)}{m[3]}", name)


def is_released(weights: State) -> bool:
    """Whether these are weights of Chain-of-Skills' code: some layers have `moe_query`."""
    return any(".moe_query." in name for name in weights)


def load_released(path: str | Path, tokenizer: str | Path) -> DenseModel:
    """Return the model of a checkpoint of Chain-of-Skills' code (`mod2:attn`).

    One encoder is stored under two names; beside it stand `span_proj` and `span_query` where spans were
    trained. With six experts a model has all skills; with the four of pretraining single and expanded
    retrieval and linking. Vectors are the states of [CLS], and are compared by their dot product.

    :param tokenizer: a folder or hub id, such as bert-base-uncased: the file holds none.
    :raises ModelError: another layout.
    """
    weights = dict_weights(Path(path))
    encoder = side_of(weights, "ctx_model.")
    matches = [m for k in encoder if (m := _RELEASED.fullmatch(k))]
    experts = 1 + max((int(m[4]) for m in matches), default=-1)
    names = {4: "pretraining", 6: "paper"}
    if experts not in names or (experts == 6) != ("span_proj.weight" in weights):
        raise ModelError(
            "expected 4 attention experts, or 6 and span_proj, as released checkpoints have them, found"
            f" {experts} and {'a' if 'span_proj.weight' in weights else 'no'} span_proj",
            where=str(path),
        )
    layers = sorted({int(m[1].split(".")[2]) for m in matches})
    skills = SKILLS if experts == 6 else (SINGLE, EXPANDED, LINK)
    layout = InputLayout(use_title=True, answer_segment=0, max_length=LONGEST, overlap=0, separate_title=True)
    plain = DenseConfig(layout, pooling="cls", cosine=False, question_length=LONGEST)
    config = plain.with_skills(SkillConfig(skills, dict(ASSIGNMENTS[names[experts]])), layers[0] + 1)
    model = DenseModel(blank_bert(encoder, str(path)), load_tokenizer(tokenizer), config)
    found = {_our_name(k): v for k, v in encoder.items()}
    state = {f"{side}_encoder.{k}": v for side in ("passage", "question") for k, v in found.items()}
    state["log_scale"] = model.log_scale.detach()
    if model.spans is not None:  # the bias of span_query is the same for spans and for [CLS]
        state |= {f"spans.projection.{k}": weights[f"span_proj.{k}"] for k in ("weight", "bias")}
        state["spans.anchor"] = weights["span_query.weight"][0]
    return with_weights(model, state, str(path))


def _our_name(name: str) -> str:
    """`…attention.self.moe_query.3.weight` is our `…attention.self.query.experts.3.weight`."""
    return _RELEASED.sub(r"\1.\2.\3.experts.\4.\5", name)


def without_unread(model: DenseModel) -> DenseModel:
    """Return the same without experts that none of the model's skills uses; another model as it is."""
    skills = model.config.skills
    if skills is None or skills.placement == NONE:
        return model
    read = {"question", "passage", *skills.task_readers, *(one for s in skills.skills for one in READ_BY[s])}
    kept = {name: n for name, n in skills.experts.items() if name in read}
    whence = dict(enumerate(sorted({*kept.values()})))
    number = {old: new for new, old in whence.items()}
    smaller = replace(skills, experts={name: number[n] for name, n in kept.items()})
    other = DenseModel.like(model, model.config.with_skills(smaller, model.config.period))
    given = model.state_dict()
    other.load_state_dict({k: given[_renamed(k, whence)] for k in other.state_dict()})
    return other.eval()


def reader_alone(model: DenseModel, reader: str) -> DenseModel:
    """Return a plain bi-encoder with one expert's weights, that of `passage`, `entity` and so on.

    With it descriptions of entities are indexed as passages are: `dense index` knows nothing of skills.

    :raises ModelError: the model has no skills, or no such reader.
    """
    skills = model.config.skills
    if skills is None or reader not in skills.experts:
        known = ", ".join(skills.experts) if skills else "no skills"
        raise ModelError(f"expected a model with an expert for {reader}, found {known}")
    plain = replace(model.config, skills=None, routing="", format_version=FORMAT_VERSION)
    alone = DenseModel.like(model, plain)
    state, own = {}, f".experts.{skills.experts[reader]}."
    for name, tensor in model.state_dict().items():
        if name.startswith("spans."):
            continue
        before, found, after = name.partition(own)
        if not found:
            if ".experts." not in name:
                state[name] = tensor
        elif skills.placement == FEED_FORWARD:  # an expert holds the layer's intermediate and output
            state[f"{before.removesuffix('.output')}.{after}"] = tensor
        else:
            state[f"{before}.{after}"] = tensor
    alone.load_state_dict(state)
    return alone.eval()
