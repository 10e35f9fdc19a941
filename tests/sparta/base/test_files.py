"""A file is either the old one or the new one, and what the storage refuses is said plainly."""

import bz2
import errno
import gzip
import hashlib
import io
import os
import resource
import socket
import stat
import subprocess
import sys
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest
from click.testing import CliRunner

from sparta.base.disk.streams import Tally, numbered_lines, open_decompressed
from sparta.base.errors import InputError, StorageError
from sparta.base.files import (
    allow_open_files,
    atomic_path,
    atomic_write,
    by_hash,
    raise_if_unreadable,
    sha256_file,
    storage_errors,
    unreadable,
)
from tests.moments import no_temporary_files


def test_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    atomic_write(target, b"new")
    assert target.read_bytes() == b"new"
    atomic_write(target, lambda stream: stream.write(b"newer"))
    assert target.read_bytes() == b"newer"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"]


def test_the_old_file_is_there_until_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    with atomic_path(target) as temporary:
        temporary.write_bytes(b"new")
        assert temporary.parent == tmp_path
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_no_temporary(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")

    def interrupted(stream: BinaryIO) -> None:
        stream.write(b"half")
        raise error

    with pytest.raises(error):
        atomic_write(target, interrupted)
    assert target.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"]


def test_file_and_folder_are_synced_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, bool]] = []
    fsync, target = os.fsync, tmp_path / "a"

    def spy(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        events.append((kind, target.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    atomic_write(target, b"x")
    assert events == [("file", False), ("folder", True)], "the file has its name after its own sync"


def test_new_files_have_the_usual_permissions(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    atomic_write(tmp_path / "atomic", b"")
    assert (tmp_path / "atomic").stat().st_mode == plain.stat().st_mode


def test_a_symbolic_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    atomic_write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        atomic_write(pipe, b"x")
        assert read.result(timeout=10) == b"x"
    assert pipe.is_fifo()


def test_standard_output_by_its_name_keeps_what_its_file_holds(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old\n")
    code = "import sys; from sparta.base.files import atomic_write; atomic_write('/dev/stdout', b'new\\n')"
    with log.open("ab") as stream:
        subprocess.run([sys.executable, "-c", f"{code}; print('last')"], stdout=stream, check=True)
    assert log.read_bytes() == b"old\nnew\nlast\n"


def test_a_missing_folder_or_a_folder_as_target_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        atomic_write(tmp_path / "absent" / "a", b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="directory"):
        atomic_write(tmp_path / "folder", b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_storage_error() -> None:
    with (
        pytest.raises(StorageError, match="No space left") as caught,
        storage_errors("here"),
        Path("/dev/full").open("wb") as full,
    ):
        full.write(b"x" * 100_000)
    assert caught.value.where == "here"
    assert "free some space" in str(caught.value.remedy)


def test_a_disk_that_fills_up_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    def fill(stream: BinaryIO) -> None:
        stream.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    with pytest.raises(StorageError) as caught:
        atomic_write(target, fill)
    assert caught.value.where == str(target)
    assert target.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EPERM])
def test_what_the_storage_refuses_comes_with_a_remedy(number: int) -> None:
    with pytest.raises(StorageError) as caught, storage_errors("x/y"):
        raise OSError(number, os.strerror(number))
    assert caught.value.exit_code == 1
    assert os.strerror(number) in str(caught.value)
    assert "x/y" in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(number: int) -> None:
    with pytest.raises(StorageError, match=r"→ write to another disk: .* lacks locks"), storage_errors("x"):
        raise OSError(number, os.strerror(number))
    with pytest.raises(StorageError) as caught, storage_errors("x", reading=True):
        raise OSError(number, os.strerror(number))
    assert "write" not in str(caught.value)


def test_a_socket_is_no_failing_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.jsonl")
        with pytest.raises(InputError, match="check the path"):
            list(numbered_lines("s.jsonl"))


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE, errno.EINVAL])
def test_a_disk_that_fails_is_told(number: int) -> None:
    with pytest.raises(StorageError) as caught, storage_errors("x"):
        raise OSError(number, os.strerror(number))
    assert os.strerror(number) in caught.value.message
    assert caught.value.where == "x"
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "permissions"),
        (errno.EPERM, "permissions"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENOMEM, "free memory"),
        (errno.ENODEV, "mmap"),
        (errno.ESTALE, "dmesg"),
    ],
)
def test_a_file_that_cannot_be_opened_for_reading_says_nothing_about_its_content(
    number: int, advice: str
) -> None:
    error = OSError(number, os.strerror(number))
    with pytest.raises(StorageError, match="cannot be read: ") as caught:
        raise_if_unreadable("x", error)
    assert advice in str(caught.value.remedy)
    with pytest.raises(StorageError) as in_block, storage_errors("x", reading=True):
        raise error
    assert str(in_block.value) == str(caught.value)
    assert unreadable("x", error).remedy == caught.value.remedy
    assert "writ" not in str(caught.value)
    raise_if_unreadable("x", IsADirectoryError(errno.EISDIR, "x"))
    raise_if_unreadable("x", ValueError())


