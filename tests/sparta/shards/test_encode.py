import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta.base.errors import IndexStateError, InputError, Interrupted
from sparta.base.remedies import Option
from sparta.shards.folder import shard_files, writing
from sparta.shards.store import ShardFolder, read_shard, read_shards
from tests.moments import at, ctrl_c

pytestmark = pytest.mark.usefixtures("one_thread")

Calls = list[tuple[str, dict[str, Any]]]
N, SIZE = 45, 7
SHARDS = [f"shard-{i:06d}.safetensors" for i in range(7)]


@pytest.fixture(scope="module")
def corpus(make_records, write_jsonl, tmp_path_factory) -> Path:
    records = make_records(N, seed=1)
    records.insert(9, {"id": "blank", "text": "  "})
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", records)


@pytest.fixture
def encode(corpus, tiny_model, tmp_path) -> Callable[..., tuple[Path, Any]]:
    """Encode the corpus into a folder of this name."""
    from sparta.shards.encode import EncodeOptions, encode_corpus

    def run(
        name: str, *, source: Path = corpus, model: Any = tiny_model, resume: bool = False, **options: Any
    ):
        chosen = EncodeOptions(**{"shard_size": SIZE, "dtype": "fp32", **options})
        return tmp_path / name, encode_corpus(source, tmp_path / name, model, chosen, resume=resume)

    return run


@pytest.fixture
def encoded(calls: Callable[..., Calls]) -> Calls:
    """The calls that encode a block, from here on."""
    from sparta.models.document_encoder import DocumentEncoder

    return calls(DocumentEncoder.encode)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("shard-*")}


def test_the_shards_hold_the_corpus_in_its_order(encode, corpus, tiny_model):
    folder, report = encode("out")
    assert sorted(contents(folder)) == SHARDS
    records = [json.loads(line) for line in corpus.read_text().splitlines()]
    records = [r for r in records if r["text"].strip()]
    shards = list(ShardFolder(folder))
    assert [s.number for s in shards] == list(range(7))
    assert [s.first for s in shards] == [0, 7, 14, 21, 28, 35, 42]
    assert [i for s in shards for i in s.passage_ids] == [r["id"] for r in records]
    stored = [json.loads(record) for s in shards for record in s.records]
    assert stored == [{"id": r["id"], "title": r["title"], "contents": r["text"]} for r in records]
    rows = [
        (s.rows.term_ids[a:b], s.rows.weights[a:b])
        for s in shards
        for a, b in zip(s.rows.indptr[:-1], s.rows.indptr[1:], strict=True)
    ]
    for record, (terms, weights) in zip(records, rows, strict=True):
        alone = tiny_model.encode_document([record["text"]], dtype="fp32").toarray()[0]
        dense = np.zeros_like(alone)
        dense[terms] = weights
        np.testing.assert_allclose(dense, alone, atol=1e-5)
        assert (np.diff(terms) > 0).all()
        assert (weights > 0).all()
    assert report.terms == sum(len(terms) for terms, _ in rows)


def test_counts_add_up(encode):
    folder, report = encode("out", part=(1, 2))
    counts = report.corpus["counts"]
    assert counts["read"] == N + 1
    assert counts["used"] == N
    assert counts["skipped"] == 1
    assert counts["reasons"] == {"empty text": 1}
    assert (report.encoded, report.kept, report.elsewhere) == (3 * SIZE, 0, N - 3 * SIZE)
    manifest = ShardFolder(folder).manifest
    assert manifest["counts"]["corpus"]["counts"] == counts
    assert manifest["counts"]["encoded"] == 3 * SIZE
    assert manifest["complete"] is True


def test_two_machines_write_the_shards_of_one(encode):
    whole = contents(encode("whole")[0])
    parts = [contents(encode(f"part{i}", part=(i, 2))[0]) for i in (0, 1)]
    assert sorted(parts[0]) == SHARDS[::2]
    assert sorted(parts[1]) == SHARDS[1::2]
    assert parts[0] | parts[1] == whole


