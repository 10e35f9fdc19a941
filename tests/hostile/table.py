"""What hostile files do to the commands that meet them: time, memory, exit code, and what is written.

    python -m tests.hostile.table            prints the table

The commands of one kind of file run in a child of this process, which has loaded what the commands load.
Their memory is measured above what the child has before each file. `sparta verify` runs after a command,
where it must see the damage.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, NamedTuple, NoReturn

import jnius_config

from tests.conftest import JAVA_OPTIONS
from tests.hostile import cases
from tests.hostile.cases import Case
from tests.hostile.originals import make
from tests.programs import dense, hybrid, sparta

MOST_SECONDS, MOST_MEGABYTES = 5.0, 500.0
_KILLED_AFTER = 20
_DIED = 70
_OTHER_PROGRAMS = (
    *("hybrid.integrations.", "hybrid.replications.", "hybrid.service."),
    "sparta.export.modeling_sparta",
)
ROOT = Path(__file__).parents[2]


Commands = Sequence[Sequence[str]]


class Ran(NamedTuple):
    """What the commands of a case did. `megabytes` is the growth of their process."""

    codes: list[int]
    seconds: float
    megabytes: float
    said: str


class Outcome(NamedTuple):
    """What a command did: `faults` says what it must not have done, empty where all is well."""

    case: Case
    code: int
    seconds: float
    megabytes: float
    said: str
    faults: tuple[str, ...]


def outcomes(chosen: Sequence[Case]) -> Iterator[Outcome]:
    """Run the cases, each on fresh copies of the originals; those of one kind share a process and Java."""
    with tempfile.TemporaryDirectory() as place:
        originals = Path(place) / "originals"
        originals.mkdir()
        _load()
        _in_a_child(lambda: make(originals))
        for kind, group in groupby(chosen, lambda case: case.kind):
            yield from _outcomes(list(group), originals, Path(place) / kind.replace(" ", "-"))


def _in_a_child(work: Callable[[], object]) -> None:
    """Do some work in a fork of this process, which must not start Java: its own forks do."""
    if (child := os.fork()) == 0:
        code = _DIED
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


def _outcomes(group: list[Case], originals: Path, place: Path) -> Iterator[Outcome]:
    folders = [place / str(number) for number in range(len(group))]
    for case, folder in zip(group, folders, strict=True):
        shutil.copytree(originals, folder)
        (folder / "outside").mkdir()
        (folder / "outside/precious").write_text("precious")
        case.damage(folder)
    before = [_state(folder) for folder in folders]
    commands = [[case.arguments, *[("verify", "--index", "index")] * case.verified] for case in group]
    for case, folder, state, ran in zip(group, folders, before, _run(commands, folders), strict=True):
        yield _outcome(case, ran, _state(folder) != state)
    shutil.rmtree(place)


def _outcome(case: Case, ran: Ran, has_written: bool) -> Outcome:
    codes, seconds, megabytes, said = ran
    faults = []
    if has_written:
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


def _run(commands: Sequence[Commands], folders: Sequence[Path]) -> Iterator[Ran]:
    """Run the commands of each folder. A child goes from folder to folder; where it dies, another goes on."""
    done = 0
    while done < len(folders):
        reader, writer = os.pipe()
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            os.close(reader)
            _be_commands(commands[done:], folders[done:], writer)
        os.close(writer)
        codes: list[int] = []
        started = time.monotonic()
        for event in _events(reader, child):
            if "code" in event:
                codes.append(event["code"])
                continue
            yield Ran(codes, event["seconds"], event["megabytes"], _output(folders[done]))
            done, codes, started = done + 1, [], time.monotonic()
        os.close(reader)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if done < len(folders):
            codes = [*codes, ended or _DIED]
            yield Ran(codes, time.monotonic() - started, 0.0, _output(folders[done]))
            done += 1


def _events(reader: int, child: int) -> Iterator[dict[str, Any]]:
    """Yield what a child tells until it ends, and kill it when it tells nothing for long."""
    rest = b""
    while True:
        if not select.select([reader], [], [], _KILLED_AFTER)[0]:
            os.kill(child, signal.SIGKILL)
        if not (data := os.read(reader, 1 << 16)):
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from map(json.loads, lines)


def _output(folder: Path) -> str:
    path = folder.with_suffix(".txt")
    return path.read_text(errors="replace") if path.exists() else ""


def _be_commands(commands: Sequence[Commands], folders: Sequence[Path], writer: int) -> NoReturn:
    """Run the commands of each folder, tell how each ended, and end this process."""

    def tell(**event: float) -> None:
        os.write(writer, json.dumps(event).encode() + b"\n")

    code = _DIED
    try:
        for name in ("stdout", "stderr"):
            setattr(sys, name, open(1, "w", buffering=1, closefd=False))  # noqa: SIM115
        for arguments_of_folder, folder in zip(commands, folders, strict=True):
            os.chdir(folder)
            stream = os.open(folder.with_suffix(".txt"), os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            os.dup2(stream, 1)
            os.dup2(stream, 2)
            os.close(stream)
            Path("/proc/self/clear_refs").write_text("5")  # the peak of the memory begins here
            before, started = _status("VmRSS"), time.monotonic()
            for arguments in arguments_of_folder:
                tell(code=_command(arguments))
            tell(seconds=time.monotonic() - started, megabytes=(_status("VmHWM") - before) / 1e6)
        code = 0
    except BaseException:
        with contextlib.suppress(Exception):
            traceback.print_exc()
    finally:
        os._exit(code)


def _status(name: str) -> int:
    """Return a number of bytes that Linux tells of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


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
