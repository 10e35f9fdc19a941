"""A server on this machine that speaks the part of the hub's HTTP API that `huggingface_hub` uses."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_a-token-of-the-tests"
_LARGE = 100_000  # bytes from which a file is uploaded by the protocol of Git LFS


@dataclass
class Hub:
    """Repositories by id: the files of the newest commit. `lfs` holds uploaded objects by SHA-256."""

    address: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    lfs: dict[str, bytes] = field(default_factory=dict)
    commits: int = 0

    @property
    def head(self) -> str:
        return hashlib.sha1(str(self.commits).encode()).hexdigest()

    def commit(self, repository: str, lines: list[dict[str, Any]]) -> None:
        files = self.repositories[repository]
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.lfs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        self.commits += 1


def described_file(name: str, content: bytes) -> dict[str, Any]:
    """A file as the hub lists it; a large file is an object of Git LFS."""
    oid = hashlib.sha1(content).hexdigest()
    described: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": oid}
    if len(content) > _LARGE:
        sha256 = hashlib.sha256(content).hexdigest()
        described["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 130}
    return described


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, value: object, status: int = 200, **headers: str) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, code: str) -> None:
        self.answer({"error": code}, status, X_Error_Code=code)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    @property
    def may_write(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def do_POST(self) -> None:
        body, path = self.body(), self.path.partition("?")[0]
        if not self.may_write:
            self.refuse(401, "Unauthorized")
        elif path == "/api/repos/create":
            wanted = json.loads(body)
            repository = f"{wanted['organization'] or 'me'}/{wanted['name']}"
            is_private = wanted.get("private") or wanted.get("visibility") == "private"
            if repository not in self.hub.repositories and is_private:
                self.hub.private.add(repository)
            self.hub.repositories.setdefault(repository, {})
            self.answer({"url": f"{self.hub.address}/{repository}"})
        elif path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif re.fullmatch(r"/api/models/(.+)/preupload/main", path):
            files = json.loads(body)["files"]
            for file in files:
                file["uploadMode"] = "lfs" if file["size"] > _LARGE else "regular"
                file["shouldIgnore"] = False
            self.answer({"files": files})
        elif re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
            objects = json.loads(body)["objects"]
            for one in objects:
                upload = {"href": f"{self.hub.address}/lfs/{one['oid']}"}
                one["actions"] = {"upload": upload}
            self.answer({"transfer": "basic", "objects": objects})
        elif match := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            self.hub.commit(match[1], [json.loads(line) for line in body.splitlines()])
            self.answer(
                {
                    "commitUrl": f"{self.hub.address}/{match[1]}/commit/{self.hub.head}",
                    "commitOid": self.hub.head,
                }
            )
        else:
            self.refuse(404, "EntryNotFound")

    def do_PUT(self) -> None:
        body, oid = self.body(), self.path.removeprefix("/lfs/")
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.lfs[oid] = body
        self.answer({})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        described = re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/(.+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        tree = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/(.+)", path)
        match = described or file or tree
        repository = match[1] if match else ""
        files = self.hub.repositories.get(repository)
        if files is None or (repository in self.hub.private and not self.may_write):
            self.refuse(404 if self.may_write else 401, "RepoNotFound")
        elif described:
            if described[3] not in (None, "main", self.hub.head):
                self.refuse(404, "RevisionNotFound")
                return
            siblings = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
            is_private = repository in self.hub.private
            self.answer({"id": repository, "sha": self.hub.head, "siblings": siblings, "private": is_private})
        elif tree:
            self.answer([described_file(name, content) for name, content in files.items()])
        elif file and file[3] in files:
            content = files[file[3]]
            tag = f'"{hashlib.sha1(content).hexdigest()}"'
            self.answer(content, ETag=tag, X_Repo_Commit=self.hub.head)
        else:
            self.refuse(404, "EntryNotFound")


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Serve an empty hub on this machine until the block ends."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
