"""Loads foreign checkpoints: DPR's (transformers folders, dict files) and TASER's released dict files."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from dense.models.resolve import bi_encoder_folder
from dense.models.skill_config import ENCODER, NONE
from sparta.base.errors import ModelError
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.neural.checkpoint import load_state, load_torch_file, with_weights
from sparta.neural.inputs import InputLayout
from sparta.neural.stored import read_settings

State = dict[str, torch.Tensor]
_SIDES = {"question": ("question_model.", "question_encoder."), "passage": ("ctx_model.", "ctx_encoder.")}
_EXPERT = re.compile(r"(encoder\.layer\.\d+)\.moe_layer\.(interm|output)_layers\.(\d+)\.(.+)")
DPR_SIDES = tuple(_SIDES)
LONGEST = 256
_NOT_IN_WEIGHTS = "num_attention_heads", "layer_norm_eps", "hidden_act"
_SIZE_TENSORS = (
    "embeddings.word_embeddings.weight",
    "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "encoder.layer.0.intermediate.dense.weight",
)


def load_dpr_dict(path: str | Path, tokenizer: str | Path) -> DenseModel:
    """Return the model of a dict file of DPR's or TASER's code: `model_dict` with both encoders.

    Passages are `title [SEP] text`. Questions and passages are cut at 256 wordpieces. Vectors are the states
    of [CLS], and the score is the dot product.

    :param tokenizer: a folder or hub id, such as bert-base-uncased, because the file has no tokenizer
    :raises ModelError: the file has another layout, or contains more than weights.
    """
    path = Path(path)
    weights = dict_weights(path)
    sides = {side: side_of(weights, prefixes[0]) for side, prefixes in _SIDES.items()}
    return _assemble(sides, load_tokenizer(tokenizer), str(path))


def dict_weights(path: Path) -> State:
    """Return the weights of a dict file that DPR's code, or code based on it, wrote.

    :raises ModelError: the file has another layout, or contains more than weights.
    """
    stored = _torch_file(path)
    weights = stored.get("model_dict", stored) if isinstance(stored, dict) else None
    if not isinstance(weights, dict) or not any(k.startswith("ctx_model.") for k in weights):
        raise ModelError("the dict file has no encoder weights (question_model, ctx_model)", where=str(path))
    return weights


def load_dpr_folders(
    question: str | Path, passage: str | Path, tokenizer: str | Path | None = None
) -> DenseModel:
    """Return the model of two folders of transformers' DPR, such as `facebook/dpr-question_encoder-…`.

    :param tokenizer: a folder or hub id; None uses the passage encoder's tokenizer
    :raises ModelError: a folder holds no such encoder.
    """
    sides = {}
    of_questions, of_passages = (_bert_settings(Path(folder)) for folder in (question, passage))
    settings = {**of_questions, **of_passages}
    if settings != {**of_passages, **of_questions}:
        raise ModelError(
            f"the encoders differ in config.json: {of_questions} and {of_passages}",
            where=str(passage),
            remedy="name the two folders of one model",
        )
    for side, folder in (("question", Path(question)), ("passage", Path(passage))):
        weights = side_of(_folder_weights(folder), _SIDES[side][1])
        sides[side] = {k.removeprefix("bert_model."): v for k, v in weights.items()}
        if not sides[side]:
            raise ModelError(f"the folder has no weights of a DPR {side} encoder", where=str(folder))
    return _assemble(sides, load_tokenizer(tokenizer or passage), str(passage), settings)


def _bert_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of config.json that weights do not show; empty without a config.json."""
    stored = read_settings(folder / "config.json")
    return {name: stored[name] for name in _NOT_IN_WEIGHTS if name in stored}


def dpr_side(folder: Path) -> str | None:
    """Return which DPR encoder of transformers a folder holds: `question`, `passage` or None."""
    architectures = read_settings(folder / "config.json").get("architectures") or [""]
    return {"DPRQuestionEncoder": "question", "DPRContextEncoder": "passage"}.get(architectures[0])


