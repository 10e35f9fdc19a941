"""What runs in a worker of a cluster."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from sparta.base.errors import InputError, SpartaError
from sparta.base.remedies import Option, remedy
from sparta.shards.executors import Facts, ShardJob
from sparta.shards.folder import Block


@dataclass(frozen=True, slots=True)
class Token:
    """A file in the folder of the shards that every worker must see, and the versions that it must have."""

    path: Path
    versions: tuple[str, ...]


@contextmanager
def placed_token(folder: Path) -> Iterator[Token]:
    """Keep a token file in the folder during the work; a resumed job removes what a kill leaves."""
    path = folder / f".sparta-{secrets.token_hex(8)}.tmp"
    path.touch()
    try:
        yield Token(path, _versions())
    finally:
        path.unlink(missing_ok=True)


def _versions() -> tuple[str, ...]:
    """Other versions may give other bytes; builds of torch for other devices are told apart by `+`."""
    return tuple(f"{name} {version(name).partition('+')[0]}" for name in ("sparta-search", "torch"))


class BlockWorker:
    """A Ray actor that encodes blocks, in a process of its own."""

    def open(self, job: ShardJob, token: Token, device: str, threads: int) -> None:
        """Get ready; what is wrong with this node is an error that says so."""
        if not token.path.exists():
            raise InputError(
                f"expected a folder that all nodes share, found that {platform.node()} does not see it",
                where=str(job.folder),
                remedy=remedy(
                    "write to a file system that they share, or run the command on each machine with {} and"
                    " another {}",
                    Option("shard", "I/N"),
                    Option("output"),
                ),
            )
        if (found := _versions()) != token.versions:
            raise SpartaError(
                f"expected {' and '.join(token.versions)} on {platform.node()}, found {' and '.join(found)}",
                remedy="install the same versions on all nodes",
            )
        os.environ["RAYON_NUM_THREADS"] = str(threads)  # of the tokenizer
        import torch

        torch.set_num_threads(threads)
        self._work = job.open(device)

    def encode(self, block: Block) -> Facts:
        """Encode a block and write its shard."""
        return self._work(block, None)
