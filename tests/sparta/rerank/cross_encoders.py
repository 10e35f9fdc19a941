"""A small cross-encoder with random weights, in the form of transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from tests.sparta.models.language_models import bert_config, save_tokenizer


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON file."""
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def save_cross_encoder(tokenizer: Tokenizer, folder: Path) -> Path:
    """Write a cross-encoder whose scores are sigmoids, and return its folder."""
    from transformers import BertForSequenceClassification

    torch.manual_seed(5)
    config = bert_config(tokenizer.get_vocab_size(), num_labels=1)
    BertForSequenceClassification(config).save_pretrained(folder)
    of_pairs = Tokenizer.from_str(tokenizer.to_str())
    marks = [(mark, of_pairs.token_to_id(mark)) for mark in ("[CLS]", "[SEP]")]
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
    of_pairs.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", pair=pair, special_tokens=marks)
    save_tokenizer(of_pairs, folder)
    names = ["input_ids", "token_type_ids", "attention_mask"]
    edit(folder / "tokenizer_config.json", lambda c: {**c, "model_input_names": names})
    return folder
