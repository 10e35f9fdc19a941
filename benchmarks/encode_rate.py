"""Encoding on this machine: sparta beside sentence-transformers' SparseEncoder, same weights and texts.

    python benchmarks/encode_rate.py --backbone FOLDER --corpus FILE [--texts 400] [--device cuda] [--quick]

The backbone (any BERT) is given a masked-language-model head tied to its word embeddings and saved as an
inference-free SparseEncoder by sentence-transformers itself; both sides then load that folder. Each
contestant encodes the same texts, to the same top-K, in the same process, in turns; the median of the turns
counts. The results are compared entry by entry in units of an 8-bit impact. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse

from sparta.data.corpus import open_corpus
from sparta.models.load import load_model

if TYPE_CHECKING:
    import torch

CONTESTANTS = (
    "sentence-transformers fp32",
    "sentence-transformers bf16",
    "sparta fp32",
    "sparta bf16",
    "sparta auto",
)


def make_folder(backbone: str, folder: Path) -> None:
    """Save the backbone as an inference-free SparseEncoder."""
    import torch
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sentence_transformer.modules import Router, Transformer
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
    from transformers import AutoConfig, AutoTokenizer, BertForMaskedLM, BertModel

    config = AutoConfig.from_pretrained(backbone)
    model = BertForMaskedLM(config)
    model.bert.load_state_dict(BertModel.from_pretrained(backbone, add_pooling_layer=False).state_dict())
    model.tie_weights()
    torch.nn.init.eye_(model.cls.predictions.transform.dense.weight)
    model.cls.predictions.decoder.bias.data.fill_(-0.3)  # keeps a part of the terms, as a trained model does
    plain = folder / "mlm"
    model.save_pretrained(plain)
    tokenizer = AutoTokenizer.from_pretrained(backbone)
    tokenizer.save_pretrained(plain)
    router = Router.for_query_document(
        query_modules=[SparseStaticEmbedding(tokenizer=cast(Any, tokenizer), frozen=True)],
        document_modules=[Transformer(str(plain), transformer_task="fill-mask"), SpladePooling("max")],
    )
    SparseEncoder(modules=[router], similarity_fn_name="dot").save(str(folder / "model"))


def contestants(
    folder: Path, top_k: int, batch: int, device: str
) -> dict[str, Callable[[list[str]], scipy.sparse.csr_matrix]]:
    """What encodes texts to `(n, vocabulary)`, by name."""
    import torch
    from sentence_transformers import SparseEncoder

    ours = load_model(folder, device=device)

    def peer(dtype: torch.dtype) -> Callable[[list[str]], scipy.sparse.csr_matrix]:
        model = SparseEncoder(str(folder), model_kwargs={"torch_dtype": dtype}, device=device)

        def encode(texts: list[str]) -> scipy.sparse.csr_matrix:
            coo = model.encode_document(
                texts, batch_size=batch, max_active_dims=top_k, show_progress_bar=False, save_to_cpu=True
            ).coalesce()
            values = coo.values().float().numpy()
            return scipy.sparse.csr_matrix((values, coo.indices().numpy()), shape=tuple(coo.shape))

        return encode

    def encoded(texts: list[str], dtype: str) -> scipy.sparse.csr_matrix:
        return ours.encode_document(texts, max_active_dims=top_k, dtype=dtype, device=device)

    return {
        CONTESTANTS[0]: peer(torch.float32),
        CONTESTANTS[1]: peer(torch.bfloat16),
        CONTESTANTS[2]: lambda texts: encoded(texts, "fp32"),
        CONTESTANTS[3]: lambda texts: encoded(texts, "bf16"),
        CONTESTANTS[4]: lambda texts: encoded(texts, "auto"),
    }


def difference(
    left: scipy.sparse.csr_matrix, right: scipy.sparse.csr_matrix, step: float
) -> tuple[float, float]:
    """Largest and mean difference of entries that both keep, in steps of an 8-bit impact.

    Near the K-th weight either side may keep another term, so only common entries are compared.
    """
    common = left.multiply(right != 0).tocsr() - right.multiply(left != 0).tocsr()
    gaps = np.abs(common.data) / step
    return float(gaps.max(initial=0)), float(gaps.mean()) if gaps.size else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--top-k", type=int, default=500)
    parser.add_argument(
        "--batch", type=int, default=32, help="sentence-transformers' batch size (its default)"
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="64 texts, one turn")
    given = parser.parse_args()
    import torch

    n, turns = (64, 1) if given.quick else (given.texts, given.turns)
    texts = [p.text for p in itertools.islice(open_corpus(given.corpus), n)]
    with tempfile.TemporaryDirectory() as work:
        make_folder(given.backbone, Path(work))
        encoders = contestants(Path(work) / "model", given.top_k, given.batch, given.device)
        seconds: dict[str, list[float]] = {name: [] for name in encoders}
        results = {}
        for encode in encoders.values():
            encode(texts[:16])
        for _ in range(turns):
            for name, encode in encoders.items():
                started = time.monotonic()
                results[name] = encode(texts)
                seconds[name].append(time.monotonic() - started)
    reference = results[CONTESTANTS[0]]
    step = float(reference.max()) * 1.1 / 255
    base = statistics.median(seconds[CONTESTANTS[0]])
    words = statistics.mean(len(t.split()) for t in texts)
    where = f"{given.device}, {torch.get_num_threads()} threads"
    print(f"{n} texts of {words:.0f} words, top {given.top_k}, {where}, {turns} turns")
    print("| | texts/s | ratio | largest, mean difference (8-bit steps) |")
    print("|---|---|---|---|")
    for name, taken in seconds.items():
        largest, mean = difference(reference, results[name], step)
        median = statistics.median(taken)
        print(f"| {name} | {n / median:.1f} | {base / median:.2f} | {largest:.2f}, {mean:.3f} |")


if __name__ == "__main__":
    main()
