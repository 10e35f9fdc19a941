"""`sparta pull` and `sparta upload`: fetch and publish an index or a model on a hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli._arguments import Excludes, argument, arguments, command, flag, option, takes
from cli._options import index_option
from sparta.base.remedies import Command

if TYPE_CHECKING:
    from sparta.sharing.hub import Pulled

_repository = argument("repository", metavar="OWNER/NAME")


@command()
@_repository
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--revision", metavar="NAME", help="A branch, a tag or a commit.  [default: main]")
def pull(repository: str, folder: Path | None, revision: str | None) -> None:
    """Fetch an index or a model from a hub.

    The new folder is DIR; without DIR, it is NAME. The hub is $HF_ENDPOINT, or huggingface.co. Private
    repositories need an access token in $HF_TOKEN. The command checks every file, and fetches no pickles.
    """
    from sparta.sharing import hub

    pulled = hub.pull(repository, folder, revision=revision)
    click.echo(f"{pulled.path}: {pulled.kind}, {pulled.size / 1e6:,.1f} MB")
    if usage := _usage(pulled):
        click.echo(f"try: {usage.for_command_line()}")


def _usage(pulled: Pulled) -> Command | None:
    """Return a command that uses what was fetched; None for a model that no such command takes."""
    from sparta.base.checks import json_object
    from sparta.base.errors import ModelError
    from sparta.models.folders.kinds import kind_of

    if pulled.kind == "index":
        return Command.of("sparta search", "a question", index=pulled.path)
    config = pulled.path / "config.json"
    sections = json_object(config) if config.is_file() else {}
    commands = {
        "sparta": Command.of("sparta index", corpus="FILE", model=pulled.path),
        "dense": Command.of("dense index", model=pulled.path),
        "reader": Command.of("sparta answer", "a question", reader=pulled.path),
    }
    if usage := next((command for section, command in commands.items() if section in sections), None):
        return usage
    try:
        kind_of(pulled.path)
    except ModelError:
        return None
    return commands["sparta"]


@arguments
class _Upload:
    repository: str = _repository
    model: Path | None = option("Publish this model folder.", metavar="DIR")
    private: bool = flag("Make a new repository private.")
    index: Path | None = index_option
    RULES = (Excludes(("model",), ("index",), "publish the model and the index as two repositories"),)


@command()
@takes(_Upload)
def upload(upload: _Upload) -> None:
    """Publish an index or a model on a hub.

    The hub is $HF_ENDPOINT, or huggingface.co. Needs an access token in $HF_TOKEN. Local paths are removed
    from the manifests of an index. A second upload replaces the files of the first.
    """
    from sparta.index.folder import default_index
    from sparta.sharing import hub

    repository, private = upload.repository, upload.private
    if upload.model:
        address = hub.push_model(upload.model, repository, private=private)
    else:
        address = hub.push_index(upload.index or default_index(), repository, private=private)
    click.echo(f"{address}\nfetch it with: sparta pull {repository}")
