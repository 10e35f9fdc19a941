"""Freed memory goes back to the system."""

from __future__ import annotations

import platform

import numpy as np
import psutil
import pytest

from sparta.runtime.memory import return_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc, which keeps freed memory")
def test_freed_memory_goes_back_to_the_system() -> None:
    process = psutil.Process()
    return_freed_memory()  # what other tests of this process have freed
    before = process.memory_info().rss
    blocks = [np.ones(12_000) for _ in range(2_000)]  # 96 kB each, below the size that the system lends alone
    kept, blocks[:] = blocks[::20], []
    return_freed_memory()
    grown = process.memory_info().rss - before
    assert sum(block.nbytes for block in kept) <= grown + 8e6
    assert grown < 60e6, "192 MB were freed, of which glibc keeps those between two blocks in use"
