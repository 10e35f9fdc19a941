"""The newcomer's scripts, with a Python and a uv that only write down what they are asked."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ["bash", "cat", "chmod", "cp", "dirname", "env", "grep", "ls", "mkdir", "rm", "sed", "wc"]
PYTHON = """#!/usr/bin/env bash
case "$1 $2" in
  "-c "*) exit FITS ;;
  "--version ") echo "Python 3.12.99" ;;
  "-m venv")
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
    echo "home" > "$3/pyvenv.cfg"
    echo "VIRTUAL_ENV=$(cd "$3" && pwd -P)" > "$3/bin/activate"
    printf '#!/usr/bin/env bash\\necho "uv $*" >> "$CALLS"\\n' > "$3/bin/uv"
    chmod +x "$3/bin/uv"
    echo "made with $0" >> "$CALLS" ;;
  "-m pip") echo "pip ${*:3}" >> "$CALLS" ;;
  "-m "*) echo "${*:2}" >> "$CALLS"; exit 1 ;;
esac
"""
pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in TOOLS), reason="needs bash and the usual tools"
)


def make_python(path: Path, *, fits: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PYTHON.replace("FITS", "0" if fits else "1"))
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose path has spaces."""
    folder = tmp_path / "a check out"
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    (folder / "requirements-install.lock").touch()
    for model in ("first", "second"):
        (folder / "models" / model).mkdir(parents=True)
        (folder / "models" / model / "pyproject.toml").touch()
    return folder


