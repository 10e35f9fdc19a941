"""How good paths are: passage EM, path recall, passages found (Chain-of-Skills, §4.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

Pages = Sequence[Collection[str]]
"""The pages that a question needs, each by the ids of the passages that will do."""


def passage_em(paths: Sequence[Sequence[str]], pages: Pages) -> bool:
    """Whether the passages of the best path are one of each page, in any order, and no others.

    :param paths: the ids of each path's evidence, best path first
    """
    return bool(paths) and len(paths[0]) <= len(pages) and only(paths[0], pages)


def path_recall(paths: Sequence[Sequence[str]], pages: Pages, k: int) -> bool:
    """Whether one of the `k` best paths has a passage of each page."""
    return any(covers(path, pages) for path in paths[:k])


def only(ids: Sequence[str], pages: Iterable[Collection[str]]) -> bool:
    """Whether there is a passage of each page among these, and no passage of none."""
    own = list(pages)
    return covers(ids, own) and all(any(passage_id in page for page in own) for passage_id in ids)


def covers(ids: Sequence[str], pages: Pages) -> bool:
    """Whether there is a passage of each page among these."""
    return all(any(passage_id in page for passage_id in ids) for page in pages)
