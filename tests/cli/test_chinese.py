"""The commands on twenty passages in Chinese, as a user types them: without a model, and with one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparta.data.answers import exact_match
from sparta.data.languages import LANGUAGES, simplified
from tests.chinese import QUESTIONS, RECORDS, save_model
from tests.cli.commands import done, hits_of, refused, top_rows, written
from tests.programs import hybrid, sparta

pytest.importorskip("opencc", reason="needs the extra zh")
pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread", "own_logger")]


def zh(folder: Path, *options: object) -> Path:
    """The passages with their questions beside them, indexed into `folder`/ix."""
    questions = [{"_id": str(n), "text": q, "answers": [a]} for n, (q, _, a) in enumerate(QUESTIONS)]
    written(folder / "questions.jsonl", *questions)
    judged = "".join(f"{n}\t{passage_id}\t1\n" for n, (_, passage_id, _) in enumerate(QUESTIONS))
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    corpus, index = written(folder / "zh.jsonl", *RECORDS), folder / "ix"
    result = done(sparta("index", "--corpus", corpus, "--language", "zh", "--index", index, *options))
    (folder / "told").write_text(result.stderr)
    return index


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index as it comes without a model for Chinese."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LANGUAGES, "zh", replace(LANGUAGES["zh"], model=None, reader=None))
        return zh(tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def chinese_model(make_tiny_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(make_tiny_model, tmp_path_factory.mktemp("models") / "sparta-small-zh")


@pytest.fixture(scope="module")
def modelled(chinese_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index made with the model that ships for Chinese, which is found by the language alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparta.models.resolve.shipped_folder", lambda name: chinese_model.parent / name)
        return zh(tmp_path_factory.mktemp("modelled"), "--dtype", "fp32")


def test_without_a_model_only_bm25_is_written_and_one_line_says_why(alone: Path) -> None:
    [line] = (alone.parent / "told").read_text().splitlines()
    assert "sparta ships no SPARTA model for the language 'zh'" in line
    assert "BM25 only" in line
    assert "name a model" in line
    live = json.loads((alone / "manifest.json").read_text())["live"]
    assert (live["model"]["name"], live["job"]["channels"]) == ("", "bm25")


@pytest.mark.parametrize(("question", "passage_id", "_answer"), QUESTIONS)
def test_each_question_finds_its_passage_in_the_other_script(
    alone: Path, question: str, passage_id: str, _answer: str
) -> None:
    for asked in (question, simplified(question)):
        [hit] = hits_of(asked, "--index", alone, "-k", "1")
        assert hit["id"] == passage_id
    [record] = [r for r in RECORDS if r["id"] == passage_id]
    assert hit["text"] == record["text"]  # as it stands


def test_words_are_marked_in_the_text_as_it_stands(alone: Path) -> None:
    shown = done(sparta("search", "中國的首都在哪裡？", "--index", alone, "-k", "2")).stdout
    assert "北京是*中国的首都*，" in shown
    assert "黃河是*中國*第二長的河流。" in shown


def test_what_needs_a_model_says_so(alone: Path, chinese_model: Path) -> None:
    for command in (("explain", "镭", "curie", "--channel", "impact"), ("terms", "curie")):
        refused(sparta(*command, "--index", alone), 2, "the index is BM25-only and has no impacts", "--model")
    assert "镭" in done(sparta("explain", "镭", "curie", "--index", alone)).stdout
    corpus = alone.parent / "zh.jsonl"
    given = ("--corpus", corpus, "--language", "zh")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LANGUAGES, "zh", replace(LANGUAGES["zh"], model=None, reader=None))
        refused(
            sparta("answer", "谁发现了镭？", "--index", alone),
            2,
            "sparta ships no reader for the language 'zh'",
            "--reader",
        )
        refused(sparta("encode", *given, "--output", "out"), 2, "sparta ships no SPARTA model", "--model")
        refused(
            sparta("index", *given, "--channels", "impact,bm25", "--index", "new"),
            2,
            "sparta ships no SPARTA model for the language 'zh'",
            "--model",
        )


def test_impacts_are_added_when_there_is_a_model(alone: Path, chinese_model: Path, tmp_path: Path) -> None:
    given = ("--corpus", alone.parent / "zh.jsonl", "--language", "zh", "--index", tmp_path / "ix")
    given = (*given, "--model", chinese_model)
    done(sparta("index", *given, "--channels", "bm25"))
    done(sparta("index", *given, "--resume", "--channels", "impact,bm25"))
    assert done(sparta("terms", "curie", "--index", tmp_path / "ix")).stdout


def test_the_model_that_ships_for_the_language_is_the_default(modelled: Path) -> None:
    assert (modelled.parent / "told").read_text() == ""
    assert json.loads((modelled / "manifest.json").read_text())["live"]["model"]["name"] == "sparta-small-zh"
    traditional = done(sparta("explain", "中國的首都在哪裡？", "beijing", "--index", modelled)).stdout
    assert traditional == done(sparta("explain", "中国的首都在哪里？", "beijing", "--index", modelled)).stdout
    assert {row.split()[0] for row in traditional.splitlines()} >= {"中国", "首都"}
    terms = top_rows(done(sparta("terms", "curie", "--index", modelled, "-n", "1000")).stdout)
    assert {"发现", "镭"} <= {term for term, _ in terms}
    assert not [term for term, _ in terms if simplified(term) != term]


def test_a_word_of_the_model_is_marked_as_one(modelled: Path) -> None:
    hits = {hit["id"]: hit for hit in hits_of("中國的河流", "--index", modelled, "-k", "20")}
    assert "*中國*" in hits["huanghe"]["snippet"]
    assert "*河流*" in hits["huanghe"]["snippet"]
    assert hits["huanghe"]["snippet"].replace("*", "") == RECORDS[1]["text"]


def test_questions_are_measured_across_scripts(alone: Path) -> None:
    result = hybrid("eval", "--index", alone, "--no-dense", "--format", "json")
    assert result.exit_code == 0, result.output
    [row] = json.loads(result.stdout)
    assert row["RR"] == 100
    assert row["answer_recall@20"] == 100  # answers are in the other script than the passages


def test_a_named_reader_reads_both_scripts(alone: Path, chinese_model: Path, tmp_path: Path) -> None:
    from sparta.reader.config import ReaderConfig
    from sparta.reader.span_reader import SpanReader

    SpanReader.from_encoder(chinese_model, ReaderConfig()).save_pretrained(tmp_path / "reader")
    told = []
    for question in ("谁发现了镭？", "誰發現了鐳？"):
        given = ("--index", alone, "--reader", tmp_path / "reader", "--json")
        told.append(json.loads(done(sparta("answer", question, *given)).stdout))
    assert told[0] == told[1]
    assert told[0]["text"][told[0]["start"] : told[0]["end"]] == told[0]["answer"]


@pytest.mark.slow
def test_the_reader_that_ships_answers_in_the_script_of_the_passage(alone: Path) -> None:
    from hybrid import open_answerer

    with open_answerer(alone, "bm25") as answerer:
        answers = [answerer.answer(question)[0] for question, _, _ in QUESTIONS]
    assert all(one.text[one.start : one.end] == one.answer for one in answers)
    wanted = [[answer] for _, _, answer in QUESTIONS]
    right = [exact_match(one.answer, own, language="zh") for one, own in zip(answers, wanted, strict=True)]
    assert sum(right) >= 7, [one.answer for one in answers]  # of 12


def test_a_set_in_chinese_is_evaluated_without_a_model(tmp_path: Path) -> None:
    paragraphs = [
        {
            "context": record["text"],
            "qas": [{"id": i, "question": q, "answers": [{"text": record["text"][:2], "answer_start": 0}]}],
        }
        for q, i, _ in QUESTIONS
        for record in RECORDS
        if record["id"] == i
    ]
    path = tmp_path / "zh.json"
    path.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LANGUAGES, "zh", replace(LANGUAGES["zh"], model=None))
        result = done(sparta("eval", path, "--language", "zh", "--quiet", "--format", "csv"))
    assert "only BM25 is measured" in result.stderr
    assert [line.split(",")[1] for line in result.stdout.splitlines()] == ["ranking", "bm25"]
