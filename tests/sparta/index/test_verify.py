"""Damage of every file of an index is told: by `sparta verify` always, by opening where that is quick."""

from __future__ import annotations

import errno
import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from dense.channel.sync import build_dense
from dense.models.bi_encoder import DenseModel
from dense.models.config import DenseConfig
from sparta import Index, IndexOptions
from sparta.base.errors import IndexStateError, StorageError
from sparta.index.channels import Synced
from sparta.index.folder import IndexFolder
from sparta.index.snapshot import newest_commit
from sparta.index.verify import verify_index
from sparta.lucene.bridge import check_index
from sparta.neural.inputs import InputLayout
from tests.moments import at, watched
from tests.programs import dense, sparta

pytestmark = pytest.mark.jvm
_HEADER, _FOOTER = bytes.fromhex("3fd76c17"), bytes.fromhex("c02893e800000000")
"""The marks of Lucene's CodecUtil at the beginning and at the end of a file."""


@pytest.fixture(scope="module")
def whole(tiny_model_folder, make_tiny_model, make_records, tmp_path_factory) -> Path:
    """An index of two segments with a dense channel."""
    folder = tmp_path_factory.mktemp("whole")
    records = list(make_records(40, seed=3))
    for name, part in (("a", records[:25]), ("b", records[25:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in part))
    given = ["--model", tiny_model_folder, "--index", folder / "ix", "--quiet"]
    assert sparta("index", "--corpus", folder / "a.jsonl", *given).exit_code == 0
    assert sparta("index", "--append", "--corpus", folder / "b.jsonl", *given).exit_code == 0
    made = make_tiny_model(seed=7)
    layout = InputLayout(use_title=True, answer_segment=0, max_length=64, overlap=0)
    DenseModel(made.encoder, made.tokenizer, DenseConfig(layout)).save_pretrained(folder / "dense")
    build_dense(folder / "ix", str(folder / "dense"))
    return folder / "ix"


@pytest.fixture
def index(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "ix")
    return tmp_path / "ix"


def files(index: Path) -> Iterator[Path]:
    """All files of an index whose contents matter."""
    for path in sorted(index.rglob("*")):
        if path.is_file() and path.name not in ("lock", "write.lock"):
            yield path


def flip(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[min(len(data) - 1, int(at * len(data)))] ^= 0x20
    path.write_bytes(bytes(data))


def test_what_is_whole_is_whole(whole: Path) -> None:
    for quick in (False, True):
        parts = verify_index(whole, quick=quick)
        assert [part.name for part in parts] == ["manifest", "tokenizer", "Lucene index", "dense channel"]
        assert [part.problem for part in parts] == [""] * 4
    result = sparta("verify", "--index", whole)
    assert result.exit_code == 0
    assert "ok   Lucene index: 40 passages" in result.output
    assert sparta("verify", "--index", whole, "--json").stdout.count('"problem": ""') == 4


def test_passages_without_vectors_are_counted(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparta.index.pipeline.sync_channels", lambda *_, **__: Synced())
    with Index(index) as opened:
        opened.delete(["d1"])
        assert verify_index(index)[-1].state == "whole"
        opened.append([{"id": "new", "text": "A new moon."}])
        passages = len(opened)
    part = verify_index(index)[-1]
    assert (part.state, part.problem) == (f"1 of {passages} passages have no vector", "")
    for command in (["verify", "--quick"], ["doctor", "--quick"]):
        result = sparta(*command, "--index", index)
        assert result.exit_code == 0, result.output
        assert f"1 of {passages} passages have no vector" in result.stdout
        assert f"→ dense index --index {index}\n" in result.stdout
    with IndexFolder(index).lock():
        assert "wait until it is done" in sparta("verify", "--quick", "--index", index).stdout


@pytest.mark.slow
def test_a_flipped_byte_in_any_file_is_found(whole: Path, index: Path) -> None:
    """At four places of each file."""
    found, missed = 0, []
    for path in files(index):
        before = path.read_bytes()
        for place in (0.1, 0.4, 0.7, 0.999):
            flip(path, place)
            parts = verify_index(index)
            found += 1
            if not any(part.problem for part in parts):
                missed.append((path.relative_to(index), place))
            path.write_bytes(before)
    assert found > 50
    assert not missed
    assert not any(part.problem for part in verify_index(index))


@pytest.mark.parametrize("damage", ["missing", "empty", "half"])
def test_a_file_that_is_not_there_or_cut_is_found_by_a_quick_look(index: Path, damage: str) -> None:
    missed = []
    for path in files(index):
        before = path.read_bytes()
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(before[: len(before) // 2] if damage == "half" else b"")
        result = sparta("verify", "--quick", "--index", index)
        assert "Traceback" not in result.output
        assert result.exit_code in (0, 1)
        if result.exit_code == 0:
            missed.append(str(path.relative_to(index)))
        path.write_bytes(before)
    assert missed in ([], ["dense-000001/manifest.json"]), "without it there is no dense channel to look at"


def test_damage_is_told_when_a_small_index_is_searched_or_exported(index: Path, tmp_path: Path) -> None:
    segment = max(
        (p for p in index.glob("sparta-*/*") if "segments" not in p.name), key=lambda p: p.stat().st_size
    )
    flip(segment, 0.5)
    for command in (
        ["search", "the moon"],
        ["search", "the moon", "--channel", "bm25"],
        ["export", "--format", "ciff", "--output", tmp_path / "out.ciff"],
        ["doctor", "--quick"],
    ):
        result = sparta(*command, "--index", index)
        assert result.exit_code in (1, 2), command
        assert "damaged" in result.output, command
    assert not (tmp_path / "out.ciff").exists()


def test_an_index_without_passages_yet_is_no_damage(tmp_path: Path, tiny_model_folder: Path) -> None:
    """As search says it: its command goes on."""
    (tmp_path / "a.jsonl").write_text('{"id": "1", "text": ""}\n')
    given = ["--corpus", tmp_path / "a.jsonl", "--index", tmp_path / "ix", "--model", tiny_model_folder]
    assert sparta("index", *given).exit_code == 2
    for command in (["verify"], ["verify", "--quick"], ["doctor", "--quick"]):
        result = sparta(*command, "--index", tmp_path / "ix")
        assert result.exit_code == 1
        assert "no passages yet" in result.output
        assert "--resume" in result.output
        assert "damaged" not in result.output
        assert "--overwrite" not in result.output
    assert "--resume" in sparta("search", "moon", "--index", tmp_path / "ix").output


def test_a_lost_commit_has_one_remedy(index: Path) -> None:
    """In all parts of the index that miss it, and as search says it; nothing of Java."""
    for path in index.glob("sparta-*/segments_*"):
        path.unlink()
    for command in (["verify"], ["verify", "--quick"], ["doctor", "--quick"], ["search", "moon"]):
        result = sparta(*command, "--index", index)
        assert result.exit_code in (1, 2)
        assert "the Lucene index has lost its commit (segments_*)" in result.output
        assert "--overwrite" in result.output
        assert "--resume" not in result.output
        assert "Directory@" not in result.output


def test_a_flipped_vector_is_never_searched(index: Path) -> None:
    (shard,) = index.glob("dense-*/vectors-*/shard-*")
    flip(shard, 0.9)
    result = sparta("search", "the moon", "--channel", "dense", "--index", index)
    assert result.exit_code == 2
    assert "checksum" in result.output
    assert "→ delete this file, and run: dense index" in result.output


def hits(index: Path, channel: str) -> Result:
    return sparta("search", "the moon of the earth", "--channel", channel, "--json", "--index", index)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "empty", "half", "flipped"])
def test_the_remedies_that_are_printed_work(
    whole: Path, tmp_path: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Every file in turn; following what is printed, at most two commands make the index whole again."""
    monkeypatch.setattr("dense.models.resolve.DEFAULT_DENSE_MODEL", str(whole.parent / "dense"))
    corpus = tmp_path / "all.jsonl"
    corpus.write_text("".join((whole.parent / f"{name}.jsonl").read_text() for name in "ab"))
    wanted = {channel: hits(whole, channel).stdout for channel in ("impact", "dense")}
    assert all(wanted.values())
    cases, steps_of = 0, {}
    for original in files(whole):
        index = tmp_path / "ix"
        shutil.rmtree(index, ignore_errors=True)
        shutil.copytree(whole, index)
        path = index / original.relative_to(whole)
        data = path.read_bytes()
        match damage:
            case "missing":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
            case "half":
                path.write_bytes(data[: len(data) // 2])
            case "flipped":
                flip(path, 0.5)
        cases += 1
        steps = 0
        for channel in ("impact", "dense"):
            while (result := hits(index, channel)).exit_code:
                assert "Traceback" not in result.output, (path, result.output)
                assert isinstance(result.exception, SystemExit), (path, result.exception)
                follow(result.output, index, corpus, tiny_model_folder)
                steps += 1
                assert steps <= 2, (path, result.output)
            assert result.stdout == wanted[channel], path
        steps_of[str(path.relative_to(index))] = steps
    assert cases == len(steps_of) > 10
    assert set(steps_of.values()) <= {0, 1, 2}


def follow(said: str, index: Path, corpus: Path, model: Path) -> None:
    """Type what is printed behind the arrow."""

    _, _, remedy = said.partition("→ ")
    if "sparta index --corpus FILE --overwrite" in remedy:
        sparta("index", "--corpus", corpus, "--overwrite", "--index", index, "--model", model, "--quiet")
        return
    assert "dense index" in remedy, said
    if "delete this file" in remedy:
        Path(said.split(": ")[1]).unlink()
    command = ["index", "--index", str(index), "--quiet"]
    overwrite = ["--overwrite"] if "--overwrite" in remedy else []
    done = dense(*command, *overwrite)
    assert done.exit_code == 0, (said, done.output)


def problems_of(index: Path) -> list[str]:
    return [part.problem for part in verify_index(index)]


def test_a_commit_during_the_check_is_no_damage(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lucene removes files of the replaced commit, the dense channel its rows; the check starts again."""
    checks = []

    def check(path: Path) -> str:
        checks.append(path)
        if len(checks) == 1:
            with Index(index) as changed:
                changed.delete(["p1"])
            raise IndexStateError("NoSuchFileException: _0_1.liv")
        return check_index(path)

    monkeypatch.setattr("sparta.index.verify.check_index", check)
    assert problems_of(index) == [""] * 4
    assert len(checks) == 2
    with Index(index) as changed, at("read", "rows-*.npy", lambda: changed.delete(["p2"])):
        assert problems_of(index) == [""] * 4


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("ix/manifest.json", "manifest"),
        ("tokenizer.json", "tokenizer"),
        ("segments_*", "Lucene index"),
        ("rows-*.npy", "dense channel"),
        ("vectors-*/manifest.json", "dense channel"),
        ("shard-*.safetensors", "dense channel"),
    ],
)
def test_a_file_without_permission_is_not_damaged(whole: Path, pattern: str, part: str) -> None:
    def refuse(action: str, path: Path) -> None:
        if action == "read" and path.match(pattern):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with watched(refuse):
        parts = {part.name: part for part in verify_index(whole, quick=True)}
    assert "the file cannot be read: Permission denied" in parts[part].problem
    assert str(parts[part].remedy).startswith("change the permissions")


def test_a_folder_that_cannot_be_listed_is_not_empty(whole: Path, monkeypatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(StorageError, match="cannot be read: Permission denied"):
        newest_commit(whole)


def test_an_overwrite_during_the_check_is_no_damage(index: Path) -> None:
    """The overwrite removes the folders of the replaced generation."""
    new, options = [{"id": "1", "text": "moon"}], IndexOptions(channels="bm25")
    with at("read", "tokenizer.json", lambda: Index.create(index, new, overwrite=True, options=options)):
        assert problems_of(index) == [""] * 4


def test_postings_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    """Damage before the checksums were computed, as in bad memory or by a stranger who publishes an index."""
    records = [{"id": f"p{i}", "text": f"alpha word{i % 7} beta beta"} for i in range(300)]
    options = IndexOptions(channels="bm25", threads=1)
    Index.create(tmp_path / "ix", records, options=options).close()
    [compound] = (tmp_path / "ix").glob("sparta-*/*.cfs")
    data = bytearray(compound.read_bytes())
    begin = data.index(b"PostingsWriterDoc")
    end = data.index(_FOOTER, begin)
    start = data.rindex(_HEADER, 0, begin)
    data[end - 30] ^= 1
    data[end + 8 : end + 16] = zlib.crc32(data[start : end + 8]).to_bytes(8, "big")
    data[-8:] = zlib.crc32(data[:-8]).to_bytes(8, "big")
    compound.write_bytes(data)
    problems = {part.name: part.problem for part in verify_index(tmp_path / "ix")}
    assert "totalTermFreq" in problems["Lucene index"]
