"""An option that takes one value is not given twice: click alone would forget the first."""

from __future__ import annotations

import pytest

from tests.programs import dense, hybrid, sparta

COMMANDS = [
    (
        sparta,
        ["index", "--corpus", "a.jsonl", "--corpus", "b.jsonl"],
        "--corpus may be given only once, found 2",
    ),
    (
        sparta,
        ["update", "--corpus", "a", "--index", "x", "--corpus", "b"],
        "--corpus may be given only once",
    ),
    (sparta, ["search", "moon", "-k", "3", "-k", "4"], "-k may be given only once"),
    (dense, ["encode", "--corpus=a", "--corpus=b", "--output", "o"], "folder"),
    (hybrid, ["eval", "--alpha", "1", "--alpha", "2"], "--alpha may be given only once"),
]


@pytest.mark.parametrize(("program", "arguments", "said"), COMMANDS)
def test_a_repeated_option_is_refused(program, arguments, said):
    result = program(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Usage:" in result.stderr


def test_options_that_take_several_values_do():
    result = sparta("eval", "--run", "a.trec", "--run", "b.trec")
    assert "once" not in result.stderr
    assert "--qrels" in result.stderr
