"""Fresh environments with the wheel of this checkout, for tests of what the wheel and its extras install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UV = shutil.which("uv", path=str(Path(sys.executable).parent))


def run(*command: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command without the variables that lead to this environment or to an index.

    Java's classes come from the jar: an archive for each fresh environment would be used for seconds only.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SPARTA", "VIRTUAL"))}
    variables = {"UV_PYTHON_DOWNLOADS": "never", "SPARTA_JVM_ARCHIVE": "off", **variables}
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )


def _needs_an_index(ended: subprocess.CompletedProcess[str]) -> None:
    """Skip the test if the command failed because no package index answered."""
    signs = ("error sending request", "failed to fetch", "dns error", "connection", "client error (connect)")
    if ended.returncode and any(sign in ended.stderr.lower() for sign in signs):
        pytest.skip(f"no package index answered: {ended.stderr}")


def built_wheel(made_once: Callable[..., Path]) -> Path:
    """Return the wheel of this checkout, built once in a run of the tests.

    :param made_once: the fixture of that name
    """
    (wheel,) = made_once("wheel", build_wheel).glob("*.whl")
    return wheel


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the files that git knows, and of new files; return its path in the folder."""
    source = folder / "source"
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    code = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    built = run(sys.executable, "-c", code, folder, cwd=source)
    assert built.returncode == 0, built.stderr
    (made,) = folder.glob("*.whl")
    shutil.rmtree(source)
    return made


def environment(folder: Path, wheel: Path, extras: str = "") -> Path:
    """Make an environment with the wheel, of the locked versions; return its bin folder.

    :param extras: as pip takes them, "[dense,eval]"
    """
    made = run(UV, "venv", "--quiet", "--python", sys.executable, folder, cwd=folder.parent)
    assert made.returncode == 0, made.stderr
    constraints = ("--constraint", ROOT / "requirements.lock")
    python = ("--python", folder / "bin" / "python")
    installed = run(
        *(UV, "pip", "install", "--quiet", "--link-mode", "symlink", *python, *constraints),
        f"sparta-search{extras} @ file://{wheel}",
        cwd=folder.parent,
    )
    _needs_an_index(installed)
    assert installed.returncode == 0, installed.stderr
    _link_compiled_modules(folder)
    return folder / "bin"


def _link_compiled_modules(folder: Path) -> None:
    """Link the compiled modules of this environment into another, so that programs there start faster.

    Python compiles a module anew if its file has another time or size than that of the compiled one.
    """
    ours = Path(sysconfig.get_path("purelib"))
    theirs = folder / ours.relative_to(sys.prefix)
    for place in [path.parent for path in theirs.rglob("__init__.py")]:
        compiled = ours / place.relative_to(theirs) / "__pycache__"
        if compiled.is_dir() and not (place / "__pycache__").exists():
            (place / "__pycache__").mkdir()
            for path in compiled.iterdir():
                (place / "__pycache__" / path.name).symlink_to(path)


def megabytes(folder: Path) -> int:
    """Return the size of an environment, with the files that its links lead to."""
    return int(run("du", "-smL", folder, cwd=folder).stdout.split()[0])
