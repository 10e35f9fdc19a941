"""Appending, updating, deleting."""

import json
import re
import shutil
from pathlib import Path

import pytest

from sparta.search.searcher import Searcher
from tests.cli.commands import done, hits_of, refused, top_rows, written
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]


def test_delete(index):
    result = done(sparta("delete", "moon", "3", "--index", index))
    assert result.stdout == "deleted 2 of 2\n"
    refused(sparta("terms", "moon", "--index", index), 2, "no passage with the id 'moon'")
    assert {hit["id"] for hit in hits_of("the moon", "--index", index, "-k", 10)} <= {
        "google",
        "beijing",
        "paris",
    }


def test_delete_by_filter(index):
    before = len(hits_of("the", "--index", index, "-k", 10, "--channel", "bm25"))
    refused(sparta("delete", "--filter", "not title=Nobody", "--index", index), 2, "more than half", "--yes")
    assert "found tilte" in sparta("delete", "--filter", "tilte=Moon", "--index", index).stderr
    refused(
        sparta("delete", "moon", "--filter", "title=Moon", "--index", index), 2, "either passage ids or a"
    )
    refused(sparta("delete", "--index", index), 2, "sparta delete --filter CONDITION")
    Path("no-ids").touch()
    both = sparta("delete", "--ids", "no-ids", "--filter", "title=Moon", "--index", index)
    refused(both, 2, "either passage ids or a")
    assert len(hits_of("the", "--index", index, "-k", 10, "--channel", "bm25")) == before
    result = done(sparta("delete", "--filter", "not title=Nobody", "--yes", "--index", index))
    assert re.fullmatch(r"deleted (\d+) of \1\n", result.stdout)
    assert hits_of("the", "--index", index, "-k", 10, "--channel", "bm25") == []


def test_delete_tells_the_ids_that_are_unknown(index):
    result = sparta("delete", "moon", "nobody", "--index", index)
    assert result.stdout == "deleted 1 of 2\n"
    refused(result, 2, f"{index}: ", "no passage with the id", "'nobody'", "from a search")


def test_delete_counts_what_was_named(tmp_path, model):
    """Not its sentences, nor what was named twice."""
    corpus = written(
        tmp_path / "c.jsonl", {"id": "p", "text": "The moon is old. The sun is large. It is new."}
    )
    done(sparta("index", "--corpus", corpus, "--index", tmp_path / "ix", "--unit", "sentence", *model))
    given = ("--index", tmp_path / "ix")
    assert done(sparta("delete", "p#1", *given)).stdout == "deleted 1 of 1 (1 sentence)\n"
    result = sparta("delete", "p", "p", "nobody", *given)
    assert result.stdout == "deleted 1 of 2 (2 sentences)\n"
    refused(result, 2, "no passage with the id 'nobody'")


def test_update(index, tmp_path, model):
    new = written(
        tmp_path / "new.jsonl",
        {"id": "moon", "text": "a white animal"},
        {"id": "new", "text": "the red street"},
    )
    assert "6 passages" in done(sparta("update", "--corpus", new, "--index", index, *model)).stdout
    assert hits_of("white animal", "--index", index)[0]["text"] == "a white animal"


def test_what_is_added_is_pruned_as_the_index_is(tmp_path, corpus, model):
    index = ("--index", tmp_path / "ix", *model)
    new = [written(tmp_path / f"{i}.jsonl", {"id": i, "text": "the long road to the moon"}) for i in "ab"]
    done(sparta("index", "--corpus", corpus, "--top-k", 3, "--min-weight", 0.01, *index))
    done(sparta("index", "--append", "--corpus", new[0], *index))
    done(sparta("update", "--corpus", new[1], *index))
    for added in "ab":
        terms = json.loads(done(sparta("terms", added, "--index", tmp_path / "ix", "--json")).stdout)
        assert 0 < terms["of"] <= 3
    more = written(tmp_path / "c.jsonl", {"id": "c", "text": "the moon"})
    result = sparta("index", "--append", "--corpus", more, "--top-k", 4, *index)
    refused(result, 2, "the index has the top-k 3, but the input has 4", "use --top-k 3", "--overwrite")
    result = sparta("update", "--corpus", more, "--min-weight", 0, *index)
    refused(result, 2, "the index has the min-weight 0.01, but the input has 0.0", "use --min-weight 0.01")


