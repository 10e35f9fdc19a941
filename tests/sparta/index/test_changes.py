"""What an index says of an interrupted job, and of what changed it; the remedies that are printed work."""

from __future__ import annotations

import json
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import IndexStateError, InputError, Interrupted
from sparta.base.remedies import on_command_line
from sparta.doctor import examine
from sparta.index.changes import how_to_correct, how_to_finish, how_to_rebuild
from sparta.index.folder import IndexFolder
from sparta.index.info import describe_index, folder_size
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index, delete_from_index
from sparta.index.sync import sync_index
from sparta.index.verify import Part, verify_index
from sparta.runtime.processor import capabilities
from sparta.search.searcher import Searcher
from tests.programs import sparta

pytestmark = pytest.mark.jvm

OPTIONS = IndexOptions(channels="bm25")


def records(prefix: str, n: int = 5, text: str = "the moon") -> list[dict[str, Any]]:
    return [{"id": f"{prefix}{i}", "text": text} for i in range(n)]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def made(name: str, *args: Any) -> Path:
        path = tmp_path / f"{name} 1.jsonl"  # a name that a shell would cut
        path.write_text("".join(json.dumps(record) + "\n" for record in records(name, *args)))
        return path

    return made


@pytest.fixture
def index(tmp_path: Path, write: Callable[..., Path]) -> Path:
    build_index(tmp_path / "ix", write("a"), options=OPTIONS)
    return tmp_path / "ix"


