"""Who may do what: each endpoint without a key, with a wrong one, and with one of each scope."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hybrid.service.keys import Keys
from hybrid.service.settings import Settings
from sparta.base.errors import InputError
from tests.hybrid.service.services import NDJSON, QUESTION, lines

READ, WRITE, WRONG = "r" * 24, "w" * 24, "x" * 24
READING: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/search", {"json": {"query": QUESTION}}),
    ("POST", "/explain", {"json": {"query": QUESTION, "id": "google"}}),
    ("POST", "/answer", {"json": {"query": QUESTION, "channels": "nothing"}}),
    ("GET", "/passages/google", {}),
    ("GET", "/terms/google", {}),
    ("GET", "/info", {}),
    ("GET", "/metrics", {}),
    ("GET", "/nothing", {}),
]
WRITING: list[tuple[str, str, dict[str, Any]]] = [
    ("PUT", "/passages", {"content": b"", "headers": NDJSON}),
    ("POST", "/passages", {"content": b"", "headers": NDJSON}),
    ("DELETE", "/passages", {"content": b"", "headers": NDJSON}),
    ("DELETE", "/passages/nope", {}),
]
OPEN = ("/health", "/ready", "/openapi.json", "/", "/static/index.html")


@pytest.fixture
def client(index, open_client):
    keys = Keys([f"read {READ}", "# a comment", "", f"write {WRITE}"])
    return open_client(index, keys=keys, writable=True, host="0.0.0.0")


def statuses(client, requests, headers: dict[str, Any]) -> list[int]:
    return [
        client.request(
            method, path, **{**more, "headers": {**more.get("headers", {}), **headers}}
        ).status_code
        for method, path, more in requests
    ]


@pytest.mark.slow
@pytest.mark.jvm
def test_openapi_says_how_keys_are_sent(client, index, open_client) -> None:
    described = client.get("/openapi.json").json()
    schemes = described["components"]["securitySchemes"]
    assert {name for one in described["security"] for name in one} == set(schemes)
    assert schemes["key"] == {"type": "apiKey", "in": "header", "name": "X-API-Key"}
    assert schemes["bearer"] == {"type": "http", "scheme": "bearer"}
    free = {
        path for path, methods in described["paths"].items() if methods.get("get", {}).get("security") == []
    }
    assert free == {"/health", "/ready"}
    assert "security" not in open_client(index).get("/openapi.json").json()


@pytest.mark.jvm
def test_each_endpoint_with_each_scope(client) -> None:
    for headers in ({}, {"X-API-Key": WRONG}, {"Authorization": f"Bearer {WRONG}"}, {"X-API-Key": ""}):
        assert set(statuses(client, [*READING, *WRITING], headers)) == {401}
    for headers in (
        {"Authorization": f"Basic {READ}"},
        {"Authorization": READ},
        {"X-API-Key": f"é{READ}".encode()},
    ):
        assert set(statuses(client, READING, headers)) == {401}
    for key in (READ, WRITE):
        for headers in (
            {"X-API-Key": key},
            {"Authorization": f"Bearer {key}"},
            {"authorization": f"bearer {key}"},
        ):
            assert statuses(client, READING, headers) == [200, 200, 400, 200, 200, 200, 200, 404]
    assert set(statuses(client, WRITING, {"X-API-Key": READ})) == {403}
    assert statuses(client, WRITING, {"X-API-Key": WRITE}) == [200, 200, 400, 404]
    assert [client.get(path).status_code for path in OPEN] == [200] * 5
    assert client.get("/info").headers["www-authenticate"] == "Bearer"


@pytest.mark.jvm
def test_nothing_of_the_index_is_told_without_a_key(client) -> None:
    told = "".join(client.request(method, path, **more).text for method, path, more in READING)
    assert "google" not in told.lower()
    added = client.put(
        "/passages", content=lines({"id": "n", "text": "x"}), headers={**NDJSON, "X-API-Key": READ}
    )
    assert added.status_code == 403
    assert client.get("/passages/n", headers={"X-API-Key": WRITE}).status_code == 404


@pytest.mark.jvm
def test_browsers_may_call_from_named_origins_only(index, open_client) -> None:
    client = open_client(index, origins=("http://mine.example",))
    asked = {"Access-Control-Request-Method": "POST"}
    mine = client.options("/search", headers={"Origin": "http://mine.example", **asked})
    other = client.options("/search", headers={"Origin": "http://other.example", **asked})
    assert mine.headers["access-control-allow-origin"] == "http://mine.example"
    assert "access-control-allow-origin" not in other.headers
    assert other.status_code == 403
    assert mine.headers["x-request-id"]
    assert 'method="OPTIONS",route="/search",status="200"' in client.get("/metrics").text
    refused = client.post("/search", json={}, headers={"Origin": "http://mine.example"})
    assert refused.status_code == 400
    assert refused.headers["access-control-allow-origin"] == "http://mine.example"


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("changed", "status", "text"),
    [
        ({"Origin": "http://other.example"}, 400, "Disallowed CORS origin"),
        ({"Access-Control-Request-Method": "PATCH"}, 400, "Disallowed CORS method"),
        ({"Access-Control-Request-Headers": "x-other"}, 400, "Disallowed CORS headers"),
        ({}, 200, ""),
    ],
)
def test_a_refused_preflight_is_json_like_other_errors(
    index, open_client, changed: dict[str, str], status: int, text: str
) -> None:
    client = open_client(index, origins=("http://mine.example",), keys=Keys([f"read {READ}"]))
    usual = {"Origin": "http://mine.example", "Access-Control-Request-Method": "POST"}
    answer = client.options("/search", headers={**usual, **changed, "X-Request-ID": "mine-7"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (status, "mine-7")
    is_allowed = "Origin" not in changed
    assert answer.headers.get("access-control-allow-origin") == (
        "http://mine.example" if is_allowed else None
    )
    assert int(answer.headers["content-length"]) == len(answer.content)
    if status == 400:
        assert answer.headers["content-type"] == "application/json"
        told = answer.json()
        assert (told["error"]["code"], told["request_id"]) == ("bad_request", "mine-7")
        assert text in told["error"]["message"]
        assert "--cors" in told["error"]["remedy"]


def test_keys_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARTA_SERVE_KEYS", raising=False)
    file = tmp_path / "keys"
    file.write_text(f"read {READ}\nwrite {WRITE}\n")
    for keys in (Keys.read(file), _from_environment(monkeypatch)):
        assert [keys.scope(key) for key in (READ, WRITE, WRONG, "")] == ["read", "write", None, None]
        assert READ not in repr(vars(keys))
    monkeypatch.delenv("SPARTA_SERVE_KEYS")
    assert not Keys.read(None)


def _from_environment(monkeypatch: pytest.MonkeyPatch) -> Keys:
    monkeypatch.setenv("SPARTA_SERVE_KEYS", f"read {READ},write {WRITE}")
    return Keys.read(None)


@pytest.mark.parametrize(
    "text",
    ["", "# none\n", f"admin {READ}\n", f"read {READ} more\n", "read short\n", READ, f"read é{READ}\n"],
)
def test_a_file_of_keys_in_another_form_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        Keys.read(file)
    assert READ not in str(refused.value)


def test_a_byte_order_mark_is_no_part_of_a_key(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"read {READ}\nwrite {WRITE}\n", encoding="utf-8-sig")
    keys = Keys.read(file)
    assert [keys.scope(READ), keys.scope(WRITE)] == ["read", "write"]


@pytest.mark.parametrize("scopes", [("read", "write"), ("write", "read")])
def test_a_key_has_one_scope(scopes: tuple[str, str]) -> None:
    with pytest.raises(InputError, match="the key has two scopes") as refused:
        Keys([f"{scope} {READ}" for scope in scopes], "keys")
    assert refused.value.where == "keys:2"
    assert READ not in str(refused.value)
    assert Keys([f"read {READ}"] * 2).scope(READ) == "read"


def test_no_key_is_told_where_a_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        Keys.read(tmp_path / "nothing")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org"])
def test_others_reach_a_service_with_keys_only(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match="keys"):
        Settings(index=tmp_path, host=host)
    assert Settings(index=tmp_path, host=host, keys=Keys([f"read {READ}"])).host == host


def test_on_this_machine_none_are_needed(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.9"):
        assert Settings(index=tmp_path, host=host).is_loopback
    with pytest.raises(InputError, match="keys"):
        Settings(index=tmp_path, origins=("*",))


@pytest.mark.parametrize("origin", ["http://mine.example/", "mine.example", "http://Mine.example", ""])
def test_an_origin_that_no_browser_sends_is_refused(tmp_path: Path, origin: str) -> None:
    with pytest.raises(InputError, match="an origin is a scheme and a host"):
        Settings(index=tmp_path, origins=(origin,))


def test_the_command_takes_no_key() -> None:
    """Whoever lists processes would read it."""
    from cli.service_commands.serve import serve

    assert {option.name for option in serve.params if "key" in (option.name or "")} == {"keys"}
    assert os.environ.get("SPARTA_SERVE_KEYS") is None
