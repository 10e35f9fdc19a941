"""As much of OpenSearch as sparta asks for, in memory: documents scored one by one, faults on request."""

from __future__ import annotations

import fnmatch
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import ge, gt, le, lt
from typing import Any
from urllib.parse import unquote, urlsplit

Json = dict[str, Any]
Answer = tuple[int, Any]


def failure(status: int, kind: str, reason: str) -> Answer:
    cause = {"type": kind, "reason": reason}
    return status, {"error": {"root_cause": [cause], **cause}, "status": status}


@dataclass
class Held:
    """One index."""

    settings: Json
    mappings: Json
    documents: dict[str, Json] = field(default_factory=dict)


@dataclass
class Fake:
    """The server's state, and what it is to do wrong.

    `fault` sees method, path and body of each request first, and may answer in its place; "drop" as its
    answer closes the connection. `plugin` is whether neural-search is installed.
    """

    url: str = ""
    indices: dict[str, Held] = field(default_factory=dict)
    aliases: dict[str, set[str]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    fault: Callable[[str, str, bytes], Any] = lambda *_: None
    plugin: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, path: str, body: bytes) -> Answer | str:
        self.requests.append((method, path))
        wrong = self.fault(method, path, body)
        if wrong is not None:
            return wrong
        with self.lock:
            for pattern, handler in HANDLERS:
                found = re.fullmatch(pattern, f"{method} {path}")
                if found:
                    return handler(self, body, *(unquote(part) for part in found.groups()))
        raise NotImplementedError(f"{method} {path}")

    # ------------------------------------------------------------ indices

    def create(self, body: bytes, name: str) -> Answer:
        if name in self.indices:
            return failure(400, "resource_already_exists_exception", f"index [{name}] already exists")
        asked = json.loads(body)
        self.indices[name] = Held(asked["settings"], asked["mappings"])
        return 200, {"acknowledged": True}

    def drop(self, _body: bytes, name: str) -> Answer:
        self.indices.pop(name, None)
        for holders in self.aliases.values():
            holders.discard(name)
        return 200, {"acknowledged": True}

    def mapping(self, _body: bytes, name: str) -> Answer:
        names = fnmatch.filter(self.indices, name)
        if not names and "*" not in name:
            return failure(404, "index_not_found_exception", f"no such index [{name}]")
        return 200, {name: {"mappings": self.indices[name].mappings} for name in names}

    def settings(self, _body: bytes, name: str) -> Answer:
        if name not in self.indices:
            return failure(404, "index_not_found_exception", f"no such index [{name}]")
        settings = self.indices[name].settings["index"]
        shown = {key: str(value) for key, value in settings.items() if not isinstance(value, dict)}
        return 200, {name: {"settings": {"index": shown}}}

    def remap(self, body: bytes, name: str) -> Answer:
        self.indices[name].mappings |= json.loads(body)
        return 200, {}

    def resettle(self, body: bytes, name: str) -> Answer:
        self.indices[name].settings["index"] |= json.loads(body)["index"]
        return 200, {}

    def alias(self, _body: bytes, name: str) -> Answer:
        holders = self.aliases.get(name)
        if not holders:
            return 404, {"error": f"alias [{name}] missing", "status": 404}
        return 200, {index: {"aliases": {name: {}}} for index in holders}

    def realias(self, body: bytes) -> Answer:
        for action in json.loads(body)["actions"]:
            ((verb, own),) = action.items()
            holders = self.aliases.setdefault(own["alias"], set())
            holders.add(own["index"]) if verb == "add" else holders.discard(own["index"])
        return 200, {}

    def health(self, _body: bytes, *_name: str) -> Answer:
        return 200, {"status": "green", "number_of_data_nodes": 3}

    def nothing(self, _body: bytes, *_name: str) -> Answer:
        return 200, {}

    # ------------------------------------------------------------ documents

    def bulk(self, body: bytes, name: str) -> Answer:
        lines, items = iter(body.splitlines()), []
        documents = self.indices[name].documents
        for line in lines:
            ((verb, own),) = json.loads(line).items()
            passage_id = own["_id"]
            status = 200 if verb == "index" or passage_id in documents else 404
            if verb == "index":
                documents[passage_id] = json.loads(next(lines))
            else:
                documents.pop(passage_id, None)
            items.append({verb: {"_id": passage_id, "status": status}})
        return 200, {"errors": False, "items": items}

    def put(self, body: bytes, name: str, document_id: str) -> Answer:
        self.indices[name].documents[document_id] = json.loads(body)
        return 201, {}

    def get(self, _body: bytes, name: str, document_id: str) -> Answer:
        found = self.indices[name].documents.get(document_id) if name in self.indices else None
        return (200, {"found": True, "_source": found}) if found else (404, {"found": False})

    def mget(self, body: bytes, name: str) -> Answer:
        held = self.indices[name].documents
        return 200, {
            "docs": [{"_source": source_of(held[i])} if i in held else {} for i in json.loads(body)["ids"]]
        }

    # ------------------------------------------------------------ searches

    def msearch(self, body: bytes, name: str) -> Answer:
        lines = [json.loads(line) for line in body.splitlines()]
        found = []
        for asked in lines[1::2]:
            status, answer = self.search(json.dumps(asked).encode(), name)
            found.append({**answer, "status": status})
        return 200, {"responses": found}

    def search(self, body: bytes, name: str) -> Answer:
        if name not in self.indices:
            return failure(404, "index_not_found_exception", f"no such index [{name}]")
        asked = json.loads(body)
        try:
            hits = list(self._hits(asked, self.indices[name]))
        except ValueError as error:
            return failure(400, "parsing_exception", str(error))
        total = len(hits)
        by_score = any("_score" in one for one in asked.get("sort", ()))

        def place(values: list[Any]) -> tuple[float, int]:
            return (-values[0] if by_score else 0, values[-1])

        hits.sort(key=lambda hit: place(hit["sort"]))
        if after := asked.get("search_after"):
            hits = [hit for hit in hits if place(hit["sort"]) > place(after)]
        for hit in hits:
            hit["sort"] = hit["sort"] if by_score else hit["sort"][-1:]
        shown = {"total": {"value": total}, "hits": hits[: asked["size"]]}
        return 200, {"timed_out": False, "_shards": {"failed": 0}, "hits": shown}

    def _hits(self, asked: Json, held: Held) -> Iterator[Json]:
        for passage_id, document in held.documents.items():
            names: dict[str, float] = {}
            score = self.score(asked["query"], passage_id, document, names)
            if score is None or score < asked.get("min_score", 0):
                continue
            yield {
                "_id": passage_id,
                "_score": score,
                "sort": [score, document["position"]],
                "_source": source_of(document),
                "fields": {"hash": [document["hash"]], "fields": document["fields"]},
                "matched_queries": names,
            }

    def score(self, query: Json, passage_id: str, document: Json, names: dict[str, float]) -> float | None:
        ((kind, own),) = query.items()
        if kind == "bool":
            return self._bool(own, passage_id, document, names)
        if kind == "match_all":
            return 1.0
        if kind == "ids":
            return 1.0 if passage_id in own["values"] else None
        if kind in ("range", "term", "terms"):
            return 1.0 if chosen(kind, own, document) else None
        if kind == "match":
            words = own["text"]["query"].lower().split()
            return float(sum(document["text"].lower().split().count(word) for word in words)) or None
        if kind == "neural_sparse":
            if not self.plugin:
                raise ValueError("unknown query [neural_sparse]")
            weights = own["impacts"]["query_tokens"]
            return summed(weights, document) if len(weights) <= 1024 else None
        if kind == "rank_feature":
            parent, _, term = own["field"].rpartition(".")
            return summed({term: own["boost"]}, document) if parent == "impacts" else None
        return None

    def _bool(self, own: Json, passage_id: str, document: Json, names: dict[str, float]) -> float | None:
        def scores(part: str) -> list[float | None]:
            return [self.score(one, passage_id, document, names) for one in own.get(part, ())]

        must, should, kept = scores("must"), scores("should"), scores("filter")
        if set(scores("must_not")) - {None}:
            return None
        if None in must or None in kept or ("should" in own and set(should) <= {None}):
            return None
        score = sum(one for one in (*must, *should) if one is not None)
        if "_name" in own:
            names[own["_name"]] = score
        return score


