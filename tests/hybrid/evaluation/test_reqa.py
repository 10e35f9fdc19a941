"""ReQA by one command: MultiReQA's sentences, its domains, and every retriever on the same candidates."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from hybrid.evaluation import testsets
from hybrid.evaluation.evaluate import evaluate_set, search_exactly
from hybrid.evaluation.testsets import check_test_set, domains_of, open_test_set
from sparta.base.errors import InputError
from sparta.base.records import Passage, Query
from sparta.data.units import chunk_unit
from sparta.shards.encode import EncodeOptions
from tests.programs import sparta

CONTEXT = "[PAR] [TLE] Moon [SEP] It is far. It has no water. [PAR] Paris is a city."
PLACES = {"It is far.": 23, "It has no water.": 34, "Paris is a city.": 57}


def _answer(text: str) -> dict[str, Any]:
    at = CONTEXT.index(text)
    return {"text": text, "char_spans": [[at, at + len(text) - 1]]}


@pytest.fixture
def multireqa(tmp_path: Path) -> Callable[[str], Path]:
    """A function that makes a folder as MultiReQA publishes it, with the MRQA file of its contexts.

    The sentence in the middle is no candidate; those of the other context have no question of their own.
    """

    def make(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        asked = [
            ("q1", "where is a city", "Paris"),
            ("q2", "what is dry", "no water"),
            ("q3", "how far", "far"),
        ]
        qas = [{"qid": q, "question": t, "detected_answers": [_answer(a)]} for q, t, a in asked]
        lines = [{"header": {}}, {"context": CONTEXT, "qas": qas}]
        lines += [{"context": "Not listed.", "qas": [{"qid": "q9", "question": "?", "detected_answers": []}]}]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        ends = {t: (at, at + len(t)) for t, at in PLACES.items()}
        # In the order of the ids, as text; the first is a mark alone, the others begin with marks.
        spans = {1: (0, 5), 10: (51, ends["Paris is a city."][1]), 2: (0, ends["It is far."][1])}
        rows = [
            {"candidate_id": f"{name}_q1/q2/q3/_{n}", "response_start": s, "response_end": e}
            for n, (s, e) in spans.items()
        ]
        rows_text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "candidates.json.gz").write_bytes(gzip.compress(rows_text.encode()))
        return folder

    return make


def test_multireqas_sentences_are_the_candidates(multireqa: Callable[[str], Path], tmp_path: Path) -> None:
    assert all(CONTEXT[at:].startswith(text) for text, at in PLACES.items())
    found = open_test_set(multireqa("BioASQ"), tmp_path)
    records = [json.loads(line) for line in found.corpus.read_text().splitlines()]
    assert [(r["id"], r["text"]) for r in records] == [
        ("0-0", "Moon\nIt is far."),  # the marks are gone, also from within
        ("0-1", "Paris is a city."),
    ]
    assert {r["context"] for r in records} == {"Moon\nIt is far. It has no water.\nParis is a city."}
    assert all(r["context"][r["start"] : r["end"]] == r["text"] for r in records)
    assert found.qrels == {"q1": {"0-1": 1}, "q3": {"0-0": 1}}
    assert (found.name, found.omitted_questions, found.judged) == ("BioASQ", 2, False), (
        "q2's sentence is no candidate"
    )


def test_a_folder_of_candidates_alone(multireqa: Callable[[str], Path], tmp_path: Path) -> None:
    folder = multireqa("DuoRC")
    (folder / "DuoRC.jsonl.gz").unlink()
    with pytest.raises(InputError, match=r"candidates\.json\.gz, found 0") as caught:
        open_test_set(folder, tmp_path)
    assert "BioASQ.jsonl.gz" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("name", "said"), [("x.txt", "found x.txt"), ("y.json", "no such"), ("z", "no such")]
)
def test_refused_before_a_model_is_loaded(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "x.txt").touch()
    (tmp_path / "broken.json").write_text("{")
    check_test_set(tmp_path / "broken.json")  # what it holds is read later
    with pytest.raises(InputError, match=said):
        check_test_set(tmp_path / name)


@pytest.mark.parametrize("line", ['{"candidate_id": "x_q/_0"}', '{"candidate_id": 7, "response_start": 0}'])
def test_candidates_of_another_form(multireqa: Callable[[str], Path], tmp_path: Path, line: str) -> None:
    folder = multireqa("RACE")
    (folder / "candidates.json.gz").write_bytes(gzip.compress(line.encode()))
    with pytest.raises(InputError, match="candidate_id, response_start, response_end"):
        open_test_set(folder, tmp_path)


@pytest.mark.parametrize(
    ("names", "split"),
    [
        (["SQuAD", "BioASQ"], "io"),
        (["NaturalQuestionsShort.jsonl.gz", "TriviaQA-web.jsonl", "DuoRC.ParaphraseRC.jsonl"], "iio"),
        (["SearchQA", "HotpotQA", "RelationExtraction", "TextbookQA"], "iioo"),
        (["SQuAD", "nfcorpus"], "--"),
        (["squad-dev.json"], "-"),
    ],
)
def test_domains_by_name(names: list[str], split: str) -> None:
    expected = [{"i": "in-domain", "o": "out-of-domain", "-": ""}[letter] for letter in split]
    assert list(domains_of([Path("data", name) for name in names]).values()) == expected


def _dense(encoder_folder: Path, folder: Path, **config: Any) -> Path:
    DenseModel.from_encoder(encoder_folder, DenseConfig(**config)).save_pretrained(folder)
    return folder


def test_bi_encoders_read_texts_whole(tmp_path: Path) -> None:
    options = EncodeOptions(unit=chunk_unit(10))
    with pytest.raises(InputError, match=r"bi-encoders.*chunks"):
        evaluate_set(tmp_path, None, options, channels=("bm25",), dense=["taser-det-en"])


@pytest.mark.parametrize("codes", [0, 3])
def test_exact_search_by_numpy(encoder_folder: Path, tmp_path: Path, codes: int, words: list[str]) -> None:
    """Dot products; of a Poly-Encoder's vectors each weighed by the softmax over them (SPARTA, §5.1)."""
    folder = _dense(encoder_folder, tmp_path / "dense", codes=codes)
    passages = [Passage(f"p{i}", " ".join(words[i : i + 4])) for i in range(12)]
    queries = tuple(Query(f"p{i}", " ".join(words[i : i + 2])) for i in range(70))
    tested = testsets.QuestionSet("x", queries, {"p0": {"p1": 1}}, excludes_query_id=True)
    run, _ = search_exactly(folder, passages, tested, 5, dtype="fp32")
    model = DenseModel.load(folder)
    vectors = model.encode_passages(passages, "fp32").astype(np.float64)
    for query, vector in zip(queries, model.encode_questions([q.text for q in queries]), strict=True):
        products = vectors @ vector.astype(np.float64)  # (passages, vectors)
        weights = np.exp(products - products.max(1, keepdims=True))
        scores = (products * weights).sum(1) / weights.sum(1)
        own = {p.passage_id: s for p, s in zip(passages, scores, strict=True)}
        own.pop(query.query_id, None)
        found, best = run[query.query_id], sorted(own.values())[::-1][:5]
        assert [hit.score for hit in found] == pytest.approx(best, rel=1e-4, abs=1e-5)
        assert [hit.score for hit in found] == pytest.approx(
            [own[h.passage_id] for h in found], rel=1e-4, abs=1e-5
        )


