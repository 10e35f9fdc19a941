"""Publish indexes and models on a Hugging Face hub, and fetch them.

What comes from a hub is hostile input: only files with the names of an index or a model are fetched, none of
them is a pickle, and an index is verified before it appears.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sparta.base.checks import path_of
from sparta.base.disk.new_folders import appearing_folder, check_appearing_folder, temporary_folder
from sparta.base.errors import (
    IndexStateError,
    InputError,
    JavaError,
    MissingPackageError,
    ModelError,
    NewerFormatError,
    ServerError,
    StorageError,
    first_line_of,
)
from sparta.base.files import refuse_links_below, storage_errors, temporary_files_folder
from sparta.base.manifest import MANIFEST_NAME
from sparta.base.remedies import Command, Option, remedy
from sparta.index.folder import IndexFolder, lasting_path
from sparta.index.reader import IndexReader
from sparta.index.verify import verify_index
from sparta.models.folders.kinds import MODULES, module_entries
from sparta.models.resolve import check_hub_variables, is_from_hub
from sparta.sharing.backup import backup_index
from sparta.sharing.paths import remove_local_paths

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo

logger = logging.getLogger(__name__)

type Kind = Literal["index", "model"]

CARD = "README.md"
_INDEX_FILE = re.compile(
    r"manifest\.json"
    r"|sparta-\d{6,}/(segments_\w+|_\w+\.\w+)"
    r"|tokenizer-\d{6,}/(tokenizer\.json|query_weights\.safetensors|lexical_terms\.json)"
    r"|dense-\d{6,}/(manifest\.json|(rows|nodes)-\d{6,}\.npy|search-\d{6,}\.faiss)"
    r"|dense-\d{6,}/vectors-\d{6,}/(manifest\.json|shard-\d{5,}\.safetensors)",
    re.ASCII,
)
_MODEL_FILE = re.compile(
    r"README\.md"
    r"|[A-Za-z0-9][\w-]*(\.safetensors\.index)?\.(json|txt|safetensors|npz)"
    r"|([a-z]+_)?\d+_[A-Z]\w*/(model[\w-]*\.safetensors(\.index\.json)?|(\w*config|tokenizer|vocab|idf)\.json"
    r"|(special_tokens_map|added_tokens)\.json|(vocab|merges)\.txt)",
    re.ASCII,
)
"""The files of a model, and of its modules by sentence-transformers, such as `1_Pooling/config.json`."""
_MODEL_MARKS = ("config.json", MODULES)
_MOST_FILES = 100_000
_MOST_NAMED = 5
_ERRORS_OF_THIS_MACHINE = (JavaError, MissingPackageError, NewerFormatError, StorageError)
"""Errors that do not mean that the fetched files are damaged."""
_NO_WEIGHTS = "the model has no weights in safetensors"
_TO_SAFETENSORS = "save the model with transformers' or sentence-transformers' save_pretrained"


@dataclass(frozen=True, slots=True)
class Pulled:
    """A fetched repository: its folder, and whether the folder is an index or a model."""

    path: Path
    kind: Kind
    size: int


def push_index(
    path: str | Path, repo_id: str, *, private: bool = False, token: str | None = None, message: str = ""
) -> str:
    """Publish the newest commit of an index as a repository of a hub. Returns the repository's address.

    Local paths are removed from the manifests. Other processes may use the index meanwhile. A second push
    replaces the files of the first push.

    :param repo_id: `OWNER/NAME`; the repository is made if there is none
    :param private: make a new repository private
    :param token: an access token; None means the token of `hf auth login` or `$HF_TOKEN`
    :raises InputError: `private` is true, and the repository exists and is public; nothing is uploaded.
    :raises IndexStateError: there is no index, or its last job was interrupted.
    :raises ServerError: the hub cannot be reached, or refuses the upload.
    """
    index = lasting_path(path)
    with _staging(index) as staging:
        copy = staging / "index"
        backup_index(index, copy)
        _check_whole(copy, index)
        remove_local_paths(copy)
        (copy / CARD).write_text(_index_card(copy, repo_id), encoding="utf-8")
        return _push(copy, repo_id, _index_files(copy), private, token, message or "sparta index")


def _check_whole(copy: Path, index: Path) -> None:
    """Raise if the copied commit contains only a part of a job."""
    with IndexReader(copy) as reader, reader.snapshot() as snapshot:
        if not snapshot.is_whole:
            raise IndexStateError(
                "the last job of the index is not finished", where=str(index), remedy="finish the job first"
            )


def push_model(
    folder: str | Path, repo_id: str, *, private: bool = False, token: str | None = None, message: str = ""
) -> str:
    """Publish a model folder as a repository of a hub. Returns the repository's address.

    Files that are no part of a model, such as checkpoints of a training, are not published; a warning names
    them. Code is published if `modules.json` names it, as in an exported model. The arguments are those of
    `push_index`.

    :raises ModelError: the folder holds no model.
    """
    model = path_of(folder, "a model folder")
    if not any((model / name).is_file() for name in _MODEL_MARKS):
        raise ModelError(
            "the folder holds no model: it has neither config.json nor modules.json",
            where=str(model),
            remedy="name the folder of a model, such as the folder best of a training",
        )
    refuse_links_below(model)
    names = [file.relative_to(model).as_posix() for file in sorted(model.rglob("*")) if file.is_file()]
    code = _code_files(model)
    published = [name for name in names if _MODEL_FILE.fullmatch(name) or name in code]
    if not any(name.endswith(".safetensors") for name in published):
        raise ModelError(_NO_WEIGHTS, where=str(model), remedy=_TO_SAFETENSORS)
    if left_out := [name for name in names if name not in published]:
        more = f" and {len(left_out) - _MOST_NAMED:,} more" if len(left_out) > _MOST_NAMED else ""
        logger.warning(
            "%s: not uploaded, because sparta uploads only what it reads of a model: %s%s",
            model,
            ", ".join(left_out[:_MOST_NAMED]),
            more,
        )
    return _push(model, repo_id, published, private, token, message or "sparta model")


def _code_files(model: Path) -> set[str]:
    """Return the names of the files of code that a model's list of modules names."""
    entries = module_entries(model) if (model / MODULES).is_file() else []
    types = [str(entry.get("type")) for entry in entries if isinstance(entry, dict)]
    return {f"{kind.partition('.')[0]}.py" for kind in types if kind.startswith("modeling_")}


