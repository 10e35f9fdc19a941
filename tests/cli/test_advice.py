"""What an error advises: commands that can be run as they are printed, and the same for Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparta import Index
from sparta.base.errors import InputError, NoPassageError
from tests.cli.commands import QUESTION, RECORDS, done, sparta, written

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]


def advice(*arguments: object) -> str:
    """What follows the arrow in the message of a command that fails."""
    result = sparta(*arguments)
    assert result.exit_code, result.output
    return str(result.stderr.partition("→ ")[2]).strip()


@pytest.fixture
def alone(corpus: Path, tmp_path: Path) -> Path:
    """An index for BM25 alone, whose name a shell must have quoted."""
    folder = tmp_path / "bm25 alone"
    done(sparta("index", "--corpus", corpus, "--index", folder, "--channels", "bm25"))
    return folder


def test_the_index_is_named(alone: Path, built: Path) -> None:
    said = advice("search", QUESTION, "--index", built, "--channel", "dense")
    assert said == f"build it with: dense index --index {built}"
    said = advice("search", QUESTION, "--index", alone, "--channel", "impact")
    assert f"--resume --index '{alone}'" in said


@pytest.mark.parametrize("command", [("export", "--format", "opensearch"), ("export-model",)])
def test_a_full_folder_of_what_cannot_be_resumed(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SPARTA_INDEX", str(built))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert advice(*command, "--output", tmp_path / "full") == "choose another --output"


def test_both_ways_to_say_it(built: Path, corpus: Path, model: tuple[str, ...], index: Path) -> None:
    """The same error reaches people who typed a command and those who called a method."""
    more = written(corpus.parent / "more.jsonl", {"id": "new", "text": "the sun"})
    said = advice("index", "--corpus", more, "--index", built, *model)
    assert "--append (Index.append)" in said
    assert "--overwrite (overwrite=True)" in said
    taken = advice("index", "--append", "--corpus", written(more, RECORDS[0]), "--index", index, *model)
    assert "ids of their own" in taken
    assert f"sparta update --corpus FILE --index {index} (Index.update)" in taken
    with Index(built) as opened, pytest.raises(NoPassageError) as caught:
        opened.passage("nowhere")
    assert caught.value.remedy == "take an id from a search"
