"""Shipped names lie in one table; other distributions register models through entry points."""

from __future__ import annotations

import ast
import errno
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dense.models.resolve import bi_encoder_folder, dense_model_folder
from sparta.base.errors import (
    InputError,
    MissingPackageError,
    ModelError,
    ServerError,
    SpartaError,
    StorageError,
)
from sparta.data.languages import LANGUAGES
from sparta.models.resolve import (
    Kind,
    default_name,
    known_query_side,
    model_folder,
    shipped_folder,
    sparta_folder,
)
from sparta.reader.config import path_reader_folder, reader_folder

ROOT = Path(__file__).parents[3]
KINDS: tuple[Kind, ...] = ("model", "dense", "reader", "path_reader", "multi_task", "reranker")
SHIPPED = {name for language in LANGUAGES.values() for kind in KINDS if (name := getattr(language, kind))}


def literals(path: Path) -> Iterator[str]:
    """Yield the string literals of a module, except docstrings and help texts."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    prose += [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "help"]
    skipped = {
        id(part)
        for text in prose
        if not isinstance(text, ast.Call)
        for part in ast.walk(text)
        if isinstance(part, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


@pytest.mark.slow
def test_only_the_table_of_languages_names_shipped_models() -> None:
    """But for sentences, such as help texts, and for replications, which measure models by name."""
    naming = {
        path.relative_to(ROOT).as_posix()
        for package in ("sparta", "dense", "hybrid", "cli")
        for path in (ROOT / package).rglob("*.py")
        if not path.is_relative_to(ROOT / "hybrid" / "replications")
        and any(name in text and " " not in text.strip() for text in literals(path) for name in SHIPPED)
    }
    assert naming == {"sparta/data/languages.py"}


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution on sys.path that registers models; its folder."""
    site = tmp_path / "site"
    info = site / "acme_models-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-models\nVersion: 1.0\n")
    names = KINDS[:4]
    (info / "entry_points.txt").write_text(
        "[sparta.models]\n"
        + "".join(f"acme-{name} = acme_registered:{name}\n" for name in names)
        + "acme-broken = acme_registered:broken\nacme/none = acme_registered:none\n"
        + "acme-absent = acme_registered:absent\nacme-number = acme_registered:number\n"
    )
    lines = [f"{name} = {str(shipped_folder(default_name(name)))!r}" for name in names]
    lines[0] = f"def model(): return {str(shipped_folder(default_name('model')))!r}"
    lines += ["def broken(): raise RuntimeError('no disk')", "none = '/no/such/folder'", "number = 7"]
    (site / "acme_registered.py").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "acme_registered", raising=False)
    return site


@pytest.mark.usefixtures("registered")
def test_registered_models_open_by_name() -> None:
    assert model_folder("acme-model") == sparta_folder("acme-model") == shipped_folder(default_name("model"))
    assert known_query_side("acme-model", None) is not None
    dense = shipped_folder(default_name("dense"))
    assert dense_model_folder("acme-dense") == bi_encoder_folder("acme-dense") == dense
    assert reader_folder("acme-reader") == shipped_folder(default_name("reader"))
    assert path_reader_folder("acme-path_reader") == shipped_folder(default_name("path_reader"))


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("name", ["acme-broken", "acme-absent", "acme/none", "acme-number"])
def test_a_registration_without_a_folder_is_refused_by_its_distribution(name: str) -> None:
    for find in (model_folder, dense_model_folder, reader_folder):
        with pytest.raises(ModelError) as refused:
            find(name)
        assert "acme-models" in str(refused.value.where)


def test_shipped_names_and_folders_scan_no_entry_points(registered: Path, tmp_path: Path) -> None:
    """They are also registered, as models that cannot be loaded, which a scan would find."""
    copy = tmp_path / "copy"
    shutil.copytree(model_folder(None), copy)
    absents = (str(tmp_path / "absent"), "./absent", "~/absent", "a/b/c")
    names = (*SHIPPED, str(copy), *absents, "no-such-name")
    lines = ["[sparta.models]", *(f"{name} = acme_registered:broken" for name in names)]
    (registered / "acme_models-1.0.dist-info" / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for name in (None, default_name("model"), copy):
        assert model_folder(name).is_dir()
        assert known_query_side(name, None) is not None
    for dense in (None, default_name("dense"), default_name("multi_task")):
        assert dense_model_folder(dense).is_dir()
    assert reader_folder(default_name("reader")) == reader_folder()
    assert path_reader_folder(default_name("path_reader")) == path_reader_folder()
    for absent in absents:
        with pytest.raises(ModelError, match="no such model folder"):
            model_folder(absent)
    with pytest.raises(ModelError, match="acme-models failed to load"):
        model_folder("no-such-name")


@pytest.fixture
def fresh_client() -> Iterator[None]:
    """Let the next request to the hub make its client anew."""
    from huggingface_hub import close_session

    close_session()
    yield
    close_session()


@pytest.mark.usefixtures("fresh_client")
@pytest.mark.parametrize(
    ("variable", "value", "kind", "message"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:9", MissingPackageError, "a SOCKS proxy needs .* socksio\n  → pip"),
        ("ALL_PROXY", "no://127.0.0.1:9", InputError, r"^\$ALL_PROXY: the address of the proxy is invalid"),
        ("HTTP_PROXY", "no://127.0.0.1:9", InputError, r"^\$HTTP_PROXY: the address of the proxy is invalid"),
        (
            "https_proxy",
            "http://proxy:abc",
            InputError,
            r"^\$https_proxy: the address of the proxy is invalid",
        ),
        ("SSL_CERT_FILE", "/nonexistent", ServerError, r"^\$SSL_CERT_FILE: the file of certificates"),
    ],
)
def test_a_variable_that_stops_the_client_of_the_hub_is_named(
    variable: str, value: str, kind: type[SpartaError], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setitem(sys.modules, "socksio", None)  # as if it were not installed
    monkeypatch.setenv(variable, value)
    with pytest.raises(kind, match=message):
        model_folder("someone/none")


@pytest.mark.usefixtures("fresh_client")
def test_an_address_of_the_hub_without_its_scheme_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "huggingface.co")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "huggingface.co")  # it was read at import
    with pytest.raises(InputError, match=r"^\$HF_ENDPOINT: .* expected https:// .*\n  → unset HF_ENDPOINT"):
        model_folder("someone/none")


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("HF_ENDPOINT", "http://[hub", r"^\$HF_ENDPOINT: .*: Invalid IPv6 URL\n  → unset HF_ENDPOINT"),
        (
            "HF_HUB_ETAG_TIMEOUT",
            "abc",
            r"^\$HF_HUB_ETAG_TIMEOUT: huggingface_hub cannot start: .*\n  → set HF_",
        ),
    ],
)
def test_a_variable_that_stops_the_import_of_the_client_is_named(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unimportable:
        """huggingface_hub reads the variables while it is imported."""

        @property
        def get_session(self) -> None:
            raise ValueError("invalid literal for int() with base 10: 'abc'")

        constants = snapshot_download = get_session

    monkeypatch.setitem(sys.modules, "huggingface_hub", Unimportable())
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=message):
        model_folder("someone/none")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSPC])
def test_an_error_of_the_cache_is_no_error_of_the_network(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(StorageError, match=rf"\(\$HF_HUB_CACHE\): .* {os.strerror(number)}\n  → .* disk"):
        model_folder("someone/none")
