"""API keys: who may read, and who may write."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from sparta.base.disk.streams import input_errors
from sparta.base.errors import InputError

READ, WRITE = "read", "write"
KEYS_VARIABLE = "SPARTA_SERVE_KEYS"
SHORTEST = 16
_FORM = "a scope and a key on each line, as in: read 3f1c…"


class Keys:
    """API keys with their scopes; a write key may also read. Only hashes of the keys are stored.

    :param lines: `read KEY` or `write KEY`; empty lines and lines that begin with # are ignored
    :param where: source of the keys, for messages
    :raises InputError: a line has another format, a key is shorter than 16 characters or has two scopes, or
        there is no key
    """

    def __init__(self, lines: Iterable[str] = (), where: str = "") -> None:
        self._scopes: dict[bytes, str] = {}
        for number, line in enumerate(lines, 1):
            words = line.split()
            if words and not words[0].startswith("#"):
                digest, scope = _scope(words, f"{where}:{number}")
                if self._scopes.setdefault(digest, scope) != scope:
                    raise InputError(
                        f"the key has two scopes: {scope} on this line, another on an earlier line",
                        where=f"{where}:{number}",
                        remedy=f"remove one of the two lines; a {WRITE} key may also {READ}",
                    )

    @classmethod
    def read(cls, path: Path | None) -> Keys:
        """Return the keys of a file; without a path, of `$SPARTA_SERVE_KEYS` (lines, or commas between)."""
        if path is None:
            variable = os.environ.get(KEYS_VARIABLE, "")
            return cls(variable.replace(",", "\n").splitlines(), f"${KEYS_VARIABLE}")
        with input_errors(path):
            text = path.read_bytes().decode("utf-8-sig", "replace")
        keys = cls(text.splitlines(), str(path))
        if not keys:
            raise InputError(
                f"the file of keys is empty: expected {_FORM}",
                where=str(path),
                remedy="add a line with a key",
            )
        return keys

    @classmethod
    def of_all(cls, several: Iterable[Keys]) -> Keys:
        """Return the keys of several indexes together; empty if an index has none."""
        keys, several = cls(), list(several)
        if all(several):
            for each in several:
                keys._scopes |= each._scopes
        return keys

    def __bool__(self) -> bool:
        return bool(self._scopes)

    def scope(self, key: str) -> str | None:
        """Return the scope of a key (read or write); None for an unknown key.

        The time of a call does not depend on the key.
        """
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        granted = None
        for key_digest, scope in self._scopes.items():
            if secrets.compare_digest(key_digest, digest):
                granted = scope
        return granted


def _scope(words: list[str], where: str) -> tuple[bytes, str]:
    """Return the hash and the scope of a key, from the words `scope key` of a line."""
    if len(words) != 2 or words[0] not in (READ, WRITE):
        raise InputError(
            f"invalid line in the file of keys: expected {_FORM}", where=where, remedy="correct the line"
        )
    if len(words[1]) < SHORTEST:
        raise InputError(
            f"a key must have at least {SHORTEST} characters, found {len(words[1])}",
            where=where,
            remedy="make a key with: openssl rand -hex 24",
        )
    if not words[1].isascii():
        raise InputError(
            "a key must be ASCII, because clients encode other characters in different ways",
            where=where,
            remedy="make a key with: openssl rand -hex 24",
        )
    return hashlib.sha256(words[1].encode()).digest(), words[0]
