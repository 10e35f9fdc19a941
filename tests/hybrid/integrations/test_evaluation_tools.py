"""BEIR's and MTEB's own code measures what `sparta eval` measures, ties and own passages included."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.integrations.collection import Collection, falling
from sparta.base.errors import InputError
from tests.hybrid.integrations.sets import local_task, write_set

pytestmark = pytest.mark.jvm
MEASURES = ("nDCG@10", "R@100", "AP@100")


@pytest.fixture(scope="module")
def folder(make_records: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_set(tmp_path_factory.mktemp("sets") / "my-set", make_records(15, seed=6))


@pytest.fixture(scope="module")
def options(tiny_model_folder: Path) -> Any:
    from sparta.index.inputs.options import IndexOptions

    return IndexOptions(model=str(tiny_model_folder), dtype="fp32")


@pytest.fixture(scope="module")
def ours(folder: Path, tiny_model_folder: Path) -> dict[str, dict[str, float]]:
    """What `sparta eval` finds, by channel and measure."""
    from hybrid.evaluation.evaluate import evaluate_set
    from sparta.models.load import load_model
    from sparta.shards.encode import EncodeOptions

    model = load_model(tiny_model_folder)
    found = evaluate_set(folder, model, EncodeOptions(dtype="fp32"), measures=MEASURES)
    return {one.name: {m: one.mean(m) for m in MEASURES} for one in found.evaluations}


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["impact", "bm25"])
def test_beir(folder: Path, options: Any, ours: Any, channel: str) -> None:
    pytest.importorskip("beir")
    from beir.datasets.data_loader import GenericDataLoader
    from beir.retrieval.evaluation import EvaluateRetrieval

    from hybrid.integrations import BeirSearch

    corpus, queries, qrels = GenericDataLoader(str(folder)).load(split="test")
    beir = EvaluateRetrieval(BeirSearch(None, channel, options=options), k_values=[10, 100])
    found = beir.retrieve(corpus, queries)
    assert any(query in hits for query, hits in found.items())
    own_ids = {i: {**passage, "id": "of the record"} for i, passage in corpus.items()}
    again = BeirSearch(None, channel, options=options)
    for query, hits in again.search(own_ids, queries, 3).items():
        assert list(hits.items()) == list(found[query].items())[: 3 + (query in hits)]
    ndcg, ap, recall, _ = beir.evaluate(qrels, found, beir.k_values)
    theirs = {"nDCG@10": ndcg["NDCG@10"], "R@100": recall["Recall@100"], "AP@100": ap["MAP@100"]}
    assert theirs == pytest.approx(ours[channel], abs=6e-6)  # BEIR rounds to five digits
    with pytest.raises(NotImplementedError, match="call retrieve"):
        beir.encode_and_retrieve(corpus, queries)


@pytest.mark.slow
@pytest.mark.parametrize("is_own_id_relevant", [True, False])
def test_beir_decides_whether_a_passage_with_the_id_of_the_query_counts(
    tmp_path: Path, options: Any, tiny_model_folder: Path, is_own_id_relevant: bool
) -> None:
    pytest.importorskip("beir")
    from beir.retrieval.evaluation import EvaluateRetrieval

    from hybrid.evaluation.evaluate import evaluate_set
    from hybrid.integrations import BeirSearch
    from sparta.models.load import load_model
    from sparta.shards.encode import EncodeOptions

    texts = {"1": "moon earth", "2": "google founded", "3": "moon earth founded"}
    qrels = {"1": {"1" if is_own_id_relevant else "3": 1}, "2": {"2" if is_own_id_relevant else "3": 1}}
    queries = {number: texts[number] for number in qrels}
    (tmp_path / "qrels").mkdir()
    for name, rows in (("corpus", texts), ("queries", queries)):
        lines = [json.dumps({"_id": number, "text": text}) + "\n" for number, text in rows.items()]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    judgments = [f"{query}\t{passage}\t1\n" for query, hits in qrels.items() for passage in hits]
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judgments))
    evaluated = evaluate_set(
        tmp_path, load_model(tiny_model_folder), EncodeOptions(dtype="fp32"), measures=("nDCG@1",)
    )
    (ours,) = [channel.mean("nDCG@1") for channel in evaluated.evaluations if channel.name == "bm25"]
    beir = EvaluateRetrieval(BeirSearch(None, "bm25", options=options), k_values=[1])
    run = beir.retrieve({number: {"text": text} for number, text in texts.items()}, queries)
    ndcg = beir.evaluate(qrels, run, [1], ignore_identical_ids=not is_own_id_relevant)[0]
    assert ndcg["NDCG@1"] == ours == 1


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["impact", "bm25"])
def test_mteb(folder: Path, options: Any, ours: Any, channel: str) -> None:
    mteb = pytest.importorskip("mteb")
    pytest.importorskip("beir")
    from hybrid.integrations import MtebSearch

    model = MtebSearch(None, channel, options=options)
    result = mteb.evaluate(model, local_task(folder), cache=None, show_progress_bar=False)
    (scores,) = result[0].scores["test"]
    theirs = {
        "nDCG@10": scores["ndcg_at_10"],
        "R@100": scores["recall_at_100"],
        "AP@100": scores["map_at_100"],
    }
    assert theirs == pytest.approx(ours[channel], abs=6e-6)
    from mteb.models.models_protocols import SearchProtocol

    assert isinstance(model, SearchProtocol)


@pytest.mark.slow
def test_mteb_ranks_the_passages_of_a_reranking_task_among_themselves(folder: Path, options: Any) -> None:
    pytest.importorskip("mteb")
    pytest.importorskip("beir")
    from hybrid.integrations import MtebSearch

    task = local_task(folder)
    task.load_data()
    data = task.dataset["default"]["test"]
    model = MtebSearch(options=options)
    model.index(data["corpus"])
    whole = model.search(data["queries"], top_k=1000)
    chosen = {q: list(hits)[1::2] for q, hits in whole.items()}
    found = model.search(data["queries"], top_k=5, top_ranked=chosen)
    assert {q: list(hits) for q, hits in found.items()} == {q: ids[:5] for q, ids in chosen.items()}


def test_results_are_kept_by_what_decides_the_scores(options: Any, tmp_path: Path) -> None:
    from dataclasses import replace

    same = Collection(None, "impact", options).revision
    assert Collection(None, "impact", options).revision == same
    assert Collection(None, "bm25", options).revision != same
    assert Collection(None, "impact", replace(options, top_k=5)).revision != same
    assert Collection(None, "impact", replace(options, model=None)).revision != same


def test_results_of_an_index_are_kept_while_nothing_is_written_to_it(options: Any, tmp_path: Path) -> None:
    from sparta import Index
    from sparta.index.folder import IndexFolder

    path = tmp_path / "ix"
    with Index.create(path, [{"id": i, "text": f"moon {i}"} for i in "ab"], options=options) as index:
        first = Collection(path, "impact").revision
        assert Collection(path, "impact").revision == first
        index.delete(["a"])
    second = Collection(path, "impact").revision
    assert second != first
    folder = IndexFolder(path)
    generation = folder.state().live
    assert generation
    (folder.dense_path(generation)).mkdir()
    seen = {Collection(path, "impact,dense").revision}
    for model in ("one", "another"):
        (folder.dense_path(generation) / "manifest.json").write_text(model)
        seen.add(Collection(path, "impact,dense").revision)
    assert len(seen) == 3
    assert Collection(path, "impact").revision == second


def test_questions_before_passages() -> None:
    with pytest.raises(InputError, match="no passages to search yet"):
        Collection().scores({"q": "moon"}, 3)


@pytest.mark.parametrize(
    "scores", [[5, 5, 5, 3, 3, 1], [0.0, 0.0, -1.0, -1.0], [1e8 + 1, 1e8, 7], [0.1 + 0.2, 0.3, 0.3], []]
)
def test_equal_scores_fall_by_the_least_that_float32_tells_apart(scores: list[float]) -> None:
    found = np.array(falling(scores), np.float32)
    assert (np.diff(found) < 0).all()
    np.testing.assert_allclose(found, scores, rtol=1e-6, atol=1e-40)


@pytest.mark.parametrize("channels", ["impact", "bm25,impact"])
def test_order_is_the_retrievers(
    tmp_path: Path, options: Any, channels: str, make_records: Callable[..., Any]
) -> None:
    from hybrid.retrieval.searcher import open_retriever
    from sparta.index.pipeline import build_index

    made, records = Collection(None, channels, options), make_records(20, seed=2, longest=4)
    made.hold(records)
    build_index(tmp_path / "ix", records, options=options)
    queries = {"a": "who founded google", "b": "the moon of the earth"}
    found = made.scores(queries, 9)
    with open_retriever(tmp_path / "ix", channels) as retriever:
        run = retriever.run(list(queries.values()), list(queries), 9)
        for source in (tmp_path / "ix", retriever):
            assert Collection(source, None if source is retriever else channels).scores(queries, 9) == found
    for query_id, hits in run.items():
        assert list(found[query_id]) == [hit.passage_id for hit in hits]
        assert list(found[query_id].values()) == pytest.approx([hit.score for hit in hits])