def is_dense_folder(folder: Path) -> bool:
    """Return whether a folder holds a bi-encoder in sparta's format."""
    return isinstance(read_settings(folder / "config.json").get("dense"), dict)


def begin_from(name: str | Path, config: DenseConfig) -> DenseModel:
    """Return a model of this form to train, with the weights of a pretrained encoder or a sparta bi-encoder.

    A bi-encoder with one shared encoder and no experts can start every form. Two encoders, or experts, can
    only start the same form. If both forms have them, the scale and the codes are copied. The question length
    and the [SEP] after titles are kept.

    :raises ModelError: the start model is a bi-encoder of another form than the trained model.
    """
    folder = bi_encoder_folder(name)
    if folder is None:
        return DenseModel.from_encoder(name, config)
    source = DenseModel.load(folder)
    source_config = source.config
    config = replace(config, question_length=source_config.question_length)
    if not config.layout.share_context and source_config.layout.separate_title:
        config = replace(config, layout=replace(config.layout, separate_title=True))
    if source_config.shared and not source_config.routing:
        model = DenseModel(source.passage_encoder, source.tokenizer, config)
    elif form_of(source_config) == form_of(config):
        model = DenseModel.like(source, config)
        model.passage_encoder.load_state_dict(source.passage_encoder.state_dict())
        model.question_encoder.load_state_dict(source.question_encoder.state_dict())
    else:
        raise ModelError(
            f"training needs {form_of(config)}; the start model has {form_of(source_config)}",
            where=str(name),
            remedy="train with the options of the start model, or start from a pretrained encoder, or from a"
            " single encoder without experts",
        )
    with torch.no_grad():
        if source_config.cosine and config.cosine:
            model.log_scale.copy_(source.log_scale)
        if model.codes is not None and source.codes is not None and source_config.codes == config.codes:
            model.codes.copy_(source.codes)
    return model


def form_of(config: DenseConfig) -> str:
    """Describe a model's encoders in words, for messages."""
    if config.skills:
        skills = config.skills
        if skills.placement == ENCODER:
            return f"{skills.count} separate encoders with the skills {', '.join(skills.skills)}"
        experts = "no experts" if skills.placement == NONE else f"{skills.count} {skills.placement} experts"
        return f"one encoder with the skills {', '.join(skills.skills)}, {experts}, period {config.period}"
    if config.routing:
        return f"{config.experts} experts, routing {config.routing}, period {config.period}"
    return "a single encoder" if config.shared else "two encoders"


def _folder_weights(folder: Path) -> State:
    """Return the weights of a transformers folder, from safetensors or torch's format."""
    if (folder / "model.safetensors").is_file():
        return load_state(folder / "model.safetensors")
    if (folder / "pytorch_model.bin").is_file():
        stored = _torch_file(folder / "pytorch_model.bin")
        return stored if isinstance(stored, dict) else {}
    raise ModelError(
        "expected model.safetensors or pytorch_model.bin of a DPR encoder, found neither", where=str(folder)
    )


class _Settings:
    """Replaces OmegaConf's classes, in which newer checkpoints keep their settings.

    Ignores the stored state.
    """

    def __setstate__(self, state: object) -> None:
        pass


_OMEGACONF = (
    "base.ContainerMetadata",
    "base.Metadata",
    "base.Node",
    "dictconfig.DictConfig",
    "listconfig.ListConfig",
    *(f"nodes.{kind}Node" for kind in ("Any", "Boolean", "Float", "Integer", "Path", "String", "Value")),
)


def _empty_dict(*_: object) -> dict[str, Any]:
    return OrderedDict()


_ALLOWED_CLASSES: tuple[Any, ...] = (
    *((_Settings, f"omegaconf.{name}") for name in _OMEGACONF),
    *((kind, f"builtins.{kind.__name__}") for kind in (dict, list, int)),
    *((kind, f"__builtin__.{name}") for kind, name in ((dict, "dict"), (list, "list"), (int, "long"))),
    (_empty_dict, "collections.defaultdict"),
    (Any, "typing.Any"),
)
"""The classes that a checkpoint's pickle may name, besides tensors. Any other class raises an error."""