def test_an_input_file_that_is_missing_comes_with_its_own_remedy() -> None:
    for number in (errno.ENOENT, errno.EISDIR):
        assert "check the path" in str(unreadable("x", OSError(number, os.strerror(number))).remedy)


def test_other_errors_pass() -> None:
    for error in (BrokenPipeError(errno.EPIPE, "pipe"), OSError("bz2 says so")):
        with pytest.raises(OSError, match=str(error.args[-1])) as caught, storage_errors("x"):
            raise error
        assert caught.value is error
    with pytest.raises(InputError), storage_errors("x"):
        open("/no/such/file")  # noqa: PTH123, SIM115


def test_sha256_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")  # the standard's own example
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_file(tmp_path / "a") == expected
    with pytest.raises(InputError):
        sha256_file(tmp_path / "absent")


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("zipped", [True, False])
def test_gzip_is_recognised_by_its_bytes(tmp_path: Path, name: str, zipped: bool) -> None:
    stored = gzip.compress(b"one\ntwo\n") if zipped else b"one\ntwo\n"
    (tmp_path / name).write_bytes(stored)
    if name.endswith(".gz") and not zipped:
        with pytest.raises(InputError, match="damaged or incomplete"):
            list(numbered_lines(tmp_path / name))
        return
    tally = Tally()
    with open_decompressed(tmp_path / name, tally) as stream:
        assert stream.read() == b"one\ntwo\n"
    assert tally.size == len(stored)
    assert tally.sha256() == hashlib.sha256(stored).hexdigest()