def summed(weights: Mapping[str, float], document: Json) -> float | None:
    """Σ weight × impact; None where the document has none of the terms."""
    if not all(0 < weight <= 64 for weight in weights.values()):
        raise ValueError("weight must be in (0, 64]")
    impacts = document["impacts"]
    found = [weight * impacts[term] for term, weight in weights.items() if term in impacts]
    return float(sum(found)) if found else None


def chosen(kind: str, own: Json, document: Json) -> bool:
    ((name, wanted),) = own.items()
    held = document.get(name)
    values = [ordered(value) for value in (held if isinstance(held, list) else [held])]
    if kind == "range":
        return any(all(COMPARED[how](v, ordered(bound)) for how, bound in wanted.items()) for v in values)
    return any(ordered(one) in values for one in (wanted if kind == "terms" else [wanted]))


COMPARED: dict[str, Callable[[Any, Any], bool]] = {"lt": lt, "lte": le, "gt": gt, "gte": ge}


def ordered(value: Any) -> Any:
    """Keywords are compared by their bytes."""
    return value.encode() if isinstance(value, str) else value


def source_of(document: Json) -> Json:
    hidden = ("impacts", "text", "fields", "numbers")
    return {name: value for name, value in document.items() if name not in hidden}


HANDLERS: list[tuple[str, Callable[..., Answer]]] = [
    (r"PUT /([^/_][^/]*)", Fake.create),
    (r"DELETE /([^/]+)", Fake.drop),
    (r"GET /_alias/([^/]+)", Fake.alias),
    (r"POST /_aliases", Fake.realias),
    (r"GET /_cluster/health(?:/[^/]+)?", Fake.health),
    (r"GET /([^/]+)/_mapping", Fake.mapping),
    (r"PUT /([^/]+)/_mapping", Fake.remap),
    (r"PUT /([^/]+)/_settings", Fake.resettle),
    (r"GET /([^/]+)/_settings", Fake.settings),
    (r"POST /([^/]+)/_refresh", Fake.nothing),
    (r"POST /([^/]+)/_bulk", Fake.bulk),
    (r"POST /([^/]+)/_mget", Fake.mget),
    (r"POST /([^/]+)/_msearch", Fake.msearch),
    (r"POST /([^/]+)/_search", Fake.search),
    (r"PUT /([^/]+)/_doc/([^/]+)", Fake.put),
    (r"GET /([^/]+)/_doc/([^/]+)", Fake.get),
]


@contextmanager
def serving(fake: Fake, tls: ssl.SSLContext | None = None) -> Iterator[Fake]:
    """Serve it on a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            fake.headers.append(dict(self.headers))
            answer = fake.answer(self.command, urlsplit(self.path).path, body)
            if answer == "drop":
                self.close_connection = True
                self.connection.close()
                return
            status, said = answer
            page = isinstance(said, str)
            data = said.encode() if page else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "text/html" if page else "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = respond  # noqa: N815 (the names that the base class calls)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    fake.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
