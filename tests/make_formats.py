"""Make `tests/formats/whole-VERSION-CODEC`: indexes with every part that an index of this commit can have.

`interrupted-VERSION` is an index of which Ctrl-C stopped the first build after some passages.

Run it once, with the environment of the commit whose indexes later versions must open:

    git worktree add OLD 5bddf66 && make -C OLD install
    PYTHONPATH=OLD OLD/.venv/bin/python tests/make_formats.py FOLDER

`whole-VERSION.jsonl` has the rankings of that commit. `models/` has the models: an index finds a model of the
same name and hash in the working folder.
"""

from __future__ import annotations

import json
import re
import string
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from hybrid import Fusion, HybridSearcher
from sparta import Index, IndexOptions
from sparta.base.records import Passage
from sparta.index.folder import FORMAT_VERSION
from sparta.index.inputs import options as index_options
from sparta.index.pipeline import build_index
from sparta.lucene.bridge import ImpactWriter
from sparta.models.config import SpartaConfig
from sparta.models.document_encoder import fit_quantizer
from sparta.models.sparta import SpartaModel
from sparta.neural.inputs import InputLayout

CODECS = {"fast": "sparta", "lucene": "lucene"}
TEXTS = {
    "moon": "The moon goes around the earth in a month. The sea follows the moon, twice a day. No wind.",
    "sun": "The sun is a star. The earth goes around the sun in a year.",
    "river": "A river runs by the old town to the sea. In the town there is a bridge over the river.",
    "town": "The old town has a mill, a school and a bridge. Children go to the school by the river.",
    "mill": "Wind or water turns a mill. The mill of the town turns with the river.",
    "sea": "The sea is deep. Fish live in the sea and in the river.",
    "bread": "Bread is made of corn. The mill grinds corn, the town eats bread.",
    "empty-title": "Stars are far. The sun is near.",
}
METADATA: dict[str, dict[str, Any]] = {
    "moon": {"kind": "sky", "year": 1969, "tags": ["round", "far"]},
    "sun": {"kind": "sky", "year": 1543, "tags": ["round"]},
    "river": {"kind": "land", "year": 1200},
    "town": {"kind": "land", "year": 1100, "open": True},
    "mill": {"kind": "land", "year": 1180.5, "open": False},
    "sea": {"kind": "water", "tags": ["far"]},
    "bread": {"kind": "food"},
}
APPENDED = [
    {"id": "school", "title": "school", "text": "The school teaches children of the town.", "kind": "land"},
    {"id": "fish", "title": "fish", "text": "Fish is eaten with bread.", "kind": "food", "year": 30},
]
DELETED = ["sea", "school"]
QUERIES = ["moon and earth", "the mill of the town", "bread", "children by the river"]
CHANNELS = [["impact"], ["bm25"], ["dense"], ["dense", "impact", "bm25"]]
FILTERS: list[dict[str, Any] | None] = [None, {"kind": "land"}, {"year": {"lt": 1200}}, {"tags": "round"}]


def corpus() -> list[dict[str, Any]]:
    """The first passages; one has no title and no metadata."""
    return [
        {"id": name, "title": "" if name == "empty-title" else name, "text": text, **METADATA.get(name, {})}
        for name, text in TEXTS.items()
    ]


