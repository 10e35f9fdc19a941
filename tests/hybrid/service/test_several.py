"""Several indexes in one service: their routes, keys and errors, and one copy of each model."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hybrid.service.keys import Keys
from hybrid.service.settings import Settings, keys_by_index, named_indexes
from sparta.base.errors import InputError
from tests.hybrid.service.services import NDJSON, QUESTION, lines
from tests.programs import sparta

KEY_A, KEY_B = "a" * 24, "b" * 24


@pytest.fixture(scope="module")
def moons(tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second small index."""
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index

    path = tmp_path_factory.mktemp("several") / "moons"
    options = IndexOptions(model=str(tiny_model_folder), dtype="fp32")
    build_index(path, [{"id": "io", "text": "the moon of a planet"}], "create", options)
    return path


@pytest.fixture
def open_several(tiny_model_folder: Path) -> Iterator[Callable[..., Any]]:
    """A function `({name: path}, keys={name: Keys}, **settings) -> client`."""
    from fastapi.testclient import TestClient

    from hybrid.service.several import application

    with ExitStack() as stack:

        def start(indexes: dict[str, Path], keys: dict[str, Keys] | None = None, **more: Any) -> TestClient:
            settings = [
                Settings(path, name=name, keys=(keys or {}).get(name, Keys()), **more)
                for name, path in indexes.items()
            ]
            client = TestClient(
                application(settings), base_url="http://localhost", raise_server_exceptions=False
            )
            return stack.enter_context(client)

        yield start


@pytest.mark.jvm
def test_each_index_has_the_routes_of_a_service_with_one(built, moons, open_several, open_client) -> None:
    client, alone = open_several({"built": built, "moons": moons}), open_client(built)
    for method, path, body in (
        ("POST", "/search", {"query": QUESTION}),
        ("GET", "/search?q=moon&k=2", None),
        ("POST", "/explain", {"query": QUESTION, "id": "google"}),
        ("GET", "/passages/a/b", None),
        ("GET", "/terms/google?n=3", None),
        ("GET", "/health", None),
        ("GET", "/ready", None),
        ("GET", "/", None),
        ("GET", "/docs", None),
        ("GET", "/static/app.js", None),
        ("GET", "/nothing", None),
        ("GET", "/explain", None),
    ):
        answers = [
            each.request(method, f"{prefix}{path}", json=body)
            for each, prefix in ((client, "/indexes/built"), (alone, ""))
        ]
        assert answers[0].status_code == answers[1].status_code, path
        if answers[0].headers["content-type"] == "application/json":
            bodies = [answer.json() for answer in answers]
            for each in bodies:
                each.pop("took_ms", None), each.pop("request_id", None)
            assert bodies[0] == bodies[1], path
        else:
            assert answers[0].content == answers[1].content, path
    assert client.get("/indexes/built/info").json()["index"] == "built"
    hits = client.post("/indexes/moons/search", json={"query": "moon"}).json()["hits"]
    assert [hit["id"] for hit in hits] == ["io"]
    metrics = client.get("/indexes/moons/metrics").text
    assert 'sparta_requests_total{method="POST",route="/search",status="200"} 1.0' in metrics
    assert "sparta_passages 1.0" in metrics


@pytest.mark.jvm
def test_without_a_key_the_service_names_no_index(built, moons, open_several) -> None:
    keys = {"secret": Keys([f"read {KEY_A}"]), "moons": Keys([f"read {KEY_B}"])}
    client = open_several({"secret": built, "moons": moons}, keys)
    icon = client.get("/favicon.ico")
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
    for method, path in (
        ("POST", "/health"),
        ("PUT", "/"),
        ("GET", "/static/nothing"),
        ("GET", "/nothing"),
        ("GET", "/indexes"),
    ):
        answer = client.request(method, path)
        assert answer.status_code in (401, 404, 405)
        assert "secret" not in answer.text