def test_an_index_that_is_not_pruned_takes_nothing_that_is(index, corpus, tmp_path, model):
    more = written(tmp_path / "c.jsonl", {"id": "c", "text": "the moon"})
    result = sparta("update", "--corpus", more, "--top-k", 4, "--index", index, *model)
    refused(result, 2, "the index has the top-k none, but the input has 4", "omit --top-k")


@pytest.mark.slow
def test_what_is_added_is_encoded_with_the_model_and_bits_of_the_index(tmp_path, tiny_model_folder, corpus):
    own, moved = tmp_path / "mine" / "best", tmp_path / "elsewhere"
    shutil.copytree(tiny_model_folder, own)
    named = ("--index", tmp_path / "ix", "--dtype", "fp32")
    done(sparta("index", "--corpus", corpus, "--model", "mine/best", "--bits", 5, *named))
    new = [written(tmp_path / f"{i}.jsonl", {"id": i, "text": "the red road"}) for i in "abc"]
    assert "6 passages" in done(sparta("index", "--append", "--corpus", new[0], *named)).stdout
    assert "7 passages" in done(sparta("update", "--corpus", new[1], *named)).stdout
    impacts = [impact for _, impact in top_rows(done(sparta("terms", "b", *named[:2])).stdout)]
    assert 0 < max(impacts) < 2**5
    own.rename(moved)
    said = (tmp_path / "ix", f"the model of the index, '{own}'", "--model", "--overwrite")
    for command in (["index", "--append"], ["update"]):
        refused(sparta(*command, "--corpus", new[2], *named), 2, *said)
    again = sparta("index", "--append", "--corpus", new[2], "--model", moved, *named)
    assert "8 passages" in done(again).stdout


def test_an_unknown_language_leaves_nothing_behind(tmp_path, corpus, index, model):
    before = sorted(p.name for p in index.iterdir())
    for folder, more in ((tmp_path / "new", ()), (index, ("--overwrite",))):
        given = ("--corpus", corpus, "--index", folder, "--language", "English", *more)
        result = sparta("index", *given, *model)
        refused(
            result, 2, "unknown language code 'English'; known codes: ar, bn, ", "choose one of these codes"
        )
        assert str(folder) not in result.stderr
    given = ("--corpus", corpus, "--output", tmp_path / "new", "--language", "English")
    refused(sparta("encode", *given, *model), 2, "unknown language code 'English'")
    refused(sparta("index", "--corpus", corpus, "--language", ""), 2, "unknown language code ''")
    assert not (tmp_path / "new").exists()
    assert sorted(p.name for p in index.iterdir()) == before


@pytest.mark.slow
def test_a_corpus_of_which_nothing_is_left(tmp_path, index, model):
    """As an empty file is: no index is made, none is replaced; what is there may grow by nothing."""
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "a", "text": " "}\n{"id": "b"}\n')
    given = ("--corpus", bad, "--skip-invalid", *model)
    said = (bad, "the input contains no passages: all records were skipped")
    refused(sparta("index", *given, "--index", tmp_path / "new"), 2, *said, "1 empty text, 1 missing text")
    refused(sparta("index", "--overwrite", *given, "--index", index), 2, *said)
    assert hits_of("the moon", "--index", index)
    for command in (["index", "--append"], ["update"]):
        assert "5 passages" in done(sparta(*command, *given, "--index", index)).stdout
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    refused(sparta("index", "--corpus", empty, "--index", tmp_path / "new", *model), 2, "empty file")


def test_update_without_an_index(corpus, model):
    refused(sparta("update", "--corpus", corpus, *model), 2, "sparta-index: there is no index here")


def _lines(*ids, text="the moon of earth"):
    return "".join(json.dumps({"id": i, "text": f"{text} {i}"}) + "\n" for i in ids)


