"""Start Java in this process, once.

Importing this module does not start Java. Code that needs Java calls `start_jvm` first; threads may call it
again at any time.

Most of Java's start time goes into loading Lucene's classes from the jar. An archive of these classes, which
the runtime maps into memory, saves more than half of this time. The archive lies in the cache folder.
scripts/install.sh makes the archive (`python -m sparta.lucene.jvm`); a process without an archive starts
making one in the background when it ends. `SPARTA_JVM_ARCHIVE=off` turns archives off.
"""

from __future__ import annotations

import atexit
import hashlib
import locale
import math
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sparta.base.errors import JavaError
from sparta.base.extras import INSTALLED, REINSTALL, Installation, require_module
from sparta.lucene import LUCENE_VERSION
from sparta.lucene.java_runtime import Runtime, feature_version, find_runtime, release_of
from sparta.lucene.limits import SMALLEST_HEAP, options_within_limits, usable_memory

HEAP_VARIABLE = "SPARTA_JVM_HEAP"
ARCHIVE_VARIABLE = "SPARTA_JVM_ARCHIVE"
_INCUBATOR = "jdk.incubator.vector"
_HEAP_STEP = 2**26
_ARCHIVE_RETRY_SECONDS = 3600
_LUCENE = (f"lucene-core-{LUCENE_VERSION}", f"lucene-analysis-common-{LUCENE_VERSION}")


@dataclass(frozen=True, slots=True)
class _Started:
    runtime: Runtime
    pid: int


_started: _Started | None = None
_lock = threading.Lock()
_thread_data = threading.local()


def start_jvm() -> Runtime:
    """Start Java in this process; do nothing if Java runs already.

    The largest heap is `$SPARTA_JVM_HEAP`, such as `4g`, else a quarter of the machine's (or container's)
    memory.

    :returns: the running runtime.
    :raises JavaError: there is no runtime, the runtime does not start, or the process was forked after Java
        started.
    """
    global _started
    if _started is not None:
        check_process()
        return _started.runtime
    with _lock:
        if _started is None:
            _started = _Started(_start(), os.getpid())
        return _started.runtime


def check_process() -> None:
    """Raise if this process was forked after Java started. Java's threads do not survive a fork: calls hang.

    :raises JavaError: this process was forked after Java had started.
    """
    if _started is not None and is_fork():
        raise JavaError(
            f"Java runs in process {_started.pid} and cannot be used in its fork, process {os.getpid()}",
            remedy='start workers with multiprocessing.get_context("spawn"), or fork before the first search',
        )


def is_fork() -> bool:
    """Return whether this process was forked after Java had started."""
    return _started is not None and _started.pid != os.getpid()


def enter_thread() -> None:
    """Make Java release the current thread when the thread ends, unless the thread is the main thread.

    pyjnius attaches every thread that calls Java and never detaches it. Without this function, each
    short-lived server thread would leave a Java thread behind.
    """
    if not hasattr(_thread_data, "thread_exit") and threading.get_ident() != threading.main_thread().ident:
        _thread_data.thread_exit = _ThreadExit()


class _ThreadExit:
    """A thread-local object that detaches its thread from Java when Python deletes the thread's data."""

    def __del__(self) -> None:
        if not sys.is_finalizing():
            leave_thread()


def leave_thread() -> None:
    """Detach the current thread from Java before the thread ends. Without a running Java, do nothing."""
    if _started is not None and not is_fork():
        import jnius

        jnius.detach()


def jar_paths(installation: Installation = INSTALLED) -> tuple[Path, ...]:
    """Return the jars of the class path: Lucene's jars, then sparta's own jar.

    If Pyserini is installed, Lucene comes from Pyserini's Anserini jar, so that both packages can share one
    Java. Otherwise Lucene comes from this package.

    :raises JavaError: a jar is missing.
    """
    package = installation.package_folder("pyserini")
    anserini_jars = sorted((package / "resources" / "jars").glob("anserini-*-fatjar.jar")) if package else []
    folder = installation.resources
    lucene = (
        anserini_jars if len(anserini_jars) == 1 else [folder / "lucene" / f"{name}.jar" for name in _LUCENE]
    )
    jars = (*lucene, folder / "sparta-lucene.jar")
    for jar in jars:
        if not jar.is_file():
            raise JavaError(
                "sparta's jar is missing",
                where=str(jar),
                remedy=REINSTALL,
            )
    return jars


