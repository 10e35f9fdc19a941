"""Hard negatives from an index: which passages are taken, which never, and that a training reads them."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dense.models.bi_encoder import DenseConfig, DenseModel
from dense.training.mining import questions_of_dpr
from sparta import Index, IndexOptions
from sparta.base.records import Passage
from sparta.neural.inputs import InputLayout
from sparta.search.searcher import Searcher
from sparta.training.paragraphs import read_paragraphs
from tests.programs import dense, sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread", "own_logger")]

PASSAGES = {
    "google": "larry page and sergey brin founded google in a small house",
    "brin": "sergey brin was a student when google was founded",
    "house": "a small house in the city of the king founded in the west",
    "copy": "larry page and sergey brin founded google in a small house",
    "moon": "the moon of the earth",
    "far": "the moon was founded far west of the earth",
    "king": "the king of germany was west of the sun",
}
QUESTIONS = {
    "who founded google in a house": ["Larry Page"],
    "the moon of the earth": ["nowhere", "far"],
    "what was founded": ["not in the corpus"],
}


@pytest.fixture(scope="module")
def index(tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mined")
    lines = [{"id": i, "title": f"T {i}", "text": text} for i, text in PASSAGES.items()]
    (folder / "wiki.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["index", "--corpus", folder / "wiki.jsonl", "--index", folder / "index", "--quiet"]
    arguments += ["--model", tiny_model_folder]
    result = sparta(*arguments)
    assert result.exit_code == 0, result.output
    return folder / "index"


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "asked.tsv"
    path.write_text("".join(f"{q}\t{answers!r}\n" for q, answers in QUESTIONS.items()))
    return path


def mined(index: Path, questions: Path, output: Path, *options: object) -> list[dict[str, Any]]:
    result = dense("mine", "--index", index, "--dataset", questions, "--output", output, "--quiet", *options)
    assert result.exit_code == 0, result.output
    data = output.read_bytes()
    found: list[dict[str, Any]] = json.loads(gzip.decompress(data) if output.suffix == ".gz" else data)
    return found


def ranking(index: Path, channel: str, question: str) -> list[tuple[str, float]]:
    with Searcher(index, channel=channel) as searcher:
        return [(h.passage_id, h.score) for h in searcher.search(question, 100)]


def ids(passages: list[dict[str, Any]]) -> list[str]:
    return [p["passage_id"] for p in passages]


def distinct(order: list[str]) -> list[str]:
    """The first of each text."""
    return [i for n, i in enumerate(order) if PASSAGES[i] not in [PASSAGES[j] for j in order[:n]]]


def test_bm25s_best_passages_without_an_answer(index: Path, questions: Path, tmp_path: Path) -> None:
    """The positive is the best one with an answer; a copy of it elsewhere is no negative."""
    first, second = mined(index, questions, tmp_path / "p1.json")
    order = ranking(index, "bm25", first["question"])
    assert first["answers"] == ["Larry Page"]
    assert ids(first["positive_ctxs"]) == ["google"]
    assert "copy" in [i for i, _ in order[:2]]
    assert ids(first["hard_negative_ctxs"]) == [i for i, _ in order if i not in ("google", "copy")]
    scores = dict(order)
    for passage in first["hard_negative_ctxs"]:
        name = passage["passage_id"]
        assert (passage["title"], passage["text"]) == (f"T {name}", PASSAGES[name])
        assert passage["score"] == pytest.approx(scores[name])
    assert ids(second["positive_ctxs"]) == ["far"]
    assert ids(second["hard_negative_ctxs"])[0] == "moon"
    result = dense(
        *("mine", "--index", index, "--dataset", questions, "--output", tmp_path / "again.json"),
        *("--negatives", "1", "--quiet"),
    )
    assert (
        "2 questions with 1.0 negatives on average, 1 left out for lack of a positive passage"
        in result.output
    )
    again = json.loads((tmp_path / "again.json").read_text())
    assert [len(one["hard_negative_ctxs"]) for one in again] == [1, 1]


def test_the_label_of_a_claim_is_no_answer_in_a_text(index: Path, tmp_path: Path) -> None:
    """A claim whose evidence is elsewhere is left out, whatever text says its label."""
    rows = [
        {"id": "1", "input": "google moon", "output": [{"answer": "moon", "provenance": own}]}
        for own in ([{"passage_ids": ["google"]}], [{"passage_ids": ["elsewhere"]}])
    ]
    path = tmp_path / "fever.train.jsonl"
    path.write_text("".join(json.dumps({**row, "id": str(i)}) + "\n" for i, row in enumerate(rows)))
    [one] = mined(index, path, tmp_path / "mined.json")
    assert ids(one["positive_ctxs"]) == ["google"]


def test_a_second_round_keeps_the_positives_and_maybe_the_negatives(
    index: Path, questions: Path, tmp_path: Path
) -> None:
    first = mined(index, questions, tmp_path / "p1.json", "--channel", "sparta")
    for one in first:  # the negative that would be mined last, so that keeping it changes the order
        one["hard_negative_ctxs"] = one["hard_negative_ctxs"][-1:]
    (tmp_path / "p1.json").write_text(json.dumps(first))
    second = mined(index, tmp_path / "p1.json", tmp_path / "p2.json.gz", "--channel", "sparta")
    both = mined(index, tmp_path / "p1.json", tmp_path / "p3.json", "--channel", "sparta", "--keep")
    assert len(first) == len(second) == len(both) == 2
    for one, two, union in zip(first, second, both, strict=True):
        assert two["question"] == one["question"]
        assert two["positive_ctxs"] == union["positive_ctxs"] == one["positive_ctxs"]
        order = [i for i, _ in ranking(index, "sparta", one["question"])]
        gold = {"google", "copy"} if "google" in ids(one["positive_ctxs"]) else {"far"}
        assert ids(two["hard_negative_ctxs"]) == distinct([i for i in order if i not in gold])
        kept = ids(one["hard_negative_ctxs"])
        rest = [i for i in ids(two["hard_negative_ctxs"]) if i not in kept]
        assert ids(union["hard_negative_ctxs"]) == kept + rest


def test_passages_with_an_answer_may_stay_negatives(index: Path, questions: Path, tmp_path: Path) -> None:
    """TASER's P2 leaves out the gold passages alone."""
    asked = tmp_path / "asked.jsonl"
    asked.write_text(json.dumps({"question": "who founded google in a house", "answers": ["founded"]}) + "\n")
    [without] = mined(index, asked, tmp_path / "p1.json")
    [every] = mined(index, asked, tmp_path / "p2.json", "--with-answers")
    order = [i for i, _ in ranking(index, "bm25", every["question"])]
    (gold,) = ids(every["positive_ctxs"])
    assert ids(every["hard_negative_ctxs"]) == [i for i in distinct(order) if PASSAGES[i] != PASSAGES[gold]]
    left = [p["text"] for p in without["hard_negative_ctxs"]]
    assert not any("founded" in text for text in left)
    assert any("founded" in p["text"] for p in every["hard_negative_ctxs"])


