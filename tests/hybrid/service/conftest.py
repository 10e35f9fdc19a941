"""Services of a small index: in this process, and in processes of their own."""

from __future__ import annotations

import logging
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hybrid.service.services import FRENCH, RECORDS, Running

pytest.importorskip("fastapi", reason="needs the extra serve")


@pytest.fixture(scope="session")
def built(
    tiny_model_folder: Path, make_records: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index of 120 passages and some known ones, which no test changes."""
    import torch

    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index

    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("service") / "ix"
    options = IndexOptions(model=str(tiny_model_folder), dtype="fp32")
    build_index(path, [*RECORDS, FRENCH, *make_records(120)], "create", options)
    return path


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    """The same, for a test that changes it."""
    return Path(shutil.copytree(built, tmp_path / "ix"))


@pytest.fixture
def open_client(tiny_model_folder: Path) -> Iterator[Callable[..., Any]]:
    """A function `(index, readers=None, **settings) -> client` of a service in this process."""
    from contextlib import ExitStack

    from fastapi.testclient import TestClient

    from hybrid.answering.open_readers import OpenReaders
    from hybrid.service.app import create_app
    from hybrid.service.settings import Settings

    with ExitStack() as opened:

        def start(index: Path, readers: OpenReaders | None = None, **settings: Any) -> TestClient:
            named = {"index": index, "model": str(tiny_model_folder), **settings}
            app = create_app(Settings(**named), readers)
            client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
            return opened.enter_context(client)

        yield start


@pytest.fixture
def as_before() -> Iterator[None]:
    """The signals and loggers that a server in this process takes over are given back."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]
    loggers = [logging.getLogger(name) for name in ("", "sparta", "hybrid", "dense", "uvicorn")]
    states = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)
    for logger, state in zip(loggers, states, strict=True):
        logger.handlers, logger.propagate, logger.level = state


@pytest.fixture
def running(tiny_model_folder: Path, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """A function `(index, *options) -> Running` of `sparta serve` in a process of its own."""
    started: list[Running] = []

    def start(index: Path, *options: str, **variables: str) -> Running:
        more = ("--model", str(tiny_model_folder), *options)
        one = Running(index, tmp_path / f"serve-{len(started)}.log", more, variables)
        started.append(one)
        one.wait_until_ready()
        return one

    yield start
    for one in started:
        one.kill()
