"""A test set in another language: its sentences, its analysis, its measure of answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hybrid.evaluation.answering import Answering
from hybrid.evaluation.evaluate import evaluate_set
from sparta.reader.config import ReaderConfig
from sparta.reader.records import Span
from sparta.shards.encode import EncodeOptions
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread", "own_logger")]

PARAGRAPHS = {
    "长江是亚洲最长的河流。它流入东海。黄河是第二长的河流。": ("第二长的河流是什么？", "黄河"),
    "北京是中国的首都。上海是最大的城市。": ("中国最大的城市是哪里？", "上海"),
}


def squad(path: Path, by_text: Mapping[str, tuple[str, str]] = PARAGRAPHS) -> Path:
    """Write paragraphs, each with its question and answer, in SQuAD's format."""
    paragraphs = [
        {
            "context": text,
            "qas": [{"id": str(n), "question": q, "answers": [{"text": a, "answer_start": text.index(a)}]}],
        }
        for n, (text, (q, a)) in enumerate(by_text.items())
    ]
    path.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def test_chinese_sentences_are_ranked(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    arguments = ["--language", "zh", "--channel", "bm25", "--quiet", "--output-runs", runs]
    result = sparta("eval", squad(tmp_path / "zh.json"), *arguments)
    assert result.exit_code == 0, result.output
    [run] = runs.iterdir()
    first = {line.split()[0]: line.split()[2] for line in reversed(run.read_text().splitlines())}
    assert first == {"0": "0-2", "1": "1-1"}  # each question finds its sentence, the third and the second


def test_chinese_answers_are_compared_by_chinese_rules(tmp_path: Path) -> None:
    """The full stop "。" is punctuation in Chinese, but a part of the answer by English rules."""

    class Reader:
        config = ReaderConfig()

        def read_all(self, questions: Any, texts: Any, n: int) -> list[list[list[Span]]]:
            lengths = [[len(text.text) for text in question_texts] for question_texts in texts]
            return [[[Span(0, n - 3, n, 1.0)] for n in of_question] for of_question in lengths]

    path = squad(tmp_path / "zh.json", {"第二长的河流是黄河。": ("第二长的河流是什么？", "黄河")})
    answering = Answering(Reader(), weight=0.0)  # type: ignore[arg-type]
    results = evaluate_set(path, None, EncodeOptions(language="zh"), channels=("bm25",), answering=answering)
    assert {evaluation.name: evaluation.mean("EM") for evaluation in results.evaluations} == {
        "bm25": 1.0,
        "judged passages": 1.0,
    }
