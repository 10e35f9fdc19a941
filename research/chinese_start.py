"""A SPARTA model to begin with, of random layers and embeddings that know what words are made of.

    python research/chinese_start.py WORK

reads `tokenizer.json` and `ids.npz` in WORK (chinese_text.py) and writes WORK/start. The dot product of two
embeddings is two fifths how alike the words' neighbours are (truncated SVD of positive pointwise mutual
information), three fifths how many characters they share (random projections of the characters, the rare
ones more). As random layers hardly change what they add to, the model already finds a text by words that are
alike, above a threshold; gains are inverse document frequencies: it begins as BM25 and a little more.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from chinese_text import SPECIAL
from sklearn.utils.extmath import randomized_svd
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel

from sparta.models.config import SpartaConfig
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.sparta import SpartaModel
from sparta.neural.inputs import CONTEXT, InputLayout, Lexical

WIDTH, NEIGHBOURS, LAYERS, LONGEST = 256, 192, 3, 512
WINDOW = 5
SHARE_OF_NEIGHBOURS = 0.4
SLOPE, THRESHOLD = 10.0, 0.35
MEAN_LENGTH = 200.0

Matrix = npt.NDArray[np.float64]


def neighbour_vectors(flat: npt.NDArray[np.int32], text_of: npt.NDArray[np.int64], size: int) -> Matrix:
    """`(size, NEIGHBOURS)` of length 1: SVD of the positive PMI of words at most `WINDOW` apart."""
    counts = sp.csr_matrix((size, size), dtype=np.float32)
    for distance in range(1, WINDOW + 1):
        same = text_of[distance:] == text_of[:-distance]
        pairs = (flat[:-distance][same], flat[distance:][same])
        ones = np.full(len(pairs[0]), 1 / distance, np.float32)
        counts += sp.coo_matrix((ones, pairs), shape=(size, size)).tocsr()
    both = (counts + counts.T).tocoo()
    totals = np.asarray(both.tocsr().sum(1)).ravel()
    smoothed = totals**0.75 / (totals**0.75).sum()
    pmi = np.log(both.data / np.maximum(totals[both.row] * smoothed[both.col], 1e-12))
    kept = (pmi > 0) & (both.row >= len(SPECIAL)) & (both.col >= len(SPECIAL))
    matrix = sp.csr_matrix((pmi[kept], (both.row[kept], both.col[kept])), shape=(size, size))
    left, values, _ = randomized_svd(matrix.astype(np.float32), WIDTH, n_iter=3, random_state=0)
    vectors = left * np.sqrt(values)
    return unit((vectors - vectors.mean(0))[:, :NEIGHBOURS])


def character_vectors(vocabulary: list[str], occurrences: npt.NDArray[np.int64]) -> Matrix:
    """`(size, WIDTH - NEIGHBOURS)` of length 1: sums of random vectors of the characters, by their rarity."""
    numbers: dict[str, int] = {}
    places = [
        (row, numbers.setdefault(c, len(numbers)))
        for row, word in enumerate(vocabulary)
        if row >= len(SPECIAL)
        for c in dict.fromkeys(word)
    ]
    has = sp.csr_matrix((np.ones(len(places)), tuple(zip(*places, strict=True))))
    frequency = np.asarray(occurrences[: has.shape[0]] @ has).ravel()
    rarity = np.log(1 + occurrences.sum() / (1 + frequency) / 100)
    random = np.random.default_rng(0).standard_normal((len(numbers), WIDTH - NEIGHBOURS))
    return unit(has.multiply(rarity[None]).tocsr() @ random)


def unit(vectors: Matrix) -> Matrix:
    """Vectors of length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def encoder_of(embeddings: Matrix) -> BertModel:
    """A BERT with these embeddings and with random layers that add little to them."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(embeddings),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=LONGEST,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    encoder = BertModel(config, add_pooling_layer=False)
    with torch.no_grad():
        words = encoder.embeddings.word_embeddings.weight
        words.copy_(torch.from_numpy(embeddings))
        words[: len(SPECIAL)].normal_(0, 0.05)
        encoder.embeddings.position_embeddings.weight.mul_(0.3)
        encoder.embeddings.token_type_embeddings.weight.zero_()
        layers: Any = encoder.encoder.layer
        for layer in layers:
            layer.attention.output.dense.weight.mul_(0.5)
            layer.output.dense.weight.mul_(0.5)
    return encoder


class Words(NamedTuple):
    """The words of the texts: `flat` are these as token ids, `text_of` says of which text each is."""

    flat: npt.NDArray[np.int32]
    text_of: npt.NDArray[np.int64]
    near: Matrix
    made_of: Matrix
    rarity: Matrix


def words_of(work: Path, tokenizer: Tokenizer) -> Words:
    """Read `ids.npz`, and make what is known of words: neighbours, characters, rarity (about 0 to 1.5)."""
    size, stored = tokenizer.get_vocab_size(), np.load(work / "ids.npz")
    flat, text_of = stored["flat"], np.repeat(np.arange(len(stored["lengths"])), stored["lengths"])
    occurrences = np.bincount(flat, minlength=size)
    near = neighbour_vectors(flat, text_of, size)
    made_of = character_vectors([tokenizer.id_to_token(i) or "" for i in range(size)], occurrences)
    rarity = np.log(1 + len(flat) / 145 / (occurrences + 1)) / 7  # 145 tokens: a text of the corpus
    return Words(flat, text_of, near, made_of, rarity)


def main() -> None:
    work = Path(sys.argv[1])
    tokenizer: Tokenizer = load_tokenizer(work)
    flat, text_of, near, made_of, rarity = words_of(work, tokenizer)
    size = len(near)
    vectors = np.hstack([SHARE_OF_NEIGHBOURS**0.5 * near, (1 - SHARE_OF_NEIGHBOURS) ** 0.5 * made_of])
    encoder = encoder_of(vectors * np.clip(rarity, 0.3, 1.3)[:, None])

    n = int(text_of[-1]) + 1
    present = np.bincount(np.unique(text_of * size + flat) % size, minlength=size)
    layout = InputLayout(
        use_title=True,
        use_context=True,
        answer_segment=CONTEXT,
        share_context=True,
        max_length=LONGEST,
        overlap=LONGEST // 8,
    )
    model = SpartaModel(encoder, tokenizer, SpartaConfig(layout, context_share=0.4))
    idf = np.log1p((n - present + 0.5) / (present + 0.5))
    model.add_lexical(Lexical(MEAN_LENGTH), torch.from_numpy(idf))
    with torch.no_grad():  # states have length WIDTH ** 0.5, embeddings of usual words 0.9
        model.scale.fill_(SLOPE / (WIDTH**0.5 * 0.9))
        model.bias.fill_(-SLOPE * THRESHOLD)
    model.save_pretrained(work / "start")


if __name__ == "__main__":
    main()
