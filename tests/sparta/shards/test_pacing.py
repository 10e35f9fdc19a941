"""Blocks that take about equally long to encode."""

import pytest

from sparta.base.records import Passage
from sparta.shards.pacing import BLOCK_SECONDS, PacedBlocks


def block_sizes(lengths: list[int], speed: float, largest: int = 512) -> list[int]:
    """Sizes of the blocks when an encoder that works one block behind reads `speed` characters per second."""
    now, sizes = 0.0, []
    blocks = PacedBlocks(largest, lambda: now)
    passages = [Passage(str(number), "x" * length) for number, length in enumerate(lengths)]
    unfinished: list[list[Passage]] = []
    seen: list[Passage] = []
    for number, first, block in blocks.split(passages):
        assert (number, first) == (len(sizes), len(seen))
        seen += block
        sizes.append(len(block))
        unfinished.append(list(block))
        if len(unfinished) > 1:
            now += sum(len(passage.text) for passage in unfinished.pop(0)) / speed
            blocks.finish()
    assert seen == passages
    return sizes


def test_a_block_takes_about_as_long_as_planned():
    sizes = block_sizes([100] * 2000, speed=2000)
    assert sizes[:2] == [32, 32]
    assert sizes[2:-1] == pytest.approx([2000 * BLOCK_SECONDS / 100] * len(sizes[2:-1]), abs=1)


def test_a_slow_encoder_gets_small_blocks():
    assert set(block_sizes([400] * 300, speed=80)[2:]) == {1}


def test_a_fast_encoder_gets_the_largest_blocks():
    assert set(block_sizes([100] * 5000, speed=1e9)[2:-1]) == {512}


def test_long_passages_make_small_blocks():
    sizes = block_sizes([100] * 1000 + [10_000] * 40, speed=2000)
    assert set(sizes[-20:]) == {1}


def test_long_passages_make_small_blocks_before_the_speed_is_known():
    assert block_sizes([10_000] * 40, speed=2000)[:2] == [2, 2]
    assert block_sizes([1_000_000] * 3, speed=2000) == [1, 1, 1]


def test_no_block_is_larger_than_the_largest():
    assert set(block_sizes([100] * 30, speed=2000, largest=3)) == {3}


def test_no_passages_make_no_blocks():
    assert block_sizes([], speed=1) == []
