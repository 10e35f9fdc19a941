"""Checkpoints of others: DPR's (transformers folders, dict files) and TASER's released dict files."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from dense.models.resolve import bi_encoder_folder
from sparta.base.errors import ModelError
from sparta.models.query_encoder import load_tokenizer
from sparta.neural.checkpoint import load_state, load_torch_file, read_json, with_weights
from sparta.neural.inputs import InputLayout

State = dict[str, torch.Tensor]
_SIDES = {"question": ("question_model.", "question_encoder."), "passage": ("ctx_model.", "ctx_encoder.")}
_EXPERT = re.compile(r"(encoder\.layer\.\d+)\.moe_layer\.(interm|output)_layers\.(\d+)\.(.+)")
DPR_SIDES = tuple(_SIDES)
LONGEST = 256
_SIZES = (
    "embeddings.word_embeddings.weight",
    "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "encoder.layer.0.intermediate.dense.weight",
)


def load_dpr_dict(path: str | Path, tokenizer: str | Path) -> DenseModel:
    """Return the model of a dict file of DPR's or TASER's code: `model_dict` with both encoders.

    Passages are `title [SEP] text`; they and questions are cut at 256 wordpieces. Vectors are the states of
    [CLS], and the score is the dot product.

    :param tokenizer: a folder or hub id, such as bert-base-uncased: the file holds none.
    :raises ModelError: another layout, or a file that needs more than weights to be opened.
    """
    path = Path(path)
    weights = dict_weights(path)
    sides = {side: side_of(weights, prefixes[0]) for side, prefixes in _SIDES.items()}
    return _assemble(sides, load_tokenizer(tokenizer), str(path))


def dict_weights(path: Path) -> State:
    """Return the weights of a dict file of DPR's code, or of what was made from it.

    :raises ModelError: another layout, or a file that needs more than weights to be opened.
    """
    stored = _torch_file(path)
    weights = stored.get("model_dict", stored) if isinstance(stored, dict) else None
    if not isinstance(weights, dict) or not any(k.startswith("ctx_model.") for k in weights):
        raise ModelError(
            "expected question_model and ctx_model in a dict file, found neither", where=str(path)
        )
    return weights


def load_dpr_folders(
    question: str | Path, passage: str | Path, tokenizer: str | Path | None = None
) -> DenseModel:
    """Return the model of two folders of transformers' DPR (`facebook/dpr-question_encoder-…` and so on).

    :param tokenizer: a folder or hub id; None is the passage encoder's.
    :raises ModelError: a folder holds something else.
    """
    sides = {}
    for side, folder in (("question", Path(question)), ("passage", Path(passage))):
        own = side_of(_folder_weights(folder), _SIDES[side][1])
        sides[side] = {k.removeprefix("bert_model."): v for k, v in own.items()}
        if not sides[side]:
            raise ModelError(f"expected a DPR {side} encoder, found none of its weights", where=str(folder))
    return _assemble(sides, load_tokenizer(tokenizer or passage), str(passage))


def dpr_side(folder: Path) -> str | None:
    """Which encoder of transformers' DPR a folder holds, `question` or `passage`; None: neither."""
    architectures = _config(folder).get("architectures") or [""]
    return {"DPRQuestionEncoder": "question", "DPRContextEncoder": "passage"}.get(architectures[0])


def is_dense_folder(folder: Path) -> bool:
    """Whether a folder holds a model of ours."""
    return isinstance(_config(folder).get("dense"), dict)


def begin_from(name: str | Path, config: DenseConfig) -> DenseModel:
    """Return a model of this form to be trained from a pretrained encoder or from a model of ours.

    Of a model with one shared encoder and no experts, any form can be made. Two encoders stay two, and
    experts stay as they are: which of several encoders or experts another form should begin from, nothing
    says. Scale and codes are taken over where both have them, the length of questions, and that [SEP] stands
    behind a title.

    :raises ModelError: a model of ours has another form than what is to be trained.
    """
    folder = bi_encoder_folder(name)
    if folder is None:
        return DenseModel.from_encoder(name, config)
    source = DenseModel.load(folder)
    own = source.config
    config = replace(config, question_length=own.question_length)
    if not config.layout.share_context and own.layout.separate_title:
        config = replace(config, layout=replace(config.layout, separate_title=True))
    if own.shared and not own.routing:
        model = DenseModel(source.passage_encoder, source.tokenizer, config)
    elif form_of(own) == form_of(config):
        model = DenseModel.like(source, config)
        model.passage_encoder.load_state_dict(source.passage_encoder.state_dict())
        model.question_encoder.load_state_dict(source.question_encoder.state_dict())
    else:
        raise ModelError(
            f"expected a model of the form that is trained ({form_of(config)}), or one with a single encoder"
            f" without experts, found {form_of(own)}",
            where=str(name),
            remedy="train the same form, or begin from a plain encoder",
        )
    with torch.no_grad():
        if own.cosine and config.cosine:
            model.log_scale.copy_(source.log_scale)
        if model.codes is not None and source.codes is not None and own.codes == config.codes:
            model.codes.copy_(source.codes)
    return model


