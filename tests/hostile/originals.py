"""Whole files, small ones, that the hostile ones are made of."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

TEXTS = ("the moon of the earth", "larry page founded google", "the city of paris in france", "a long river")


def make(folder: Path) -> None:
    """Make an index with dense channels (flat, HNSW), models, shards of both kinds, in a new folder.

    In a process of its own, because this starts Java.
    """
    import torch
    from transformers import BertConfig, BertModel

    from dense.channel.encode import VectorOptions, encode_vectors
    from dense.channel.sync import build_dense
    from dense.models.bi_encoder import DenseModel
    from dense.models.config import DenseConfig
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index
    from sparta.models.config import SpartaConfig
    from sparta.models.quantize import Quantizer
    from sparta.models.sparta import SpartaModel
    from sparta.neural.inputs import InputLayout
    from sparta.shards.encode import EncodeOptions, encode_corpus

    torch.manual_seed(0)
    tokenizer = _tokenizer()
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=512, **shape)
    layout = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=0)
    sparse = SpartaModel(
        BertModel(config, add_pooling_layer=False), tokenizer, SpartaConfig(quantizer=Quantizer(8.0))
    )
    with torch.no_grad():
        sparse.bias.fill_(1.0)
    sparse.save_pretrained(folder / "model")
    bert = BertModel(config, add_pooling_layer=False)
    DenseModel(bert, tokenizer, DenseConfig(layout)).save_pretrained(folder / "dense")
    corpus = folder / "corpus.jsonl"
    records = [{"id": f"p{i}", "title": "", "text": f"{TEXTS[i % len(TEXTS)]} {i}"} for i in range(40)]
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    build_index(folder / "index", corpus, options=IndexOptions(model=str(folder / "model")))
    build_dense(folder / "index", str(folder / "dense"), kind="hnsw")
    encode_corpus(corpus, folder / "shards", str(folder / "model"), EncodeOptions())
    encode_vectors(corpus, folder / "vectors", str(folder / "dense"), VectorOptions())


def _tokenizer() -> Tokenizer:

    words = sorted({word for text in TEXTS for word in text.split()})
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *letters, *(f"##{c}" for c in letters)]
    ids = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocab=ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    framed = [("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, framed)
    return tokenizer
