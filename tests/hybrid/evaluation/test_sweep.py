"""The top-K experiment: what is kept, measured, written and drawn."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.programs import hybrid, sparta

pytestmark = pytest.mark.jvm


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    (folder / "qrels").mkdir(parents=True)
    texts = {
        "google": "larry page and sergey brin founded google in a small house",
        "moon": "the moon of the earth",
        "king": "the king of germany was west of the sun",
    }
    records = [{"_id": k, "title": "", "text": v} for k, v in texts.items()]
    asked = [{"_id": "1", "text": "who founded google"}, {"_id": "2", "text": "the moon"}]
    for name, lines in (("corpus", records), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tgoogle\t1\n2\tmoon\t1\n")
    return folder


@pytest.mark.slow
def test_sweep(beir: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    result = hybrid(
        *("sweep", beir, "--model", tiny_model_folder, "-K", "30,2", "--dtype", "fp32", "--quiet"),
        *("--measures", "MRR,P(rel=1,judged_only=True)@1", "--format", "json", "--plot", plot),
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [(row["set"], row["K"]) for row in rows] == [("small", "2"), ("small", "30"), ("small", "all")]
    from sparta.models.load import load_model

    model = load_model(tiny_model_folder)
    texts = [json.loads(line)["text"] for line in (beir / "corpus.jsonl").read_text().splitlines()]
    counts = np.diff(model.encode_document(texts, dtype="fp32").indptr)
    assert min(counts) > 30
    assert [row["terms/passage"] for row in rows] == [2, 30, pytest.approx(counts.mean())]
    scores = model.similarity(
        model.encode_query(["who founded google", "the moon"]), model.encode_document(texts, dtype="fp32")
    )
    ranks = [1 + sum(row > row[gold]) for row, gold in zip(scores, (0, 1), strict=True)]
    assert rows[-1]["RR"] == pytest.approx(100 * np.mean([1 / r for r in ranks]), abs=0.01)
    assert all(row["index MB"] > 0 and row["ms/query"] > 0 for row in rows)
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("ks", ["0", "a", "", "5,-1"])
def test_wrong_numbers(beir: Path, ks: str) -> None:
    result = hybrid("sweep", beir, "-K", ks)
    assert result.exit_code == 2
    assert "whole numbers from 1 " in result.stderr
    assert "write -K 100, or -K 20,50,100" in result.stderr


def test_no_such_set(tmp_path: Path) -> None:
    result = hybrid("sweep", tmp_path / "none")
    assert result.exit_code == 2
    assert str(tmp_path / "none") in result.stderr


@pytest.mark.slow
@pytest.mark.jvm
def test_without_a_set_it_is_the_index(
    beir: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The corpus of the index, and the questions beside it, give what the set gives."""

    corpus, index = beir / "corpus.jsonl", tmp_path / "index"
    common = ("--model", str(tiny_model_folder), "--dtype", "fp32", "--quiet")
    indexed = sparta("index", "--corpus", corpus, "--index", index, *common)
    assert indexed.exit_code == 0, indexed.output
    monkeypatch.setenv("SPARTA_INDEX", str(index))
    queries = (beir / "queries.jsonl").rename(tmp_path / "queries.jsonl")
    without = hybrid("sweep", "-K", "2", "--format", "json", *common)
    assert without.exit_code == 2
    assert "qrels.tsv" in without.stderr
    queries.rename(beir / "queries.jsonl")
    beside = hybrid("sweep", "-K", "2", "--format", "json", *common)
    assert beside.exit_code == 0, beside.output
    named = hybrid("sweep", beir, "-K", "2", "--format", "json", *common)
    kept = ("set", "K", "RR", "terms/passage")
    shown = [[{key: row[key] for key in kept} for row in json.loads(r.stdout)] for r in (beside, named)]
    assert shown[0] == shown[1]
    both = hybrid("sweep", beir, "--index", index)
    assert both.exit_code == 2
    assert "--index cannot be combined with test sets" in both.stderr


def test_sets_of_one_name_are_told_apart(beir: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """By their paths, as in sparta eval; one that is given twice is measured once."""
    other = tmp_path / "other" / "small"
    shutil.copytree(beir, other)
    result = hybrid(
        *("sweep", beir, other, beir, "--model", tiny_model_folder, "-K", "2", "--dtype", "fp32", "--quiet"),
        *("--format", "json"),
    )
    assert result.exit_code == 0, result.output
    sets = [row["set"] for row in json.loads(result.stdout)]
    assert sets == [str(beir), str(beir), str(other), str(other)]


@pytest.mark.slow
def test_without_a_set_the_settings_are_those_of_the_index(
    beir: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, common = tmp_path / "index", ("--dtype", "fp32", "--quiet")
    given = ("--corpus", beir / "corpus.jsonl", "--index", index, "--model", tiny_model_folder)
    assert sparta("index", *given, "--bits", "4", *common).exit_code == 0
    monkeypatch.setenv("SPARTA_INDEX", str(index))
    sets = (), (beir, "--model", tiny_model_folder, "--bits", "4")
    shown = [hybrid("sweep", *one, "-K", "2", "--format", "json", *common) for one in sets]
    assert [result.exit_code for result in shown] == [0, 0], shown[0].output
    rows = [[row["terms/passage"] for row in json.loads(result.stdout)] for result in shown]
    assert rows[0] == rows[1]
    assert sparta("index", *given, "--unit", "sentence", "--overwrite", *common).exit_code == 0
    of_sentences = hybrid("sweep", "-K", "2", "--format", "json", *common)
    assert of_sentences.exit_code == 0, of_sentences.output
    fields = ("--id-field", "_id", "--text-field", "text")
    assert sparta("index", *given, *fields, "--overwrite", *common).exit_code == 0
    refused = hybrid("sweep", "-K", "2", *common)
    assert refused.exit_code == 2
    assert "the index was built with --id-field" in refused.stderr
