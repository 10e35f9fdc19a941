"""Each endpoint, beside what the same question gives in Python."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hybrid.retrieval.fusion import Fusion
from hybrid.retrieval.searcher import HybridSearcher, open_retriever
from sparta.api import Index
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from tests.hybrid.service.services import FRENCH, NDJSON, QUESTION, lines

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def client(built):
    from fastapi.testclient import TestClient

    from hybrid.service.app import create_app
    from hybrid.service.settings import Settings

    with TestClient(create_app(Settings(index=built)), base_url="http://localhost") as one:
        yield one


def ask(client, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.slow
def test_a_search_finds_what_the_index_finds(client, built) -> None:
    found = ask(client, "/search", query=QUESTION, k=5)
    with Index(built) as index:
        expected, version = index.search(QUESTION, 5), index.version
    assert len(expected) == 5
    assert [
        (h["rank"], h["id"], h["score"], h["title"], h["text"], h["metadata"]) for h in found["hits"]
    ] == [(rank, h.passage_id, h.score, h.title, h.text, h.metadata) for rank, h in enumerate(expected, 1)]
    assert found["query"] == QUESTION
    assert found["channels"] == "impact"
    assert found["version"] == version._asdict()
    assert found["took_ms"] > 0


def test_several_questions_are_answered_in_their_order(client) -> None:
    queries = [QUESTION, "the moon", "", QUESTION]
    found = ask(client, "/search", query=queries, k=3)
    assert [one["query"] for one in found["results"]] == queries
    for query, one in zip(queries, found["results"], strict=True):
        assert one["hits"] == ask(client, "/search", query=query, k=3)["hits"]
    assert not found["results"][2]["hits"]


def test_a_fused_hit_says_what_each_channel_gave(client, built) -> None:
    found = ask(client, "/search", query=QUESTION, k=20, channels="bm25=1.2,impact")
    with HybridSearcher(built, Fusion({"bm25": 1.2, "impact": 1.0})) as searcher:
        expected = searcher.search(QUESTION, 20)
    assert [(h["id"], h["score"]) for h in found["hits"]] == [(h.passage_id, h.score) for h in expected]
    lacking = 0
    for hit in found["hits"]:
        places = hit["channels"]
        assert list(places) == ["bm25", "impact"]
        assert sum(place["contribution"] for place in places.values()) == pytest.approx(hit["score"])
        lacking += any(place["rank"] is None and place["score"] is None for place in places.values())
    assert 0 < lacking < 20


@pytest.mark.parametrize("channels", ["impact", "bm25", "impact,bm25"])
def test_pages_filters_and_collapsing_are_those_of_the_retriever(client, built, channels: str) -> None:
    options: list[dict[str, Any]] = [
        {"offset": 3},
        {"filter": {"lang": "en"}},
        {"filter": {"or": [{"lang": {"not": "en"}}, {"year": {"exists": True}}]}},
        {"filter": {"or": [{"year": {"gt": i, "lt": i + 5}} for i in range(1960, 2010)]}},
        {"filter": {"lang": {"in": ["en", "fr"]}, "year": {"gte": 1990}}},
        {"collapse": "title"},
        {"offset": 1, "collapse": "lang", "filter": {"lang": {"in": ["en", "fr"]}}},
    ]
    with open_retriever(built, channels) as retriever:
        for more in options:
            found = ask(client, "/search", query="moon google founded", k=5, channels=channels, **more)
            expected = retriever.search("moon google founded", 5, **more)
            assert [(h["id"], h["score"]) for h in found["hits"]] == [
                (h.passage_id, h.score) for h in expected
            ]
            assert [h["rank"] for h in found["hits"]] == [
                more.get("offset", 0) + 1 + i for i in range(len(expected))
            ]
            assert expected
    assert client.get("/info").json()["fields"] == ["big", "lang", "title", "year"]


def test_an_explained_hit_has_the_terms_of_explain_and_marks_words_of_them(client, built) -> None:
    found = ask(client, "/search", query=QUESTION, k=5, explain=True)
    with Index(built) as index:
        for hit in found["hits"]:
            why = index.explain(QUESTION, hit["id"])
            assert hit["terms"] == [term.as_dict() for term in why.terms if term.impact]
            assert sum(term["share"] for term in hit["terms"]) == hit["score"]
    [google] = [hit for hit in found["hits"] if hit["id"] == "google"]
    words = {google["snippet"][start:end].lower() for start, end, _ in google["marks"]}
    assert {"google", "founded"} <= words
    assert all(0 < share <= 1 for _, _, share in google["marks"])


def test_in_an_index_for_bm25_alone_the_words_that_match_are_marked(open_client, tmp_path: Path) -> None:
    texts = ("Unforgettable kodak moments.", "Unbelievable believers.")
    records = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    build_index(tmp_path / "ix", records, options=IndexOptions(channels="bm25"))
    found = ask(open_client(tmp_path / "ix"), "/search", query="kodak believe unforgiven", explain=True)
    marked = {
        hit["id"]: [(hit["snippet"][a:b], share) for a, b, share in hit["marks"]] for hit in found["hits"]
    }
    assert marked == {"0": [("kodak", None)], "1": [("believers", None)]}


def test_explain_passages_and_terms_are_those_of_the_index(client, built) -> None:
    with Index(built) as index:
        why, terms = index.explain(QUESTION, "google"), index.terms("google")
    explained = ask(client, "/explain", query=QUESTION, id="google")
    assert explained["terms"] == [term.as_dict() for term in why.terms]
    assert (explained["rank"], explained["score"]) == (why.rank, why.score)
    passage = client.get("/passages/google").json()
    assert passage["id"] == "google"
    assert passage["title"] == "Google"
    assert passage["metadata"] == {"lang": "en", "year": 1998}
    found = client.get("/terms/google?n=4").json()
    assert [(t["term"], t["impact"], t["weight"]) for t in found["terms"]] == terms[:4]
    assert found["of"] == len(terms)


def test_a_document_that_was_cut_is_opened_whole(
    open_client, tiny_model_folder, tmp_path: Path, calls
) -> None:
    from sparta.lucene.bridge import ImpactSearcher

    text = "the moon is far\n\nand google was founded"
    options = IndexOptions(model=str(tiny_model_folder), dtype="fp32", unit="chunk:3:1")
    build_index(tmp_path / "ix", [{"id": "p", "title": "T", "text": text, "lang": "en"}], options=options)
    client = open_client(tmp_path / "ix")
    [hit] = ask(client, "/search", query="moon google")["hits"]
    found = client.get(f"/passages/{hit['id']}").json()
    assert found == {"id": "p", "title": "T", "text": text, "metadata": {"lang": "en"}}
    assert client.get("/terms/p").json()["terms"]
    why = ask(client, "/explain", query="moon google", id="p")
    assert {text[start:end] for start, end, _ in why["marks"]} & {"moon", "google"}
    without_best = {"not": {"start": hit["start"]}}  # the terms are those of the best other chunk
    looks_for_chunks = calls(ImpactSearcher.sentences)
    [hit] = ask(client, "/search", query="moon google", explain=True, filter=without_best)["hits"]
    assert looks_for_chunks == []
    assert sum(term["share"] for term in hit["terms"]) == hit["score"]


def test_ids_with_slashes_and_numbers_above_64_bits(client) -> None:
    assert client.get("/passages/a/b").json()["title"] == "Path"
    assert client.get("/terms/a%2Fb").json()["id"] == "a/b"
    assert json.loads(client.get("/passages/lune").text)["metadata"]["big"] == FRENCH["big"]
    assert any(
        h["metadata"].get("big") == FRENCH["big"] for h in ask(client, "/search", query="moon")["hits"]
    )


def test_info_health_ready_page_and_openapi(client, built) -> None:
    info = client.get("/info").json()
    with Index(built) as index:
        assert info["passages"] == len(index)
        assert sorted(info["channels"]) == sorted(index.channels)
    assert (info["default_channels"], info["writable"]) == ("impact", False)
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    assert "text/html" in client.get("/").headers["content-type"]
    described = client.get("/openapi.json").json()
    assert {"/search", "/explain", "/answer", "/info", "/passages"} <= described["paths"].keys()
    body = described["paths"]["/search"]["post"]["requestBody"]["content"]["application/json"]
    assert ask(client, "/search", **body["example"])["hits"]
    assert set(described["paths"]["/passages"]) == {"put", "post", "delete"}


def test_facets_are_those_of_the_index(client, built) -> None:
    with Index(built) as index:
        for channels in ("impact", "bm25", "bm25=1.2,impact"):
            for conditions in ({}, {"lang": {"not": "fr"}}):
                expected = index.facets("moon", ["lang", "year"], channel=channels, filter=conditions)
                body = {
                    "query": "moon",
                    "facets": ["lang", "year"],
                    "channels": channels,
                    "filter": conditions,
                }
                assert ask(client, "/search", **body)["facets"] == expected
                several = ask(client, "/search", **{**body, "query": ["moon", "x"]})["results"]
                assert several[0]["facets"] == expected
                assert any(expected["lang"].values())
    answer = client.get("/search?q=moon&facet=lang&facet=year&k=1").json()
    assert (list(answer["facets"]), len(answer["hits"])) == (["lang", "year"], 1)
    assert "facets" not in ask(client, "/search", query="moon")


def test_hits_and_facets_are_of_one_commit(index, open_client, monkeypatch) -> None:
    from hybrid.service.live import search
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.pipeline import build_index

    client, count_values = open_client(index), search.count_values

    def count_after_a_commit(*arguments: Any, **options: Any) -> Any:
        build_index(index, [{"id": "later", "text": "moon", "lang": "xx"}], "append", IndexOptions())
        client.app.state.service.reader.refresh()
        return count_values(*arguments, **options)

    monkeypatch.setattr(search, "count_values", count_after_a_commit)
    answer = ask(client, "/search", query="moon", facets=["lang"], k=1000)
    langs = [hit["metadata"]["lang"] for hit in answer["hits"] if "lang" in hit["metadata"]]
    assert answer["facets"]["lang"] == Counter(langs)
    assert "xx" not in langs
    monkeypatch.undo()
    assert "xx" in ask(client, "/search", query="moon", facets=["lang"])["facets"]["lang"]


def test_get_finds_what_post_finds(client) -> None:
    for query, body in (
        ("q=the+moon", {"query": "the moon"}),
        ("q=moon&k=3&offset=2&collapse=lang", {"query": "moon", "k": 3, "offset": 2, "collapse": "lang"}),
        (
            "q=moon&channels=bm25%3D1.2%2Cimpact&explain=true",
            {"query": "moon", "channels": "bm25=1.2,impact", "explain": True},
        ),
        ("q=moon&filter=lang%3Den", {"query": "moon", "filter": {"lang": "en"}}),
        (
            "q=moon&filter=lang!%3Den&filter=year+exists",
            {"query": "moon", "filter": {"lang": {"not": "en"}, "year": {"exists": True}}},
        ),
        ("q=moon&filter=%7B%22lang%22%3A%22en%22%7D", {"query": "moon", "filter": {"lang": "en"}}),
        ("q=%E6%9C%88&explain=0", {"query": "月"}),
    ):
        answer = client.get(f"/search?{query}")
        assert answer.status_code == 200, answer.text
        expected = ask(client, "/search", **body)
        assert {**answer.json(), "took_ms": 0} == {**expected, "took_ms": 0}
    assert client.head("/search?q=moon").status_code == 200


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "the parameter q is missing"),
        ("k=3", "the parameter q is missing"),
        ("q=x&q=y", "the parameter q occurs twice"),
        ("query=x", "unknown parameter 'query'; the parameters are q, k, offset"),
        ("q=x&k=ten", "k must be a whole number, found 'ten'"),
        ("q=x&k=%D9%A3", "k must be a whole number"),
        ("q=x&k=0", "k: "),
        ("q=x&k=1001", "at most 1000"),
        ("q=x&offset=-1", "offset must be a whole number"),
        ("q=x&explain=yes", "explain must be true or false"),
        ("q=x&filter=lang", "expected FIELD=VALUE, found 'lang'"),
        ("q=x&filter=yaer=1", "yaer"),
        ("q=x&channels=nothing", "channel"),
        ("q=%ff", "not UTF-8"),
        ("q=x" + "&filter=a=1" * 101, "more than 100 parameters"),
        ("q=" + "x" * 1001, "at most 1000 characters"),
        ("q=x&collapse=" + "x" * 201, "collapse"),
        ("q=x&collapse=", "must be the name of a metadata field, found ''"),
    ],
)
def test_a_query_string_that_is_wrong_is_told_what_is(client, query: str, said: str) -> None:
    answer = client.get(f"/search?{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "the parameter q is missing: GET /answer?q=QUERY"),
        ("q=x&k=3", "unknown parameter 'k'; the parameters are q, n, depth, channels, rerank, threshold"),
        ("q=x&n=0", "n: "),
        ("q=x&threshold=nan", "threshold must be a number from 0 to 1, found 'nan'"),
        ("q=x&threshold=1.5", "threshold: "),
        ("q=x&threshold=.5&threshold=.6", "the parameter threshold occurs twice"),
    ],
)
def test_a_query_string_of_answer_that_is_wrong_is_refused(client, query: str, said: str) -> None:
    answer = client.get(f"/answer?{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
    assert said in answer.json()["error"]["message"]


def test_the_page_of_the_api_needs_no_other_host(client) -> None:
    page = client.get("/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.text
    for name in re.findall(r'(?:src|href)="(static/[^"]+)"', page.text):
        assert client.get(f"/{name}").status_code == 200, name
    assert "://" not in page.text
    parameters = client.get("/openapi.json").json()["paths"]["/search"]["get"]["parameters"]
    names = ["q", "k", "offset", "channels", "collapse", "hits", "join"]
    names += ["rerank", "explain", "filter", "facet"]
    assert [own["name"] for own in parameters] == names
    parameters = client.get("/openapi.json").json()["paths"]["/answer"]["get"]["parameters"]
    names = ["q", "n", "depth", "channels", "rerank", "threshold", "filter"]
    assert [own["name"] for own in parameters] == names


def test_metrics_count_requests_and_batches(client) -> None:
    def value(name: str) -> float:
        rows = client.get("/metrics").text.splitlines()
        return sum(float(row.rpartition(" ")[2]) for row in rows if row.startswith(name))

    counted = 'sparta_requests_total{method="POST",route="/search",status="200"}'
    before, batches = value(counted), value("sparta_batch_queries_sum")
    ask(client, "/search", query=["a", "b", "c"])
    assert (value(counted) - before, value("sparta_batch_queries_sum") - batches) == (1, 3)
    requests = [("GET", "/static/app.js"), ("GET", "/openapi.json"), ("GET", "/search"), ("GET", "/no")]
    requests += [("GET", "/answer")]
    requests += [("DELETE", "/passages/x"), ("GET", "/passages/%0a")]
    for method, path in requests:
        client.request(method, path)
    told = [line for line in client.get("/metrics").text.splitlines() if "sparta_requests_total{" in line]
    for route, status in (
        ("/static", 200),
        ("/openapi.json", 200),
        ("/search", 400),
        ("/answer", 400),
        ("other", 404),
        ("/passages/{passage_id:path}", 403),
        ("/passages/{passage_id:path}", 400),
    ):
        assert any(f'route="{route}",status="{status}"' in line for line in told), (route, status)
    assert value("sparta_passages ") == client.get("/info").json()["passages"]
    assert value("sparta_commit ") == client.get("/info").json()["version"]["commit"]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/search", {}, "query"),
        ("/search", {"query": "x", "k": 0}, "k"),
        ("/search", {"query": "x", "k": 1001}, "at most 1000"),
        ("/search", {"query": "x", "k": "10"}, "k"),
        ("/search", {"query": "x", "offset": -1}, "offset"),
        ("/search", {"query": "x" * 1001}, "at most 1000 characters"),
        ("/search", {"query": []}, "1 to 100 queries"),
        ("/search", {"query": ["x"] * 101}, "1 to 100 queries"),
        ("/search", {"query": "x", "channels": "nothing"}, "channel"),
        ("/search", {"query": "x", "channels": ""}, "channel"),
        ("/search", {"query": "x", "filter": {"lang": {"in": [*range(1001)]}}}, "at most 1000 values"),
        (
            "/search",
            {"query": "x", "filter": {"or": [{"year": i} for i in range(1001)]}},
            "at most 1000 values",
        ),
        (
            "/search",
            {"query": "x", "filter": {"or": [{"year": {"gt": i}} for i in range(51)]}},
            "count as 20",
        ),
        ("/search", {"query": "x", "filter": {"and": [{"year": {"exists": True}}] * 51}}, "count as 20"),
        ("/answer", {"query": "x", "filter": {str(i): i for i in range(1001)}}, "at most 1000 values"),
        ("/search", {"query": "x", "channels": "bm25=nan"}, "bm25"),
        ("/search", {"query": "x", "channels": "dense"}, "has no channel"),
        ("/search", {"query": "x", "surprise": 1}, "surprise"),
        ("/search", {"query": "x", "channels": " " * 200 + "impact"}, "channels"),
        ("/search", {"query": "x", "collapse": "x" * 201}, "collapse"),
        ("/answer", {"query": "x", "channels": " " * 200 + "impact"}, "channels"),
        ("/search", {"query": "x", "filter": {"yaer": 1}}, "yaer"),
        ("/search", {"query": "x", "filter": {"year": {"above": 1}}}, "year"),
        ("/search", {"query": "x", "collapse": "yaer"}, "yaer"),
        ("/search", {"query": "x", "facets": ["yaer"]}, "yaer"),
        ("/search", {"query": "x", "facets": ["year"] * 11}, "facets"),
        ("/search", {"query": ["x"] * 51, "facets": ["year", "lang"]}, "facets × queries may be at most 100"),
        ("/search", {"query": "x", "offset": 95, "channels": "impact,bm25"}, "candidates"),
        ("/search", {"query": "x", "offset": 9995}, "at most 10000"),
        ("/search", {"query": ["x"] * 20, "k": 501}, "at most 10000"),
        ("/search", {"query": "x", "k": 101, "explain": True}, "at most 100"),
        ("/explain", {"query": "x"}, "id"),
        ("/answer", {"query": "x", "n": 0}, "n"),
    ],
)
def test_a_request_that_is_wrong_is_told_what_is(client, path: str, body: dict[str, Any], said: str) -> None:
    answer = client.post(path, json=body, headers={"X-Request-ID": "mine-1"})
    assert answer.status_code == 400
    told = answer.json()
    assert told["error"]["code"] == "bad_request"
    assert said in told["error"]["message"]
    assert not re.search(r"--\w|sparta \w|Fusion", told["error"]["remedy"])
    assert told["request_id"] == answer.headers["x-request-id"] == "mine-1"


def test_what_is_not_there_is_a_404_and_another_method_a_405(client) -> None:
    missing = [client.get("/passages/nope"), client.get("/terms/nope"), client.get("/nothing")]
    missing.append(client.post("/explain", json={"query": "x", "id": "nope"}))
    assert [answer.status_code for answer in missing] == [404] * 4
    assert all(answer.json()["error"]["code"] == "not_found" for answer in missing)
    assert missing[0].json()["error"]["remedy"] == "POST /search gives ids"
    others = [client.put("/answer"), client.get("/passages"), client.post("/terms/moon")]
    assert [answer.status_code for answer in others] == [405] * 3
    told = [answer.headers["allow"] for answer in others]
    assert told == ["GET, HEAD, POST", "DELETE, POST, PUT", "GET, HEAD"]
    slash = client.get("/info/", follow_redirects=False)
    assert (slash.status_code, slash.json()["error"]["code"]) == (404, "not_found")


def test_a_file_is_sent_whole_also_where_a_part_is_asked_for(client) -> None:
    whole = client.get("/static/app.js")
    for part in ("bytes=0-9", "bytes=999999999-", "nonsense"):
        found = client.get("/static/app.js", headers={"Range": part})
        assert (found.status_code, found.content) == (200, whole.content)
    assert whole.headers["accept-ranges"] == "none"


def test_an_index_is_not_changed_unless_that_is_allowed(client) -> None:
    body = lines({"id": "n", "text": "new"})
    answers = [
        client.request(m, "/passages", content=body, headers=NDJSON) for m in ("PUT", "POST", "DELETE")
    ]
    answers.append(client.delete("/passages/google"))
    assert [answer.status_code for answer in answers] == [403] * 4
    assert client.get("/passages/google").status_code == 200


def test_pages_of_others_do_not_reach_a_service_without_keys(client) -> None:
    body = {"query": QUESTION}
    assert client.post("/search", json=body, headers={"Host": "evil.example"}).status_code == 421
    assert client.post("/search", json=body, headers={"Host": "127.0.0.1:99"}).status_code == 200


_LOCAL = {"Host": "localhost:8080"}
_LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
_IMAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
_FETCH = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}
_BROWSER_CASES = [
    ("POST", "/search", _FETCH, 403),
    ("POST", "/answer", {"Origin": "null"}, 403),  # a sandboxed frame
    ("POST", "/search", {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}, 403),
    ("GET", "/info", _FETCH, 403),
    ("GET", "/", _FETCH, 403),
    ("OPTIONS", "/search", _FETCH, 403),
    ("GET", "/info", _IMAGE, 403),
    ("GET", "/passages/google", _LINK, 403),
    ("POST", "/search", _IMAGE, 403),
    ("GET", "/", _LINK, 200),
    ("GET", "/static/api.js", _IMAGE, 200),
    ("POST", "/search", {"Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"}, 200),
    ("GET", "/info", {"Sec-Fetch-Site": "same-origin"}, 200),
    ("GET", "/info", {"Sec-Fetch-Site": "none"}, 200),  # typed into the address bar
    ("GET", "/info", {}, 200),
    ("POST", "/search", {"Content-Type": "application/x-www-form-urlencoded"}, 200),  # curl -d
]


@pytest.mark.parametrize(("method", "path", "headers", "status"), _BROWSER_CASES)
def test_a_service_without_keys_answers_its_pages_only(client, method, path, headers, status) -> None:
    body = b'{"query": "who founded google"}' if method == "POST" else None
    answer = client.request(method, path, content=body, headers={**_LOCAL, **headers})
    assert answer.status_code == status, answer.text
    assert "access-control-allow-origin" not in answer.headers
