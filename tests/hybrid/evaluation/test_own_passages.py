"""BEIR's rule: a hit with the query's own id does not count (ArguAna, Quora)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hybrid.evaluation.evaluate import evaluate_runs
from hybrid.evaluation.measures import evaluate, without_query_ids
from hybrid.evaluation.questions import questions_of
from hybrid.evaluation.testsets import open_test_set
from hybrid.retrieval.fusion import Fusion
from sparta.base.errors import InputError
from sparta.base.records import ScoredPassage
from tests.programs import hybrid, sparta


@pytest.fixture
def arguana(tmp_path: Path) -> Path:
    """Each query is itself a passage; the answer is its twin."""
    folder = tmp_path / "arguana"
    (folder / "qrels").mkdir(parents=True)
    words = ["moon earth", "city river", "king germany", "google founded"]
    passages = [{"_id": f"{kind}{i}", "text": t} for i, t in enumerate(words) for kind in ("arg", "counter")]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(p) + "\n" for p in passages))
    queries = [{"_id": f"arg{i}", "text": t} for i, t in enumerate(words)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    rows = "".join(f"arg{i}\tcounter{i}\t1\n" for i in range(len(words)))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return folder


@pytest.mark.jvm
def test_a_folder_of_arguanas_form_is_measured_as_beir_measures_it(
    arguana: Path, tiny_model_folder: Path, tmp_path: Path
) -> None:
    given = ["eval", str(arguana), "--model", str(tiny_model_folder), "--format", "json", "--quiet"]
    result = sparta(*given, "-k", "1")
    assert result.exit_code == 0, result.output
    assert [row["nDCG@10"] for row in json.loads(result.stdout)] == [100.0, 100.0]

    index = ["--index", str(tmp_path / "ix")]
    made = ["index", "--corpus", str(arguana), "--model", str(tiny_model_folder), "--quiet", *index]
    assert sparta(*made).exit_code == 0
    asked = ["eval", "--dataset", str(arguana), "--format", "json", "--no-dense", *index]
    result = hybrid(*asked)
    assert result.exit_code == 0, result.output
    assert {row["RR"] for row in json.loads(result.stdout)} == {100.0}


def test_against_worked_figures() -> None:
    """With its own passage first, the right one counts 1/log2(3); without, 1."""
    run = {"q": [ScoredPassage("q", 3.0), ScoredPassage("d", 2.0), ScoredPassage("e", 1.0)]}
    assert evaluate("x", run, {"q": {"d": 1}}, ["nDCG@10"]).mean("nDCG@10") == pytest.approx(0.6309298)
    kept = without_query_ids(run, 1)
    assert kept == {"q": [ScoredPassage("d", 2.0)]}
    assert evaluate("x", kept, {"q": {"d": 1}}, ["nDCG@10"]).mean("nDCG@10") == 1


def test_a_folder_as_the_examples_is_a_test_set(tmp_path: Path) -> None:
    examples = Path(__file__).parents[3] / "examples"
    opened = open_test_set(examples, tmp_path)
    assert (opened.corpus, len(opened.queries), opened.omitted_questions) == (examples, 60, 0)


def test_runs_with_judgments_of_beirs_form_too(tmp_path: Path) -> None:
    run = tmp_path / "r.trec"
    run.write_text("q Q0 q 1 3 x\nq Q0 d 2 2 x\n")
    (tmp_path / "beir.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    (tmp_path / "trec.txt").write_text("q 0 d 1\n")
    for qrels, expected in (("beir.tsv", 1.0), ("trec.txt", 0.5)):
        found = evaluate_runs([run], tmp_path / qrels, ["RR"])
        assert found.evaluations[0].mean("RR") == expected


@pytest.mark.parametrize(
    "judgments", ["query-id\tcorpus-id\tscore\n1\t1\t1\n2\t2\t1\n", "1 0 1 1\n2 0 2 1\n"]
)
def test_questions_that_are_numbered_as_the_passages_are(tmp_path: Path, judgments: str) -> None:
    folder = tmp_path / "faq"
    folder.mkdir()
    (folder / "questions.jsonl").write_text('{"id": "1", "question": "a"}\n{"id": "2", "question": "b"}\n')
    (folder / "qrels.tsv").write_text(judgments)
    assert not open_test_set(folder, tmp_path).excludes_query_id
    assert not questions_of(folder).excludes_query_id
    (tmp_path / "r.trec").write_text("1 Q0 1 1 3 x\n1 Q0 2 2 2 x\n2 Q0 2 1 2 x\n")
    found = evaluate_runs([tmp_path / "r.trec"], folder / "qrels.tsv", ["RR"])
    assert found.evaluations[0].mean("RR") == 1


@pytest.fixture
def judged(tmp_path: Path) -> tuple[str, str]:
    """A run and its judgments, by their names as texts."""
    (tmp_path / "one.trec").write_text("q Q0 d 1 2.0 x\n")
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    return str(tmp_path / "one.trec"), str(tmp_path / "qrels.tsv")


def test_paths_may_be_texts(judged: tuple[str, str], tmp_path: Path) -> None:
    run, qrels = judged
    fusion = Fusion({"one": 1.0})
    found = evaluate_runs([run], qrels, ["MRR"], fusion=fusion, output_runs=str(tmp_path / "runs"))
    # A fusion of one run is this run.
    assert [evaluation.mean("RR") for evaluation in found.evaluations] == [1.0]
    with pytest.raises(InputError, match="a list of paths of runs, found str"):
        evaluate_runs(run, qrels)
    with pytest.raises(InputError, match="no such file or folder"):
        questions_of(str(tmp_path / "nothing"))


def test_names_of_compressed_files(judged: tuple[str, str]) -> None:
    for path in judged:
        Path(f"{path}.gz").write_bytes(gzip.compress(Path(path).read_bytes()))
    run, qrels = (f"{path}.gz" for path in judged)
    results = evaluate_runs([run], qrels, ["MRR"])
    assert (results.name, results.evaluations[0].name) == ("qrels", "one")


@pytest.mark.parametrize("measures", [["foo"], ["RR", 5], [], "RR", None])
def test_what_is_no_measure(judged: tuple[str, str], measures: Any) -> None:
    run, qrels = judged
    with pytest.raises(
        InputError,
        match=r"(unsupported measure|expected a list of measures|no measure is named|must be a string)",
    ):
        evaluate_runs([run], qrels, measures)
