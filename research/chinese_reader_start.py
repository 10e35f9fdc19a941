"""An untrained Chinese reader, whose attention begins with what a pretrained one has learned.

    python research/chinese_reader_start.py WORK

reads `tokenizer.json` and `ids.npz` in WORK (chinese_text.py) and writes WORK/reader-start. A state has three
parts: the word's neighbours, its characters (both as in chinese_start.py) and its place, as sines and
cosines. In each layer one head begins by looking at the word before, one at the word behind (or two or three
away), one at words of the same characters, one at words of like neighbours. Four token types let
`sparta train-reader` mark what question and text share (`shared_segments`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from chinese_start import words_of
from chinese_text import SPECIAL
from transformers import BertConfig, BertModel

from sparta.models.folders.tokenizer import load_tokenizer
from sparta.reader.config import ReaderConfig, ReaderLayout
from sparta.reader.span_reader import SpanReader

WIDTH, LAYERS, LONGEST, HEAD = 256, 5, 512, 64
NEIGHBOURS, CHARACTERS = slice(0, 128), slice(128, 192)
DISTANCES = (1, 2, 1, 3, 1)
SHARES = {"neighbours": 0.4, "characters": 0.6, "place": 0.25, "type": 0.1}
SHARPNESS = {"place": 2.2, "characters": 0.6, "neighbours": 1.2}


def frequencies() -> torch.Tensor:
    """Radians a token, of the 32 pairs of sine and cosine."""
    return torch.from_numpy(np.geomspace(1.5, 0.008, HEAD // 2))


def places() -> torch.Tensor:
    """`(LONGEST, HEAD)` of length 1: sines, then cosines."""
    angles = torch.arange(LONGEST)[:, None] * frequencies()[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1) / (HEAD / 2) ** 0.5


def shift(distance: int) -> torch.Tensor:
    """`(HEAD, HEAD)`: turns the vector of a place into that of the place `distance` behind it."""
    turn = frequencies() * distance
    cos, sin = torch.diag(turn.cos()), torch.diag(turn.sin())
    return torch.cat([torch.cat([cos, sin], dim=1), torch.cat([-sin, cos], dim=1)])


@torch.no_grad()
def encoder_of(words: torch.Tensor) -> BertModel:
    """A BERT with these embeddings `(size, 192)`, and heads that look as described above."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=WIDTH // HEAD,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=LONGEST,
        type_vocab_size=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.05,
    )
    encoder: Any = BertModel(config, add_pooling_layer=False)
    table = encoder.embeddings
    table.word_embeddings.weight.zero_()[:, : CHARACTERS.stop] = words
    table.word_embeddings.weight[: len(SPECIAL), : CHARACTERS.stop].normal_(0, 0.07)
    table.position_embeddings.weight.zero_()[:, CHARACTERS.stop :] = SHARES["place"] ** 0.5 * places()
    table.token_type_embeddings.weight.normal_(0, (SHARES["type"] / WIDTH) ** 0.5)
    for layer, distance in zip(encoder.encoder.layer, DISTANCES, strict=True):
        attention = layer.attention.self
        looks = [
            (shift(-distance), slice(CHARACTERS.stop, WIDTH), "place"),
            (shift(distance), slice(CHARACTERS.stop, WIDTH), "place"),
            (torch.eye(HEAD), CHARACTERS, "characters"),
            (torch.eye(HEAD), slice(0, HEAD), "neighbours"),
        ]
        for head, (query, part, kind) in enumerate(looks):
            rows, sharp = slice(head * HEAD, (head + 1) * HEAD), SHARPNESS[kind] ** 0.5
            for matrix, value in ((attention.query, query), (attention.key, torch.eye(HEAD))):
                matrix.weight[rows] *= 0.2
                matrix.weight[rows, part] += (sharp * value).float()
        for output in (layer.attention.output.dense, layer.output.dense):
            output.weight.mul_(0.5)
    return encoder


def main() -> None:
    work = Path(sys.argv[1])
    tokenizer = load_tokenizer(work)
    known = words_of(work, tokenizer)
    parts = (
        SHARES["neighbours"] ** 0.5 * known.near[:, NEIGHBOURS],
        SHARES["characters"] ** 0.5 * known.made_of,
    )
    words = np.hstack(parts) * np.clip(known.rarity, 0.5, 1.2)[:, None]
    encoder = encoder_of(torch.from_numpy(words).float())
    reader = SpanReader(encoder, tokenizer, ReaderConfig(ReaderLayout(max_length=384)))
    reader.save_pretrained(work / "reader-start")


if __name__ == "__main__":
    main()
