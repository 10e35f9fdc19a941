"""`scripts/opensearch.sh` on a machine that lacks what it needs: an error names what is missing."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALWAYS = ["basename", "bash", "cat", "dirname", "grep", "id", "mkdir", "sed"]
PROGRAMS = ["sha256sum", "setsid", "setpriv"]
pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in [*ALWAYS, *PROGRAMS]), reason="needs bash and the usual tools"
)


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs `opensearch.sh start` with the usual tools and with `programs`, which all fail."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in [*ALWAYS, *PROGRAMS]:
        (tools / tool).symlink_to(str(shutil.which(tool)))

    def run(*programs: str, **variables: str) -> subprocess.CompletedProcess[str]:
        for program in programs:
            (tools / program).unlink(missing_ok=True)  # a link to a real program
            (tools / program).write_text("#!/bin/sh\nexit 7\n")
            (tools / program).chmod(0o755)
        folder = {"HOME": str(tmp_path), "SPARTA_OPENSEARCH_FOLDER": str(tmp_path / "new" / "folder")}
        return subprocess.run(
            ["bash", str(ROOT / "scripts" / "opensearch.sh"), "start"],
            env={"PATH": str(tools), **folder, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def make_java(home: Path) -> str:
    """A folder that looks like a JDK of version 21."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text('JAVA_VERSION="21.0.2"\nMODULES="java.base jdk.localedata"\n')
    return str(home)


def test_missing_programs_are_named_at_once(start, tmp_path):
    result = start()
    assert result.returncode == 1
    assert "missing: curl unzip" in result.stderr
    assert "→ install them (Debian: apt-get install curl unzip" in result.stderr
    assert not (tmp_path / "new").exists()


def test_a_missing_jdk_is_named(start):
    """A `grep` that fails stands for a machine whose Javas lack the module with the locales."""
    result = start("curl", "unzip", "grep")
    assert result.returncode == 1
    assert "expected a JDK of at least 21, found none" in result.stderr
    assert "openjdk-21-jdk" in result.stderr


def test_a_failed_download_is_named(start, tmp_path):
    """The folder does not exist before: the script makes it, and the next start continues there."""
    result = start("curl", "unzip", JAVA_HOME=make_java(tmp_path / "jdk"), XDG_CACHE_HOME=str(tmp_path))
    assert result.returncode == 1
    assert "error: could not download opensearch-" in result.stderr
    assert "is there a network?" in result.stderr
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["zips"]
