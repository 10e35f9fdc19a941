"""Datasets of ir_datasets, from local files in the places of the downloads."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from hybrid.evaluation.questions import questions_beside, questions_of
from hybrid.evaluation.testsets import check_test_set, open_test_set
from sparta import Index, IndexOptions
from sparta.base.errors import InputError, MissingPackageError
from sparta.base.records import Query
from sparta.data.corpus import open_corpus
from sparta.data.formats.fields import Fields

if find_spec("ir_datasets") is None:
    pytest.skip("needs the extra irds", allow_module_level=True)

RECORDS = [{"_id": f"d{n}", "title": f"Title {n}", "text": f"text of number {n}"} for n in range(3)]


@pytest.fixture(scope="module", autouse=True)
def _scifact(irds_home: Path) -> Iterator[None]:
    """BEIR's SciFact in the home of ir_datasets, as if it had been downloaded."""
    (irds_home / "beir" / "scifact").mkdir(parents=True)
    with zipfile.ZipFile(irds_home / "beir" / "scifact" / "source.zip", "w") as packed:
        packed.writestr("scifact/corpus.jsonl", "".join(json.dumps(record) + "\n" for record in RECORDS))
        queries = [{"_id": "q1", "text": "number 1"}, {"_id": "q2", "text": "not judged"}]
        packed.writestr("scifact/queries.jsonl", "".join(json.dumps(query) + "\n" for query in queries))
        for split in ("test", "train"):
            lines = "query-id\tcorpus-id\tscore\nq1\td1\t1\n"
            packed.writestr(f"scifact/qrels/{split}.tsv", lines)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("IR_DATASETS_DL_TRIES", "1")
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patched.setenv(name, "http://127.0.0.1:9")  # no test may download
        yield


def test_documents_become_passages() -> None:
    reader = open_corpus("irds:beir/scifact")
    assert reader.size == (5183, False)
    assert [passage.record for passage in reader] == [
        {"id": record["_id"], "title": record["title"], "text": record["text"]} for record in RECORDS
    ]
    assert reader.identity() == reader.fingerprint() != open_corpus("irds:beir/nfcorpus").identity()
    by_title = open_corpus("irds:beir/scifact", fields=Fields(text=("title", "text")))
    assert next(iter(by_title)).text == "Title 0\n\ntext of number 0"


def test_documents_without_a_text_have_their_default_text(tmp_path: Path) -> None:
    (tmp_path / "docs.xml").write_text(
        "<DOC>\n<DOCNO>a</DOCNO>\n<TEXT>\nThe moon.\n</TEXT>\n</DOC>\n", encoding="utf-8"
    )
    import ir_datasets

    local = ir_datasets.util.LocalDownload(tmp_path / "docs.xml")
    documents = ir_datasets.formats.TrecDocs(local)
    ir_datasets.registry.register(f"local-{tmp_path.name}", ir_datasets.Dataset(documents))
    (passage,) = open_corpus(f"irds:local-{tmp_path.name}")
    assert (passage.passage_id, passage.text.strip()) == ("a", "The moon.")


def test_queries_and_judgments_become_a_question_set() -> None:
    found = questions_of("irds:beir/scifact/test")
    assert (found.name, found.queries) == ("beir-scifact-test", (Query("q1", "number 1"),))
    assert (found.qrels, found.excludes_query_id, found.omitted_questions) == ({"q1": {"d1": 1}}, True, 0)
    check_test_set(Path("irds:beir/scifact/test"))
    test_set = open_test_set(Path("irds:beir/scifact/test"), Path())
    assert (test_set.queries, str(test_set.corpus)) == (found.queries, "irds:beir/scifact/test")


@pytest.mark.jvm
def test_an_index_is_measured_with_the_questions_of_its_dataset(tmp_path: Path) -> None:
    options = IndexOptions(channels="bm25")
    with Index.create(tmp_path / "index", "irds:beir/scifact/test", options=options) as index:
        assert [hit.passage_id for hit in index.search("number 1", k=1)] == ["d1"]
    assert questions_beside(tmp_path / "index").qrels == {"q1": {"d1": 1}}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("irds:beir/nothing", "ir_datasets has no dataset 'beir/nothing'"),
        ("irds:", "ir_datasets has no dataset ''"),
        ("irds:beir", "the dataset has no documents"),
        ("irds:beir/nfcorpus", "ir_datasets cannot read the dataset"),
    ],
)
def test_an_unknown_dataset_and_a_failed_download_are_errors(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(open_corpus(source))


def test_a_dataset_takes_no_query() -> None:
    with pytest.raises(InputError, match="a query needs an SQLite database") as caught:
        open_corpus("irds:beir/scifact", query="select 1")
    assert caught.value.where == "irds:beir/scifact"


def test_a_dataset_without_judgments_names_its_parts() -> None:
    with pytest.raises(InputError, match="the dataset has no judgments") as caught:
        questions_of("irds:beir/scifact")
    assert "irds:beir/scifact/test, irds:beir/scifact/train" in str(caught.value.remedy)


def test_the_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(MissingPackageError, match="ir_datasets is not installed") as caught:
        open_corpus("irds:beir/scifact")
    assert "[irds]" in str(caught.value.remedy)
