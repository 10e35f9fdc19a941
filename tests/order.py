"""The order of the tests, and which of them share a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LONGEST_FILES = (
    *("test_wheel.py", "hostile/test_hostile_files.py", "sparta/index/test_crash.py"),
    *(
        "sparta/lucene/test_jvm.py",
        "sparta/training/test_resuming.py",
        "sparta/lucene/test_live_statistics.py",
    ),
    *("sparta/index/test_resume.py", "test_docs.py", "sparta/lucene/test_pyserini.py"),
    *("hybrid/opensearch/test_push.py", "sparta/models/test_splade.py", "dense/training/test_two_stages.py"),
    *("sparta/export/test_sentence_transformers.py", "test_walks.py", "sparta/index/test_sync.py"),
    *("sparta/runtime/test_calibration.py", "sparta/data/test_forms.py", "hybrid/service/test_faults.py"),
    *(
        "sparta/index/test_verify.py",
        "hybrid/answering/test_example_answers.py",
        "dense/channel/test_indexing.py",
    ),
    *("sparta/models/test_foreign.py", "cli/test_path_commands.py", "sparta/lucene/test_codec.py"),
    *("dense/channel/test_dense_filters.py", "cli/test_disk.py", "sparta/reader/test_training.py"),
    *("test_growth.py", "sparta/index/test_changes.py", "sparta/sharing/test_backup.py"),
    *("sparta/training/test_learning.py", "sparta/test_cold.py", "dense/channel/test_dense_commands.py"),
)
"""The files that take 20 seconds and more run first, so that no process waits for another at the end."""
TOGETHER = "tests/hybrid/integrations/"
"""Files of this folder run in one process: the packages that they integrate take long to import."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files of `TOGETHER` first, then the longest. All other tests keep their order."""
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONGEST_FILES)}

    def place(item: pytest.Item) -> int:
        return -1 if item.nodeid.startswith(TOGETHER) else places.get(item.path, len(places))

    items.sort(key=place)


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