@pytest.fixture
def install(checkout: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs install.sh from another folder, with no programs but the usual tools."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in TOOLS:
        (tools / tool).symlink_to(str(shutil.which(tool)))

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": str(tools),
            "HOME": str(tmp_path),
            "CALLS": str(tmp_path / "calls"),
            **variables,
        }
        script = str(checkout / "scripts" / "install.sh")
        return subprocess.run(
            ["bash", script, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def test_an_environment_is_made(install, checkout, tmp_path):
    python = make_python(tmp_path / "tools" / "python3.12")
    result = install(".venv")
    assert (result.returncode, result.stderr) == (0, "")
    assert "making .venv with Python 3.12.99" in result.stdout
    assert calls(tmp_path) == [
        f"made with {python}",
        "pip install --quiet --disable-pip-version-check --require-hashes --requirement .venv/uv.lock",
        "uv pip install --quiet --compile-bytecode --python .venv/bin/python --require-hashes"
        " --requirement requirements-install.lock",
        "uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation"
        " --config-settings editable_mode=compat"
        " --editable . --editable models/first --editable models/second",
        "compileall -q sparta dense hybrid cli",  # which fails here, as does the next: neither is needed
        "sparta.lucene.jvm",
    ]
    assert install(".venv").returncode == 0
    assert len([line for line in calls(tmp_path) if line.startswith("made")]) == 1  # the second run keeps it


def test_another_list_of_versions(install, checkout, tmp_path):
    make_python(tmp_path / "tools" / "python3.12")
    (checkout / "requirements.lock").write_text(
        "numpy==2.0 \\\n    --hash=sha256:a\nuv==1.0 \\\n    --hash=sha256:b\n"
    )
    assert install(".venv", "requirements.lock").returncode == 0
    assert [line for line in calls(tmp_path) if line.startswith("uv pip")][:2] == [
        "uv pip install --quiet --compile-bytecode --python .venv/bin/python --require-hashes"
        " --requirement requirements-install.lock",
        "uv pip install --quiet --python .venv/bin/python --require-hashes --requirement requirements.lock",
    ]
    assert (checkout / ".venv" / "uv.lock").read_text() == "uv==1.0 \\\n    --hash=sha256:b\n"


def test_no_python(install, checkout, tmp_path):
    make_python(tmp_path / "tools" / "python3", fits=False)
    make_python(tmp_path / ".pyenv" / "versions" / "3.9.1" / "bin" / "python", fits=False)
    result = install(".venv")
    assert (result.returncode, result.stdout) == (1, "")
    assert "needs Python 3.12 or newer and found none" in result.stderr
    assert "pyenv install 3.12" in result.stderr
    assert not (checkout / ".venv").exists()


def test_a_name_that_leads_nowhere_is_passed_over_for_pyenvs(install, tmp_path):
    make_python(tmp_path / "tools" / "python3.12", fits=False)
    make_python(tmp_path / "my pyenv" / "versions" / "3.13.0" / "bin" / "python")
    best = make_python(tmp_path / "my pyenv" / "versions" / "3.12.4" / "bin" / "python")
    assert install(".venv", PYENV_ROOT=str(tmp_path / "my pyenv")).returncode == 0
    assert calls(tmp_path)[0] == f"made with {best}"


def test_a_variable_names_the_python(install, tmp_path):
    own = make_python(tmp_path / "my python" / "python")
    make_python(tmp_path / "tools" / "python3.12")
    assert install(".venv", PYTHON=str(own)).returncode == 0
    assert calls(tmp_path)[0] == f"made with {own}"
    make_python(own, fits=False)
    result = install("other", PYTHON=str(own))
    assert f"PYTHON={own} is not a Python 3.12 or newer" in result.stderr
    assert result.returncode == 0


@pytest.mark.parametrize("damage", ["dangling", "old", "without pip", "moved"])
def test_a_broken_environment_is_made_again(damage, install, checkout, tmp_path):
    make_python(tmp_path / "tools" / "python3.12")
    venv = checkout / ".venv"
    assert install(".venv").returncode == 0
    python = venv / "bin" / "python"
    if damage == "dangling":
        python.unlink()
        python.symlink_to("nowhere")
    elif damage == "old":
        make_python(python, fits=False)
    elif damage == "without pip":
        python.write_text(python.read_text().replace('"-m pip")', '"-m pip") exit 1;;\n  "-m pop")'))
    else:
        (venv / "bin" / "activate").write_text("VIRTUAL_ENV=/somewhere/else/.venv\n")
    (venv / "left over").touch()
    assert install(".venv").returncode == 0
    assert not (venv / "left over").exists()


def test_a_folder_that_is_no_environment_is_left_alone(install, checkout, tmp_path):
    make_python(tmp_path / "tools" / "python3.12")
    (checkout / "work").mkdir()
    (checkout / "work" / "precious").touch()
    result = install("work")
    assert result.returncode == 1
    assert "work is there and is no environment" in result.stderr
    assert (checkout / "work" / "precious").exists()


def locked(name: str) -> dict[str, str]:
    """The hashes of each version in a list of locked versions, without the markers of machines."""
    requirements = (ROOT / name).read_text().replace("\\\n", "").splitlines()
    assert [line for line in requirements if not re.search(r" --hash=sha256:[0-9a-f]{64}\b", line)] == []
    pins = (line.partition("--hash") for line in requirements)
    return {pin.partition(";")[0].strip(): " ".join(hashes.split()) for pin, _, hashes in pins}


def test_every_locked_package_has_hashes():
    """And the constraints of the containers name the same versions."""
    everything = locked("requirements.lock")
    assert len(everything) > 200
    script = ["bash", str(ROOT / "scripts" / "constraints.sh")]
    printed = subprocess.run(script, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.partition(";")[0].strip() for line in printed] == [*everything]


def test_make_install_installs_a_part_of_the_locked_packages():
    """The same versions with the same hashes, the tools of the installation itself among them; no torch."""
    part = locked("requirements-install.lock")
    assert part.items() <= locked("requirements.lock").items()
    names = {pin.partition("==")[0] for pin in part}
    assert {"uv", "setuptools", "openvino", "faiss-cpu", "matplotlib"} <= names
    assert not names & {"torch", "transformers", "ray", "playwright", "mteb", "pytest", "pyserini"}
    assert not [name for name in names if name.startswith("nvidia")]