def pull(
    repo_id: str,
    destination: str | Path | None = None,
    *,
    revision: str | None = None,
    token: str | None = None,
    kind: Kind | None = None,
) -> Pulled:
    """Fetch an index or a model from a hub into a new folder, which appears when it is complete and checked.

    :param repo_id: `OWNER/NAME`
    :param destination: the new folder [default: NAME in the working folder]
    :param revision: a branch, a tag or a commit [default: the newest commit of the main branch]
    :param kind: the kind that the repository must hold; None means either
    :raises InputError: the repository holds neither an index nor a model, or not the required kind.
    :raises IndexStateError: the destination is in use, or the index is damaged.
    :raises ServerError: the hub cannot be reached, or has no such repository.
    :raises JavaError: there is no usable Java to check the index with.
    :raises StorageError: the folder cannot be written or read.
    """
    target = path_of(destination or repo_id.rpartition("/")[2], "a folder")
    check_appearing_folder(target)
    with hub_errors(repo_id):
        from huggingface_hub import HfApi, snapshot_download

        info = HfApi(token=token).model_info(repo_id, revision=revision)
    actual_kind, wanted = _kind_of(repo_id, _names(info))
    if kind not in (None, actual_kind):
        raise InputError(f"expected a repository of kind {kind}, found kind {actual_kind}", where=repo_id)
    with storage_errors(target), appearing_folder(target) as folder:
        with hub_errors(repo_id):
            snapshot_download(
                repo_id, revision=info.sha, token=token, allow_patterns=_exactly(wanted), local_dir=folder
            )
        shutil.rmtree(folder / ".cache", ignore_errors=True)
        _check_pulled(folder, wanted, actual_kind, repo_id)
        size = sum((folder / name).stat().st_size for name in wanted)
    return Pulled(target, actual_kind, size)


def _names(info: ModelInfo) -> list[str]:
    """Return the names of a repository's files."""
    return [sibling.rfilename for sibling in info.siblings or []]


def _kind_of(repo_id: str, names: list[str]) -> tuple[Kind, list[str]]:
    """Return whether a repository holds an index or a model, and the names of its files."""
    kind: Kind
    if MANIFEST_NAME in names:
        kind, pattern = "index", _INDEX_FILE
    elif any(name in names for name in _MODEL_MARKS):
        kind, pattern = "model", _MODEL_FILE
    else:
        raise InputError(
            f"the repository has neither {MANIFEST_NAME} nor {' nor '.join(_MODEL_MARKS)}, so it holds"
            " no index and no model",
            where=repo_id,
            remedy="check the name of the repository",
        )
    wanted = [name for name in names if pattern.fullmatch(name)]
    if kind == "model" and not any(name.endswith(".safetensors") for name in wanted):
        raise ModelError(_NO_WEIGHTS, where=repo_id, remedy=f"ask the owner to {_TO_SAFETENSORS}")
    if len(wanted) > _MOST_FILES:
        raise InputError(
            f"the repository has {len(wanted):,} files, more than {_MOST_FILES:,}", where=repo_id
        )
    return kind, wanted


