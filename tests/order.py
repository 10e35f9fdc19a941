"""The order of the tests, and which of them share a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LONGEST_FILES = (
    *("hostile/test_hostile_files.py", "sparta/index/test_crash.py", "sparta/lucene/test_pyserini.py"),
    *("test_docs.py", "hybrid/service/test_faults.py", "dense/channel/test_indexing.py", "test_wheel.py"),
    *("test_growth.py", "sparta/test_cold.py", "sparta/training/test_resuming.py", "test_walks.py"),
    *("dense/channel/test_dense_commands.py", "hybrid/answering/test_example_answers.py"),
)
"""The files that take 10 seconds and more run first, so that no process waits for another at the end."""
TOGETHER = "tests/hybrid/integrations/"
"""Files of this folder run in one process: the packages that they integrate take long to import."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first. All other tests keep their order."""
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let a file's tests share a process with `--dist loadfile`, and those of the folder `TOGETHER`."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return TOGETHER if nodeid.startswith(TOGETHER) else str(super()._split_scope(nodeid))

    return Scheduling(config, log)