def _start() -> Runtime:
    require_module("jnius")
    import jnius_config

    if jnius_config.vm_running:
        return _adopt(str(jnius_config.vm_started_at))
    runtime = find_runtime()
    options = runtime_options(runtime) + memory_options() + _archive_options(runtime)
    jnius_config.set_classpath(*map(java_path, jar_paths()), *(jnius_config.classpath or ()))
    jnius_config.add_options(*options)
    variables = {"JAVA_HOME": str(runtime.home), "JVM_PATH": None, **utf8_locale()}
    with _environment(**variables), _locale_kept(), _incubator_warning_hidden(options):
        try:
            import jnius  # noqa: F401  starts Java
        except Exception as error:
            advice = f"check ${HEAP_VARIABLE} and the free memory; sparta doctor shows the Java in use"
            if runtime.origin.startswith("$"):
                advice = f"unset {runtime.origin[1:]}, so that sparta uses another Java; or {advice}"
            raise JavaError(
                f"Java {runtime.version} did not start: {error}",
                where=runtime.place,
                remedy=advice,
            ) from error
    return runtime


def _adopt(started_at: str) -> Runtime:
    """Use a Java that other code started in this process, if its class path has sparta's jar."""
    import jnius

    try:
        jnius.autoclass("sparta.lucene.ImpactSearcher")
        system = jnius.autoclass("java.lang.System")
    except jnius.JavaException as error:
        raise JavaError(
            "Java already runs in this process, without sparta's jar: pyserini or another package"
            f" that uses pyjnius started Java first, at:{started_at}",
            remedy="call sparta.lucene.jvm.start_jvm() before importing pyserini, to share one Java",
        ) from error
    version = feature_version(system.getProperty("java.version")) or 0
    return Runtime(Path(system.getProperty("java.home")), version, "already running")


def runtime_options(runtime: Runtime) -> list[str]:
    """Return the options that each start of this Java has, apart from its memory and its archive."""
    options = [
        "--enable-native-access=ALL-UNNAMED",
        # Without this option, Java's signal handlers end the process before Python sees Ctrl-C.
        "-Xrs",
        # By default, Java guards the stack of the main thread 1 MB below its top. Python's code may use more:
        # Python 3.13 and newer read nested JSON of 6,000 levels before they raise RecursionError.
        "-Xss8m",
        # Java's log messages would go to standard output, among the results.
        "-Xlog:disable",
        "-Djava.util.logging.config.class=sparta.lucene.QuietLogging",
        "-Dslf4j.internal.verbosity=WARN",
    ]
    if _INCUBATOR in release_of(runtime.home).get("MODULES", "").split():
        options.append(f"--add-modules={_INCUBATOR}")
    return options


def java_options() -> list[str]:
    """Return the memory options with which Java would start now; none if Java runs already.

    :raises JavaError: the user's heap size is invalid, or a limit of this process is too low.
    """
    config = sys.modules.get("jnius_config")  # the module is loaded only when Java starts
    return [] if config and config.vm_running else memory_options()


def memory_options() -> list[str]:
    """Return Java's memory options. Check the heap size first: an invalid size would end the process."""
    heap = os.environ.get(HEAP_VARIABLE)
    if not heap:
        return options_within_limits(None)
    where = f"${HEAP_VARIABLE}"
    remedy = f"use a size like 4g, or unset ${HEAP_VARIABLE} to let Java take up to a quarter of the memory"
    match = re.fullmatch(r"(\d+)([kmg]?)", heap.lower())
    if match is None:
        raise JavaError(
            f"Java's memory must be a size like 512m or 4g, found {heap!r}", where=where, remedy=remedy
        )
    size = int(match[1]) * {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}[match[2]]
    memory = usable_memory()
    if size < SMALLEST_HEAP or size > memory:
        raise JavaError(
            f"Java's memory must be {SMALLEST_HEAP >> 20}m to {memory >> 20}m (all memory of the machine or"
            f" container), found {heap}",
            where=where,
            remedy=remedy,
        )
    return [f"-Xmx{heap}", *options_within_limits(size)]


def doubled_heap() -> str:
    """Return the setting that doubles Java's memory, without a size if the machine or container has less."""
    if _started is not None and not is_fork():
        import jnius

        with suppress(jnius.JavaException):  # this call may lack memory, too
            heap = jnius.autoclass("java.lang.Runtime").getRuntime().maxMemory()
            size = math.ceil(2 * heap / _HEAP_STEP) * _HEAP_STEP  # Java counts less than it was started with
            if size <= usable_memory():
                return f"{HEAP_VARIABLE}={size >> 20}m"
    return HEAP_VARIABLE


@contextmanager
def _incubator_warning_hidden(options: list[str]) -> Iterator[None]:
    """Hide Java's warning about an incubator module on standard error; Java has no option to hide it."""
    if f"--add-modules={_INCUBATOR}" not in options or not _is_open(2):
        yield
        return
    with suppress(AttributeError, OSError, ValueError):  # Python's standard error may be None or closed
        sys.stderr.flush()
    saved_stderr = os.dup(2)
    null_device = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null_device, 2)
        yield
    finally:
        os.dup2(saved_stderr, 2)
        os.close(saved_stderr)
        os.close(null_device)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@contextmanager
