"""An index finds the model that it was made with by the hash of its files, wherever the program runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sparta.api import Index
from sparta.base.errors import ModelError
from sparta.index.changes import how_to_rebuild
from sparta.index.folder import IndexFolder
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.models.resolve import (
    FORMER_MODELS,
    default_model_folder,
    find_model,
    hash_folder,
    model_folder,
)
from tests.environments import ROOT

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model(tiny_model_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model_folder, tmp_path / "home" / "mine" / "tiny"))


@pytest.fixture
def index(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index made with a relative `--model`; the program then works in another folder."""
    monkeypatch.chdir(tmp_path / "home")
    path = tmp_path / "index"
    build_index(path, [{"id": "a", "text": "the moon"}], options=IndexOptions(model="mine/tiny"))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    return path


def appended(index: Path, name: str) -> int:
    return build_index(index, [{"id": name, "text": "the earth"}], "append").documents


def fetched(error: ModelError, folder: Path) -> Path:
    """Run the git command of an error's remedy; return the folder that gets the model."""
    [command] = re.findall(r"git archive .* tar -x", str(error.remedy))
    folder.mkdir()
    subprocess.run(f"{command} -C {folder}", shell=True, cwd=ROOT, check=True)
    return folder


def rename(index: Path, name: str) -> None:
    """Write the name of the index's model as another sparta, or another machine, wrote it."""
    manifest = json.loads((index / "manifest.json").read_text())
    manifest["live"]["model"]["name"] = name
    del manifest["checksum"]
    (index / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.jvm
def test_a_relative_model_is_stored_by_its_absolute_path(index: Path, model: Path) -> None:
    live = IndexFolder(index).require_live()
    assert live.model["name"] == str(model)
    assert live.model["sha256"] == hash_folder(model)
    assert appended(index, "b") == 2


@pytest.mark.jvm
def test_a_moved_model_is_found_in_the_working_folder(index: Path, model: Path, tmp_path: Path) -> None:
    model.rename(tmp_path / "other" / "tiny")
    assert appended(index, "b") == 2


@pytest.mark.slow
@pytest.mark.jvm
def test_a_relative_name_of_an_older_index(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename(index, "./mine/tiny")
    with pytest.raises(ModelError, match="new folder with model"):
        appended(index, "b")
    monkeypatch.chdir(tmp_path / "home")
    assert appended(index, "b") == 2


@pytest.mark.slow
@pytest.mark.jvm
def test_another_model_in_its_place_is_not_trusted(
    index: Path, model: Path, tmp_path: Path, make_tiny_model: Any
) -> None:
    kept = Path(shutil.copytree(model, tmp_path / "kept"))
    (model / "config.json").write_text((model / "config.json").read_text() + " ")
    with pytest.raises(ModelError, match="new folder with model") as raised:
        appended(index, "b")
    assert str(model) in str(raised.value)
    added = build_index(index, [{"id": "b", "text": "x"}], "append", IndexOptions(model=str(kept)))
    assert added.documents == 2


@pytest.mark.slow
def test_a_model_that_ships_is_found_by_its_hash(tmp_path: Path) -> None:
    """As by an index that was made on a machine where the package lay elsewhere."""
    folder = default_model_folder()
    assert find_model(str(tmp_path / "gone"), hash_folder(folder)) == folder.name
    with pytest.raises(ModelError):
        find_model(str(tmp_path / "gone"), "0" * 64)


@pytest.mark.jvm
def test_a_bm25_only_index_needs_no_model_to_grow(model: Path, tmp_path: Path) -> None:
    index, options = tmp_path / "index", IndexOptions(model=str(model), channels="bm25")
    build_index(index, [{"id": "a", "text": "the moon"}], options=options)
    for name in FORMER_MODELS:
        rename(index, name)
    assert appended(index, "b") == 2
    assert build_index(index, [{"id": "b", "text": "a star"}], "update").documents == 2
    with Index(index) as opened:
        assert opened.passage("b")["text"] == "a star"
    rebuild = how_to_rebuild(index, IndexFolder(index).require_live()).for_command_line()
    assert rebuild == f"sparta index --corpus FILE --overwrite --channels bm25 --index {index}"


@pytest.mark.slow
@pytest.mark.jvm
def test_an_index_of_a_model_that_ships_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the error brings the model, and the index goes on with it."""
    [(former, commit)] = FORMER_MODELS.items()
    if subprocess.run(["git", "cat-file", "-e", commit], cwd=ROOT, capture_output=True).returncode != 0:
        pytest.skip("the checkout has no history")
    with pytest.raises(ModelError) as named:
        model_folder(former)
    model = fetched(named.value, tmp_path / "before") / former
    index = tmp_path / "index"
    build_index(index, [{"id": "a", "text": "the moon"}], options=IndexOptions(model=str(model)))
    rename(index, former)
    assert [hit.passage_id for hit in Index(index).search("moon")] == ["a"]
    with pytest.raises(ModelError, match=f"{former}, no longer ships") as raised:
        appended(index, "b")
    monkeypatch.chdir(fetched(raised.value, tmp_path / "again"))
    assert appended(index, "b") == 2
