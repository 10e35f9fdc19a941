"""Copies of a folder at each write, as a kill would leave it: the process that writes stops itself there."""

from __future__ import annotations

import os
import shutil
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

from sparta.base import files


def stop() -> None:
    """Stop this process, with all its threads, until `copies_at_stops` has copied its folder."""
    signal.raise_signal(signal.SIGSTOP)  # to this thread: os.kill would let it go on for a moment


def stop_after_writes() -> None:
    """Have this process stop when a file is complete, under its temporary name and not yet in its place."""
    synced = vars(files)["_sync"]

    def stopping(path: Path, *folder: object) -> None:
        synced(path, *folder)
        if not folder:
            stop()

    vars(files)["_sync"] = stopping


def copies_at_stops(work: Callable[[], object], folder: Path) -> int:
    """Do some work in a fork of this process; copy a folder to FOLDER-0, FOLDER-1 … where the work stops.

    :return: the number of stops, each of which left a copy
    :raises RuntimeError: the work failed; it has printed why.
    """
    if (child := os.fork()) == 0:
        code = 70
        try:
            work()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    stops, status = 0, None
    try:
        while os.WIFSTOPPED(status := os.waitpid(child, os.WUNTRACED)[1]):
            shutil.copytree(folder, f"{folder}-{stops}")
            stops += 1
            os.kill(child, signal.SIGCONT)
    finally:
        if status is None or os.WIFSTOPPED(status):
            os.kill(child, signal.SIGKILL)
    if code := os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"the work ended with {code}")
    return stops