def test_judged_passages_and_expressions(
    index: Path, tmp_path: Path, write_jsonl: Callable[..., Path]
) -> None:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    lines = [{"_id": "1", "text": "founded in the west"}, {"_id": "2", "text": "not judged"}]
    write_jsonl(folder / "queries.jsonl", [*lines, {"_id": "3", "text": "of a passage that is gone"}])
    judged = "query-id\tcorpus-id\tscore\n1\tking\t2\n1\tfar\t1\n1\thouse\t0\n1\tgone\t1\n3\tgone\t1\n"
    (folder / "qrels" / "train.tsv").write_text(judged)
    [one] = mined(index, folder, tmp_path / "judged.json")
    (folder / "qrels" / "train.tsv").rename(folder / "qrels" / "test.tsv")
    [as_test] = mined(index, folder, tmp_path / "as-test.json")
    assert as_test == one, "also where a test set judges a passage 0"
    assert ids(one["positive_ctxs"]) == ["king", "far"]
    order = [i for i, _ in ranking(index, "bm25", one["question"])]
    assert {"king", "far"} <= set(order)
    left = [i for i in order if i not in ("king", "far")]
    assert "house" in left
    assert ids(one["hard_negative_ctxs"]) == distinct(left)
    (tmp_path / "curated.jsonl").write_text(json.dumps({"question": "moon", "answer": [r"f[a-z]r\b"]}) + "\n")
    [regex] = mined(index, tmp_path / "curated.jsonl", tmp_path / "r.json", "--match", "regex")
    assert ids(regex["positive_ctxs"]) == ["far"]
    assert ids(regex["hard_negative_ctxs"]) == ["moon"]
    assert (regex["answers"], regex["match"]) == ([r"f[a-z]r\b"], "regex")
    assert "match" not in one
    [again] = mined(index, tmp_path / "r.json", tmp_path / "second.json", "--depth", 7)
    assert (ids(again["hard_negative_ctxs"]), again["match"]) == (["moon"], "regex")


