"""Corpora and queries as BEIR, TREC, Pyserini and Hugging Face keep them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError
from sparta.base.records import Query
from sparta.data.corpus import open_corpus
from sparta.data.files import files_of
from sparta.data.queries import read_queries
from sparta.data.trec import read_qrels

RECORDS = [{"id": str(number), "text": f"moon {number}"} for number in range(3)]


class Split(list[dict[str, Any]]):
    features = "those of a Hugging Face data set"


def hugging_face_folder(folder: Path, *others: str) -> Path:
    for name in ("data-00000-of-00001.arrow", "cache-0f2b.arrow", "cache-0f2b_00000_of_00004.arrow", *others):
        (folder / name).write_bytes(b"")
    return folder


def test_a_cache_of_hugging_face_datasets_is_no_corpus(tmp_path: Path) -> None:
    folder = hugging_face_folder(tmp_path, "state.json", "dataset_info.json")
    files, ignored = files_of(str(folder))
    assert files == [str(folder / "data-00000-of-00001.arrow")]
    reason = "(a cache of Hugging Face datasets)"
    assert ignored[:2] == [f"cache-0f2b.arrow {reason}", f"cache-0f2b_00000_of_00004.arrow {reason}"]


def test_the_name_of_a_cache_alone_is_no_proof(tmp_path: Path) -> None:
    files, _ = files_of(str(hugging_face_folder(tmp_path, "state.json")))
    assert len(files) == 3


@pytest.mark.slow
def test_a_stored_data_set_stays_as_it_is_when_it_is_changed_in_memory(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("pyarrow")
    datasets.Dataset.from_list(RECORDS).save_to_disk(tmp_path)
    datasets.load_from_disk(tmp_path).map(lambda row: {"text": row["id"]})
    assert list(tmp_path.glob("cache-*.arrow"))
    assert [passage.record for passage in open_corpus(tmp_path)] == RECORDS


def test_json_in_a_folder_is_read_after_the_change_that_the_reason_names(tmp_path: Path) -> None:
    (tmp_path / "docs00.json").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    (tmp_path / "docs01.json").write_text(json.dumps([{"id": "list", "contents": "moon"}]))
    with pytest.raises(
        InputError, match=r"docs00\.json \(JSON; if it holds passages, rename it to \.jsonl\)"
    ):
        open_corpus(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.rename(path.with_suffix(".jsonl"))
    assert [passage.passage_id for passage in open_corpus(tmp_path)] == ["0", "1", "2", "list"]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("\ufeff\n<DOC>\n<DOCNO> FT1 </DOCNO>\n</DOC>\n", "if it is a TREC collection, convert it to JSONL"),
        ('<DOC id="1" type="story">\n', "if it is a TREC collection, convert it to JSONL"),
        ("<doc id=1>\n", "if it is a TREC collection, convert it to JSONL"),
        ("<top>\n<num> Number: 301\n", "if it holds TREC topics, write each topic as a line ID<TAB>QUERY"),
        ("1\tmoon\n", "if each line is one, rename the file to .tsv"),
        ("<topology> is a word.\n", ""),
        ("<DOCTYPE> begins other files.\n", ""),
    ],
)
def test_a_text_that_seems_to_hold_several_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, advice: str
) -> None:
    (tmp_path / "moon.txt").write_text(text)
    assert len(list(open_corpus(tmp_path / "moon.txt"))) == 1
    assert ("the file is one passage; " in caplog.text) == bool(advice)
    assert advice in caplog.text


def test_a_dictionary_of_passages_becomes_the_list_of_the_remedy() -> None:
    corpus = {"7": {"title": "Moon", "text": "round"}, "8": {"text": "hot"}}
    with pytest.raises(InputError, match="a dictionary of passages by id, not a list of records") as caught:
        open_corpus(corpus)
    remedy = str(caught.value.remedy).removeprefix("pass a list: ")
    passages = list(open_corpus(eval(remedy, {"corpus": corpus})))
    assert [(passage.passage_id, passage.text) for passage in passages] == [("7", "round"), ("8", "hot")]


def test_a_dictionary_of_texts_gets_both_remedies() -> None:
    corpus = {"7": "round", "8": "hot"}
    with pytest.raises(InputError, match="the corpus is a single record") as caught:
        open_corpus(corpus)
    _, _, remedy = str(caught.value.remedy).partition("texts by id: ")
    passages = list(open_corpus(eval(remedy, {"corpus": corpus})))
    assert [(passage.passage_id, passage.text) for passage in passages] == [("7", "round"), ("8", "hot")]


@pytest.mark.parametrize(
    "record", [{}, {"id": "9", "body": "moon"}, {"contents": "moon"}, {"text": {"x": 1}}]
)
def test_a_record_is_no_dictionary_of_passages(record: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="the corpus is a single record"):
        open_corpus(record)


def test_splits_of_queries_and_judgments_are_no_passages(caplog: pytest.LogCaptureFixture) -> None:
    splits = {
        "corpus": Split(RECORDS),
        "queries": Split([{"id": "q1", "text": "who founded google"}]),
        "qrels_test": Split([{"id": "q1", "text": "0"}]),
    }
    reader = open_corpus(splits)
    assert [passage.record for passage in reader] == RECORDS
    assert (reader.size, reader.is_rereadable) == ((3, False), True)
    assert "reading corpus; not reading queries, qrels_test (queries or judgments)" in caplog.text


def test_a_data_set_of_queries_alone_is_read(caplog: pytest.LogCaptureFixture) -> None:
    assert len(list(open_corpus({"queries": Split(RECORDS)}))) == 3
    assert not caplog.text


@pytest.mark.parametrize("id_field", ["id", "_id", "qid", "query_id", "query-id"])
@pytest.mark.parametrize("text_field", ["text", "question", "query"])
def test_fields_of_queries(tmp_path: Path, id_field: str, text_field: str) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_text(json.dumps({id_field: "1", text_field: "moon"}))
    assert list(read_queries(path)) == [Query("1", "moon")]


@pytest.mark.parametrize(
    "judgments",
    [
        "q1 google 1\n",
        "q1,google,1\n",
        "query-id,corpus-id,score\n",
        "q1\tgoogle\t1\n",
        "query-id\tcorpus-id\tscore\nq1\tgoogle\t1.0\n",
        "q1 0 google 1.0\n",
    ],
)
def test_other_judgments_are_told_both_forms(tmp_path: Path, judgments: str) -> None:
    (tmp_path / "qrels").write_text(judgments)
    with pytest.raises(InputError) as caught:
        read_qrels(tmp_path / "qrels")
    remedy = str(caught.value.remedy)
    assert "QID 0 DOCID RELEVANCE" in remedy
    assert "query-id<TAB>corpus-id<TAB>score" in remedy
    assert "whole number" in remedy