@pytest.mark.slow
@pytest.mark.jvm
def test_every_retriever_as_typed(
    multireqa: Callable[[str], Path], encoder_folder: Path, tiny_model_folder: Path, tmp_path: Path
) -> None:
    sets = [str(multireqa(name)) for name in ("SQuAD", "HotpotQA", "BioASQ", "DuoRC")]
    models = [str(_dense(encoder_folder, tmp_path / f"codes-{n}", codes=n)) for n in (0, 4)]
    given = ["eval", *sets, "--model", str(tiny_model_folder), "--format", "json", "--quiet"]
    for model in models:
        given += ["--dense", model]
    result = sparta(*given, "--measures", "MRR,Success@1")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    rankings = ["impact", "bm25", *models]
    names = ["SQuAD", "HotpotQA", "mean, in-domain", "BioASQ", "DuoRC", "mean, out-of-domain"]
    assert [(row["set"], row["ranking"]) for row in rows] == [(s, r) for s in names for r in rankings]
    figures = {(row["set"], row["ranking"]): row["RR"] for row in rows}
    for ranking in rankings:
        assert figures["mean, in-domain", ranking] == pytest.approx(figures["SQuAD", ranking])
        assert 50 <= figures["SQuAD", ranking] <= 100, "of two candidates"
    assert figures["SQuAD", "bm25"] == 100


