"""Models as Python packages: those that sparta ships, and a toy model that docs/models.md publishes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.machinery import PathFinder
from itertools import takewhile
from pathlib import Path

import pytest

from dense.models.resolve import dense_model_folder, find_dense_model
from sparta.base.errors import ModelError
from sparta.base.extras import Installation
from sparta.models import resolve
from sparta.models.resolve import SHIPPED, default_name, hash_folder, model_folder, model_for, shipped_folder
from sparta.reader.config import path_reader_folder, reader_folder

ROOT = Path(__file__).parents[3]
IN_WHEEL = {default_name("model"), default_name("reader")}
PACKAGED = sorted({*SHIPPED} - IN_WHEEL)
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"


def project(name: str) -> dict[str, dict[str, object]]:
    return tomllib.loads((ROOT / "models" / name / "pyproject.toml").read_text())


def installed(source: Path, site: Path) -> None:
    """Build the wheel of a folder and install it into the folder `site`, without a package index."""
    wheels = site.parent / "wheels"
    build = (UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable)
    subprocess.run([*build, "--out-dir", wheels, source], check=True, cwd=site.parent)
    (wheel,) = wheels.glob("*.whl")
    install = (UV, "pip", "install", "--quiet", "--no-deps", "--offline", "--target", site)
    subprocess.run([*install, "--python", sys.executable, wheel], check=True, cwd=site.parent)


def test_every_shipped_model_has_one_place_and_one_distribution() -> None:
    assert sorted(path.name for path in (ROOT / "models").iterdir()) == PACKAGED
    assert {path.name for path in (ROOT / "sparta/resources/models").iterdir()} == {*SHIPPED}
    for name in PACKAGED:
        folder, weights = ROOT / "models" / name, ROOT / "sparta/resources/models" / name
        package = "sparta_model_" + name.replace("-", "_")
        described = project(name)
        assert described["project"]["name"] == f"sparta-model-{name}"
        assert described["project"]["entry-points"] == {"sparta.models": {name: f"{package}:FOLDER"}}
        link = folder / package / "model"
        assert (link.samefile(weights), link.readlink().is_absolute()) == (True, False)
        assert (folder / "README.md").samefile(weights / "README.md")
        card = (folder / "README.md").read_text(encoding="utf-8")
        (license_name,) = re.findall(r"^license: (.+)$", card, re.MULTILINE)
        assert str(described["project"]["license"]).lower() == license_name
        text = (folder / "LICENSE").read_text()
        assert str(described["project"]["license"]) in text or "Apache License" in text


def rows_of(page: str, header: str) -> dict[str, dict[str, str]]:
    """Return a table of a page: by the name in each row's first cell, the row's cells by column."""
    lines = page.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(header))
    columns, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in takewhile(lambda line: line.startswith("|"), lines[first:])
    )
    return {row[0].strip("`"): dict(zip(columns, row, strict=True)) for row in rows}


def card_field(name: str, field: str) -> str:
    """Return a field of the head of a shipped model's card."""
    card = (ROOT / "sparta/resources/models" / name / "README.md").read_text(encoding="utf-8")
    (value,) = re.findall(rf"^{field}: (.+)$", card.split("\n---\n")[0], re.MULTILINE)
    return value.strip("[]")


def test_the_page_of_models_says_what_the_cards_say() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    models, trainings = rows_of(page, "| model | for |"), rows_of(page, "| model | training data |")
    assert set(models) == set(trainings) == {*SHIPPED}
    for name in SHIPPED:
        assert models[name]["license"].lower().replace(" ", "-") == card_field(name, "license")
        assert models[name]["install"] == (
            "in sparta" if name in IN_WHEEL else f"`pip install ./models/{name}`"
        )
        assert models[name]["start"].strip("`") == card_field(name, "start")
        assert trainings[name]["training data"] == card_field(name, "training_data")
        assert trainings[name]["teachers"] == (card_field(name, "teachers") or "none")
        folder = ROOT / "sparta/resources/models" / name
        size = sum(path.stat().st_size for path in folder.iterdir() if path.suffix != ".md") / 1e6
        assert abs(float(models[name]["MB"]) - size) <= 0.5 + 1e-9, (name, size)