def test_two_devices_write_the_shards_of_one(encode):
    assert contents(encode("two", devices=("cpu", "cpu"))[0]) == contents(encode("one")[0])


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("done", [0, 1, 4, 6])
def test_resuming_redoes_nothing_and_gives_the_same_bytes(encode, encoded, done, error):
    folder, straight = encode("whole")
    whole = contents(folder)

    def fail():
        raise error

    with at("rename", "shard-*.safetensors", fail, nth=done + 1), pytest.raises(error):
        encode("out")
    del encoded[:]
    folder, report = encode("out", resume=True)
    assert contents(folder) == whole
    assert len(encoded) == 7 - done
    assert (report.encoded, report.kept) == (N - done * SIZE, done * SIZE)
    assert (report.terms, report.windowed, report.without_terms) == (
        straight.terms,
        straight.windowed,
        straight.without_terms,
    )
    assert report.mean_terms == straight.mean_terms > 0
    before = {path: path.stat().st_mtime_ns for path in folder.glob("shard-*")}
    del encoded[:]
    assert encode("out", resume=True)[1].kept == N
    assert encoded == []
    assert {path: path.stat().st_mtime_ns for path in folder.glob("shard-*")} == before


def test_any_missing_shard_is_made_again(encode, encoded):
    folder, _ = encode("out")
    whole = contents(folder)
    for name in (SHARDS[0], SHARDS[3], SHARDS[6]):
        (folder / name).unlink()
    del encoded[:]
    encode("out", resume=True)
    assert [call["passages"][0].passage_id for _, call in encoded] == ["p0", "p21", "p42"]
    assert contents(folder) == whole


def test_a_finished_folder_that_lost_a_shard_is_unfinished_until_it_is_resumed(encode):
    folder, _ = encode("out")
    (folder / SHARDS[1]).unlink()
    with pytest.raises(InputError, match="the shards lack passages") as lacking:
        list(read_shards([folder]))
    assert lacking.value.remedy.for_command_line().endswith("repeat the sparta encode command with --resume")
    with pytest.raises(Interrupted), at("rename", "shard-*.safetensors", ctrl_c):
        encode("out", resume=True)
    with pytest.raises(InputError, match="the encoding in this folder is unfinished"):
        list(read_shards([folder]))
    encode("out", resume=True)
    assert len(list(read_shards([folder]))) == len(SHARDS)
    with pytest.raises(IndexStateError, match="already contains files"):
        encode(f"out/{SHARDS[1]}")


def test_a_process_killed_before_its_first_shard(encode):
    whole, _ = encode("whole")
    begun = whole.parent / "begun"
    (begun / "tokenizer").mkdir(parents=True)
    (begun / "tokenizer" / "tokenizer.json").write_text("{ cut sho")
    (begun / ".sparta-0123456789abcdef.tmp").write_bytes(b"half a manif")
    folder, _ = encode("begun", resume=True)
    assert contents(folder) == contents(whole)
    assert (folder / "tokenizer" / "tokenizer.json").read_bytes() == (
        whole / "tokenizer" / "tokenizer.json"
    ).read_bytes()
    (folder / ".sparta-0123456789abcdef.tmp").write_bytes(b"half a shard")
    encode("begun", resume=True)
    assert not list(folder.glob(".sparta-*"))


def test_what_is_there_is_not_overwritten(encode, tmp_path):
    encode("out")
    with pytest.raises(IndexStateError, match="output folder already contains files") as caught:
        encode("out")
    assert Option("resume", True) in caught.value.remedy.options
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    for resume in (False, True):
        with pytest.raises(IndexStateError):
            encode("notes", resume=resume)
    assert [p.name for p in (tmp_path / "notes").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"top_k": 5}, "top_k"),
        ({"min_weight": 0.1}, "min_weight"),
        ({"shard_size": 8}, "shard_size"),
        ({"unit": "sentence"}, "unit"),
        ({"dtype": "bf16"}, "dtype"),
        ({"part": (0, 2)}, "part"),
    ],
)
def test_resume_refuses_other_options(encode, encoded, change, named):
    folder, _ = encode("out")
    (folder / SHARDS[2]).unlink()
    del encoded[:]
    with pytest.raises(IndexStateError, match=f"settings: {named}"):
        encode("out", resume=True, **change)
    assert encoded == []


def test_resume_goes_on_with_other_devices(encode):
    folder, _ = encode("out")
    whole = contents(folder)
    (folder / SHARDS[2]).unlink()
    encode("out", resume=True, devices=("cpu", "cpu"))
    assert contents(folder) == whole


def test_resume_refuses_another_model(encode, make_tiny_model, tiny_model):
    folder, _ = encode("out")
    (folder / SHARDS[2]).unlink()
    other = make_tiny_model(tiny_model.config, seed=5)
    with pytest.raises(IndexStateError, match=r"settings: model \(.*sha256"):
        encode("out", resume=True, model=other)