@pytest.mark.jvm
def test_the_service_lists_its_indexes_and_describes_their_paths(built, moons, open_several) -> None:
    client = open_several({"built": built, "moons": moons})
    assert client.get("/indexes").json() == {"indexes": ["built", "moons"]}
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    assert "static/indexes.js" in client.get("/").text
    assert client.get("/static/indexes.js").status_code == 200
    metrics = client.get("/metrics").text
    assert "sparta_requests_total" in metrics
    assert not any(name in metrics for name in ("sparta_passages", "sparta_queue", "sparta_batch"))
    described = client.get("/openapi.json").json()
    assert {"/health", "/ready", "/indexes", "/indexes/{index}/search"} <= described["paths"].keys()
    search = described["paths"]["/indexes/{index}/search"]["get"]
    assert search["parameters"][0]["schema"]["enum"] == ["built", "moons"]
    operations = [one["operationId"] for methods in described["paths"].values() for one in methods.values()]
    assert len(operations) == len(set(operations))
    assert client.get("/openapi.json").json() == described
    assert client.get("/indexes/moons/openapi.json").json()["servers"] == [{"url": "/indexes/moons"}]


@pytest.mark.jvm
def test_a_path_of_no_index_names_the_indexes(built, moons, open_several) -> None:
    client = open_several({"built": built, "moons": moons})
    for path in ("/indexes/mars/search", "/indexes/mars", "/search", "/indexes/"):
        answer = client.post(path, json={"query": "moon"})
        assert answer.status_code == 404, path
        assert "the indexes: built, moons" in answer.json()["error"]["message"], path
    for path in ("/health", "/ready", "/metrics", "/indexes"):
        answer = client.post(path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD"), path
    answer = client.get("/indexes/moons", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, "moons/")
    assert client.get("/indexes/moons?q=the%20moon&k=2").url.raw_path == b"/indexes/moons/?q=the%20moon&k=2"


@pytest.mark.jvm
def test_an_index_opens_with_its_own_keys_only(built, moons, open_several) -> None:
    keys = {"built": Keys([f"read {KEY_A}"]), "moons": Keys([f"write {KEY_B}"])}
    client = open_several({"built": built, "moons": moons}, keys)

    def status(path: str, key: str = "") -> int:
        return client.post(
            path, json={"query": "moon"}, headers={"X-API-Key": key} if key else {}
        ).status_code

    assert [status("/indexes/built/search", key) for key in ("", KEY_A, KEY_B)] == [401, 200, 401]
    assert [status("/indexes/moons/search", key) for key in ("", KEY_A, KEY_B)] == [401, 401, 200]
    assert [status("/indexes/mars/search", key) for key in ("", KEY_A, KEY_B)] == [401, 404, 404]
    listed = [client.get("/indexes", headers={"X-API-Key": key}).status_code for key in ("x", KEY_A, KEY_B)]
    assert listed == [401, 200, 200]
    of_index = ("/indexes/moons", "/indexes/moons/", "/indexes/moons/openapi.json")
    for path in ("/", "/docs", "/health", "/openapi.json", *of_index):
        assert client.get(path).status_code == 200
    assert client.get("/indexes/mars").status_code == 401
    described = client.get("/openapi.json").json()
    assert described["security"] == [{"key": []}, {"bearer": []}]
    assert "built" not in json.dumps(described["paths"]["/indexes/{index}/search"])


@pytest.mark.jvm
def test_without_keys_only_this_machine_may_ask_any_index(built, moons, open_several) -> None:
    keys = {"built": Keys([f"read {KEY_A}"])}
    client = open_several({"built": built, "moons": moons}, keys)
    foreign = {"Host": "evil.example"}
    assert client.get("/indexes/moons/info", headers=foreign).status_code == 421
    assert client.get("/indexes", headers=foreign).status_code == 421
    assert client.get("/indexes/built/info", headers={**foreign, "X-API-Key": KEY_A}).status_code == 200
    cross = {"Origin": "https://evil.example"}
    assert client.get("/indexes/moons/info", headers=cross).status_code == 403
    with pytest.raises(InputError, match="needs keys"):
        open_several({"built": built, "moons": moons}, keys, host="0.0.0.0")


@pytest.mark.jvm
@pytest.mark.slow
def test_models_are_opened_once(
    built, moons, open_several, make_tiny_model, tiny_model_folder, tmp_path, calls
) -> None:
    import shutil

    from dense.channel.sync import build_dense
    from dense.channel.vectors import open_question_encoder
    from dense.models.bi_encoder import DenseConfig, DenseModel
    from sparta.models.load import open_encoder
    from sparta.neural.inputs import InputLayout
    from sparta.reader.reader import Reader

    tiny = make_tiny_model()
    # a length of its own: other tests may still hold the encoder of an equal model
    layout = InputLayout(use_title=True, use_context=True, answer_segment=0, max_length=61, overlap=8)
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig(layout)).save_pretrained(tmp_path / "dense")
    indexes = {}
    for name, source in (("one", built), ("two", moons)):
        indexes[name] = Path(shutil.copytree(source, tmp_path / name))
        build_dense(indexes[name], str(tmp_path / "dense"))

    gc.collect()  # encoders of other tests
    model = shutil.copytree(tiny_model_folder, tmp_path / "model")  # other tests may hold the original's
    opened = calls(open_question_encoder, open_encoder, Reader.open)
    client = open_several(indexes, writable=True, model=str(model))
    for name in indexes:
        body = {"query": "moon", "channels": "dense", "k": 1}
        assert client.post(f"/indexes/{name}/search", json=body).json()["hits"]
        assert client.post(f"/indexes/{name}/answer", json={"query": "moon", "depth": 1}).status_code == 200
        passage = lines({"id": "new", "text": f"a moon of {name}"})
        answer = client.put(f"/indexes/{name}/passages", content=passage, headers=NDJSON)
        assert answer.json()["added"] == 1, answer.json()
    assert sorted(name for name, _ in opened) == ["open", "open_encoder", "open_question_encoder"]
    texts = [client.get(f"/indexes/{name}/passages/new").json()["text"] for name in indexes]
    assert texts == ["a moon of one", "a moon of two"]