def form_of(config: DenseConfig) -> str:
    """What encoders a model has, in words."""
    if config.skills:
        own = config.skills
        where = "no experts" if own.placement == "none" else f"{own.count} {own.placement} experts"
        return f"one encoder with the skills {', '.join(own.skills)}, {where}, period {config.period}"
    if config.routing:
        return f"{config.experts} experts, routing {config.routing}, period {config.period}"
    return "a single encoder" if config.shared else "two encoders"


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    return read_json(file) if file.is_file() else {}


def _folder_weights(folder: Path) -> State:
    """Return the weights of a transformers folder, in safetensors or torch's own form."""
    if (folder / "model.safetensors").is_file():
        return load_state(folder / "model.safetensors")
    if (folder / "pytorch_model.bin").is_file():
        stored = _torch_file(folder / "pytorch_model.bin")
        return stored if isinstance(stored, dict) else {}
    raise ModelError(
        "expected model.safetensors or pytorch_model.bin of a DPR encoder, found neither", where=str(folder)
    )


class _Settings:
    """Stands for an object of OmegaConf, in which newer checkpoints keep their settings; nothing is read."""

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


def _cache(*_: object) -> dict[str, Any]:
    return OrderedDict()


_ALLOWED: tuple[Any, ...] = (
    *((_Settings, f"omegaconf.{name}") for name in _OMEGACONF),
    *((kind, f"builtins.{kind.__name__}") for kind in (dict, list, int)),
    *((kind, f"__builtin__.{name}") for kind, name in ((dict, "dict"), (list, "list"), (int, "long"))),
    (_cache, "collections.defaultdict"),
    (Any, "typing.Any"),
)
"""What a checkpoint may name beside weights. Nothing else is ever made of a pickle."""


def _torch_file(path: Path) -> Any:
    try:
        with torch.serialization.safe_globals(list(_ALLOWED)):
            return load_torch_file(path)
    except ModelError as error:
        error.remedy = "save its model_dict again, by itself: torch.save({'model_dict': …}, FILE)"
        raise


def side_of(weights: dict[str, Any], prefix: str) -> State:
    """Return the weights of one side by BERT's names, without what BERT does not need."""
    found = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    if any(k.startswith("encoder.embeddings.") for k in found):  # TASER's code wraps the encoder once more
        found = {k.removeprefix("encoder."): v for k, v in found.items() if k.startswith("encoder.")}
    return {k: v for k, v in found.items() if not k.endswith("position_ids") and "pooler." not in k}


def _assemble(sides: dict[str, State], tokenizer: Tokenizer, where: str) -> DenseModel:
    passage = sides["passage"]
    experts = {int(m[3]) for k in passage if (m := _EXPERT.fullmatch(k))}
    layout = InputLayout(use_title=True, answer_segment=0, max_length=LONGEST, overlap=0, separate_title=True)
    if experts:
        layers = sorted({int(m[1].split(".")[2]) for k in passage if (m := _EXPERT.fullmatch(k))})
        config = DenseConfig(
            layout,
            routing="det",
            experts=len(experts),
            period=layers[0] + 1,
            pooling="cls",
            cosine=False,
            question_length=LONGEST,
        )
        found = {"passage_encoder": {_expert_name(k): v for k, v in passage.items()}}
    else:
        config = DenseConfig(layout, shared=False, pooling="cls", cosine=False, question_length=LONGEST)
        found = {"passage_encoder": passage, "question_encoder": sides["question"]}
    model = DenseModel(blank_bert(passage, where), tokenizer, config)
    state = {f"{name}.{k}": v for name, own in found.items() for k, v in own.items()}
    if config.shared:
        state |= {k.replace("passage_", "question_", 1): v for k, v in state.items()}
    return with_weights(model, {**state, "log_scale": model.log_scale.detach()}, where)


def _expert_name(name: str) -> str:
    """`…moe_layer.output_layers.1.dense.weight` is our `…output.experts.1.output.dense.weight`."""
    match = _EXPERT.fullmatch(name)
    if match is None:
        return name
    layer, kind, number, rest = match.groups()
    part = "intermediate" if kind == "interm" else "output"
    return f"{layer}.output.experts.{number}.{part}.{rest}"


def blank_bert(state: State, where: str) -> nn.Module:
    """Return an empty BERT of the weights' sizes; heads have 64 dimensions, as all released ones do."""
    from transformers import BertConfig, BertModel

    missing = [k for k in _SIZES if k not in state]
    if missing:
        raise ModelError(f"expected the weights of a BERT encoder, found no {missing[0]}", where=where)
    words, width = state["embeddings.word_embeddings.weight"].shape
    inner = state["encoder.layer.0.intermediate.dense.weight"].shape[0]
    config = BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=len({k.split(".")[2] for k in state if k.startswith("encoder.layer.")}),
        num_attention_heads=max(1, width // 64),
        intermediate_size=inner,
        max_position_embeddings=state["embeddings.position_embeddings.weight"].shape[0],
        type_vocab_size=state["embeddings.token_type_embeddings.weight"].shape[0],
    )
    return BertModel(config, add_pooling_layer=False)
