"""What an error advises: commands that can be run as they are printed, and the same for Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparta import Index, IndexOptions
from sparta.base.errors import IndexStateError, InputError, NoPassageError
from sparta.base.remedies import Option
from tests.cli.commands import QUESTION, RECORDS, done, remedy_of, written
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]


def advice(*arguments: object) -> str:
    """The remedy of a command that fails."""
    return remedy_of(sparta(*arguments))


@pytest.fixture
def alone(corpus: Path, tmp_path: Path) -> Path:
    """An index for BM25 alone, whose name a shell must have quoted."""
    folder = tmp_path / "bm25 alone"
    done(sparta("index", "--corpus", corpus, "--index", folder, "--channels", "bm25"))
    return folder


def test_the_index_is_named(alone: Path, built: Path) -> None:
    said = advice("search", QUESTION, "--index", built, "--channel", "dense")
    assert said == f"build the dense channel with: dense index --index {built}"
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
    assert "--append" in said
    assert "--overwrite" in said
    with pytest.raises(IndexStateError) as in_python:
        Index.create(built, more, options=IndexOptions(model=model[1]))
    assert {str(option) for option in map(Option.for_python, in_python.value.remedy.options)} == {
        "Index.append",
        "overwrite=True",
        "path",
    }
    taken = advice("index", "--append", "--corpus", written(more, RECORDS[0]), "--index", index, *model)
    assert "an unused id" in taken
    assert f"sparta update --corpus FILE --index {index}" in taken
    with Index(built) as opened, pytest.raises(NoPassageError) as caught:
        opened.passage("nowhere")
    assert str(caught.value.remedy) == "take an id from a search"


def test_a_search_of_several_channels_or_questions_at_once(built: Path) -> None:
    with Index(built) as opened:
        fused = opened.search(QUESTION, channel="bm25,impact")
        assert set(fused[0].channels) == {"bm25", "impact"}
        with pytest.raises(InputError, match="unknown channel"):
            opened.search(QUESTION, channel="splade")
        with pytest.raises(InputError, match="found list") as listed:
            opened.search([QUESTION, "moon"])  # type: ignore[arg-type]
        assert "batch_search" in str(listed.value.remedy)


@pytest.mark.parametrize("form", ["ciff", "pyserini-json"])
def test_an_export_replaces_no_file(built: Path, tmp_path: Path, form: str) -> None:
    given = ("export", "--format", form, "--output", tmp_path / "out", "--index", built)
    done(sparta(*given))
    before = (tmp_path / "out").read_bytes()
    assert advice(*given) == "delete the file, or choose another --output"
    assert (tmp_path / "out").read_bytes() == before


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert "found only --queries" in sparta("search", "--queries", tmp_path / "q.tsv").stderr
    pushed = sparta("push")
    assert (pushed.exit_code, "SPARTA_OPENSEARCH_URL" in pushed.stderr) == (2, True)


def test_ranges_that_help_shows() -> None:
    assert "[default: 10; x>=1]" in " ".join(done(sparta("search", "--help")).stdout.split())
    assert "x<=None" not in done(sparta("train", "--help")).stdout
