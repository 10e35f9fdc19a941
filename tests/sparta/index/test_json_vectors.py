"""Ready vectors become an index."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import IndexStateError, InputError, Interrupted
from sparta.index.changes import how_to_finish
from sparta.index.folder import IndexFolder
from sparta.index.generation import Job
from sparta.index.inputs.impact_batches import ImpactBatch, JsonVectors
from sparta.index.inputs.options import IndexOptions
from sparta.index.inputs.sources import vectors_source
from sparta.index.jobs import Source, skip_passages
from sparta.index.pipeline import build_index_from_vectors
from sparta.lucene.bridge import ImpactWriter
from sparta.models.sparta import SpartaModel
from sparta.search.searcher import Searcher
from tests.programs import sparta
from tests.sparta.index.building import Doc
from tests.sparta.search.test_weighted_queries import weighted

pytestmark = pytest.mark.jvm


@pytest.fixture
def json_vectors(tmp_path, tiny_tokenizer) -> Callable[..., Source]:
    """Lines of JSON vectors as a source."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    tiny_tokenizer.save(str(folder / "tokenizer.json"))

    def make(*lines: str | bytes | dict[str, Any], name: str = "vectors.jsonl") -> Source:
        rows = [json.dumps(line) if isinstance(line, dict) else line for line in lines]
        path = tmp_path / name
        path.write_bytes(b"\n".join(r.encode() if isinstance(r, str) else r for r in rows))
        return vectors_source([path], folder)

    return make


def line(passage_id: str, **vector: Any) -> dict[str, Any]:
    return {"id": passage_id, "contents": f"text of {passage_id}", "vector": vector}


def test_json_vectors(builder, json_vectors):
    long = "ü" * 255
    report = builder.write(
        json_vectors(
            line("a", moon=37, earth=1),
            "",
            line("b", moon=65535, nought=0, unheard=12),
            {"_id": 7, "text": "text of 7", "vector": {}},
            line("c", **{long: 3, "two words": 4, "moon": 1}),
        )
    )
    assert builder.contents() == [
        Doc("a", {"moon": 37, "earth": 1}),
        Doc("b", {"moon": 65535, "unheard": 12}),
        Doc("7", {}),
        Doc("c", {long: 3, "two words": 4, "moon": 1}),
    ]
    assert report.written["zeros"] == 1
    assert report.written["postings"] == 7
    assert builder.ranking("the moon, moon") == [("b", 131070.0), ("a", 74.0), ("c", 2.0)]
    assert builder.ranking("text", channel="bm25") != []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line("b", moon=1.5), "expected an integer impact from 0 to 65535, found 1.5 for the term 'moon'"),
        (line("b", moon=2.0), "found 2.0"),
        (line("b", moon=-1), "found -1"),
        (line("b", moon=65536), "found 65536"),
        (line("b", moon=True), "found True"),
        (line("b", moon="3"), "found '3'"),
        (line("b", moon=None), "found None"),
        ('{"id": "b", "contents": "", "vector": {"moon": NaN}}', "finite number, found NaN"),
        (line("b", **{"x" * 300: 1}), "a term must have 1 to 255 characters, found 300"),
        (line("b", **{"": 1}), "characters, found 0"),
        ({"id": "b", "contents": ""}, "field vector must be an object"),
        ({"id": "b", "contents": "", "vector": [1]}, "field vector must be an object"),
        ({"id": "b", "vector": {}}, "missing the text"),
        ({"contents": "", "vector": {}}, "missing id"),
        (line("a", moon=1), "duplicate id: 'a' was already the id of .*:1"),
        ("{", "broken JSON"),
        ("[]", "not a JSON object"),
        (b'{"id": "b", "contents": "\xff", "vector": {}}', "invalid UTF-8"),
    ],
)
def test_bad_json_vectors(builder, json_vectors, bad, message):
    with pytest.raises(InputError, match=message) as caught:
        builder.write(json_vectors(line("a", moon=1), bad))
    assert caught.value.where.endswith("vectors.jsonl:2")