@pytest.mark.parametrize("change", ["text", "title", "id", "order", "extra"])
def test_resume_refuses_a_changed_corpus(encode, corpus, tmp_path, write_jsonl, change):
    records = [json.loads(line) for line in corpus.read_text().splitlines()]
    folder, _ = encode("out")
    (folder / SHARDS[6]).unlink()
    if change == "order":
        records[2], records[3] = records[3], records[2]
    elif change == "extra":
        records[3]["source"] = "elsewhere"
    else:
        records[3][change] = "moon"
    changed = write_jsonl(tmp_path / "changed.jsonl", records)
    with pytest.raises(InputError, match="no longer has the passages") as caught:
        encode("out", source=changed, resume=True)
    assert caught.value.where.endswith(SHARDS[0])


@pytest.mark.parametrize("left", [0, 5])
def test_resume_refuses_a_corpus_that_lost_its_tail_between_two_shards(
    encode, corpus, tmp_path, write_jsonl, left
):
    records = [json.loads(line) for line in corpus.read_text().splitlines()]
    folder, _ = encode("out")
    kept = [record for record in records if record["text"].strip()][: left * SIZE]
    shorter = write_jsonl(tmp_path / "shorter.jsonl", [*kept, {"id": "blank", "text": " "}])
    with pytest.raises(InputError, match="no longer has the passages") as caught:
        encode("out", source=shorter, resume=True)
    assert caught.value.where == str(folder / SHARDS[left])


def test_a_second_command_in_a_folder_is_refused(encode):
    """It would take the files that the first one is writing for left-overs."""
    folder, _ = encode("out")
    temporary = folder / ".sparta-0123456789abcdef.tmp"
    with writing(folder):
        temporary.touch()
        with pytest.raises(IndexStateError, match="another process is writing to this folder") as caught:
            encode("out", resume=True)
        assert Option("output") in caught.value.remedy.options
        assert temporary.exists()
        encode("part", part=(1, 2))
    encode("out", resume=True)
    assert not temporary.exists()


def test_a_bad_record_keeps_what_came_before(encode, corpus, tmp_path):
    lines = corpus.read_text().splitlines()
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join([*lines[:30], "{", *lines[30:]]))
    with pytest.raises(InputError, match="broken JSON") as caught:
        encode("out", source=broken)
    assert caught.value.where == f"{broken}:31"
    done = contents(tmp_path / "out")
    assert set(done) <= set(SHARDS[:4])
    with pytest.raises(InputError, match="is unfinished"):
        ShardFolder(tmp_path / "out")
    whole = contents(encode("whole")[0])
    assert done.items() <= whole.items()


def test_gzip_makes_no_difference(encode, corpus, tmp_path):
    packed = tmp_path / "corpus.jsonl.gz"
    packed.write_bytes(gzip.compress(corpus.read_bytes()))
    assert contents(encode("packed", source=packed)[0]) == contents(encode("plain")[0])


def vectors(folder: Path) -> list[dict[int, float]]:
    return [
        dict(zip(s.rows.term_ids[a:b].tolist(), s.rows.weights[a:b].tolist(), strict=True))
        for s in ShardFolder(folder)
        for a, b in zip(s.rows.indptr[:-1], s.rows.indptr[1:], strict=True)
    ]


def test_top_k_and_min_weight(encode):
    full = vectors(encode("full")[0])
    assert max(len(v) for v in full) > 12
    for k in (1, 12):
        strongest = [dict(sorted(v.items(), key=lambda item: (-item[1], item[0]))[:k]) for v in full]
        assert vectors(encode(f"top{k}", top_k=k)[0]) == strongest
    middle = float(np.median([w for v in full for w in v.values()]))
    folder, report = encode("heavy", min_weight=middle)
    assert vectors(folder) == [{t: w for t, w in v.items() if w >= np.float32(middle)} for v in full]
    folder, report = encode("none", min_weight=1e6)
    assert vectors(folder) == [{}] * N
    assert report.without_terms == N
    assert report.mean_terms == 0


def test_the_language_decides_where_sentences_end(encode, tmp_path, write_jsonl):
    records = [{"id": "a", "text": "Das war am 3. Mai. Dann kam z. B. der Mond."}]
    source = write_jsonl(tmp_path / "one.jsonl", records)
    ids = {}
    for language in ("en", "de"):
        folder, _ = encode(language, source=source, unit="sentence", language=language)
        ids[language] = next(iter(ShardFolder(folder))).passage_ids
    assert len(ids["de"]) < len(ids["en"])
    with pytest.raises(IndexStateError, match="language"):
        encode("de", source=source, unit="sentence", language="en", resume=True)