def test_names_of_indexes_and_their_keys(tmp_path: Path) -> None:
    assert named_indexes([]) == {}
    assert named_indexes(["my/ix"]) == {"": Path("my/ix")}
    assert named_indexes(["a=x", "b=y=z"]) == {"a": Path("x"), "b": Path("y=z")}
    (tmp_path / "run=1").mkdir()
    assert named_indexes([str(tmp_path / "run=1")]) == {"": tmp_path / "run=1"}
    for invalid in ("東京=x", "=x", "a=", "a b=x", "-a=x"):
        with pytest.raises(InputError, match="neither an existing path nor NAME=PATH") as refused:
            named_indexes([invalid])
        assert "ASCII letter" in str(refused.value.remedy)
    with pytest.raises(InputError, match="two indexes have the name 'a'"):
        named_indexes(["a=x", "a=y"])
    for mixed in (["x", "b=y"], ["b=y", "x"], ["x", "y"]):
        with pytest.raises(InputError, match="each of several indexes needs a name, but x has none"):
            named_indexes(mixed)

    files = {name: tmp_path / f"{name}.txt" for name in "abc"}
    for name, path in files.items():
        path.write_text(f"read {name * 24}\n")
    keys = keys_by_index([str(files["a"]), f"b={files['b']}"], ["a", "b"])
    assert [keys["a"].scope(key * 24) for key in "ab"] == ["read", None]
    assert [keys["b"].scope(key * 24) for key in "ab"] == [None, "read"]
    with pytest.raises(InputError, match="no index 'c' for these keys; names of indexes: a, b"):
        keys_by_index([f"c={files['c']}"], ["a", "b"])
    with pytest.raises(InputError, match="two files of keys for all indexes"):
        keys_by_index([str(files["a"]), str(files["b"])], [""])


def test_a_bad_index_among_good_ones_is_named_before_the_start(built, moons, tmp_path: Path) -> None:
    def refused(*arguments: str) -> str:
        done = sparta("serve", *arguments)
        assert done.exit_code == 2, done.output
        return done.stderr

    assert str(tmp_path / "none") in refused("--index", f"a={built}", "--index", f"b={tmp_path / 'none'}")
    no_dense = refused("--index", f"a={built}", "--index", f"b={moons}", "--channel", "dense")
    assert str(built) in no_dense
    assert "no channel dense" in no_dense
    assert "needs a name" in refused("--index", str(built), "--index", f"b={moons}")
    assert "two indexes have the name" in refused("--index", f"a={built}", "--index", f"a={moons}")
