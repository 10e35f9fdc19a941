"""Each extra in a fresh environment from the wheel, with one real command (`make test-slow`).

The base, `dense` and `mcp` are in test_wheel.py. `make test-slow` prints sizes and seconds.
"""

from __future__ import annotations

import configparser
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from tests.documents import pdf
from tests.environments import ROOT, UV, built_wheel, environment, megabytes, run

RETRIEVER = 'python -c \'from hybrid.integrations import {0} as R; print(R("ix", channels="bm25"){1})\''
BEIR = """
from hybrid.integrations import BeirSearch
print(BeirSearch("ix", "bm25").search({}, {"q": "who founded google"}, 3, "dot"))
"""
MTEB = """
import mteb
from hybrid.integrations import MtebSearch
print(MtebSearch("ix", "bm25").mteb_model_meta.name)
"""
PYSERINI = """
from sparta.lucene.jvm import start_jvm
start_jvm()
from pyserini.search.lucene import LuceneSearcher
print(LuceneSearcher("ix/sparta-000001").search("founded google", 1, fields={"text": 1.0})[0].docid)
"""
GPU = """
from sparta.models.load import load_module
print(type(load_module("sparta-small-en").encoder))
"""
OPENSEARCH = "sparta push --index ix --opensearch http://127.0.0.1:9 --name wiki"

CASES = {
    "encode": ("sparta search 'who founded google' --index ix --json", '"title": "Google"'),
    "serve": ("sparta search 'who founded google' --index ix --json", '"title": "Google"'),
    "eval": (
        "hybrid eval --index ix --dataset set --answers --depths 1,3 --plot plot.svg",
        "bm25",
    ),
    "train": ("sparta train --encoder sparta-small-en --pairs pairs.jsonl --output m --steps 1", ""),
    "gpu": (shlex.join(["python", "-c", GPU]), "sparta.neural.bert.Bert"),
    "opensearch": (OPENSEARCH, "the OpenSearch server cannot be reached"),
    "pyserini": (shlex.join(["python", "-c", PYSERINI]), "google"),
    "langchain": (RETRIEVER.format("LangChainRetriever", '.invoke("who founded google")'), "id='google'"),
    "llamaindex": (RETRIEVER.format("LlamaIndexRetriever", '.retrieve("who founded google")'), "google"),
    "haystack": (RETRIEVER.format("HaystackRetriever", '.run("who founded google")'), "google"),
    "pyterrier": (RETRIEVER.format("PyTerrierRetriever", '.search("who founded google")'), "google"),
    "beir": (shlex.join(["python", "-c", BEIR]), "google"),
    "mteb": (shlex.join(["python", "-c", MTEB]), "sparta"),
    "sentence-transformers": ("sparta export-model --output exported", ""),
    "ray": ("sparta encode --corpus c.jsonl --output shards --ray local", ""),
    "zh": ("sparta index --corpus zh.jsonl --language zh --channels bm25 --index zh", "1 passage"),
    "tables": ("sparta index --corpus c.parquet --channels bm25 --index tables", "2 passages"),
    "documents": ("sparta index --corpus pages --channels bm25 --index documents", "2 passages"),
    "irds": ("sparta index --corpus irds:nothing", "ir_datasets has no dataset"),
    "all": ("sparta doctor --index ix", "ok"),
}
"""By extra: a command, and a text that the command prints."""
FAILING = {"opensearch", "irds"}
"""The extras whose command ends with an error here, because it needs a server or a download."""


def test_every_extra_has_a_test() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    tested = (ROOT / "tests" / "test_wheel.py").read_text(encoding="utf-8")
    elsewhere = {extra for extra in setup["options.extras_require"] if f'"[{extra}]"' in tested}
    assert {*setup["options.extras_require"]} == {*CASES, *elsewhere, "dev"}


@pytest.fixture(scope="module")
def wheel(made_once: Callable[..., Path]) -> Path:
    return built_wheel(made_once)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an index `ix` of 30 passages, a test set, and what else the commands read."""
    lines = (ROOT / "examples" / "wiki.jsonl").read_text(encoding="utf-8").splitlines()[:30]
    (tmp_path / "c.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "zh.jsonl").write_text('{"id": "1", "text": "月亮繞著地球轉。"}\n', encoding="utf-8")
    pairs = ({"question": f"what orbits planet {i}", "positive": f"moon {i}"} for i in range(64))
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    table = pyarrow.table({"id": ["a", "b"], "text": ["The moon is far.", "The sun is hot."]})
    parquet.write_table(table, tmp_path / "c.parquet")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "a.html").write_text("<title>Moon</title><p>The moon is far.")
    (tmp_path / "pages" / "b.pdf").write_bytes(pdf(["The sun is hot."]))
    (tmp_path / "set").mkdir()
    question = {"id": "q", "text": "who founded google", "answers": ["Larry Page"]}
    (tmp_path / "set" / "questions.jsonl").write_text(json.dumps(question))
    (tmp_path / "set" / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\tgoogle\t1\n")
    options = ("--corpus", "c.jsonl", "--index", "ix", "--codec", "lucene", "--quiet")
    here = (sys.executable, "-m", "cli._sparta", "index", *options)
    made = run(*here, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert made.returncode == 0, made.stderr
    return tmp_path


@pytest.mark.release
@pytest.mark.jvm
@pytest.mark.skipif(UV is None, reason="uv is not installed")
@pytest.mark.parametrize("extra", CASES)
def test_the_command_of_an_extra(extra: str, wheel: Path, folder: Path) -> None:
    before = time.monotonic()
    programs = environment(folder / "env", wheel, f"[{extra}]")
    seconds = time.monotonic() - before
    command, printed = CASES[extra]
    program, *arguments = shlex.split(command)
    ended = run(programs / program, *arguments, cwd=folder)
    print(f"[{extra}] {megabytes(folder / 'env')} MB, {seconds:.0f} s: {command}")
    assert (ended.returncode != 0) == (extra in FAILING), ended.stdout + ended.stderr
    assert printed in (ended.stderr if extra in FAILING else ended.stdout + ended.stderr)
