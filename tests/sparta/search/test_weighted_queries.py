"""What the terms of a question count: kept, searched with, exported."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta.models.resolve import known_query_side
from tests.programs import sparta

pytestmark = pytest.mark.usefixtures("one_thread")


def weighted(model: Any, folder: Path) -> Any:
    """Save a model whose "moon" counts 0.5 and "city" nothing; open it again."""
    import torch

    from sparta.models.load import load_module

    known = model.tokenizer.get_vocab()
    model.add_query_weights()
    with torch.no_grad():
        model.query_term_weights[known["moon"]] = 0.5
        model.query_term_weights[known["city"]] = -1.0
    model.save_pretrained(folder)
    return load_module(folder)


def test_a_model_keeps_its_weights(tiny_model, tmp_path):
    """A distinct term counts once, in fifteenths of the largest weight; what weighs 0 or less is left out."""
    plain = tiny_model.query_tokenizer().terms("moon moon city house")
    assert plain == {"moon": 2.0, "city": 1.0, "house": 1.0}
    model = weighted(tiny_model, tmp_path / "weighted")
    assert model.query_tokenizer().terms("moon moon city house") == {"moon": 7, "house": 15}
    side = known_query_side(tmp_path / "weighted", None)
    assert side is not None
    assert side.identity() == model.query_side().identity(), "known without loading the model, too"
    np.testing.assert_array_equal(side.weights, model.query_side().weights)
    row = model.encode_query("moon city")
    assert row.nnz == 1
    assert row.sum() == pytest.approx(7 / 15)


def test_a_training_goes_on_with_them(tiny_model, tmp_path, training):
    """Its scores are the model's, and a model that is trained further keeps its grid."""
    import torch

    from sparta.training.sparta_training import SpartaTraining

    made = training(dropout=0.0)
    model = weighted(tiny_model, tmp_path / "weighted")
    own = SpartaTraining(model, made.sets, made.config, tmp_path / "out")
    own.model.eval()
    batch = made.batch(0)
    questions = ["moon city house", "house"]
    with torch.no_grad():
        scores = own.score(own.encode_queries(questions), batch.candidates)
    rows = model.encode_document(batch.candidates, dtype="fp32")
    np.testing.assert_allclose(
        scores, (model.encode_query(questions) @ rows.T).toarray(), rtol=1e-4, atol=1e-4
    )


def test_an_index_searches_with_them(tiny_model, tiny_model_folder, tmp_path, write_jsonl):
    """Scores are sums of weight times impact, of the weights that travel with the index."""
    from sparta.search.searcher import Searcher

    weighted(tiny_model, tmp_path / "weighted")
    corpus = write_jsonl(
        tmp_path / "corpus.jsonl",
        [{"id": "a", "text": "the moon of the earth"}, {"id": "b", "text": "a house in the city"}],
    )
    scores = {}
    for model in (tiny_model_folder, tmp_path / "weighted"):
        index = tmp_path / f"index of {model.name}"
        done = sparta("index", "--corpus", corpus, "--model", model, "--index", index)
        assert done.exit_code == 0, done.output
        with Searcher(index) as searcher:
            for asked in ("moon", "house", "moon moon house city"):
                hits = searcher.search(asked, k=2)
                scores[model.name, asked] = {hit.passage_id: hit.score for hit in hits}
    plain, own = scores["tiny", "moon"], scores["weighted", "moon"]
    assert plain["a"] > 0
    assert own == {passage: 7 * score for passage, score in plain.items()}
    house = scores["weighted", "house"]
    assert house == {passage: 15 * score for passage, score in scores["tiny", "house"].items()}
    expected = {passage: house.get(passage, 0) + own.get(passage, 0) for passage in {*house, *own}}
    assert scores["weighted", "moon moon house city"] == expected


def test_trained_further_a_model_scores_with_its_weights_and_keeps_them(train, tmp_path):
    from sparta.models.sparta import SpartaModel

    first = train("first")
    begun = weighted(SpartaModel.load(first.folder), tmp_path / "weighted")
    further = train("further", encoder=str(tmp_path / "weighted"), learning_rate=1e-2, steps=3)
    ended = SpartaModel.load(further.folder)
    np.testing.assert_array_equal(ended.query_weights, begun.query_weights)
    assert ended.query_weights is not None


def test_exported_vectors_are_searched_with_them_again(tiny_model, tmp_path, write_jsonl):
    """Only where the model is named: without, JSON vectors may be anyone's."""
    from sparta.search.searcher import Searcher

    weighted(tiny_model, tmp_path / "weighted")
    texts = ["the moon of the earth", "a house in the city", "the city has a moon and a house", "a moon moon"]
    write_jsonl(tmp_path / "c.jsonl", [{"id": str(i), "text": t} for i, t in enumerate(texts)])

    def run(command: str, **given: Any) -> Any:
        options = [part for k, v in given.items() for part in ("--" + k.replace("_", "-"), str(tmp_path / v))]
        done = sparta(command, *options)
        assert done.exit_code == 0, done.output
        return done

    def found(index: str) -> list[Any]:
        with Searcher(tmp_path / index) as searcher:
            asked = [searcher.search(q, k=4) for q in ("moon house", "moon moon city", "earth house")]
            return [[(hit.passage_id, hit.score) for hit in hits] for hits in asked]

    run("index", corpus="c.jsonl", model="weighted", index="first")
    exporting = ["export", "--index", str(tmp_path / "first"), "--output"]
    told = sparta(*exporting, tmp_path / "v.ciff", "--format", "ciff")
    assert "--query-weights FILE writes these weights" in told.stderr
    weights = ("--query-weights", str(tmp_path / "w.json"))
    done = sparta(*exporting, tmp_path / "v.jsonl", "--format", "pyserini-json", *weights)
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    written = json.loads((tmp_path / "w.json").read_text())
    assert written["moon"] == 7
    assert written["house"] == 15
    assert "city" not in written
    run("index", vectors="v.jsonl", tokenizer="weighted", index="second")
    assert found("second") == found("first")
    tiny_model.tokenizer.save(str(tmp_path / "plain.json"))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain.json").rename(tmp_path / "plain" / "tokenizer.json")
    run("index", vectors="v.jsonl", tokenizer="plain", index="third")
    assert found("third") != found("first")
    again = ["index", "--append", "--index", str(tmp_path / "second"), "--vectors", str(tmp_path / "v.jsonl")]
    other = sparta(*again, "--tokenizer", tmp_path / "plain")
    assert "name the --tokenizer that the index was started with" in other.stderr
    (tmp_path / "weighted" / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1")
    broken = sparta(*again, "--tokenizer", tmp_path / "weighted")
    assert "the model has query weights" in broken.stderr
    same = ["--output", str(tmp_path / "s"), "--query-weights", str(tmp_path / "s")]
    one = sparta("export", "--format", "ciff", "--index", tmp_path / "first", *same)
    assert "name the same file" in one.stderr
    refused = sparta(
        *("export", "--format", "ciff", "--index", tmp_path / "third"),
        *("--output", tmp_path / "x", "--query-weights", tmp_path / "y"),
    )
    assert "no query-term weights" in refused.stderr
    assert not (tmp_path / "x").exists()


def test_negatives_are_found_by_how_often_words_occur(tiny_model, tmp_path):
    """BM25 has its own weights."""
    from sparta.training.negatives import bag_matrix

    texts = ["moon moon city", "house"]
    plain = bag_matrix(texts, tiny_model.query_tokenizer())
    model = weighted(tiny_model, tmp_path / "weighted")
    assert (bag_matrix(texts, model.query_tokenizer()) != plain).nnz == 0
    assert plain.max() == 2
