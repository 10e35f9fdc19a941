"""A model's folder for sentence-transformers: the same weights, without sparta."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sparta.base.errors import IndexStateError, ModelError
from sparta.export.sentence_transformers import export_sentence_transformers
from sparta.models.config import SpartaConfig
from sparta.models.quantize import QueryQuantizer
from sparta.neural.inputs import InputLayout, Lexical

pytestmark = pytest.mark.skipif(
    find_spec("sentence_transformers") is None, reason="needs the extra sentence-transformers"
)
TEXTS = [
    "larry page and sergey brin founded google in a house",
    "the moon of the earth, the moon!",
    "[SEP] is five characters ☃",
    "",
    "北京是中国的城市",
    " ".join(["river mountain sea ocean city"] * 14),  # several windows
]
QUESTIONS = [
    *("who founded google?", "moon the moon", "☃", "", "[CLS] 北京", "c, d. (e)"),
    *("1 + 1 + 1 + 1 = ?", "* * * * moon", "---", "- - moon"),
]
CONFIGS = {
    "plain": SpartaConfig(layout=InputLayout(max_length=40, overlap=8)),
    "shared": SpartaConfig(
        layout=InputLayout(use_context=True, answer_segment=0, max_length=40, overlap=8, share_context=True),
        lexical=Lexical(10.0),
        context_share=0.4,
    ),
    "tied": SpartaConfig(
        layout=InputLayout(max_length=48, overlap=0, answer_segment=0),
        tied=True,
        pool_special=True,
        log_count=2,
    ),
    "weighted": SpartaConfig(
        layout=InputLayout(max_length=64, overlap=16),
        weighted_queries=True,
        query_quantizer=QueryQuantizer(3.0),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_weights_of_documents_and_questions_are_ours(
    name: str, make_tiny_model: Callable[..., Any], tmp_path: Path, one_thread: None
) -> None:
    from sentence_transformers import (
        SparseEncoder,  # takes seconds, so not in each process that collects tests
    )

    ours = make_tiny_model(CONFIGS[name], seed=3)
    ours.tokenizer.encode_special_tokens = True  # as `load_tokenizer` leaves it
    with torch.no_grad():
        for parameter in (ours.gains, ours.query_term_weights):
            if parameter is not None:
                parameter.copy_(torch.randn(len(parameter), generator=torch.Generator().manual_seed(1)))
    export_sentence_transformers(ours, tmp_path / "out")
    theirs = SparseEncoder(str(tmp_path / "out"), trust_remote_code=True, device="cpu")
    for _ in range(2):
        documents = ours.encode_document(TEXTS, dtype="fp32")
        found = theirs.encode_document(TEXTS, batch_size=4).to_dense().numpy()
        assert (found > 0).mean() > 0.05
        np.testing.assert_allclose(found, documents.toarray(), atol=2e-5)
        queries = ours.encode_query(QUESTIONS)
        np.testing.assert_allclose(
            theirs.encode_query(QUESTIONS).to_dense().numpy(), queries.toarray(), rtol=1e-6
        )
        similarity = theirs.similarity(theirs.encode_query(QUESTIONS), theirs.encode_document(TEXTS))
        np.testing.assert_allclose(similarity, ours.similarity(queries, documents), atol=1e-3)
        word, weight = theirs.decode(theirs.encode_query("moon moon"))[0]
        assert (word, weight) == ("moon", queries[1, ours.tokenizer.token_to_id("moon")])
        theirs.save(str(tmp_path / "again"), create_model_card=False)  # as a training of theirs would
        theirs = SparseEncoder(str(tmp_path / "again"), trust_remote_code=True, device="cpu")


@pytest.mark.release
def test_the_shipped_model_without_sparta(tmp_path: Path) -> None:
    """In a process that cannot import sparta."""
    from sparta.models.load import load_model

    export_sentence_transformers(None, tmp_path / "out")
    code = (
        "import sys, json\n"
        "sys.modules['sparta'] = None\n"
        "from sentence_transformers import SparseEncoder\n"
        "model = SparseEncoder(sys.argv[1], trust_remote_code=True, device='cpu')\n"
        "texts = json.loads(sys.argv[2])\n"
        "found = model.encode_document(texts).to_dense()\n"
        "print(json.dumps([found.tolist(), model.encode_query(texts).to_dense().tolist()]))"
    )
    given = ["Google. Larry Page founded it.", "who founded google google"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out"), json.dumps(given)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    documents, queries = json.loads(ended.stdout)
    ours = load_model()
    np.testing.assert_allclose(documents, ours.encode_document(given, dtype="fp32").toarray(), atol=1e-4)
    np.testing.assert_allclose(queries, ours.encode_query(given).toarray())


def test_the_command(tiny_model_folder: Path, tmp_path: Path) -> None:
    from tests.cli.commands import done, refused
    from tests.programs import sparta

    given = ("export-model", "--model", tiny_model_folder, "--output", tmp_path / "out")
    assert "trust_remote_code=True" in done(sparta(*given)).stdout
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {
        "modules.json",
        "modeling_sparta.py",
        "README.md",
    }
    assert "only their first window has the title" in (tmp_path / "out" / "README.md").read_text()
    refused(sparta(*given), 2, "output folder already contains files")


def test_what_cannot_be_exported(make_tiny_model: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(IndexStateError, match="output folder already contains files"):
        export_sentence_transformers(make_tiny_model(), tmp_path / "full")
    from sparta.models.sparse import SparseEncoder

    foreign = SparseEncoder(make_tiny_model().tokenizer, replace(SpartaConfig(), tied=True))
    with pytest.raises(ModelError, match="is not a SPARTA model"):
        export_sentence_transformers(foreign, tmp_path / "other")
    assert [p.name for p in tmp_path.iterdir()] == ["full"]