class Dripping(io.BytesIO):
    """Gives one byte a time, as a slow pipe may."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(min(1, 1 if size is None else size))


def test_standard_input_may_drip() -> None:
    drip = Dripping(gzip.compress(b"one\ntwo"))
    with CliRunner().isolation(input=drip):
        assert list(numbered_lines("-")) == [(1, b"one"), (2, b"two")]
        assert not drip.closed


def test_lines_are_numbered_as_in_an_editor(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf\n\n one \r\n  \r\n\t\nlast")
    assert list(numbered_lines(tmp_path / "a")) == [(3, b" one "), (5, b"\t"), (6, b"last")]


def test_a_gzip_of_two_members_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert [line for _, line in numbered_lines(tmp_path / "a.gz")] == [b"one", b"two"]


def test_a_folder_cannot_be_read_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Is a directory"):
        list(numbered_lines(tmp_path))


def test_a_text_that_begins_as_bzip2_does_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"BZh1\ta text\nBZh9\tanother\n")
    assert [line for _, line in numbered_lines(tmp_path / "a.tsv")] == [b"BZh1\ta text", b"BZh9\tanother"]


@pytest.mark.parametrize("text", [b"", b"one\n"])
def test_bzip2_is_recognised_by_its_bytes(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a").write_bytes(bz2.compress(text))
    with open_decompressed(tmp_path / "a") as stream:
        assert stream.read() == text


def test_a_long_line_of_zstd_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "a.zst").write_bytes(zstandard.ZstdCompressor().compress(bytes(200 << 20)))
    monkeypatch.setenv("SPARTA_MAX_LINE_MB", "1")
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="a line is longer than the limit of 1 MB"):
            list(numbered_lines(tmp_path / "a.zst"))
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


def test_a_zstd_of_two_frames_is_one_file_and_must_be_whole(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    one, two = (zstandard.ZstdCompressor().compress(os.urandom(3000).hex().encode()) for _ in range(2))
    (tmp_path / "a.zst").write_bytes(one + two)
    assert len(b"".join(line for _, line in numbered_lines(tmp_path / "a.zst"))) == 12_000
    (tmp_path / "a.zst").write_bytes(one + two[:-1])
    with pytest.raises(InputError, match="ends within a frame"):
        list(numbered_lines(tmp_path / "a.zst"))


def test_damage_at_the_beginning_of_a_later_bzip2_stream(tmp_path: Path) -> None:
    """Python's own reader takes such damage for the end of the file."""
    first, second = (b"".join(b"line %d\n" % n for n in range(i, i + 1000)) for i in (0, 1000))
    packed = bz2.compress(first) + bz2.compress(second)
    whole = tmp_path / "whole.bz2"
    whole.write_bytes(packed + bytes(20))  # padding, as tapes have it
    assert b"".join(line + b"\n" for _, line in numbered_lines(whole)).split() == (first + second).split()
    start = len(bz2.compress(first))
    for place in (start, start + 5, start + 20):
        damaged = bytearray(packed)
        damaged[place] ^= 64
        (tmp_path / "damaged.bz2").write_bytes(damaged)
        with pytest.raises(InputError):
            list(numbered_lines(tmp_path / "damaged.bz2"))
    for content in (packed[:-10], b"", bytes(5000), packed + b"\n"):
        (tmp_path / "cut.bz2").write_bytes(content)
        with pytest.raises(InputError):
            list(numbered_lines(tmp_path / "cut.bz2"))


def test_open_files_are_allowed_as_far_as_the_hard_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(100, 400)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    assert 100 < allow_open_files(4096) < 200  # half of 400, without the files that are open now
    assert limits[-1] == (400, 400)
    limits[:] = [(100, resource.RLIM_INFINITY)]
    assert allow_open_files(4096) == 4096
    assert limits[-1][0] > 4096
    limits[:] = [(10, 10)]
    assert allow_open_files(4096) == 1


@pytest.mark.parametrize(
    ("parts", "found", "remedy"),
    [
        (
            {"word/document.xml": "x"},
            "a Word document",
            "it: mv {path}.x {path}.x.docx && pandoc -f docx {path}.x.docx -o {path}.md",
        ),
        ({"xl/workbook.xml": "x"}, "a spreadsheet", "save it as CSV in UTF-8"),
        ({"ppt/presentation.xml": "x"}, "a presentation", "save it as PDF"),
        ({"mimetype": "application/epub+zip"}, "an EPUB book", "pandoc -f epub {path}.x.epub -o {path}.md"),
        ({"a.jsonl": "{}"}, "a zip archive", "unzip {path}.x"),
    ],
)
def test_a_document_in_a_zip_archive_is_named(
    tmp_path: Path, parts: dict[str, str], found: str, remedy: str
) -> None:
    path = tmp_path / "report"
    with zipfile.ZipFile(f"{path}.x", "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    with pytest.raises(InputError, match=f"found {found}") as caught:
        list(numbered_lines(f"{path}.x"))
    assert remedy.format(path=path) in str(caught.value.remedy)


def test_splits_follow_the_sha256_of_the_utf8_of_a_key() -> None:
    # sha256sum prints 62cb…, 640b…, 67a3…, 77af… and e3b0…: another order would change what is held out
    words = ["bee", "élan", "ant", "cat", ""]
    assert by_hash({"cat", "ant", "élan", "bee", ""}) == words
    examples = [(n, word) for n, word in enumerate(reversed(words))]
    assert by_hash([*examples, (5, "ant")], lambda example: example[1]) == [
        (4, "bee"),
        (3, "élan"),
        (2, "ant"),
        (5, "ant"),
        (1, "cat"),
        (0, ""),
    ]


def test_standard_output_without_a_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", no_temporary_files)
    with pytest.raises(StorageError, match=r"no folder for temporary files .*\n.*set TMPDIR"):
        atomic_write("-", b"new")
