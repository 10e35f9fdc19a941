"""Which text of a passage an answer is looked for in: DPR's, without the title."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cli._fusion_options import QuestionArguments, query_sets
from hybrid.evaluation.answering import Answering
from hybrid.evaluation.compare import compare
from hybrid.evaluation.measures import ANSWERS, kind_of, measures_of
from hybrid.evaluation.rankings import search_all
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evidence.supporting import Supporting
from hybrid.multihop.chain import ChainResult
from hybrid.multihop.paths import Evidence, EvidencePath
from hybrid.retrieval.fusion import Fusion
from sparta.base.errors import InputError
from sparta.base.records import Hit, Query, Ranking
from sparta.reader.config import ReaderConfig
from sparta.reader.records import Span
from sparta.rerank.reranked import RERANKED, Reranking

RECORDS: list[dict[str, Any]] = [
    {"title": "Larry Page", "text": "He founded a search engine."},
    {"title": "Google", "text": "It was founded by Larry Page."},
    {"title": "Larry Page", "text": "He lives in California."},
    {"text": "Larry Page and Sergey Brin."},
]


class Channel:
    """One channel that finds all passages, in their order, for each question."""

    def __init__(self) -> None:
        self.searchers = {
            "bm25": SimpleNamespace(
                records=lambda docids: [RECORDS[i] for i in docids], language="en", unit="passage"
            )
        }

    def batch_search(self, texts: Any, k: int, threads: int = 1) -> dict[str, list[Ranking]]:
        found = Ranking([f"p{i}" for i in range(4)], list(range(4)), [4.0, 3.0, 2.0, 1.0])
        return {"bm25": [found for _ in texts]}


def test_titles_are_left_out() -> None:
    asked = QuestionSet("made", (Query("q", "who founded google", ("Larry Page",)),))
    retrieved = search_all(Channel(), asked, 4)  # type: ignore[arg-type]
    assert [retrieved.holds("q", f"p{i}") for i in range(4)] == [False, True, False, True]
    measures = [f"answer_recall@{k}" for k in (1, 2)]
    found = retrieved.measured("bm25", retrieved.runs["bm25"], measures)
    assert [found.mean(measure) for measure in measures] == [0.0, 1.0]


def test_a_single_channel_is_measured_by_a_single_measure() -> None:
    questions = QuestionSet("made", (Query("q", "who founded google", ("Larry Page",)),))
    channel: Any = Channel()
    results = compare(channel, questions, [Fusion({"bm25": 1.0})], measures=["answer_recall@2"])
    assert [(row.name, row.mean("answer_recall@2")) for row in results.evaluations] == [("bm25", 1.0)]


def test_labels_in_texts_are_no_answers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = [{"id": "1", "question": "where", "answers": ["California"]}]
    lines.append({"id": "2", "question": "is it there", "answers": ["no"]})
    path = tmp_path / "made.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    [asked] = query_sets(QuestionArguments(datasets=(path,), sample=None, matches=()), tmp_path)
    assert (
        "made: answer_recall leaves out 1 question whose answers are only labels" in capsys.readouterr().err
    )
    retrieved = search_all(Channel(), asked, 4)  # type: ignore[arg-type]
    [recall] = retrieved.measured("bm25", retrieved.runs["bm25"], ["answer_recall@20"]).per_query.values()
    assert recall == {"1": 1.0}
    labels = QuestionSet("made", (Query("q", "is it", ("Yes",)),), {"q": {"p0": 1}})
    assert not any(kind_of(measure) is ANSWERS for measure in measures_of(labels))


def test_questions_with_only_labels_are_measured_by_their_answers() -> None:
    labels = QuestionSet("made", (Query("q", "is it", ("yes",)),))
    reader: Any = SimpleNamespace(config=ReaderConfig(), read_all=lambda _, texts, n: [[[]] * 4])
    channel: Any = Channel()
    [bm25] = compare(channel, labels, [], answering=Answering(reader)).evaluations
    assert bm25.per_query == {"EM": {"q": 0.0}, "F1": {"q": 0.0}}
    with pytest.raises(InputError, match="all answers of the questions are labels") as caught:
        compare(channel, labels, [])
    assert "--answers" in caught.value.remedy.for_command_line()
    with pytest.raises(InputError, match="neither answers nor judged passages"):
        compare(channel, replace(labels, queries=(Query("q", "is it"),)), [])
    chain: Any = SimpleNamespace(tells_sentences=True)
    with_facts = replace(labels, supporting={"q": Supporting(frozenset({("Google", 0)}), {"Google": ()})})
    with pytest.raises(InputError, match="can only measure chains") as caught:
        compare(channel, with_facts, [], chains=[chain])
    assert "--answers" in caught.value.remedy.for_command_line()


def test_an_own_passage_takes_no_place() -> None:
    """Of a BEIR folder one hit more is asked for, and as many as were wanted are kept."""
    asked = QuestionSet("made", (Query("p1", "x"), Query("q", "y")), {"q": {"p0": 1}}, excludes_query_id=True)
    wanted: list[int] = []
    channel = Channel()
    search = channel.batch_search
    channel.batch_search = lambda texts, k, threads=1: wanted.append(k) or search(texts, k)  # type: ignore
    runs = search_all(channel, asked, 3).runs["bm25"]  # type: ignore[arg-type]
    assert wanted == [4]
    assert {q: [hit.passage_id for hit in hits] for q, hits in runs.items()} == {
        "p1": ["p0", "p2", "p3"],
        "q": ["p0", "p1", "p2"],
    }


def test_each_question_reads_its_own_chunk_of_a_document() -> None:
    """In an index of chunks a ranking names the document, once, by its best chunk for a question."""
    channel = Channel()
    channel.searchers["bm25"].unit = "chunk:5:0"
    best = {"who founded google": 1, "what is it": 0}
    channel.batch_search = lambda texts, k, threads=1: {
        "bm25": [Ranking(["d"], [best[text]], [1.0]) for text in texts]
    }
    queries = (Query("q", "who founded google", ("Larry Page",)), Query("r", "what is it", ("Larry Page",)))
    retrieved = search_all(channel, QuestionSet("made", queries), 4)
    assert [retrieved.hit(q, "d").text for q in "qr"] == [RECORDS[1]["text"], RECORDS[0]["text"]]
    found = retrieved.measured("bm25", retrieved.runs["bm25"], ["answer_recall@1"])
    assert found.per_query["answer_recall@1"] == {"q": 1.0, "r": 0.0}


def test_a_fusion_of_chunks_reads_no_record_again() -> None:
    channel: Any = Channel()
    reads: list[int] = []
    channel.searchers["bm25"].unit = "chunk:5:0"
    channel.searchers["bm25"].records = lambda docids: [RECORDS[reads.append(i) or i] for i in docids]
    questions = QuestionSet("made", (Query("q", "who founded google", ("Sergey Brin",)),))
    retrieved = search_all(channel, questions, 4).with_fusion("fused", Fusion({"bm25": 1.0}))
    run = retrieved.runs["bm25"]
    for name in ("bm25", "fused"):
        evaluation = retrieved.measured(name, run, ["answer_recall@4"])
        assert evaluation.mean("answer_recall@4") == 1.0
    assert reads == [0, 1, 2, 3]


def test_each_ranking_is_measured_on_its_own_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fusion takes the chunk of its first channel, a chain that of its path, a reranker that of both."""
    channel: Any = Channel()
    reranked: list[str] = []
    channel.searchers["bm25"].unit = "chunk:5:0"
    channel.searchers["impact"] = channel.searchers["bm25"]
    channel.batch_search = lambda texts, k, threads=1: {
        name: [Ranking(["d"], [docid], [1.0]) for _ in texts] for name, docid in (("bm25", 0), ("impact", 1))
    }
    chunk = Hit("d", 1.0, "", RECORDS[3]["text"], document_id="d", start=7, end=35)
    path = EvidencePath((Evidence(chunk, {}, 1.0),), 1.0)
    chain: Any = SimpleNamespace(
        channel="made",
        reads=False,
        tells_sentences=False,
        tools=SimpleNamespace(words=channel.searchers["bm25"]),
        find_paths=lambda question, k: ChainResult([path], {"search": 0.0}),
    )
    reranker = SimpleNamespace(scores=lambda _, texts: np.zeros(len(reranked.extend(texts) or texts)))
    monkeypatch.setattr("sparta.rerank.reranked.open_reranker", lambda _: reranker)
    answer = "Larry Page"

    def spans(text: str) -> list[Span]:
        return [Span(0, text.index(answer), text.index(answer) + len(answer), 1.0)] if answer in text else []

    reader: Any = SimpleNamespace(
        config=ReaderConfig(), read_all=lambda _, texts, n: [[spans(t.text) for t in row] for row in texts]
    )
    results = compare(
        channel,
        QuestionSet("made", (Query("q", "who founded google", (answer,)),)),
        [Fusion({"bm25": 1.0, "impact": 1.0}), Fusion({"impact": 1.0, "bm25": 1.0})],
        measures=["answer_recall@1"],
        answering=Answering(reader),
        chains=[chain],
        reranking=Reranking("made"),
    )
    in_chain = results.answers["chain made"]["q"]
    assert in_chain
    assert in_chain.text_start == 7
    values = {run.name: (run.mean("answer_recall@1"), run.mean("EM")) for run in results.evaluations}
    right = dict.fromkeys(("impact", "impact + bm25", "chain made"), (1.0, 1.0))
    wrong = dict.fromkeys(("bm25", "bm25 + impact"), (0.0, 0.0))
    plain = {name: value for name, value in values.items() if not name.endswith(RERANKED)}
    assert plain == right | wrong
    del plain["chain made"]
    assert {name: values[name + RERANKED] for name in plain} == plain
    texts = [f"{RECORDS[i]['title']} {RECORDS[i]['text']}" for i in (0, 1)]
    assert reranked == texts * 2


def test_channels_are_searched_as_deep_as_the_reader_reads() -> None:
    questions = QuestionSet("made", (Query("q", "who founded google", ("Larry Page",)),))
    channel: Any = Channel()
    depths: list[int] = []
    search = channel.batch_search
    channel.batch_search = lambda texts, k, threads=1: depths.append(k) or search(texts, k)
    reader: Any = SimpleNamespace(config=ReaderConfig(), read_all=lambda _, texts, n: [[[]] * 4])
    compare(channel, questions, [], answering=Answering(reader, (300,)))
    compare(channel, questions, [], answering=Answering(reader), depth=5)
    assert depths == [300, 10], "by default, ten passages"
