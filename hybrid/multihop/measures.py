"""Measures paths: passage EM and path recall (Chain-of-Skills, §4.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

Pages = Sequence[Collection[str]]
"""The pages that a question needs. A page is the set of its passages' ids; one passage is sufficient."""


def passage_em(paths: Sequence[Sequence[str]], pages: Pages) -> bool:
    """Return whether the best path has exactly one passage of each page, in any order, and no other passage.

    :param paths: the evidence ids of each path, best path first
    """
    return bool(paths) and len(paths[0]) <= len(pages) and only(paths[0], pages)


def path_recall(paths: Sequence[Sequence[str]], pages: Pages, k: int) -> bool:
    """Return whether one of the `k` best paths has a passage of each page."""
    return any(covers(path, pages) for path in paths[:k])


def only(ids: Sequence[str], pages: Iterable[Collection[str]]) -> bool:
    """Return whether the ids cover each page, and each id belongs to a page."""
    page_sets = list(pages)
    return covers(ids, page_sets) and all(any(passage_id in page for page in page_sets) for passage_id in ids)


def covers(ids: Sequence[str], pages: Pages) -> bool:
    """Return whether the ids include a passage of each page."""
    return all(any(passage_id in page for passage_id in ids) for page in pages)
