"""These tests look at single networks and their memory, so each network is compiled for itself."""

import pytest

from sparta.runtime.processor import core


@pytest.fixture(autouse=True)
def _nothing_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparta.runtime.network.core", core)