@pytest.mark.slow
@pytest.mark.jvm
def test_standard_input_twice_is_written_twice(tiny_model_folder, tmp_path):
    base = ["--index", str(tmp_path / "ix"), "--model", str(tiny_model_folder), "--quiet"]
    assert sparta("index", "--corpus", "-", *base, stdin=_lines("a", "b")).exit_code == 0
    for ids in (("c", "d"), ("e",)):
        done = sparta("index", "--append", "--corpus", "-", *base, stdin=_lines(*ids))
        assert done.exit_code == 0, done.output
    for text in ("sun", "star"):
        done = sparta("update", "--corpus", "-", *base, stdin=_lines("a", text=text))
        assert done.exit_code == 0, done.output
    with Searcher(tmp_path / "ix") as searcher:
        assert searcher.num_docs == 5
        assert searcher.passage("a")["text"] == "star a"
        assert all(searcher.passage(i)["text"].endswith(i) for i in "bcde")


@pytest.mark.slow
@pytest.mark.jvm
def test_update_restores_what_was_deleted(tiny_model_folder, tmp_path):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(_lines("a", "b"))
    base = ["--index", str(tmp_path / "ix"), "--model", str(tiny_model_folder), "--quiet"]
    assert sparta("index", "--corpus", corpus, *base).exit_code == 0
    for _ in range(2):
        assert sparta("update", "--corpus", corpus, *base).exit_code == 0
        assert sparta("delete", "a", "--index", tmp_path / "ix").exit_code == 0
    assert sparta("update", "--corpus", corpus, *base).exit_code == 0
    with Searcher(tmp_path / "ix") as searcher:
        assert searcher.num_docs == 2


@pytest.mark.jvm
def test_a_folder_of_somebody_elses_is_not_written_to(tiny_model_folder, tmp_path):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(_lines("a"))
    notes = tmp_path / "mine" / "sparta-notes-202501"
    notes.mkdir(parents=True)
    base = ["--index", str(notes.parent), "--model", str(tiny_model_folder), "--quiet"]
    done = sparta("index", "--corpus", corpus, *base)
    assert done.exit_code == 2
    assert "sparta-notes-202501" in done.output
    assert notes.is_dir()


@pytest.mark.slow
@pytest.mark.jvm
def test_sentences_follow_their_passage(tiny_model_folder, tmp_path):
    corpus = tmp_path / "c.jsonl"
    base = ["--index", str(tmp_path / "ix"), "--model", str(tiny_model_folder), "--quiet"]
    sentences = ["--unit", "sentence"]

    def write(*records):
        corpus.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in records))

    def ids():
        with Searcher(tmp_path / "ix") as searcher, searcher.reader.snapshot() as view:
            return sorted(view.lucene.ids(view.lucene.live()))

    write(("p", "The moon is old. The sun is large. The sea is blue."), ("q", "The year is long. It is new."))
    assert sparta("index", "--corpus", corpus, *base, *sentences).exit_code == 0
    assert ids() == ["p#0", "p#1", "p#2", "q#0", "q#1"]
    write(("p", "The moon is new. The earth is old."))
    refused = sparta("update", "--corpus", corpus, *base, "--unit", "passage")
    assert refused.exit_code == 2
    assert "--unit sentence" in refused.output
    assert sparta("update", "--corpus", corpus, *base).exit_code == 0  # in the index's unit
    assert ids() == ["p#0", "p#1", "q#0", "q#1"]
    assert sparta("delete", "q", "--index", tmp_path / "ix").exit_code == 0
    assert ids() == ["p#0", "p#1"]
    append = ["index", "--append", "--corpus", str(corpus), *base, *sentences]
    write(("r#7", "The river is wide."))
    refused = sparta(*append)
    assert refused.exit_code == 2
    assert "r#7" in refused.output
    answer = {"text": "The moon is new.", "context": "It is night. The moon is new.", "start": 13, "end": 29}
    for passage_id, taken in (("p", "p"), ("s", None)):
        corpus.write_text(json.dumps({"id": passage_id, **answer}))
        result = sparta(*append)
        assert result.exit_code == (2 if taken else 0), result.output
        assert not taken or f"the index already holds a passage with the id '{taken}'" in result.output
    write(("s", "The sea is blue. The sun is large."))
    refused = sparta(*append)
    assert "the index already holds a passage with the id 's'" in refused.output
    assert ids() == ["p#0", "p#1", "s"]
