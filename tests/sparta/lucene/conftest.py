"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sparta.lucene.collections_of_impacts import Collection


@pytest.fixture(scope="module", params=["lucene", "fast"])
def collection(request, tmp_path_factory: pytest.TempPathFactory) -> tuple[Collection, Path]:
    path = tmp_path_factory.mktemp("index")
    made = Collection(seed=7, n=1500, vocabulary=120, highest=40, density=0.15)
    made.write(path, codec=request.param)
    return made, path
