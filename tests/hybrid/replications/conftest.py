"""A small index with three tasks, and their files."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index

TASKS = ("fever", "trex", "wow")


@pytest.fixture
def bart(tiny_tokenizer: Any, tmp_path: Path) -> Path:
    """A BART of two layers, with random weights."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

    size, folder = tiny_tokenizer.get_vocab_size(), tmp_path / "bart"
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 16}
    ids = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0, "decoder_start_token_id": 3}
    config = BartConfig(
        vocab_size=size, max_position_embeddings=40, **layers, **heads, **ids, forced_eos_token_id=3
    )
    torch.manual_seed(1)
    BartForConditionalGeneration(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    return folder


class Data(NamedTuple):
    folder: Path
    index: Path
    corpus: Path


@pytest.fixture(scope="module")
def data(
    tiny_vocabulary: list[str], write_jsonl: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Data:
    """Forty passages of twenty pages; a question has three words of its passage, `wow` has no training."""
    folder, rng = tmp_path_factory.mktemp("tasks"), random.Random(3)
    words = [t for t in tiny_vocabulary if t.isascii() and t.isalpha() and len(t) > 3]
    passages = [
        {"id": f"p{n}", "title": f"page {n // 2}", "text": " ".join(rng.sample(words, 8))} for n in range(40)
    ]
    corpus = write_jsonl(folder / "passages.jsonl", passages)

    def rows(task: str, numbers: range) -> list[dict[str, Any]]:
        return [
            {
                "id": f"{task}-{n}",
                "input": " ".join(rng.sample(passages[n]["text"].split(), 3)),
                "output": [
                    {"answer": "x", "provenance": [{"title": passages[n]["title"], "passage_ids": [f"p{n}"]}]}
                ],
            }
            for n in numbers
        ]

    for task in TASKS:
        write_jsonl(folder / f"{task}.dev.jsonl", rows(task, range(6)))
        if task != "wow":
            write_jsonl(folder / f"{task}.train.jsonl", rows(task, range(6, 40)))
    index = folder / "index"
    build_index(index, corpus, options=IndexOptions(channels="bm25"))
    return Data(folder, index, corpus)