def _torch_file(path: Path) -> Any:
    try:
        with torch.serialization.safe_globals(list(_ALLOWED_CLASSES)):
            return load_torch_file(path)
    except ModelError as error:
        error.remedy = "save only the weights in a new file: torch.save({'model_dict': …}, FILE)"
        raise


def side_of(weights: dict[str, Any], prefix: str) -> State:
    """Return the weights of one side under BERT's names, without the pooler and the position ids."""
    side_weights = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    if any(k.startswith("encoder.embeddings.") for k in side_weights):  # TASER's code adds a prefix
        side_weights = {
            k.removeprefix("encoder."): v for k, v in side_weights.items() if k.startswith("encoder.")
        }
    return {k: v for k, v in side_weights.items() if not k.endswith("position_ids") and "pooler." not in k}


def _assemble(
    sides: dict[str, State], tokenizer: Tokenizer, where: str, settings: Mapping[str, Any] | None = None
) -> DenseModel:
    passage_weights = sides["passage"]
    experts = {int(m[3]) for k in passage_weights if (m := _EXPERT.fullmatch(k))}
    layout = InputLayout(use_title=True, answer_segment=0, max_length=LONGEST, overlap=0, separate_title=True)
    if experts:
        layers = sorted({int(m[1].split(".")[2]) for k in passage_weights if (m := _EXPERT.fullmatch(k))})
        config = DenseConfig(
            layout,
            routing="det",
            experts=len(experts),
            period=layers[0] + 1,
            pooling="cls",
            cosine=False,
            question_length=LONGEST,
        )
        encoders = {"passage_encoder": {_expert_name(k): v for k, v in passage_weights.items()}}
    else:
        config = DenseConfig(layout, shared=False, pooling="cls", cosine=False, question_length=LONGEST)
        encoders = {"passage_encoder": passage_weights, "question_encoder": sides["question"]}
    model = DenseModel(blank_bert(passage_weights, where, settings), tokenizer, config)
    state = {f"{name}.{k}": v for name, weights in encoders.items() for k, v in weights.items()}
    if config.shared:
        state |= {k.replace("passage_", "question_", 1): v for k, v in state.items()}
    return with_weights(model, {**state, "log_scale": model.log_scale.detach()}, where)


def _expert_name(name: str) -> str:
    """Return sparta's name of TASER's weight: `…moe_layer.output_layers.1.dense.weight` becomes
    `…output.experts.1.output.dense.weight`.
    """
    match = _EXPERT.fullmatch(name)
    if match is None:
        return name
    layer, kind, number, suffix = match.groups()
    part = "intermediate" if kind == "interm" else "output"
    return f"{layer}.output.experts.{number}.{part}.{suffix}"


def blank_bert(state: State, where: str, settings: Mapping[str, Any] | None = None) -> nn.Module:
    """Return a BERT with the weights' sizes and random weights.

    :param settings: of `BertConfig`, those that weights do not show; without them, heads have 64 dimensions,
        as in all released models
    """
    from transformers import BertConfig, BertModel

    missing = [k for k in _SIZE_TENSORS if k not in state]
    if missing:
        raise ModelError(f"the BERT encoder's weights lack {missing[0]}", where=where)
    words, width = state["embeddings.word_embeddings.weight"].shape
    inner = state["encoder.layer.0.intermediate.dense.weight"].shape[0]
    config = BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=len({k.split(".")[2] for k in state if k.startswith("encoder.layer.")}),
        intermediate_size=inner,
        max_position_embeddings=state["embeddings.position_embeddings.weight"].shape[0],
        type_vocab_size=state["embeddings.token_type_embeddings.weight"].shape[0],
        **{"num_attention_heads": max(1, width // 64), **(settings or {})},
    )
    return BertModel(config, add_pooling_layer=False)
