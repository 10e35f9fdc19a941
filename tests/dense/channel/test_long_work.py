"""A channel that takes long to build: what is kept on the way, what is told of it, and what is not read."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import dense.channel.builder
from dense.channel.encode import VectorOptions, encode_vectors
from dense.channel.sync import build_dense
from dense.search.store import VectorWriter

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.jvm]


def test_progress_comes_batch_by_batch_and_work_is_kept_on_the_way(
    index: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if each block took half a minute; 50 passages."""
    clock = itertools.count(0, 60)
    monkeypatch.setattr(dense.channel.builder, "SHARD_SIZE", 2048)
    monkeypatch.setattr(dense.channel.builder, "_FIRST_BLOCK", 8)
    monkeypatch.setattr(dense.channel.builder, "_SMALLEST_BLOCK", 4)
    monkeypatch.setattr(dense.channel.builder.time, "monotonic", lambda: float(next(clock)))
    written: list[int] = []
    steps: list[int] = []
    add = VectorWriter.add

    def counted(self: Any, positions: Any, *rest: Any, **options: Any) -> Any:
        if not options.get("merged"):
            written.append(len(positions))
        return add(self, positions, *rest, **options)

    monkeypatch.setattr(VectorWriter, "add", counted)
    report = build_dense(index, str(model), advance=steps.append)
    assert sum(written) == report.encoded == sum(steps) == 50
    assert written[:3] == [8, 4, 4], "a block that took a minute is followed by one of half its size"


def test_what_is_not_read_of_long_passages_is_told(
    index: Path, model: Path, tmp_path: Path, write_jsonl: Any, tiny_model_folder: Path
) -> None:
    from click.testing import CliRunner

    import cli._sparta

    build_dense(index, str(model))
    long = write_jsonl(tmp_path / "long.jsonl", [{"id": "long", "text": "the moon of the earth " * 100}])
    given = ["index", "--append", "--corpus", long, "--index", index, "--model", tiny_model_folder, "--quiet"]
    result = CliRunner().invoke(cli._sparta.main, list(map(str, given)))
    assert result.exit_code == 0, result.output
    assert "1 passage cut to the model's longest input, 12.4% of all wordpieces encoded" in result.output
    both = write_jsonl(
        tmp_path / "both.jsonl", [{"id": "a", "text": "the moon " * 281}, {"id": "b", "text": "x"}]
    )
    report, _ = encode_vectors(both, tmp_path / "v", str(model), VectorOptions())
    assert (report.truncated_passages, report.share_read) == (1, pytest.approx((62 + 1) / (562 + 1)))