def _locale_kept() -> Iterator[None]:
    """Restore the process's locale after a block: Java's start sets it from the environment variables."""
    saved_locale = locale.setlocale(locale.LC_ALL)
    try:
        yield
    finally:
        locale.setlocale(locale.LC_ALL, saved_locale)


@contextmanager
def _environment(**changes: str | None) -> Iterator[None]:
    """Set environment variables for a block; `None` removes a variable. pyjnius finds Java only by them."""
    old_values = {name: os.environ.get(name) for name in changes}
    _set_environment(changes)
    try:
        yield
    finally:
        _set_environment(old_values)


def utf8_locale() -> dict[str, str]:
    """Return the environment variables that make Java read paths as UTF-8; none if the locale is UTF-8.

    Java decides the encoding once, at its start, from the locale; Java has no option for it.
    """
    return {} if locale.getencoding().lower().replace("-", "") == "utf8" else {"LC_ALL": "C.UTF-8"}


def java_path(path: Path) -> str:
    """Return the absolute path in UTF-8, the encoding that Java expects, independent of the process's locale.

    :raises JavaError: a name in the path is not UTF-8.
    """
    try:
        return os.fsencode(path.absolute()).decode()
    except UnicodeDecodeError as error:
        raise JavaError(
            "Java cannot open this path, because its name is not UTF-8",
            where=ascii(str(path)),
            remedy="rename the file or folder",
        ) from error


def _set_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def archive_path(runtime: Runtime) -> Path:
    """Return the path of the archive for this runtime, its jars and options; the file may be missing."""
    facts = [(runtime.home / "release").read_bytes().decode(errors="replace"), *runtime_options(runtime)]
    for file in (runtime.home, *jar_paths()):
        status = file.stat()
        facts += [str(file), str(status.st_size), str(status.st_mtime_ns)]
    key = hashlib.sha256("\0".join(facts).encode(errors="surrogateescape")).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "sparta" / "java" / f"{key}.jsa"


def build_archive() -> Path | None:
    """Make the archive that speeds up later starts of Java; takes about 3 seconds and 20 MB.

    :returns: the archive's path, or `None` if another process is making it or an attempt failed recently.
    :raises JavaError: there is no runtime, or the runtime cannot make an archive.
    """
    runtime = find_runtime()
    path = archive_path(runtime)
    if path.exists():
        return path
    work = path.with_suffix(".building")
    if work.exists() and time.time() - work.stat().st_mtime > _ARCHIVE_RETRY_SECONDS:
        shutil.rmtree(work, ignore_errors=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        work.mkdir()  # marks an attempt in progress; the folder stays after a failure
    except FileExistsError:
        return None
    java = [str(runtime.home / "bin" / "java"), *runtime_options(runtime)]
    jars = ["-cp", os.pathsep.join(map(str, jar_paths()))]
    classes, archive = work / "classes", work / "archive"
    _run([*java, f"-XX:DumpLoadedClassList={classes}", *jars, "sparta.lucene.WarmUp", str(work / "index")])
    _run(
        [
            *java,
            "-Xshare:dump",
            f"-XX:SharedClassListFile={classes}",
            f"-XX:SharedArchiveFile={archive}",
            *jars,
        ]
    )
    archive.replace(path)
    shutil.rmtree(work, ignore_errors=True)
    _delete_old_archives(path)
    return path


def _run(command: list[str]) -> None:
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=300,
            env={**os.environ, **utf8_locale()},
        )
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or b""
        raise JavaError(
            f"cannot make an archive of Java's classes: {error} {output.decode(errors='replace')}".strip(),
            remedy=f"Java works without the archive but starts slower; {ARCHIVE_VARIABLE}=off stops attempts",
        ) from error


def _delete_old_archives(newest: Path) -> None:
    """Delete archives that no process has used for a month."""
    for path in newest.parent.glob("*.jsa"):
        if path != newest and time.time() - max(path.stat().st_atime, path.stat().st_mtime) > 30 * 86400:
            path.unlink(missing_ok=True)


def _archive_is_off() -> bool:
    return os.environ.get(ARCHIVE_VARIABLE, "").lower() in {"off", "0", "no"}


def _archive_options(runtime: Runtime) -> list[str]:
    """Return the option to use the archive, or have one built in the background when the process ends."""
    if _archive_is_off():
        return []
    try:
        path = archive_path(runtime)
        if path.exists():
            return [f"-XX:SharedArchiveFile={java_path(path)}"]
    except (OSError, RuntimeError):  # there is no home folder, or it is unreadable, so there is no cache
        return []
    if (runtime.home / "bin" / "java").exists():
        atexit.register(_build_archive_in_background, os.getpid())
    return []


def _build_archive_in_background(pid: int) -> None:
    if os.getpid() != pid:  # a forked process inherits the exit handlers of its parent
        return
    source = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-P", "-m", "sparta.lucene.jvm"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": paths},
        )


if __name__ == "__main__" and not _archive_is_off():
    if hasattr(os, "nice"):
        os.nice(10)
    build_archive()
