"""How long appending a passage takes as an index with vectors grows, one append after the other.

    python benchmarks/appends.py [--appends 5000]

The models have random weights and two layers of 32, so that the time is that of the storage. Prints ms/append
of the first and the last appends, elapsed and of the processor (which other programs change less), and how
many files the index has at the end.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from dense.channel.sync import build_dense
from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from sparta.api import Index
from sparta.base.records import Passage
from sparta.index.inputs.options import IndexOptions
from sparta.models.config import SpartaConfig
from sparta.models.document_encoder import fit_quantizer
from sparta.models.sparta import SpartaModel
from sparta.neural.inputs import InputLayout

if TYPE_CHECKING:
    from collections.abc import Iterator

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"word{n}" for n in range(2000)]


def texts(seed: int) -> Iterator[str]:
    """Endless texts of 20 random words."""
    draw = random.Random(seed)
    while True:
        yield " ".join(draw.choices(WORDS, k=20))


def _encoder() -> tuple[BertModel, Tokenizer]:
    """A small BERT with random weights, and its tokenizer."""
    ids = {piece: i for i, piece in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordPiece(vocab=ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    special = [(token, ids[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    config = BertConfig(
        vocab_size=len(ids),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    return BertModel(config, add_pooling_layer=False).eval(), tokenizer


def make_models(folder: Path) -> tuple[str, str]:
    """Write a SPARTA model and a bi-encoder; returns their folders."""
    torch.manual_seed(0)
    encoder, tokenizer = _encoder()
    sparse = SpartaModel(encoder, tokenizer, SpartaConfig()).eval()
    with torch.no_grad():
        words = encoder.get_input_embeddings().weight
        torch.nn.init.normal_(words)
        if sparse.term_embeddings is not None:
            sparse.term_embeddings.copy_(words + 0.1 * torch.randn_like(words))
        sparse.scale.fill_(0.25)
        sparse.bias.fill_(-2.5)
    quantizer = fit_quantizer(sparse, [Passage("0", next(texts(0)))])
    sparse.config = SpartaConfig(quantizer=quantizer)
    sparse.save_pretrained(folder / "sparse")
    layout = InputLayout(use_title=True, max_length=64, overlap=8)
    DenseModel(*_encoder(), DenseConfig(layout)).save_pretrained(folder / "dense")
    return str(folder / "sparse"), str(folder / "dense")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--appends", type=int, default=60)
    parser.add_argument("--passages", type=int, default=100, help="passages of the index at the start")
    parser.add_argument("--kind", default="auto", help="kind of the dense index")
    given = parser.parse_args()
    torch.set_num_threads(1)
    source = texts(1)
    with tempfile.TemporaryDirectory() as folder:
        sparse, dense = make_models(Path(folder))
        path, options = Path(folder, "index"), IndexOptions(model=sparse, top_k=100)
        first = [{"id": f"first{n}", "text": next(source)} for n in range(given.passages)]
        Index.create(path, first, options=options).close()
        build_dense(path, dense, kind=given.kind)
        times: list[float] = []
        processor: list[float] = []
        with Index(path) as index:
            for n in range(given.appends):
                started, used = time.perf_counter(), time.process_time()
                index.append([{"id": f"p{n}", "text": next(source)}])
                times.append(1000 * (time.perf_counter() - started))
                processor.append(1000 * (time.process_time() - used))
                if (n + 1) % 500 == 0:
                    print(f"{n + 1:,} appends: {mean(times[-100:]):.0f} ms/append", flush=True)
        compared = min(100, max(1, given.appends // 2))
        for name, measured in (("elapsed", times), ("processor", processor)):
            first_mean, last_mean = mean(measured[:compared]), mean(measured[-compared:])
            print(
                f"{name} ms/append: first {compared} {first_mean:.0f}, last {compared} {last_mean:.0f},"
                f" ratio {last_mean / first_mean:.2f}"
            )
        counts = {child.name: sum(p.is_file() for p in child.rglob("*")) for child in path.iterdir()}
        print("files:", ", ".join(f"{name} {n}" for name, n in sorted(counts.items())))


if __name__ == "__main__":
    main()
