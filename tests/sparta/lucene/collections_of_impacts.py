"""A collection of random impacts, and its scores by NumPy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from sparta.lucene.bridge import ImpactWriter

WORDS = (
    "river",
    "stone",
    "founded",
    "google",
    "city",
    "of",
    "light",
    "the",
    "water's",
    "edge",
    "running",
    "king",
)


class Collection:
    """Random impacts as a dense matrix, in a corpus order that is not the order of writing."""

    def __init__(self, seed: int, n: int, vocabulary: int, highest: int, density: float) -> None:
        random = np.random.default_rng(seed)
        self.terms = [f"##t{i}" if i % 2 else f"größe{i}" for i in range(vocabulary)]
        self.ids = [f"id-{i}" for i in range(n)]
        self.positions = random.permutation(n)
        present = random.random((n, vocabulary)) < density
        self.matrix = np.where(present, random.integers(1, highest + 1, (n, vocabulary)), 0)
        self.texts = [" ".join(random.choice(WORDS, 12)) for _ in range(n)]

    def write(self, path: Path, *, batch: int = 97, commits: int = 3, **options: Any) -> None:
        n = len(self.ids)
        with ImpactWriter(path, **options) as writer:
            writer.add_terms(self.terms)
            for start in range(0, n, batch):
                rows = range(start, min(n, start + batch))
                part = self.matrix[rows.start : rows.stop]
                indptr = np.concatenate([[0], np.cumsum((part > 0).sum(1))])
                writer.add(
                    self.ids[rows.start : rows.stop],
                    [json.dumps({"id": self.ids[i]}) for i in rows],
                    self.texts[rows.start : rows.stop],
                    self.positions[rows.start : rows.stop],
                    indptr,
                    np.nonzero(part)[1],
                    part[part > 0],
                )
                if (start // batch) % max(1, n // batch // commits) == 0:
                    writer.commit(f"up to {rows.stop}")
            writer.commit("all")

    def search(self, query: dict[str, int]) -> tuple[list[str], list[float]]:
        """Brute force: ids and scores of all that match, ties by corpus position."""
        columns = [self.terms.index(term) for term in query if term in self.terms]
        weights = np.array([weight for term, weight in query.items() if term in self.terms], np.int64)
        scores = (self.matrix[:, columns] * weights).sum(1)
        order = np.lexsort((self.positions, -scores))
        order = order[self.matrix[order][:, columns].any(1)]
        return [self.ids[i] for i in order], scores[order].tolist()


def random_query(random: np.random.Generator, terms: list[str], *, weighted: bool = False) -> dict[str, int]:
    chosen = random.choice([*terms, "unheard-of"], random.integers(1, 12), replace=False)
    weights = random.integers(1, 16 if weighted else 3, len(chosen))
    return {str(term): int(weight) for term, weight in zip(chosen, weights, strict=True)}