@pytest.fixture
def as_in_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let sparta see its resources as the wheel has them, and only the packages in the folder `site`.

    Returns the working folder, which holds both.
    """
    resources = tmp_path / "resources"
    (resources / "models").mkdir(parents=True)
    for name in IN_WHEEL:
        (resources / "models" / name).symlink_to(ROOT / "sparta/resources/models" / name)
    site = [str(tmp_path / "site")]
    installation = Installation(resources, lambda name: PathFinder.find_spec(name, site))
    monkeypatch.setattr(resolve, "INSTALLED", installation)
    monkeypatch.delitem(sys.modules, "sparta_model_reader_small_zh", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_missing_model_names_its_installation(
    as_in_the_wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing: list[tuple[str, Callable[[], object]]] = [
        ("taser-det-en", lambda: dense_model_folder(None)),
        ("taser-det-en", lambda: dense_model_folder("taser-det-en")),
        ("multi-task-bge-small-en", lambda: dense_model_folder("multi-task-bge-small-en")),
        ("path-reader-bge-small-en", path_reader_folder),
        ("reader-small-zh", lambda: reader_folder(None, "zh")),
        ("reader-small-zh", lambda: reader_folder("reader-small-zh")),
        ("sparta-small-zh", lambda: model_for(None, "zh")),
        ("sparta-small-zh", lambda: model_folder("sparta-small-zh")),
    ]
    for name, find in missing:
        for folder, command in (
            (as_in_the_wheel, f"in a clone of sparta's repository, whose folder models/ has {name}: "),
            (ROOT, ""),
            (ROOT / "examples", "pip install ../models/"),
        ):
            monkeypatch.chdir(folder)
            with pytest.raises(ModelError, match=f"{name}.* is not installed") as refused:
                find()
            advice = str(refused.value.remedy)
            assert advice.startswith(command or f"pip install ./models/{name}"), advice
            assert f"/models/{name}" in advice


@pytest.mark.usefixtures("as_in_the_wheel")
def test_the_models_of_the_wheel_need_no_other_package() -> None:
    assert model_folder(None) == shipped_folder(default_name("model"))
    assert reader_folder().name == default_name("reader")


@pytest.mark.slow
def test_a_shipped_model_is_found_by_its_package(as_in_the_wheel: Path) -> None:
    site = as_in_the_wheel / "site"
    name = "reader-small-zh"
    clone = as_in_the_wheel / "clone"
    shutil.copytree(ROOT / "models" / name, clone / "models" / name, symlinks=True)
    shutil.copytree(ROOT / "sparta/resources/models" / name, clone / "sparta/resources/models" / name)
    installed(clone / "models" / name, site)
    folder = reader_folder(None, "zh")
    assert folder == site / "sparta_model_reader_small_zh" / "model"
    assert not folder.is_symlink()
    assert hash_folder(folder) == hash_folder(ROOT / "sparta/resources/models/reader-small-zh")
    assert "sparta_model_reader_small_zh" not in sys.modules


def test_manifests_of_older_releases_find_a_packaged_model(as_in_the_wheel: Path) -> None:
    """They name the shipped model, or the folder that it lay in."""
    from dense.models.resolve import ModelIdentity

    package = as_in_the_wheel / "site" / "sparta_model_taser_det_en"
    shutil.copytree(ROOT / "models/taser-det-en/sparta_model_taser_det_en", package, symlinks=False)
    stored = hash_folder(package / "model")
    for name in ("taser-det-en", "/old/sparta/resources/models/taser-det-en"):
        assert find_dense_model(ModelIdentity(name, stored)) == ModelIdentity("taser-det-en", stored)


@pytest.mark.slow
@pytest.mark.jvm
def test_a_toy_model_is_published_as_the_page_says(tiny_model_folder: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    (toml,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (module,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    source, site = tmp_path / "acme", tmp_path / "site"
    shutil.copytree(tiny_model_folder, source / "acme_model")
    (source / "acme_model" / "__init__.py").write_text(module)
    (source / "pyproject.toml").write_text(toml)
    installed(source, site)
    (tmp_path / "c.jsonl").write_text('{"id": "1", "text": "the moon of the earth"}\n')
    for command in (
        ["index", "--corpus", "c.jsonl", "--model", "acme-medical"],
        ["search", "moon", "--json"],
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "cli._sparta", *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
    assert '"id": "1"' in ended.stdout
    assert '"acme-medical"' in (tmp_path / "sparta-index" / "manifest.json").read_text()


def test_images_are_built_with_the_examples_and_the_models() -> None:
    """The wheel links to examples/, and models/ links to the weights."""
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {"examples/*.jsonl", "examples/*.tsv", "models", "sparta"} <= sent
