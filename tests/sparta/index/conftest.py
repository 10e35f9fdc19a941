"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from sparta.index.folder import IndexFolder
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QuerySide
from tests.sparta.index.building import Builder, Doc, random_docs


@pytest.fixture
def side(tiny_tokenizer) -> QuerySide:
    return QuerySide(tiny_tokenizer, None, "model", "hash", Quantizer(8.0))


@pytest.fixture
def docs(tiny_vocabulary) -> Callable[..., list[Doc]]:
    return partial(random_docs, [t for t in tiny_vocabulary if t.isalpha() and len(t) > 3][:12])


@pytest.fixture
def builder(tmp_path, side) -> Builder:
    return Builder(IndexFolder(tmp_path / "index"), side)
