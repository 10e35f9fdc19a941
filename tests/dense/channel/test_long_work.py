"""A channel that takes long to build: what is kept on the way, what is told of it, and what is not read."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dense.channel.builder import ShardSizes
from dense.channel.encode import VectorOptions, encode_vectors
from dense.channel.sync import build_dense
from dense.search.store import VectorFolder
from sparta.base.errors import Interrupted
from tests.moments import at, ctrl_c, watched
from tests.programs import sparta

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.jvm]


def test_a_block_that_took_a_minute_is_followed_by_one_of_half_its_size() -> None:
    sizes = ShardSizes(largest=20, smallest=4)
    assert [sizes.after(8, seconds) for seconds in (60, 15, 0, 600)] == [4, 16, 20, 4]


@pytest.mark.parametrize(("seconds", "expected"), [(0, [16, 8, 8, 8, 8, 2]), (1e6, [16, 24, 10])])
def test_progress_comes_batch_by_batch_and_work_is_kept_on_the_way(
    index: Path, model: Path, seconds: float, expected: list[int]
) -> None:
    """50 passages, in shards as small as they may be, and as large."""
    steps: list[int] = []
    sums: list[int] = []  # of the progress, whenever a shard is finished

    def see(action: str, path: Path) -> None:
        if action == "rename" and path.match("shard-*"):
            sums.append(sum(steps))

    sizes = ShardSizes(largest=24, first=16, smallest=8, seconds=seconds)
    with watched(see):
        report = build_dense(index, str(model), advance=steps.append, shard_sizes=sizes)
    [store] = index.glob("dense-*/vectors-*")
    written = [len(shard) for shard in VectorFolder(store).shards]
    assert written == expected
    assert sums == list(itertools.accumulate(written)), "work is told of when it is done"
    assert report.encoded == sum(steps) == 50


def test_ctrl_c_after_the_last_vector_says_what_is_kept(index: Path, model: Path) -> None:
    with pytest.raises(Interrupted) as stopped, at("rename", "rows-*.npy", ctrl_c):
        build_dense(index, str(model))
    assert (stopped.value.kept, stopped.value.unit) == (50, "vector")
    assert build_dense(index, str(model)).encoded == 0


def test_what_is_not_read_of_long_passages_is_told(
    index: Path, model: Path, tmp_path: Path, write_jsonl: Any, tiny_model_folder: Path
) -> None:

    build_dense(index, str(model))
    long = write_jsonl(tmp_path / "long.jsonl", [{"id": "long", "text": "the moon of the earth " * 100}])
    given = ["index", "--append", "--corpus", long, "--index", index, "--model", tiny_model_folder, "--quiet"]
    result = sparta(*given)
    assert result.exit_code == 0, result.output
    assert "1 passage cut to the model's longest input, 12.4% of all wordpieces encoded" in result.output
    both = write_jsonl(
        tmp_path / "both.jsonl", [{"id": "a", "text": "the moon " * 281}, {"id": "b", "text": "x"}]
    )
    encode = partial(encode_vectors, both, tmp_path / "v", str(model), VectorOptions(shard_size=1))
    truncated = (1, pytest.approx((62 + 1) / (562 + 1)))
    report, _ = encode()
    assert (report.truncated_passages, report.share_read) == truncated
    (tmp_path / "v/shard-00001.safetensors").unlink()
    resumed, _ = encode(resume=True)
    assert (resumed.encoded, resumed.kept) == (1, 1)
    assert (resumed.truncated_passages, resumed.share_read) == truncated, "kept shards count too"