def _exactly(names: Iterable[str]) -> list[str]:
    """Return patterns that match only these names."""
    return [re.sub(r"([*?\[])", r"[\1]", name) for name in names]


def _check_pulled(folder: Path, wanted: list[str], kind: str, repo_id: str) -> None:
    """Raise if fetched files are missing, are links, or are no undamaged index or readable model."""
    refuse_links_below(folder)
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    if missing := set(wanted) - files:
        raise ServerError(f"the hub did not send the file {min(missing)}", where=repo_id, remedy="try again")
    if kind == "model":
        for name in sorted({"config.json", "config_sentence_transformers.json"} & files):
            _read_config(folder / name, repo_id)
        return
    for part in verify_index(folder):
        if isinstance(part.error, _ERRORS_OF_THIS_MACHINE):
            part.error.where = part.error.where.replace(str(folder), repo_id)  # the folder will be removed
            raise part.error
        if part.problem:
            raise IndexStateError(
                f"the index of the repository is damaged: {part.name}: {part.problem}",
                where=repo_id,
                remedy="ask its owner to publish it again",
            )


def _read_config(path: Path, repo_id: str) -> None:
    try:
        config: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise ModelError(
            f"the model's {path.name} is not a JSON object",
            where=repo_id,
            remedy="ask its owner to publish it again",
        )


def _push(
    folder: Path, repo_id: str, names: list[str], private: bool, token: str | None, message: str
) -> str:
    """Upload files as one commit that also removes all other files of an earlier push."""
    with hub_errors(repo_id):
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

        api = HfApi(token=token)
        address = api.create_repo(repo_id, private=private, exist_ok=True)
        info = api.model_info(repo_id)
        if private and not info.private:  # the hub ignores `private` for a repository that exists
            raise InputError(
                "the repository exists and is public, so nothing was uploaded",
                where=repo_id,
                remedy=remedy(
                    "name a new repository, or make this one private in its settings; to publish, omit {}",
                    Option("private", True),
                ),
            )
        pattern = _INDEX_FILE if MANIFEST_NAME in names else _MODEL_FILE  # other files are not ours to delete
        stale = [
            name for name in _names(info) if name not in names and pattern.fullmatch(name) and name != CARD
        ]
        operations: list[Any] = [CommitOperationAdd(name, folder / name) for name in names]
        operations += [CommitOperationDelete(name) for name in stale]
        api.create_commit(repo_id, operations, commit_message=message)
    return str(address)


@contextmanager
def hub_errors(repo_id: str) -> Iterator[None]:
    """Turn the errors of `huggingface_hub` in the block into errors for the user."""
    from huggingface_hub.errors import HFValidationError

    try:
        yield
    except HFValidationError as error:
        raise InputError(
            f"the name of the repository is invalid: {first_line_of(error)}",
            where=repo_id,
            remedy="name a repository as OWNER/NAME",
        ) from error
    except Exception as error:
        check_hub_variables()
        if not is_from_hub(error):
            raise
        raise ServerError(
            f"the hub failed: {first_line_of(error)}",
            where=repo_id,
            remedy="check the name, the network and the access token ($HF_TOKEN)",
        ) from error


@contextmanager
def _staging(index: Path) -> Iterator[Path]:
    """Yield a temporary folder, on the disk of the index if its folder can be written.

    :raises StorageError: neither that folder nor the folder for temporary files can be written
    """
    with ExitStack() as stack:
        try:
            staging = stack.enter_context(temporary_folder(index.parent))
        except OSError:
            folder = temporary_files_folder()
            with storage_errors(folder):
                staging = stack.enter_context(temporary_folder(folder))
        yield staging


def _index_files(index: Path) -> list[str]:
    names = sorted(file.relative_to(index).as_posix() for file in index.rglob("*") if file.is_file())
    return [name for name in names if _INDEX_FILE.fullmatch(name) or name == CARD]


def _index_card(index: Path, repo_id: str) -> str:
    """Return the text of a repository's README.md."""
    live = IndexFolder(index).require_live()
    with IndexReader(index) as reader, reader.snapshot() as snapshot:
        passages, channels = snapshot.lucene.num_docs, ", ".join(snapshot.channels)
    name = repo_id.rpartition("/")[2]
    search = Command.of("sparta search", "a question", index=name).for_command_line()
    return (
        f"---\nlibrary_name: sparta\nlanguage: {live.language}\ntags:\n- sparta\n- search-index\n---\n\n"
        f"# {name}\n\nAn index of {passages:,} passages for sparta. Channels: {channels}."
        f" Model: {live.model['name'] or 'none'}.\n\n"
        f"```\nsparta pull {repo_id}\n{search}\n```\n"
    )
