"""Small bi-encoders."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dense.models.bi_encoder import DenseModel
from dense.models.experts import Experts
from sparta.neural.inputs import InputLayout

LAYOUT = InputLayout(
    use_title=True, use_context=True, answer_segment=0, share_context=True, max_length=64, overlap=8
)


def bert(layers: int = 12, width: int = 768, heads: int = 12, inner: int = 3072, words: int = 30522) -> Any:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
    )
    return BertModel(config, add_pooling_layer=False)


def by_hand(encoder: Any, tokenizer: Any, text: str) -> np.ndarray:
    ids = torch.tensor([tokenizer.encode(text).ids])
    with torch.no_grad():
        return encoder(input_ids=ids, token_type_ids=torch.zeros_like(ids)).last_hidden_state[0, 0].numpy()


def experts_of(model: DenseModel) -> list[Any]:
    """The modules with experts of the passage encoder, the bottom layer's first."""
    return [module for module in model.passage_encoder.modules() if isinstance(module, Experts)]
