"""A test set in another language: its sentences, its analysis, its measure of answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread", "own_logger")]

PARAGRAPHS = {
    "长江是亚洲最长的河流。它流入东海。黄河是第二长的河流。": ("第二长的河流是什么？", "黄河"),
    "北京是中国的首都。上海是最大的城市。": ("中国最大的城市是哪里？", "上海"),
}


def test_chinese_sentences_are_ranked(tmp_path: Path) -> None:
    paragraphs = [
        {
            "context": text,
            "qas": [{"id": str(n), "question": q, "answers": [{"text": a, "answer_start": text.index(a)}]}],
        }
        for n, (text, (q, a)) in enumerate(PARAGRAPHS.items())
    ]
    path = tmp_path / "zh.json"
    path.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}), encoding="utf-8")
    runs = tmp_path / "runs"
    arguments = ["eval", path, "--language", "zh", "--channel", "bm25", "--quiet", "--output-runs", runs]
    result = sparta(*arguments)
    assert result.exit_code == 0, result.output
    [run] = runs.iterdir()
    first = {line.split()[0]: line.split()[2] for line in reversed(run.read_text().splitlines())}
    assert first == {"0": "0-2", "1": "1-1"}  # each question finds its sentence, the third and the second
