"""`sparta pull` and `sparta upload`: fetch and publish an index or a model on a hub."""

from __future__ import annotations

from pathlib import Path

import click

from cli._arguments import Excludes, argument, arguments, command, flag, option, takes
from cli._options import index_option
from sparta.base.remedies import Command

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
    usage = Command.of("sparta search", "a question", index=pulled.path)
    if pulled.kind == "model":
        usage = Command.of("sparta index", corpus="FILE", model=pulled.path)
    size = f"{pulled.size / 1e6:,.1f} MB"
    click.echo(f"{pulled.path}: {pulled.kind}, {size}\ntry: {usage.for_command_line()}")


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