def test_repeated_ids_are_found_across_batches_and_files(builder, json_vectors, tmp_path):
    lines = [line(f"x{i}", moon=1) for i in range(1005)]  # a batch has 1000
    with pytest.raises(InputError, match="duplicate id: 'x0'"):
        builder.write(json_vectors(*lines, lines[0]))
    folder = tmp_path / "several"
    folder.mkdir()
    for name in ("b.json", "a.jsonl"):
        (folder / name).write_text(json.dumps(line("x", moon=1)))
    with pytest.raises(InputError, match=r"'x' was already the id of .*a\.jsonl:1") as caught:
        list(JsonVectors(folder))
    assert caught.value.where == f"{folder / 'b.json'}:1"


def test_empty_and_missing_json_vectors(builder, json_vectors, tmp_path):
    with pytest.raises(InputError, match="empty file"):
        builder.write(json_vectors("", " "))
    with pytest.raises(InputError, match="no such file or folder of vectors"):
        vectors_source([tmp_path / "none.jsonl"], tmp_path / "tokenizer")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="contains neither"):
        vectors_source([tmp_path / "empty"], tmp_path / "tokenizer")
    with pytest.raises(InputError, match="single file or folder of JSON vectors"):
        vectors_source([tmp_path / "empty", tmp_path / "tokenizer"])


@pytest.mark.parametrize("done", range(4))
def test_json_vectors_resume_with_the_right_terms(builder, json_vectors, done):
    """Terms get their numbers as they come; those of passages that are not read again count, too."""
    names = ["moon", "earth", "sun", "star", "river", "road", "town"]
    expected = [Doc(f"x{i}", {names[i % 7]: i + 1, names[(3 * i + 1) % 7]: 9}) for i in range(10)]
    source = json_vectors(*(line(d.passage_id, **d.vector) for d in expected))

    def batches(skip: int, last: str = "") -> Iterator[ImpactBatch]:
        return skip_passages(JsonVectors(Path(source.job.source), batch_lines=3), skip)

    source = replace(source, batches=batches)

    def stopping(skip: int, last: str = "") -> Iterator[ImpactBatch]:
        for number, batch in enumerate(source.batches(skip, "")):
            if number == done:
                raise KeyboardInterrupt
            yield batch

    with pytest.raises(KeyboardInterrupt):
        builder.write(replace(source, batches=stopping), commit_seconds=0)
    builder.write(source, resume=True)
    assert builder.contents() == expected


def test_other_entries_of_a_folder_of_json_vectors_are_named(tmp_path, json_vectors, caplog):
    (tmp_path / "folder" / "more").mkdir(parents=True)
    (tmp_path / "folder" / "b.csv").touch()
    json_vectors(line("a", moon=1), name="folder/a.jsonl")
    assert not caplog.records
    vectors_source([tmp_path / "folder"], tmp_path / "tokenizer")
    assert caplog.messages == [f"{tmp_path / 'folder'}: reading a.jsonl; not reading b.csv, more"]


def test_json_vectors_up_to_date_and_append(builder, json_vectors):
    first = [line("a", moon=1)]
    builder.write(json_vectors(*first))
    assert builder.write(json_vectors(*first)).unchanged
    with pytest.raises(IndexStateError, match="other input"):
        builder.write(json_vectors(line("a", moon=2)))
    builder.write(json_vectors(line("b", road=3), name="more.jsonl"), "append")
    assert builder.contents() == [Doc("a", {"moon": 1}), Doc("b", {"road": 3})]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_json_vectors_from_a_pipe(builder, json_vectors, tmp_path):
    """As in --vectors <(zcat v.gz): what is read to be hashed is not there to be indexed."""
    json_vectors(line("a", moon=1), line("b", road=2))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = gzip.compress((tmp_path / "vectors.jsonl").read_bytes())
    writer = threading.Thread(target=pipe.write_bytes, args=[content], daemon=True)
    writer.start()
    source = vectors_source([pipe], tmp_path / "tokenizer")
    assert source.job == Job(kind="json", source=str(pipe))
    builder.write(source)
    writer.join()
    assert builder.contents() == [Doc("a", {"moon": 1}), Doc("b", {"road": 2})]
    with pytest.raises(IndexStateError, match="an index of another input"):
        builder.write(source)


