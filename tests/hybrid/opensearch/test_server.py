"""Servers that are away, refuse, or are none; and who asks them."""

from __future__ import annotations

import socket
import time

import pytest

from hybrid.opensearch.server import Access, Server
from hybrid.opensearch.state import create_index, indices_of
from sparta.base.errors import IndexStateError, InputError, ServerError
from tests.hybrid.opensearch.fake import failure


@pytest.mark.parametrize(
    "urls",
    [
        *("", "localhost:9200", "ftp://host", "http://", "http://a b:1", "http://h,nope"),
        *("http://h:92000", "http://h:abc", "http://[::1:9200", "http://:9200", "http://h:0"),
    ],
)
def test_what_is_no_url_is_refused(urls: str) -> None:
    with pytest.raises(InputError, match="expected URLs"):
        Access(urls, environment={}).hosts()


@pytest.mark.parametrize("password", ["secret", "sec/secret", "secret,sec", "sec@secret", "secret:sec"])
def test_passwords_in_a_url_are_refused_and_not_repeated(password: str) -> None:
    with pytest.raises(InputError) as refused:
        Access(f"https://me:{password}@host:9200", environment={}).hosts()
    assert "sec" not in str(refused.value)
    assert "$SPARTA_OPENSEARCH_PASSWORD" in str(refused.value)


def test_several_nodes() -> None:
    assert Access("http://a:1/, https://b/x", environment={}).hosts() == ["http://a:1", "https://b/x"]


def test_credentials_come_from_the_environment(fake) -> None:
    user = {"SPARTA_OPENSEARCH_USER": "me", "SPARTA_OPENSEARCH_PASSWORD": "secret"}
    key = {"SPARTA_OPENSEARCH_KEY": "abc"}
    for environment, expected in (({}, None), (user, "Basic bWU6c2VjcmV0"), (key, "ApiKey abc")):
        access = Access(fake.url, environment=environment)
        assert "secret" not in repr(access)
        with Server(access) as server:
            server.request("GET", "/_cluster/health")
        headers = {name.lower(): value for name, value in fake.headers[-1].items()}
        assert headers.get("authorization") == expected
    for wrong in ("abc€", "abc\n"):
        with pytest.raises(InputError, match="printable ASCII") as refused:
            Access(fake.url, environment={"SPARTA_OPENSEARCH_KEY": wrong}).options()
        assert "abc" not in str(refused.value)
    with pytest.raises(InputError, match="only one of"):
        Access(fake.url, environment={"SPARTA_OPENSEARCH_USER": "me"}).options()


def test_a_password_is_sent_in_utf_8(fake) -> None:
    environment = {"SPARTA_OPENSEARCH_USER": "me", "SPARTA_OPENSEARCH_PASSWORD": "5 €"}
    with Server(Access(fake.url, environment=environment)) as server:
        server.request("GET", "/_cluster/health")
    headers = {name.lower(): value for name, value in fake.headers[-1].items()}
    assert headers["authorization"] == "Basic bWU6NSDigqw="  # printf 'me:5 €' | base64


@pytest.mark.parametrize(
    ("status", "kind", "error", "said"),
    [
        (401, "security_exception", ServerError, "SPARTA_OPENSEARCH_USER"),
        (403, "security_exception", ServerError, "SPARTA_OPENSEARCH_USER"),
        (403, "cluster_block_exception", ServerError, "free some space"),
        (404, "index_not_found_exception", IndexStateError, "no such index on the server"),
        (400, "parsing_exception", ServerError, "the server responds with status 400"),
    ],
)
def test_refusals_say_what_to_do(fake, status, kind, error, said) -> None:
    fake.fault = lambda *_: failure(status, kind, "index blocked" if "block" in kind else "because")
    with (
        Server(Access(fake.url, environment={})) as server,
        pytest.raises(error, match=r"because|blocked") as raised,
    ):
        server.request("GET", "/_cluster/health")
    assert said in str(raised.value).replace("$", "")
    assert len(fake.requests) == 1  # asked once


def test_a_busy_server_is_asked_again(fake) -> None:
    left = [429, 503, "drop", 502]

    def fault(*_):
        if not left:
            return None
        status = left.pop()
        return status if status == "drop" else failure(int(status), "busy", "later")

    fake.fault = fault
    with Server(Access(fake.url, environment={})) as server:
        assert server.request("GET", "/_cluster/health")["status"] == "green"
        fake.fault = lambda *_: failure(429, "busy", "later")
        with pytest.raises(ServerError, match=r"responds with status 429: later"):
            server.request("GET", "/_cluster/health", patience=0.3)


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (
        Server(Access(f"http://127.0.0.1:{port}", patience=0.2, environment={})) as server,
        pytest.raises(ServerError, match="cannot be reached"),
    ):
        server.request("GET", "/")


def test_another_node_answers(fake) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Server(Access(f"http://127.0.0.1:{port},{fake.url}", patience=0, environment={})) as server:
        for _ in range(5):
            assert server.request("GET", "/_cluster/health")["status"] == "green"


@pytest.mark.parametrize("said", ["<html>welcome</html>", [], None])
def test_a_page_is_no_opensearch(fake, said) -> None:
    fake.fault = lambda *_: (200, said)
    with (
        Server(Access(fake.url, environment={})) as server,
        pytest.raises(ServerError, match="is not OpenSearch"),
    ):
        server.request("GET", "/_cluster/health")


@pytest.mark.parametrize(
    "answer",
    [
        (404, {"detail": "Not Found"}),
        (404, {"error": "Not Found"}),
        (404, {"error": "Not Found", "status": 404}),
        (200, {"version": 3}),
    ],
)
def test_another_service_with_json_is_no_opensearch(fake, answer) -> None:
    fake.fault = lambda *_: answer
    with (
        Server(Access(fake.url, environment={})) as server,
        pytest.raises(ServerError, match="is not OpenSearch"),
    ):
        indices_of(server, "wiki")


@pytest.mark.parametrize("answer", [(400, {"error": "Bad Request"}), (200, {"error": "no"})])
def test_a_refusal_without_a_type_is_told(fake, answer) -> None:
    fake.fault = lambda *_: answer
    with (
        Server(Access(fake.url, environment={})) as server,
        pytest.raises(InputError, match=f"cannot create the index 'wiki': {answer[1]['error']}"),
    ):
        create_index(server, "wiki", {})


def test_who_was_never_there_is_not_waited_for() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    with (
        Server(Access(f"http://127.0.0.1:{port}", patience=20, environment={})) as server,
        pytest.raises(ServerError, match="cannot be reached"),
    ):
        server.request("GET", "/")
    assert time.monotonic() - began < 10
