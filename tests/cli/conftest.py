"""A corpus, a model and an index for the tests of the commands."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import pytest

from sparta.base.errors import SpartaError
from sparta.base.remedies import Option
from tests.cli.commands import RECORDS, done, written
from tests.programs import PROGRAMS, sparta


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test stands in a folder of its own, and nothing is set that a user has not set."""
    monkeypatch.delenv("SPARTA_INDEX", raising=False)
    monkeypatch.chdir(tmp_path)


def assert_known(group: click.Group, name: str, options: Sequence[Option]) -> None:
    """The command has these options; a command may be one of a group: `opensearch search`."""
    context = click.Context(group)
    command: click.Command | None = group
    for word in name.split():
        assert isinstance(command, click.Group), name
        command = command.get_command(context, word)
    assert command is not None, f"there is no command {name}"
    known = {word for each in command.params for word in (*each.opts, *each.secondary_opts)}
    advised = {option.for_command_line().split()[0] for option in options}
    assert advised <= known, f"{name} has no {advised - known}"


@pytest.fixture(autouse=True)
def _known_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error advises only options that the command has."""
    show = SpartaError.for_command_line

    def checked(error: SpartaError) -> str:
        context = click.get_current_context(silent=True)
        group = context.command if context else None
        called = context.invoked_subcommand if context else None
        if called and isinstance(group, click.Group) and not error.remedy.commands:
            assert_known(group, called, error.remedy.options)
        for command in error.remedy.commands:
            program, name = command.name.split(maxsplit=1)
            if program in PROGRAMS:  # another one is pip
                assert_known(PROGRAMS[program].main, name, command.options)
        return show(error)

    monkeypatch.setattr(SpartaError, "for_command_line", checked)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return written(tmp_path / "corpus.jsonl", *RECORDS)


@pytest.fixture(scope="session")
def model(tiny_model_folder: Path) -> tuple[str, ...]:
    """The options that stand after every command that encodes."""
    import torch

    torch.set_num_threads(1)
    return "--model", str(tiny_model_folder), "--dtype", "fp32"


@pytest.fixture(scope="session")
def built(model: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of RECORDS, which no test changes."""
    folder = tmp_path_factory.mktemp("built")
    done(
        sparta(
            "index", "--corpus", written(folder / "corpus.jsonl", *RECORDS), "--index", folder / "ix", *model
        )
    )
    return folder / "ix"


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    """An index of RECORDS, for a test that changes it."""
    return Path(shutil.copytree(built, tmp_path / "ix"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A function that mounts a disk of so many kilobytes, or mounts it again with other options."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if (
            os.geteuid()
            or shutil.which("mount") is None
            or subprocess.run(command, capture_output=True).returncode
        ):
            pytest.skip("needs the right to mount a disk")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def read_only(small_disk: Callable[..., Path], built: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder that may not be written, with an index in it."""
    if os.geteuid() == 0:  # permissions do not hold root back
        folder = small_disk("size=4m")
        shutil.copytree(built, folder / "ix")
        small_disk("remount,ro")
        yield folder
        return
    folder = tmp_path / "locked"
    shutil.copytree(built, folder / "ix")
    inside = [folder, *folder.rglob("*")]
    for path in inside:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    for path in inside:
        path.chmod(0o755 if path.is_dir() else 0o644)