def test_sentences_as_units(encode, tmp_path, write_jsonl, tiny_model):
    text = "Larry Page founded it. It was a company.  The end!"
    records = [
        {"id": "g", "title": "Google", "text": text, "year": 1998},
        {"id": "a", "text": "city", "context": "the city of paris", "start": 4, "end": 8},
    ]
    folder, report = encode("out", source=write_jsonl(tmp_path / "two.jsonl", records), unit="sentence")
    (shard,) = ShardFolder(folder)
    assert shard.passage_ids == ("g#0", "g#1", "g#2", "a")
    stored = [json.loads(r) for r in shard.records]
    assert [r["contents"] for r in stored] == [
        "Larry Page founded it.",
        "It was a company.",
        "The end!",
        "city",
    ]
    assert all(text[r["start"] : r["end"]] == r["contents"] for r in stored[:3])
    assert all((r["passage_id"], r["title"], r["year"]) == ("g", "Google", 1998) for r in stored[:3])
    assert (report.encoded, report.corpus["counts"]["used"]) == (4, 2)
    rows = vectors(folder)
    alone = tiny_model.encode_document("It was a company.", dtype="fp32")
    assert rows[1].keys() == set(alone.indices.tolist())


def test_shares_are_put_together(encode):
    whole = list(ShardFolder(encode("whole")[0]))
    folders = [encode(f"part{i}", part=(i, 3))[0] for i in range(3)]
    joined = list(read_shards(reversed(folders)))
    assert [s.passage_ids for s in joined] == [s.passage_ids for s in whole]
    for ours, theirs in zip(joined, whole, strict=True):
        np.testing.assert_array_equal(ours.rows.weights, theirs.rows.weights)
    for left_out in range(3):
        with pytest.raises(InputError, match="a gap") as caught:
            list(read_shards(f for i, f in enumerate(folders) if i != left_out))
        assert "all machines" in str(caught.value.remedy)


def test_the_last_share_cannot_be_forgotten(encode):
    """Two shards on two machines: the first alone looks like a whole corpus."""
    first, _ = encode("first", part=(0, 2), shard_size=30)
    with pytest.raises(InputError, match=f"the corpus has {N}, but a gap follows the first 30"):
        list(read_shards([first]))


def test_damaged_shards_are_told(encode):
    folder, _ = encode("out")
    path = folder / SHARDS[1]
    path.write_bytes(path.read_bytes()[:-9])
    for read in (lambda: read_shard(path), lambda: list(read_shards([folder]))):
        with pytest.raises(InputError, match="the shard cannot be read") as caught:
            read()
        assert caught.value.where == str(path)
        assert Option("resume", True) in caught.value.remedy.options
    path.unlink()
    encode("out", resume=True)
    assert len(list(read_shards([folder]))) == 7


def test_other_files_are_no_shards(encode):
    folder, _ = encode("out")
    shutil.copy(folder / SHARDS[0], folder / "shard-0.safetensors")
    (folder / ".shard-000001.safetensors.tmp").touch()
    assert list(shard_files(folder)) == list(range(7))


def test_wrong_options():
    from sparta.shards.encode import EncodeOptions

    for part in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(InputError, match="0 ≤ i < n"):
            EncodeOptions(part=part)
    with pytest.raises(InputError, match="shard_size must be at least 1"):
        EncodeOptions(shard_size=0)
    assert EncodeOptions(token_budget=9).identity() == EncodeOptions().identity(), "to resume elsewhere"


def test_stopping_does_not_wait_for_the_blocks_that_run(tiny_model, make_records):
    """One block is ahead of what was asked for; when nobody wants it any more, it ends at its next batch."""
    from sparta.base.records import Passage
    from sparta.shards.encode import EncodeOptions, ShardEncoder
    from sparta.shards.folder import blocks_of

    records = make_records(4000, seed=2)
    passages = [Passage(r["id"], r["text"]) for r in records]
    seen: list[int] = []
    options = EncodeOptions(shard_size=5, dtype="fp32", token_budget=100)
    small, large = blocks_of(passages[:5], 5), [(1, 5, passages[5:])]
    stream = ShardEncoder(tiny_model, options).encode([*small, *large], seen.append)
    next(stream)
    stream.close()
    assert sum(seen) < len(passages) // 2


def test_weights_that_were_overwritten_are_refused(encode):
    from sparta.base.errors import InputError
    from sparta.shards.folder import shard_files
    from sparta.shards.store import read_shard

    folder, _ = encode("flipped")
    path = next(iter(shard_files(folder).values()))
    data = bytearray(path.read_bytes())
    for place in (len(data) - 9, len(data) // 2):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(bytes(changed))
        with pytest.raises(InputError, match=r"their hashes differ"):
            read_shard(path)