def test_answers_of_squad_are_what_the_file_calls_them(tmp_path: Path) -> None:
    """Also where their place is a little off, which is how its own evaluation takes them."""
    answers = [{"text": "Larry Page", "answer_start": 1}, {"text": "Page", "answer_start": 6}]
    asked = [{"id": "1", "question": "who?", "answers": answers}]
    paragraph = {"context": "Larry Page founded Google.", "qas": asked}
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    [query] = open_test_set(path, tmp_path).queries
    assert query.answers == ("Larry Page", "Page")


CITY = "\U0001f600 It rains often. Paris is the capital. \U0001f600 Rome is old."
RIGHT = {"text": "Paris", "answer_start": CITY.index("Paris")}
MISPLACED = [
    {"text": "Paris", "answer_start": 0},
    {"text": "Rome", "answer_start": CITY.index("Rome") - 8},
    {"text": "Rome", "answer_start": len(CITY.encode("utf-16-le")) // 2 - 12},
    {"text": "Rome", "answer_start": -12},
    {"text": "London", "answer_start": 2},
    {"text": "", "answer_start": 2},
    {"text": " ", "answer_start": 1},
    {"answer_start": 2},
]


def _squad_of(path: Path, *answers: list[dict[str, Any]]) -> Path:
    asked = [{"id": str(n), "question": f"where {n}", "answers": own} for n, own in enumerate(answers)]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": CITY, "qas": asked}]}]}))
    return path


@pytest.mark.parametrize("answer", MISPLACED)
def test_an_answer_that_stands_elsewhere_makes_no_sentence_right(
    answer: dict[str, Any], tmp_path: Path
) -> None:
    path = _squad_of(tmp_path / "dev.json", [answer], [answer, RIGHT], [RIGHT])
    found = open_test_set(path, tmp_path)
    assert found.qrels == {"1": {"0-1": 1}, "2": {"0-1": 1}}
    assert (found.omitted_questions, found.misplaced) == (1, 2)
    with pytest.raises(InputError, match="none") as caught:
        open_test_set(_squad_of(tmp_path / "none.json", [answer]), tmp_path)
    assert "answer_start" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("text", "span"),
    [("Paris", [0, 4]), ("Paris", [-9, -5]), ("", [2, 6]), ("Rome", [-1, 3]), ("Rome", [90, 93])],
)
def test_spans_of_mrqa_that_hold_another_text(text: str, span: list[int], tmp_path: Path) -> None:
    at = CITY.index("Paris")
    right = {"text": "The PARIS", "char_spans": [[at, at + 4]]}
    wrong = {"text": text, "char_spans": [span]}
    asked = [
        {"qid": str(n), "question": "where", "detected_answers": own}
        for n, own in enumerate([[wrong], [wrong, right]])
    ]
    path = tmp_path / "dev.jsonl"
    path.write_text(json.dumps({"context": CITY, "qas": asked}) + "\n")
    found = open_test_set(path, tmp_path)
    assert (found.qrels, found.omitted_questions, found.misplaced) == ({"1": {"0-1": 1}}, 1, 2)


@pytest.mark.parametrize("shift", [n for n in range(-5, 10) if n])
def test_shifted_spans_of_mrqa_make_no_sentence_right(shift: int, tmp_path: Path) -> None:
    context = "It rained all day. Paris is big, they say."
    at = context.index("Paris")
    answers = [
        {"text": "Paris", "char_spans": [[at + shift, at + shift + 4]]},
        {"text": "Paris", "char_spans": [[at, at + 4]]},
    ]
    asked = [{"qid": str(n), "question": "where", "detected_answers": [own]} for n, own in enumerate(answers)]
    path = tmp_path / "dev.jsonl"
    path.write_text(json.dumps({"context": context, "qas": asked}) + "\n")
    found = open_test_set(path, tmp_path)
    assert (found.qrels, found.misplaced) == ({"1": {"0-1": 1}}, 1)


@pytest.mark.jvm
def test_misplaced_answers_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = _squad_of(tmp_path / "dev.json", MISPLACED[:3], [RIGHT])
    result = evaluate_set(path, None, EncodeOptions(), channels=("bm25",))
    assert (result.omitted_questions, result.misplaced) == (1, 3)
    assert any(record.levelname == "WARNING" and "3 answers" in record.message for record in caplog.records)
