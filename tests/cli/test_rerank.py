"""--rerank of the three search commands: the hits of a retriever with the same cross-encoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from dense.channel.searcher import DenseSearcher
from hybrid import Fusion, HybridSearcher
from sparta import Index
from sparta.base.errors import InputError
from sparta.index.inputs.options import IndexOptions
from sparta.rerank.reranked import reranked
from sparta.search.retriever import Retriever
from tests.programs import Program, hybrid, sparta
from tests.sparta.rerank.cross_encoders import save_cross_encoder

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread", "own_logger")]

QUERY = "the moon of the year"


@pytest.fixture(scope="module")
def reranker(tiny_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a cross-encoder."""
    return str(save_cross_encoder(tiny_tokenizer, tmp_path_factory.mktemp("cross")))


@pytest.fixture(scope="module")
def index(
    make_tiny_model: Callable[..., Any],
    make_records: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """An index for BM25, with a dense channel."""
    from dense.channel.sync import build_dense
    from dense.models.bi_encoder import DenseConfig, DenseModel

    folder, tiny = tmp_path_factory.mktemp("index"), make_tiny_model()
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig()).save_pretrained(folder / "dense")
    Index.create(folder / "ix", make_records(40), options=IndexOptions(channels="bm25")).close()
    build_dense(folder / "ix", str(folder / "dense"))
    return folder / "ix"


def hits_of(program: str, *arguments: object) -> list[tuple[str, float]]:
    """The ids and scores that a search command prints with --json."""
    done = Program(program)("search", *arguments, "--json")
    assert done.exit_code == 0, done.output
    hits = [json.loads(line) for line in done.stdout.splitlines()]
    return [(hit["id"], pytest.approx(hit["score"], abs=1e-4)) for hit in hits]


RETRIEVERS: dict[tuple[str, ...], Callable[[Path], Retriever]] = {
    ("sparta",): lambda index: Index(index).retriever("bm25"),
    ("sparta", "--channel", "dense,bm25"): lambda index: HybridSearcher(
        index, Fusion({"dense": 1.0, "bm25": 1.0})
    ),
    ("dense",): DenseSearcher,
    ("hybrid", "--weights", "dense=1,bm25=0.5"): lambda index: HybridSearcher(
        index, Fusion({"dense": 1.0, "bm25": 0.5})
    ),
}


@pytest.mark.parametrize("command", RETRIEVERS, ids=" ".join)
def test_a_command_prints_reranked_hits(index: Path, reranker: str, command: tuple[str, ...]) -> None:
    program, *options = command
    rerank = ["--rerank", reranker, "--rerank-depth", 6]
    printed = hits_of(program, QUERY, "--index", index, "-k", 9, *options, *rerank)
    with reranked(RETRIEVERS[command](index), reranker, 6) as retriever:
        hits = retriever.search(QUERY, 9)
    assert printed == [(hit.passage_id, hit.score) for hit in hits]
    plain = hits_of(program, QUERY, "--index", index, "-k", 9, *options)
    assert [i for i, _ in printed] != [i for i, _ in plain]
    assert {i for i, _ in printed[:6]} == {i for i, _ in plain[:6]}


FUSIONS = [command for command in RETRIEVERS if len(command) > 1]


@pytest.mark.parametrize("command", FUSIONS, ids=" ".join)
def test_a_fusion_has_as_many_candidates_as_are_reranked(
    index: Path, reranker: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = list[int]()

    def recorded(retriever: Retriever, *options: Any) -> Retriever:
        candidates.append(retriever.most_hits)
        return reranked(retriever, *options)

    monkeypatch.setattr("sparta.rerank.reranked.reranked", recorded)
    program, *options = command
    arguments = [QUERY, "--index", index, *options, "--rerank", reranker]
    for more in (["--rerank-depth", 150], [], ["--candidates", 5]):
        hits_of(program, *arguments, "-k", 3, *more)
    assert candidates == [150, 100, 5]
    refused = Program(program)("search", *arguments, "--rerank-depth", 6, "--candidates", 5)
    assert "6 hits cannot be ordered anew with 5 candidates of each channel" in refused.stderr
    assert "--candidates 6, or lower the depth: --rerank-depth 5" in refused.stderr
    with Index(index) as opened, pytest.raises(InputError, match="with 5 candidates"):
        opened.search(QUERY, channel="dense,bm25", rerank=reranker, rerank_depth=6, candidates=5)


def test_an_evaluation_fuses_as_many_candidates_as_it_reranks(
    index: Path, reranker: str, tmp_path: Path
) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": QUERY, "answers": ["moon"]}) + "\n")
    options = ["--index", index, "--dataset", tmp_path / "q.jsonl", "--rerank", reranker]
    done = hybrid("eval", *options, "--rerank-depth", 150)
    assert "over each channel's 150 best passages" in " ".join(done.stdout.split())


def test_facets_are_counted_beside_reranking(index: Path, reranker: str) -> None:
    arguments = ["search", QUERY, "--index", index, "--rerank", reranker, "--facet", "title"]
    done = sparta(*arguments)
    assert done.exit_code == 0, done.output
    plain = sparta(*(arguments[:4] + arguments[6:]))
    assert done.stdout.splitlines()[-1] == plain.stdout.splitlines()[-1]
    assert done.stdout.splitlines()[-1].startswith("title: ")


@pytest.mark.parametrize("program", ["sparta", "dense", "hybrid"])
def test_a_wrong_folder_is_refused(index: Path, tmp_path: Path, program: str) -> None:
    options = ["--index", str(index), "--rerank", str(tmp_path / "nowhere")]
    done = Program(program)("search", QUERY, *options)
    assert done.exit_code == 2
    assert "nowhere: no such folder of a cross-encoder" in done.stderr