def test_large_integers_and_deep_metadata_are_read_as_of_a_corpus(builder, json_vectors):
    big = 12345678901234567890123
    other = {"id": big + 1, "contents": "b", "unread": {"deep": [big]}, "vector": {"moon": 2}}
    builder.write(json_vectors({**line("a", moon=1), "id": big, "number": big}, json.dumps(other)))
    with builder.reader() as reader:
        raws = {i: json.loads(raw) for i, raw in zip(reader.ids([0, 1]), reader.raws([0, 1]), strict=True)}
    assert raws[str(big)]["number"] == big
    assert raws[str(big + 1)]["unread"] == {"deep": [big]}
    deep = '{"id": "d", "contents": "", "vector": {}, "deep": ' + "[" * 600 + "]" * 600 + "}"
    with pytest.raises(InputError, match="JSON nested too deeply") as caught:
        builder.write(json_vectors(line("a", moon=1), deep), "overwrite")
    assert caught.value.where.endswith("vectors.jsonl:2")


@pytest.mark.parametrize(("terms", "is_warned"), [(256, False), (257, True)])
def test_scores_that_are_rounded_are_warned_of(builder, json_vectors, caplog, terms, is_warned):
    """Scores are exact below 2^24. Indexing warns of impacts and searching of scores that reach it."""
    vectors = json_vectors(
        line("a", moon=1),
        line("b", moon=65535),
        line("c", moon=1, **dict.fromkeys(map(str, range(terms)), 65535)),
    )
    builder.write(vectors)
    told = [record.args[0] for record in caplog.records if record.args]
    assert ("c" in told) == is_warned
    caplog.clear()
    with Searcher(builder.folder.path) as searcher:
        assert searcher.search("moon " * terms, 1)[0].passage_id == "b"
    assert [record.name for record in caplog.records] == (["sparta.search.searcher"] if is_warned else [])


def test_a_line_that_no_query_can_find_is_refused(builder, json_vectors):
    """Terms of another vocabulary: each search would be empty."""
    whole = [line("a", moon=2), line("empty"), line("b", moon=1, Zürich=3)]
    with pytest.raises(InputError) as caught:
        builder.write(json_vectors(*whole, line("c", Zürich=3, Genf=2), line("d", Genf=2)))
    assert caught.value.where.endswith("vectors.jsonl:4")
    assert "--tokenizer" in caught.value.remedy.for_command_line()
    builder.write(json_vectors(*whole, line("c", **{"##ing": 3})), "overwrite")
    assert builder.ranking("moon") == [("a", 2.0), ("b", 1.0)]


def test_terms_that_no_query_can_make_are_counted(json_vectors, caplog):
    for _ in json_vectors(line("a", moon=2, Zürich=1), line("b", sun=1, Genf=1)).batches(0, ""):
        pass
    assert "2 terms" in caplog.text
    assert "Zürich" in caplog.text


@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_job_without_a_tokenizer_takes_that_of_the_index(
    tiny_model: SpartaModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_weighted: bool
) -> None:
    """The command that finishes an interrupted build does not name it, and neither need an append."""
    index, words = tmp_path / "ix", ("moon", "earth", "river")
    if is_weighted:
        weighted(tiny_model, tmp_path / "model")
    else:
        tiny_model.save_pretrained(tmp_path / "model")
    lines = [json.dumps(line(str(n), **{words[n % 3]: 9})) for n in range(1006)]
    (tmp_path / "vectors.jsonl").write_text("\n".join(lines[:1005]))
    (tmp_path / "more.jsonl").write_text(lines[1005])
    commit = ImpactWriter.commit

    def stop(writer: ImpactWriter, *arguments: Any) -> None:
        commit(writer, *arguments)
        raise KeyboardInterrupt

    given, often = (index, [tmp_path / "vectors.jsonl"]), IndexOptions(commit_seconds=0)
    with monkeypatch.context() as patched:
        patched.setattr(ImpactWriter, "commit", stop)
        with pytest.raises(Interrupted):
            build_index_from_vectors(*given, options=often, tokenizer=tmp_path / "model")
    generation = IndexFolder(index).state().building
    assert generation is not None
    assert generation.model["weighted_queries"] is is_weighted
    [command] = re.findall(r"sparta (index .*)", str(how_to_finish(generation, index)))
    assert "--tokenizer" not in command
    assert sparta(*shlex.split(command)).exit_code == 0
    appended = sparta("index", "--append", "--vectors", tmp_path / "more.jsonl", "--index", index)
    assert appended.exit_code == 0, appended.output
    with Searcher(index) as searcher:
        assert searcher.num_docs == 1006
        hits = searcher.search("the moon", 1000)
        assert (len(hits), hits[0].score) == (336, 9.0 * (7 if is_weighted else 1))
