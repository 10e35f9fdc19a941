"""Fixtures of the tests in this folder."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from sparta.index.folder import IndexFolder
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QuerySide
from tests.sparta.index.building import Builder, Doc


@pytest.fixture
def side(tiny_tokenizer) -> QuerySide:
    return QuerySide(tiny_tokenizer, None, "model", "hash", Quantizer(8.0))


@pytest.fixture
def docs(tiny_vocabulary) -> Callable[..., list[Doc]]:
    """A function `(prefix, n, seed) -> docs` of random impacts on few terms, so that there are many ties."""
    terms = [t for t in tiny_vocabulary if t.isalpha() and len(t) > 3][:12]

    def make(prefix: str, n: int, seed: int = 0) -> list[Doc]:
        rng = random.Random(f"{prefix}{seed}")
        return [
            Doc(f"{prefix}{i}", {t: rng.randint(1, 3) for t in rng.sample(terms, rng.randint(0, 5))})
            for i in range(n)
        ]

    return make


@pytest.fixture
def builder(tmp_path, side) -> Builder:
    return Builder(IndexFolder(tmp_path / "index"), side)
