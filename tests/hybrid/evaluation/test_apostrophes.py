"""DPR's rule: ’ becomes ' in every question; answers and texts are compared as they stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hybrid.evaluation.questions import questions_of
from sparta.base.records import Query
from sparta.data.answers import has_answer

RECORD = {"question": "who wrote finnegan’s wake", "answers": ["O’Casey", "Joyce"]}
FILES = {
    "dpr.tsv": "who wrote finnegan’s wake\t['O’Casey', \"Joyce\"]\n",
    "lines.jsonl": json.dumps({"question": "who wrote finnegan’s wake", "answers": ["O’Casey", "Joyce"]})
    + "\n",
    "list.json": json.dumps([RECORD]),
}


@pytest.mark.parametrize("name", FILES)
def test_questions_of_dprs_forms(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    found = questions_of(tmp_path / name)
    assert found.queries == (Query("1", "who wrote finnegan's wake", ("O’Casey", "Joyce")),)


def test_a_beir_folder_keeps_its_queries(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "finnegan’s", "answers": ["x"]}', "utf-8")
    assert questions_of(tmp_path).queries[0].text == "finnegan’s"


@pytest.mark.parametrize(
    ("text", "answer", "held"),
    [
        ("a play by O’Casey.", "O’Casey", True),  # o ’ casey
        ("a play by O'Casey.", "O'Casey", True),  # o ' casey
        ("a play by O’Casey.", "O'Casey", False),  # DPR tells the two marks apart
        ("a play by O'Casey.", "O’Casey", False),
        ("a play by O’Casey.", "Casey", True),
    ],
)
def test_the_marks_are_tokens_of_their_own(text: str, answer: str, held: bool) -> None:
    assert has_answer(text, [answer]) is held