def test_the_dense_channel_mines(index: Path, tmp_path: Path, make_tiny_model: Callable[..., Any]) -> None:
    """Against dot products of the model's own vectors."""
    from dense.channel.sync import build_dense

    tiny = make_tiny_model()
    torch.manual_seed(0)
    layout = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=8)
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout)).save_pretrained(tmp_path / "model")
    build_dense(index, str(tmp_path / "model"), dtype="fp32")
    (tmp_path / "asked.jsonl").write_text(json.dumps({"question": "moon", "answers": ["far west"]}) + "\n")
    [one] = mined(index, tmp_path / "asked.jsonl", tmp_path / "p2.json", "--channel", "dense", "--depth", 7)
    assert ids(one["positive_ctxs"]) == ["far"], "BM25's, whatever ranks the negatives"
    model = DenseModel.load(tmp_path / "model")
    vectors = model.encode_passages([Passage(i, t, f"T {i}") for i, t in PASSAGES.items()], "fp32")[:, 0]
    scores = dict(zip(PASSAGES, vectors @ model.encode_questions(["moon"])[0], strict=True))
    found = {p["passage_id"]: p["score"] for p in one["hard_negative_ctxs"]}
    assert set(found) == set(PASSAGES) - {"far", "copy"}
    np.testing.assert_allclose(list(found.values()), [scores[i] for i in found], rtol=1e-2)
    assert sorted(found.values(), reverse=True) == list(found.values())


def test_what_was_mined_trains(
    index: Path,
    questions: Path,
    tmp_path: Path,
    make_tiny_model: Callable[..., Any],
    tiny_tokenizer: Any,
) -> None:
    make_tiny_model().encoder.save_pretrained(tmp_path / "encoder")
    tiny_tokenizer.save(str(tmp_path / "encoder" / "tokenizer.json"))
    mined(index, questions, tmp_path / "p1.json")
    paragraphs = list(read_paragraphs(tmp_path / "p1.json"))
    assert [p.text for p in paragraphs if p.questions] == [PASSAGES["google"], PASSAGES["far"]]
    assert len(paragraphs) > 2
    result = dense(
        *("train", "--encoder", tmp_path / "encoder", "--pairs", tmp_path / "p1.json", "--steps", 3),
        *("--output", tmp_path / "out", "--batch-size", 4, "--routing", "det", "--period", 2),
        *("--device", "cpu"),
    )
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    losses = [line["ranking"] for line in lines if "ranking" in line]
    assert len(losses) == 3
    assert min(losses) > 0, "there was something to rank"
    assert DenseModel.load(tmp_path / "out" / "best").config.routing == "det"


@pytest.mark.parametrize(
    ("name", "content", "output", "message"),
    [
        ("a.tsv", "what\t['nothing of it']\n", "o.json", "no passage of the index answers"),
        ("a.tsv", "what\t['x']\n", "o.jsonl", "must end in .json or .json.gz"),
        ("a.json", '[{"question": "q", "positive_ctxs": [{}]}]', "o.json", "expected DPR JSON"),
        ("a.tsv", "what\tx\ty\n", "o.json", "wrong number of columns"),
        ("k.tsv", "what\t['x']\n", "o.json", "--keep needs DPR training JSON"),
    ],
)
def test_what_cannot_be_mined(
    index: Path, tmp_path: Path, name: str, content: str, output: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    arguments = ["--index", index, "--dataset", tmp_path / name, "--output", tmp_path / output]
    arguments += ["--keep"] if name == "k.tsv" else []
    result = dense("mine", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / output).exists()


def test_sentences_of_a_right_passage_are_no_negatives(questions: Path, tmp_path: Path) -> None:
    """An index of sentences is mined for questions with answers only: their positive is a sentence."""
    passages = [{"id": i, "text": text} for i, text in PASSAGES.items()]
    options = IndexOptions(channels="bm25", unit="sentence")
    Index.create(tmp_path / "index", passages, options=options).close()
    first, _ = mined(tmp_path / "index", questions, tmp_path / "p1.json")
    assert ids(first["positive_ctxs"]) == ["google#0"]
    for skill in ("single", "expanded"):
        names = ["--dataset", tmp_path / "p1.json", "--output", tmp_path / "p2.json"]
        result = dense("mine", "--index", tmp_path / "index", "--skill", skill, *names)
        assert result.exit_code == 2
        assert "expected an index of whole passages, found an index of sentences" in result.output
        assert not (tmp_path / "p2.json").exists()


def test_one_answer_by_itself_is_no_list_of_letters(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    one = {"question": "where?", "positive_ctxs": [{"text": "a", "title": ""}], "hard_negative_ctxs": []}
    path.write_text(json.dumps([{**one, "answers": "Paris"}, {**one, "answers": None}]))
    assert [q.answers for q in questions_of_dpr(path)] == [("Paris",), ()]


def test_yes_and_no_are_no_answers_in_a_text(index: Path, tmp_path: Path) -> None:
    """HotpotQA's JSON has such answers; a passage with the word would be a wrong positive."""
    rows = [{"question": "google moon", "answer": answer} for answer in ("no", "Yes", "moon")]
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"id": "no", "text": "no google, yes, no moon of google"}) + "\n")
    copy = shutil.copytree(index, tmp_path / "index")
    done = sparta("index", "--append", "--index", copy, "--corpus", more, "--quiet")
    assert done.exit_code == 0, done.output
    [one] = mined(copy, path, tmp_path / "mined.json")
    assert one["answers"] == ["moon"]
