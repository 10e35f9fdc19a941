"""`sparta pull` and `sparta upload`: fetch and publish an index or a model on a hub."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import command
from cli._options import index_option
from sparta.base.remedies import Command

_repository = click.argument("repository", metavar="OWNER/NAME")


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
    usage = Command.of("sparta search", "a question", index=pulled.path)
    if pulled.kind == "model":
        usage = Command.of("sparta index", corpus="FILE", model=pulled.path)
    size = f"{pulled.size / 1e6:,.1f} MB"
    click.echo(f"{pulled.path}: {pulled.kind}, {size}\ntry: {usage.for_command_line()}")


@command()
@_repository
@click.option("--model", metavar="DIR", type=click.Path(path_type=Path), help="Publish this model folder.")
@click.option("--private", is_flag=True, help="Make a new repository private.")
@index_option
def upload(repository: str, model: Path | None, private: bool, index: Path | None) -> None:
    """Publish an index or a model on a hub.

    The hub is $HF_ENDPOINT, or huggingface.co. Needs an access token in $HF_TOKEN. Local paths are removed
    from the manifests of an index. A second upload replaces the files of the first.
    """
    from sparta.index.folder import default_index
    from sparta.sharing import hub

    if model:
        address = hub.push_model(model, repository, private=private)
    else:
        address = hub.push_index(index or default_index(), repository, private=private)
    click.echo(f"{address}\nfetch it with: sparta pull {repository}")
