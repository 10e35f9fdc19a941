"""What hostile files do to the commands that meet them: time, memory, exit code, and what is written.

    python -m tests.hostile.table            prints the table

A command runs in a child of this process, which has loaded what the commands load, so that its memory is
measured above that of an idle process. `sparta verify` runs after it, where it must see the damage.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import NamedTuple

import jnius_config

from tests.conftest import JAVA_OPTIONS
from tests.hostile import cases
from tests.hostile.cases import Case
from tests.hostile.originals import make
from tests.programs import dense, hybrid, sparta

MOST_SECONDS, MOST_MEGABYTES = 5.0, 500.0
_KILLED_AFTER = 20
_OTHER_PROGRAMS = (
    *("hybrid.integrations.", "hybrid.replications.", "hybrid.service."),
    "sparta.export.modeling_sparta",
)
ROOT = Path(__file__).parents[2]


class Outcome(NamedTuple):
    """What a command did: `faults` says what it must not have done, empty where all is well."""

    case: Case
    code: int
    seconds: float
    megabytes: float
    said: str
    faults: tuple[str, ...]


def outcomes(chosen: Sequence[Case]) -> Iterator[Outcome]:
    """Run the cases, each on fresh copies of the originals."""
    with tempfile.TemporaryDirectory() as place:
        originals = Path(place) / "originals"
        originals.mkdir()
        _load()
        _in_a_child(lambda: make(originals))
        for case in chosen:
            yield _outcome(case, originals, Path(place) / "case")


def _in_a_child(work: Callable[[], object]) -> None:
    """Do some work in a fork of this process, which must not start Java: its own forks do."""
    if (child := os.fork()) == 0:
        code = 70
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _load() -> None:
    """Load what commands load, but Java, which gets the options of tests: each command takes 0.1 s less."""
    jnius_config.add_options(*JAVA_OPTIONS)
    import faiss  # noqa: F401
    import openvino  # noqa: F401
    import torch  # noqa: F401
    import transformers.models.auto.modeling_auto
    import transformers.models.bert.modeling_bert  # noqa: F401

    for package in ("cli", "dense", "hybrid", "sparta"):
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.startswith(_OTHER_PROGRAMS):
                import_module(module.name)


def _outcome(case: Case, originals: Path, folder: Path) -> Outcome:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(originals, folder)
    (folder / "outside").mkdir()
    (folder / "outside/precious").write_text("precious")
    case.damage(folder)
    outside = _state(folder)
    commands = [case.arguments] + [("verify", "--index", "index")] * case.verified
    codes, seconds, megabytes, said = _run(commands, folder)
    faults = []
    if _state(folder) != outside:
        faults.append("wrote outside the index")
    if not 0 < codes[0] < 3:
        faults.append(f"ended with {codes[0]}")
    if codes[1:] not in ([], [1]):
        faults.append(f"verify ended with {codes[1:]}")
    if "Traceback" in said:
        faults.append("a traceback")
    if seconds > MOST_SECONDS:
        faults.append(f"took {seconds:.1f} s")
    if megabytes > MOST_MEGABYTES:
        faults.append(f"took {megabytes:,.0f} MB")
    first = next((line for line in said.splitlines() if "error" in line.lower()), said[-200:])
    return Outcome(case, codes[0], seconds, megabytes, first, tuple(faults))


def _state(folder: Path) -> str:
    """A hash of all files that a command must leave as they are: all but its index and its outputs."""
    own = ("index", "new", "run.trec", "vectors")
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.relative_to(folder).parts[0] not in own and path.is_file():
            digest.update(f"{path}{path.stat().st_size}{path.stat().st_mtime_ns}".encode())
    return digest.hexdigest()


def _run(commands: Sequence[Sequence[str]], folder: Path) -> tuple[list[int], float, float, str]:
    """Exit codes, seconds, megabytes above those of this process, and what was printed."""
    output, codes = folder.parent / "output", folder.parent / "codes"
    codes.unlink(missing_ok=True)
    idle = idle_bytes()
    started = time.monotonic()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _be_commands(commands, folder, output, codes)
    deadline = started + _KILLED_AFTER
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    seconds = time.monotonic() - started
    megabytes = (usage.ru_maxrss * 1024 - idle) / 1e6
    ends = [int(code) for code in codes.read_text().split()] if codes.exists() else []
    if len(ends) < len(commands):
        ends.append(os.waitstatus_to_exitcode(status))
    return ends, seconds, megabytes, output.read_text(errors="replace")


@functools.cache
def idle_bytes() -> int:
    """The memory of a child of this process that does nothing."""
    if (child := os.fork()) == 0:
        os._exit(0)
    return int(os.wait4(child, 0)[2].ru_maxrss) * 1024


def _be_commands(commands: Sequence[Sequence[str]], folder: Path, output: Path, codes: Path) -> None:
    """Run commands, note how each ended, and end this process."""
    code = 70
    try:
        os.chdir(folder)
        stream = os.open(output, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        for name in ("stdout", "stderr"):
            setattr(sys, name, open(1, "w", buffering=1, closefd=False))  # noqa: SIM115
        for arguments in commands:
            code = _command(arguments)
            with codes.open("a") as stream_of_codes:
                stream_of_codes.write(f"{code}\n")
    except BaseException:
        with contextlib.suppress(Exception):
            traceback.print_exc()
    finally:
        os._exit(code)


def _command(arguments: Sequence[str]) -> int:
    programs = {"dense": dense, "hybrid": hybrid}
    program = programs.get(arguments[0], sparta)
    try:
        program.main([*arguments[1:]] if arguments[0] in programs else [*arguments], standalone_mode=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def row(outcome: Outcome) -> str:
    """A line of the table, in Markdown."""
    case, told = outcome.case, outcome.said.removeprefix("error: ")[:90].replace("|", "/")
    verdict = "; ".join(outcome.faults) or "ok"
    return (
        f"| {case.kind} | {case.what} | {case.arguments[0]} | {outcome.code} | {outcome.seconds:.2f}"
        f" | {max(0.0, outcome.megabytes):.0f} | {told} | {verdict[:300]} |"
    )


def main() -> None:
    """Print the table of all cases, or of those whose kind or damage holds an argument."""
    words = sys.argv[1:]
    named = {id(case): f"{case.kind} {case.what}" for case in cases.CASES}
    chosen = [case for case in cases.CASES if not words or any(word in named[id(case)] for word in words)]
    print("| file | damage | command | code | s | MB | said | verdict |\n|---|---|---|---|---|---|---|---|")
    bad = 0
    for outcome in outcomes(chosen):
        print(row(outcome), flush=True)
        bad += bool(outcome.faults)
    print(f"\n{len(chosen)} files, {bad} with faults")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