def interrupted(index: Path, corpus: Any, mode: str) -> None:
    """A job whose first four passages are committed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparta.index.inputs.sources._PASSAGES_PER_BATCH", 2)
        seen: list[int] = []

        def stop(n: int) -> None:
            seen.append(n)
            if len(seen) == 2:
                raise KeyboardInterrupt

        with pytest.raises(Interrupted):
            build_index(index, corpus, mode, OPTIONS, advance=stop)


def killed_before_it_wrote(index: Path, corpus: Any, mode: str) -> None:
    """A job that named itself in the manifest, and committed nothing."""

    def kill(*_: object) -> None:
        raise MemoryError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparta.index.build.write", kill)
        patch.setattr("sparta.index.build.has_written", lambda *_: True)  # a kill puts nothing back
        with pytest.raises(MemoryError):
            build_index(index, corpus, mode, OPTIONS)
    assert not IndexFolder(index).require_live().complete


def run_what_is_printed(said: str) -> None:
    """Type the command in a remedy."""
    command = said[said.index("sparta ") :].partition(";")[0].partition(" (Index")[0]
    result = sparta(*shlex.split(command)[1:], "--quiet")
    assert result.exit_code == 0, (command, result.output)


def ids(index: Path) -> list[str]:
    with Searcher(index) as searcher:
        return sorted(hit.passage_id for hit in searcher.beside("bm25").search("moon", 100))


def manifest(index: Path) -> Part:
    return verify_index(index, quick=True)[0]


@pytest.mark.skipif("int8" not in capabilities(), reason="this processor has no int8")
def test_a_build_that_continues_in_another_arithmetic_warns(
    tiny_model_folder: Path, write: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The command that finishes the build names the arithmetic."""
    index, corpus = tmp_path / "encoded", write("c", 300)
    in_floats = IndexOptions(
        model=str(tiny_model_folder), dtype="fp32", device="cpu", commit_seconds=0, channels="impact,bm25"
    )

    def stop(n: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        build_index(index, corpus, options=in_floats, advance=stop)
    shutil.copytree(index, tmp_path / "copy")
    build_index(tmp_path / "copy", corpus, options=replace(in_floats, dtype="int8", resume=True))
    warning = "was encoded with openvino fp32, this input with openvino int8"
    assert warning in caplog.text
    caplog.clear()
    building = IndexFolder(index).state().building
    assert building is not None
    run_what_is_printed(on_command_line(how_to_finish(building, index)))
    live = IndexFolder(index).require_live()
    assert (live.complete, live.arithmetic) == (True, "openvino fp32")
    assert not caplog.records


def test_a_job_killed_before_it_wrote_is_a_change(index: Path, write: Callable[..., Path]) -> None:
    """The manifest no longer has the hash of the corpus, so nothing tells whether the corpus is the same."""
    first = write("a")
    killed_before_it_wrote(index, write("b"), "append")
    first.write_text(first.read_text().replace("a", "e"))
    with pytest.raises(IndexStateError, match="was changed afterwards"):
        build_index(index, first, options=OPTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_job_killed_before_it_wrote_leaves_a_whole_index(
    index: Path, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    killed_before_it_wrote(index, records("b"), mode)
    assert ids(index) == [f"a{i}" for i in range(5)]
    assert not caplog.records
    assert (describe_index(index)["complete"], describe_index(index)["interrupted"]) == (True, None)
    assert manifest(index)[1].startswith("model ")
    assert [f.state for f in examine(index, quick=True) if f.name == "index"] == ["ok"]
    build_index(index, records("c", 1), mode, OPTIONS)
    assert ids(index) == [*(f"a{i}" for i in range(5)), "c0"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "update"])
def test_an_interrupted_job_is_named_with_the_command_that_finishes_it(
    index: Path, write: Callable[..., Path], caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    corpus = write("b")
    interrupted(index, corpus, mode)
    name = f"the {mode} of {corpus}"
    assert len(ids(index)) == 9
    assert f"{index} is incomplete because {name} was interrupted" in caplog.text
    found = describe_index(index)
    assert (found["complete"], found["interrupted"]) == (False, f"{mode} of {corpus}")
    assert manifest(index)[1:3] == (f"{name} was interrupted", "")
    assert on_command_line(manifest(index).remedy) in caplog.text
    (finding,) = [f for f in examine(index, quick=True) if f.name == "index"]
    advice = on_command_line(manifest(index).remedy)
    state, told, remedy = finding[1:]
    assert (state, told) == ("note", f"{index} is incomplete: {name} was interrupted")
    assert on_command_line(remedy) == advice
    with pytest.raises(
        IndexStateError, match=rf"changed afterwards by {name}, which was interrupted"
    ) as caught:
        build_index(index, index.parent / "a 1.jsonl", options=OPTIONS)
    assert caught.value.remedy.for_command_line().startswith(on_command_line(manifest(index).remedy))
    caplog.clear()
    run_what_is_printed(on_command_line(manifest(index).remedy))
    assert len(ids(index)) == 10
    assert not caplog.records


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["create", "overwrite"])
def test_an_interrupted_first_build_is_named_too(
    tmp_path: Path, write: Callable[..., Path], caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    index = tmp_path / "ix"
    interrupted(index, write("b"), mode)
    assert len(ids(index)) == 4
    assert f"the indexing of {tmp_path / 'b 1.jsonl'} was interrupted" in caplog.text
    assert on_command_line(manifest(index).remedy) in caplog.text
    run_what_is_printed(on_command_line(manifest(index).remedy))
    assert len(ids(index)) == 5
    assert ("--overwrite" in caplog.text) == (mode == "overwrite")


@pytest.mark.slow
def test_records_have_no_command_and_are_written_again(index: Path, caplog: pytest.LogCaptureFixture) -> None:
    interrupted(index, records("b"), "append")
    ids(index)
    assert "the append of records was interrupted. Searches cover the last commit; update with" in caplog.text
    assert "--resume" not in caplog.text
    with pytest.raises(IndexStateError, match="must be finished first") as refused:
        build_index(index, records("c"), "append", OPTIONS)
    for shown in (str(refused.value.remedy), on_command_line(refused.value.remedy)):
        assert shown.endswith("if you have corrected the input, run Index.update with the corrected input")
    build_index(index, records("b"), "update", OPTIONS)
    caplog.clear()
    assert len(ids(index)) == 10
    assert not caplog.records


def test_a_creation_from_records_has_no_command(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    interrupted(tmp_path / "ix", records("b"), "create")
    ids(tmp_path / "ix")
    assert "create the index from the same records with IndexOptions(resume=True)" in caplog.text
    build_index(tmp_path / "ix", records("b"), "create", replace(OPTIONS, resume=True))
    assert len(ids(tmp_path / "ix")) == 5


@pytest.mark.slow
def test_an_update_killed_as_it_made_good_an_append_leaves_that_interrupted(
    index: Path, write: Callable[..., Path]
) -> None:
    corpus = write("b")
    interrupted(index, corpus, "append")
    killed_before_it_wrote(index, corpus, "update")
    assert manifest(index).state == f"the update of {corpus} was interrupted"
    with pytest.raises(IndexStateError, match="must be finished first") as refused:
        build_index(index, write("c"), "append", OPTIONS)
    corrected = "if you have corrected the input, run {} with the corrected input"
    assert str(refused.value.remedy).endswith(corrected.format("Index.update"))
    assert on_command_line(refused.value.remedy).endswith(corrected.format("sparta update"))
    run_what_is_printed(on_command_line(manifest(index).remedy))
    assert len(ids(index)) == 10


@pytest.mark.slow
def test_an_index_that_is_written_now_is_told_so(index: Path, write: Callable[..., Path]) -> None:
    interrupted(index, write("b"), "update")
    with IndexFolder(index).lock():
        assert manifest(index)[1:4] == ("being written", "", "wait until it is done")
        assert describe_index(index)["interrupted"] is None


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "update", "delete", "delete all"])
def test_making_a_changed_index_again_says_what_changed_it(
    index: Path, write: Callable[..., Path], mode: str
) -> None:
    corpus, more = index.parent / "a 1.jsonl", write("b")
    if mode.startswith("delete"):
        delete_from_index(index, ["a0"] if mode == "delete" else [f"a{i}" for i in range(5)])
        by, expected = "sparta delete", 5
    else:
        build_index(index, more, mode, OPTIONS)
        by, expected = f"the {mode} of {more}", 10
    for resume in ([], ["--resume"]):
        again = ["index", "--corpus", str(corpus), "--channels", "bm25", "--index", str(index), *resume]
        result = sparta(*again)
        assert result.exit_code == 2
        assert f"index of {corpus} was changed afterwards by {by}\n" in result.output
    run_what_is_printed(result.output.partition("→ ")[2])
    assert len(ids(index)) == expected


@pytest.mark.slow
def test_other_options_are_told_also_of_a_changed_index(index: Path, write: Callable[..., Path]) -> None:
    build_index(index, write("b"), "append", OPTIONS)
    for corpus, options in (
        (write("c"), OPTIONS),
        (index.parent / "a 1.jsonl", IndexOptions(channels="bm25", unit="sentence")),
        (index.parent / "a 1.jsonl", IndexOptions(channels="bm25", codec="lucene")),
    ):
        with pytest.raises(IndexStateError, match="an index of another input, or with other options"):
            build_index(index, corpus, options=options)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_job_that_cannot_open_the_index_leaves_its_manifest_alone(
    index: Path, write: Callable[..., Path], caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    before = (index / "manifest.json").read_bytes()
    (segment,) = (index / "sparta-000001").glob("*.cfs")
    aside = segment.rename(index.parent / "segment")
    for corpus in (write("b"), records("b")):
        with pytest.raises(IndexStateError, match="missing"):
            build_index(index, corpus, mode, OPTIONS)
        assert (index / "manifest.json").read_bytes() == before
    aside.rename(segment)
    assert len(ids(index)) == 5
    assert not caplog.records
    assert build_index(index, index.parent / "a 1.jsonl", options=OPTIONS).unchanged


def test_a_file_that_is_removed_while_sizes_are_taken_counts_nothing(tmp_path: Path) -> None:
    """A link to a file that is gone stands for a file that goes after its name was read."""
    for name, size in (("a", 3), ("b", 50), ("sub/c", 4)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
    assert folder_size(tmp_path) == 57
    (tmp_path / "b").unlink()
    (tmp_path / "b").symlink_to("none")
    assert folder_size(tmp_path) == 7
    assert folder_size(tmp_path / "none") == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"unit": "sentence", "language": "de", "codec": "lucene"}, {"unit": "chunk:2:1"}],
)
def test_the_command_that_finishes_an_index_has_its_options(
    write: Callable[..., Path], tmp_path: Path, options: dict[str, Any]
) -> None:
    """What is printed is typed as it is; without its options, what is left would be of another form."""
    index, corpus = tmp_path / "ix", write("b")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "OPTIONS", IndexOptions(channels="bm25", **options))
        interrupted(index, corpus, "create")
    if "language" not in options:  # there is a model
        with pytest.raises(IndexStateError, match="differ from those that started this index: channels"):
            build_index(index, corpus, options=IndexOptions(resume=True, **options))
    run_what_is_printed(on_command_line(manifest(index).remedy))
    found = describe_index(index)
    assert (found["complete"], found["channels"], found["unit"]) == (True, "bm25", options["unit"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["create", "append", "update"])
def test_the_command_that_finishes_a_job_names_the_fields_and_the_query(index: Path, mode: str) -> None:
    path = index.parent / "pages 1.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("create table pages (url text, head text, body text)")
        rows = [(f"b{number}", "the", "moon's light") for number in range(5)]
        connection.executemany("insert into pages values (?, ?, ?)", rows)
    connection.close()
    index = index if mode != "create" else index.parent / "new"
    reading = {"id_field": "url", "text_field": ["head", "body"], "query": "select * from pages order by url"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "OPTIONS", IndexOptions(channels="bm25", **reading))
        interrupted(index, path, mode)
    state = IndexFolder(index).state()
    generation = state.building or state.live
    assert generation is not None
    assert generation.job.reading == reading
    run_what_is_printed(on_command_line(manifest(index).remedy))
    assert describe_index(index)["complete"]
    assert ids(index) == [
        f"{name}{number}" for name in ("ab" if mode != "create" else "b") for number in range(5)
    ]


def test_the_command_names_the_model_and_what_is_pruned(
    write: Callable[..., Path], tmp_path: Path, tiny_model_folder: Path
) -> None:
    options = IndexOptions(model=str(tiny_model_folder), top_k=3, min_weight=0.1, bits=4)
    build_index(tmp_path / "ix", write("b"), options=options)
    live = IndexFolder(tmp_path / "ix").require_live()
    said = how_to_finish(live, tmp_path / "ix").for_command_line()
    assert f"--top-k 3 --min-weight 0.1 --model {tiny_model_folder} --bits 4 --dtype" in said
    shards = replace(live, unit="sentence", job=replace(live.job, kind="shards", folders=("s",)))
    assert (
        "sparta index --vectors s --resume --index"
        in how_to_finish(shards, tmp_path / "ix").for_command_line()
    )
    fields = {"id_field": "url", "text_field": ["head", "body"]}
    shards = replace(shards, language="de", job=replace(shards.job, mode="append", reading=fields))
    rebuild = (
        f"sparta index --corpus FILE --overwrite --id-field url --text-field head --text-field body"
        f" --language de --unit sentence --top-k 3 --min-weight 0.1 --model {tiny_model_folder} --bits 4"
    )
    assert rebuild in how_to_rebuild(tmp_path / "ix", shards).for_command_line()
    assert rebuild in how_to_correct(shards, tmp_path / "ix").for_command_line()


def test_later_files_are_read_with_the_fields_of_the_index(tmp_path: Path) -> None:
    """An update without the options would store passages again under a hash, and lose titles."""
    rows = [{"url": f"page-{i}", "headline": "Moon", "text": f"the moon {i}"} for i in range(4)]
    corpus, index = tmp_path / "pages.jsonl", tmp_path / "ix"

    def write_rows(*extra: dict[str, str]) -> None:
        corpus.write_text("".join(json.dumps(row) + "\n" for row in (*rows, *extra)))

    write_rows()
    named = replace(OPTIONS, id_field="url", title_field="headline")
    build_index(index, corpus, options=named)
    for job in ("update", "records", "update", "sync"):
        rows[0]["text"] += " again"
        write_rows()
        if job == "sync":
            report = sync_index(index, corpus, OPTIONS)
            assert (report.added, report.updated, report.deleted) == ((), ("page-0",), ("more",))
        elif job == "update":
            assert sparta("update", "--corpus", corpus, "--index", index).exit_code == 0
        else:
            build_index(index, [{"id": "more", "title": "Moon", "text": "the moon"}], "update", OPTIONS)
    with Searcher(index) as searcher:
        hits = searcher.beside("bm25").search("moon", 100)
    assert sorted((hit.passage_id, hit.title) for hit in hits) == [(f"page-{i}", "Moon") for i in range(4)]
    usual = tmp_path / "usual.jsonl"
    usual.write_text('{"id": "other", "text": "the moon"}\n')
    with pytest.raises(InputError, match='expected the field "url"') as caught:
        build_index(index, usual, "append", OPTIONS)
    assert "--id-field" in caught.value.remedy.for_command_line()
    build_index(index, usual, "append", replace(OPTIONS, id_field="id"))
    (tmp_path / "note.md").write_text("The moon.\n")
    build_index(index, tmp_path / "note.md", "append", OPTIONS)
    assert len(ids(index)) == 6


def test_vectors_bring_the_fields_of_their_corpus(tiny_model_folder: Path, tmp_path: Path) -> None:
    rows = [{"url": f"page-{i}", "headline": "Moon", "text": f"the moon {i}"} for i in range(4)]
    corpus, index = tmp_path / "pages.jsonl", tmp_path / "ix"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = ("--id-field", "url", "--title-field", "headline")
    encoding = ("--model", tiny_model_folder, "--output", tmp_path / "shards", "--device", "cpu")
    assert sparta("encode", "--corpus", corpus, *named, *encoding).exit_code == 0
    assert sparta("index", "--vectors", tmp_path / "shards", "--index", index).exit_code == 0
    for _ in range(2):
        rows[0]["text"] += " again"
        corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
        result = sparta("update", "--corpus", corpus, "--index", index)
        assert result.exit_code == 0, result.output
    assert ids(index) == [f"page-{i}" for i in range(4)]
