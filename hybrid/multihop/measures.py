"""How good paths are: passage EM, path recall, passages found (Chain-of-Skills, §4.2)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

Pages = Sequence[Collection[str]]
"""The pages that a question needs, each by the ids of the passages that will do."""


def passage_em(paths: Sequence[Sequence[str]], pages: Pages) -> bool:
    """Whether the passages of the best path are one of each page, in any order, and no others.

    :param paths: the ids of each path's evidence, best path first
    """
    if not paths or len(paths[0]) != len(pages) or not covers(paths[0], pages):
        return False
    return all(any(passage_id in page for page in pages) for passage_id in paths[0])


def path_recall(paths: Sequence[Sequence[str]], pages: Pages, k: int) -> bool:
    """Whether one of the `k` best paths has a passage of each page."""
    return any(covers(path, pages) for path in paths[:k])


def covers(ids: Sequence[str], pages: Pages) -> bool:
    """Whether there is a passage of each page among these."""
    return all(any(passage_id in page for passage_id in ids) for page in pages)
