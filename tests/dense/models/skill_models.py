"""Tiny models with skills."""

from __future__ import annotations

import re
from typing import Any

import torch
from transformers import BertConfig, BertModel

from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from dense.models.skill_config import ASSIGNMENTS, SKILLS, SkillConfig
from sparta.neural.inputs import InputLayout

LAYOUT = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=0, separate_title=True)
PAPER = DenseConfig(LAYOUT, pooling="cls", cosine=False)
BERT_BASE: dict[str, Any] = {}


def skill_config(
    placement: str = "attention", assignment: str = "paper", skills: tuple[str, ...] = SKILLS
) -> Any:
    return PAPER.with_skills(SkillConfig(skills, dict(ASSIGNMENTS[assignment]), placement))


def skill_model(
    tokenizer: Any, config: DenseConfig | None = None, *, seed: int = 1, layers: int = 4
) -> DenseModel:
    """Experts differ: each has random weights of its own."""
    torch.manual_seed(seed)
    bert = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        num_hidden_layers=layers,
        num_attention_heads=1,
        intermediate_size=96,
    )
    encoder = BertModel(bert, add_pooling_layer=False)
    model = DenseModel(encoder, tokenizer, config or skill_config()).eval()
    with torch.no_grad():
        for name, parameter in model.passage_encoder.named_parameters():
            if ".experts." in name and parameter.dim() == 2:
                parameter.normal_(std=0.3)
    return model


def expert_alone(model: DenseModel, number: int) -> BertModel:
    """A plain BERT of transformers with the weights of one expert in the place of the experts."""
    config = BertConfig.from_dict(model.passage_encoder.config.to_dict())
    state = {}
    for name, tensor in model.passage_encoder.state_dict().items():
        match = re.fullmatch(r"(.*)\.experts\.(\d+)\.(.*)", name)
        if match is None:
            state[name] = tensor
        elif int(match[2]) == number:
            head = (
                match[1].removesuffix(".output")
                if match[3].startswith(("intermediate", "output"))
                else match[1]
            )
            state[f"{head}.{match[3]}"] = tensor
    plain = BertModel(config, add_pooling_layer=False)
    plain.load_state_dict(state)
    return plain.eval()


def read(encoder: Any, tokenizer: Any, text: str) -> torch.Tensor:
    """Token states `(length, width)` of one text, framed by [CLS] and [SEP]."""
    ids = torch.tensor([tokenizer.encode(text).ids])
    found: torch.Tensor = encoder(input_ids=ids, token_type_ids=torch.zeros_like(ids)).last_hidden_state[0]
    return found