def make_models(folder: Path) -> None:
    """Write a SPARTA model and a bi-encoder with random weights of one layer of 16."""
    words = sorted({word.lower() for text in TEXTS.values() for word in re.findall(r"\w+", text)})
    pieces = [*string.ascii_lowercase, *(f"##{c}" for c in string.ascii_lowercase), ".", ",", *words]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    ids = {piece: i for i, piece in enumerate(dict.fromkeys([*special, *pieces]))}
    tokenizer = Tokenizer(models.WordPiece(vocab=ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    ends = [(token, ids[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(ids),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    encoder = BertModel(config, add_pooling_layer=False)
    layout = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=8)
    sparta = SpartaModel(encoder, tokenizer, SpartaConfig(layout))
    with torch.no_grad():
        embeddings = encoder.get_input_embeddings().weight
        embeddings.normal_()
        if sparta.term_embeddings is not None:
            sparta.term_embeddings.copy_(embeddings + 0.1 * torch.randn_like(embeddings))
        sparta.scale.fill_(0.25)
        sparta.bias.fill_(-2.5)
    quantizer = fit_quantizer(sparta.eval(), [Passage(name, text) for name, text in TEXTS.items()])
    sparta.config = replace(sparta.config, quantizer=quantizer)
    sparta.save_pretrained(folder / "tiny-sparta")
    DenseModel(encoder, tokenizer, DenseConfig(layout)).save_pretrained(folder / "tiny-dense")


def run(command: str, *arguments: object) -> None:
    """Run a command of this environment."""
    subprocess.run([Path(sys.executable).parent / command, *map(str, arguments)], check=True)


def rankings(index: Path) -> list[dict[str, Any]]:
    """What this commit finds: passage ids, and scores rounded to 3 digits."""
    found = []
    for channels in CHANNELS:
        with HybridSearcher(index, Fusion(dict.fromkeys(channels, 1.0))) as fused, Index(index) as lone:
            retriever: Any = fused if len(channels) > 1 else lone.retriever(channels[0])
            for condition in FILTERS:
                for query in QUERIES:
                    hits = retriever.search(query, 10, filter=condition)
                    ranking = [[hit.passage_id, round(hit.score, 3)] for hit in hits]
                    about = {"channels": channels, "filter": condition, "query": query}
                    found.append({**about, "ranking": ranking})
    return found


def make_index(path: Path, codec: str, folder: Path) -> None:
    """Build, append, add vectors, delete: in this order, so that the dense channel follows the deletion."""
    first, second = folder / "corpus.jsonl", folder / "appended.jsonl"
    first.write_text("".join(json.dumps(record) + "\n" for record in corpus()))
    second.write_text("".join(json.dumps(record) + "\n" for record in APPENDED))
    models = folder / "models"
    options = ["--codec", codec, "--chunk", 12, "--overlap", 4, "--threads", 1]
    run("sparta", "index", "--corpus", first, "--model", models / "tiny-sparta", "--index", path, *options)
    run("sparta", "index", "--corpus", second, "--index", path, "--append", "--chunk", 12, "--overlap", 4)
    run("dense", "index", "--index", path, "--model", models / "tiny-dense")
    run("sparta", "delete", "--index", path, *DELETED)


def make_interrupted(path: Path, folder: Path) -> None:
    """Stop the first build before its third batch of two passages."""
    add, batches = ImpactWriter.add, iter(range(2))

    def two_batches(*arguments: Any, **options: Any) -> None:
        if next(batches, None) is None:
            raise KeyboardInterrupt
        add(*arguments, **options)

    options = IndexOptions(model=str(folder / "models" / "tiny-sparta"), threads=1, commit_seconds=0)
    with (
        suppress(KeyboardInterrupt),
        patch.object(index_options, "_PASSAGES_PER_BATCH", 2),  # at 5bddf66: pipeline._ENCODED_AT_ONCE
        patch.object(ImpactWriter, "add", two_batches),
    ):
        build_index(path, corpus(), options=options)


def main(folder: Path) -> None:
    """Make the models, an index of each codec and their rankings in a new folder."""
    folder.mkdir(parents=True)
    make_models(folder / "models")
    found = []
    for codec, name in CODECS.items():
        path = folder / f"whole-{FORMAT_VERSION}-{name}"
        make_index(path, codec, folder)
        found.append(rankings(path))
    assert found[0] == found[1]
    make_interrupted(folder / f"interrupted-{FORMAT_VERSION}", folder)
    for lock in folder.rglob("*lock"):
        lock.unlink()
    lines = [json.dumps(ranking, separators=(",", ":")) + "\n" for ranking in found[0]]
    (folder / f"whole-{FORMAT_VERSION}.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
