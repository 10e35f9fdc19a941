"""Masked language models with random weights, and their tokenizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(tokenizer.to_str()),
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "attention_mask"],
    )
    fast.save_pretrained(folder)
    return fast


def bert_config(vocabulary: int, **others: Any) -> Any:
    """The configuration of a small BERT, with weights far from 0."""
    from transformers import BertConfig

    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=96,
        initializer_range=0.3,
        **others,
    )


def language_model(kind: str, vocabulary: int) -> Any:
    """A masked language model with random weights, biases of the decoder included.

    :param kind: `bert`, `untied` (a BERT whose decoder has weights and a bias of its own) or `distilbert`
    """
    from transformers import BertForMaskedLM, DistilBertConfig, DistilBertForMaskedLM

    torch.manual_seed(3)
    if kind in ("bert", "untied"):
        ties = kind == "bert"
        model: Any = BertForMaskedLM(bert_config(vocabulary, tie_word_embeddings=ties))
    else:
        distil = DistilBertConfig(
            vocab_size=vocabulary,
            dim=32,
            hidden_dim=64,
            n_layers=2,
            n_heads=2,
            max_position_embeddings=96,
            initializer_range=0.3,
        )
        model = DistilBertForMaskedLM(distil)
    with torch.no_grad():
        model.get_output_embeddings().bias.normal_(-0.5)
    return model.eval()
