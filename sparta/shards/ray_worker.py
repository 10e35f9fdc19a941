"""The code that runs in a worker of a Ray cluster."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from sparta.base.errors import InputError, SpartaError
from sparta.base.files import temporary_name
from sparta.base.remedies import Option, remedy
from sparta.neural.devices import uses_cpu
from sparta.runtime.processor import use_threads
from sparta.shards.executors import Facts, ShardJob
from sparta.shards.folder import Block


@dataclass(frozen=True, slots=True)
class Token:
    """A file in the folder of the shards, which all workers must see, and the required package versions."""

    path: Path
    versions: tuple[str, ...]


@contextmanager
def placed_token(folder: Path) -> Iterator[Token]:
    """Create a token file in the folder during the block.

    A resumed job removes it if this process is killed.
    """
    path = folder / temporary_name()
    path.touch()
    try:
        yield Token(path, _versions())
    finally:
        path.unlink(missing_ok=True)


def _versions() -> tuple[str, ...]:
    """Return the versions of sparta and of the runtimes, which may change the encoded bytes.

    The suffix after `+` is dropped, since it only names the device that torch was built for.
    """
    names = [name for name in ("openvino", "torch") if find_spec(name)]
    return tuple(f"{name} {version(name).partition('+')[0]}" for name in ("sparta-search", *names))


class BlockWorker:
    """A Ray actor that encodes blocks in a separate process."""

    def open(self, job: ShardJob, token: Token, device: str, threads: int) -> None:
        """Open the job on this node.

        :raises InputError: the node does not see the folder of the shards.
        :raises SpartaError: the node has other versions of sparta or torch.
        """
        if not token.path.exists():
            raise InputError(
                f"the output folder must be on all nodes, but the node {platform.node()} does not have it",
                where=str(job.folder),
                remedy=remedy(
                    "write to a shared file system, or run the command on each machine with {}"
                    " and another {}",
                    Option("shard", "I/N"),
                    Option("output"),
                ),
            )
        if (versions := _versions()) != token.versions:
            raise SpartaError(
                f"the node {platform.node()} has {' and '.join(versions)},"
                f" but the encoding needs {' and '.join(token.versions)}",
                remedy="install the same versions on all nodes",
            )
        os.environ["RAYON_NUM_THREADS"] = str(threads)  # for the tokenizer
        if uses_cpu(device):
            use_threads(threads)
        else:
            import torch

            torch.set_num_threads(threads)
        self._work = job.open(device)

    def encode(self, block: Block) -> Facts:
        """Encode a block and write its shard."""
        return self._work(block, None)
