"""sparta push, export, and hybrid search and eval of an index in OpenSearch, as they are typed."""

from __future__ import annotations

import csv
import itertools
import shutil
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from hybrid.opensearch.server import Access, Server
from sparta.base.errors import ServerError
from sparta.index.build import delete_passages
from tests.hybrid.opensearch.fake import Fake, serving
from tests.programs import hybrid, sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger", "no_credentials")]


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "USER", "PASSWORD", "KEY"):
        monkeypatch.delenv(f"SPARTA_OPENSEARCH_{name}", raising=False)


def test_push_update_delete(opened, builder, fake) -> None:
    here = ["--index", builder.folder.path]
    there = ["--opensearch", fake.url, "--name", "wiki"]
    pushed = sparta("push", *here, *there)
    assert pushed.exit_code == 0, pushed.output
    assert pushed.stdout.startswith("wiki: 60 passages in ")
    assert sparta("push", *here, *there).stdout.startswith("wiki: up to date, 60 passages")
    delete_passages(builder.folder, ["a7"])
    assert sparta("push", *here, *there, "--update").stdout.startswith(
        "wiki: 59 passages, 0 written, 1 deleted"
    )
    assert sparta("push", *there, "--delete", "a8", "--delete", "a9").stdout == "deleted 2 of 2\n"
    gone = sparta("push", *there, "--delete", "a8", "--delete", "a10")
    assert gone.exit_code == 2
    assert "deleted 1 of 2" in gone.stdout
    assert "no passage with the id 'a8'" in gone.stderr


def test_a_document_that_is_deleted_counts_once(builder, docs, fake) -> None:
    made = [doc._replace(passage_id=f"p{i // 4}#{i % 4}") for i, doc in enumerate(docs("a", 12))]
    builder.write(builder.source(made, unit="chunk:10:0"))
    there = ["--opensearch", fake.url, "--name", "wiki"]
    sparta("push", "--index", builder.folder.path, *there)
    assert sparta("push", *there, "--delete", "p1").stdout == "deleted 1 of 1 (4 chunks)\n"


def test_an_update_has_as_many_connections_as_it_is_told(opened, builder, docs, fake) -> None:
    push = ["push", "--index", builder.folder.path, "--opensearch", fake.url, "--name", "wiki"]
    push += ["--batch-bytes", 1500]
    sparta(*push)
    builder.write(builder.source(docs("a", 60, seed=9), name="b.jsonl"), "update")
    together, requests = threading.Barrier(4), itertools.count()

    def fault(_method: str, path: str, _body: bytes) -> None:
        if path.endswith("_bulk") and next(requests) < 4:
            together.wait(20)

    fake.fault = fault
    assert sparta(*push, "--update", "--connections", 4).exit_code == 0
    assert not together.broken
    refused = sparta(*push, "--delete", "a1", "--connections", 4)
    assert (refused.exit_code, "--connections" in refused.stderr) == (2, True)


@pytest.mark.parametrize("command", [["search", "x"], ["eval"]])
@pytest.mark.parametrize("option", [["--name", "wiki"], ["--ca", "ca.pem"], ["--insecure"]])
def test_options_of_a_server_need_one(builder, opened, command, option) -> None:
    refused = hybrid(*command, "--index", builder.folder.path, *option)
    assert refused.exit_code == 2
    assert f"{option[0]} needs --opensearch" in refused.stderr
    assert "$SPARTA_OPENSEARCH_URL" in refused.stderr


def test_a_server_of_the_environment_wants_an_alias(builder, fake, monkeypatch) -> None:
    monkeypatch.setenv("SPARTA_OPENSEARCH_URL", fake.url)
    refused = hybrid("search", "x", "--index", builder.folder.path, "--insecure")
    assert "--insecure needs --name" in refused.stderr
    assert "name the alias" in refused.stderr


def test_what_does_not_go_together(fake) -> None:
    assert sparta("push", "--name", "wiki").exit_code == 2
    assert "--name" in sparta("push", "--opensearch", fake.url).stderr
    there = ["--opensearch", fake.url, "--name", "wiki"]
    for options in (
        ["--update", "--delete", "a"],
        ["--update", "--shards", "2"],
        ["--delete", "a", "--keep-old"],
    ):
        refused = sparta("push", *there, *options)
        assert (refused.exit_code, "these options cannot be combined" in refused.stderr) == (2, True)
    refused = sparta("push", *there, "--delete", "a", "--index", "my-index")
    assert (refused.exit_code, "--delete cannot be combined with --index" in refused.stderr) == (2, True)
    assert not fake.requests


def test_hybrid_search_there_prints_what_it_prints_here(
    opened, builder, fake, questions, monkeypatch
) -> None:
    sparta("push", "--index", builder.folder.path, "--opensearch", fake.url, "--name", "wiki")
    there = ["--opensearch", fake.url, "--name", "wiki", "--json"]
    found = hybrid("search", questions[0], *there, "--weights", "impact=1")
    here = hybrid("search", questions[0], "--index", builder.folder.path, "--json", "--weights", "impact=1")
    assert found.stdout == here.stdout
    assert found.stdout.count("\n") == 10
    monkeypatch.setenv("SPARTA_OPENSEARCH_URL", fake.url)
    assert hybrid("search", questions[0], *there[2:], "--weights", "impact=1").stdout == found.stdout
    fake.requests.clear()
    own = ["--index", builder.folder.path, "--json", "--weights", "impact=1"]
    assert hybrid("search", questions[0], *own).stdout == here.stdout
    assert not fake.requests, "without an alias the index here is searched"
    assert "only --name selects the index" in hybrid("search", "x", "--opensearch", fake.url).stderr
    assert "only --name selects the index" in hybrid("search", "x", *there, "--k1", "1").stderr


@pytest.mark.slow
def test_hybrid_eval_there_measures_what_it_measures_here(
    opened, builder, fake, questions, tmp_path, monkeypatch
) -> None:
    sparta("push", "--index", builder.folder.path, "--opensearch", fake.url, "--name", "wiki")
    here = ["--format", "csv"]
    there = ["--opensearch", fake.url, "--name", "wiki", *here]
    assert "needs --dataset" in hybrid("eval", *there).stderr
    file = tmp_path / "asked.tsv"
    file.write_text("".join(f"{question}\t['a{i}']\n" for i, question in enumerate(questions)))
    weights = ["--dataset", file, "--weights", "impact=1"]
    monkeypatch.setenv("SPARTA_OPENSEARCH_URL", fake.url)
    tables = (
        hybrid("eval", *there, *weights),
        hybrid("eval", *there[2:], *weights),
        hybrid("eval", "--index", builder.folder.path, *here, *weights),
    )
    rows = [
        {name: value for name, value in row.items() if not name.startswith("ms")}
        for table in tables
        for row in csv.DictReader(table.stdout.splitlines())
        if "impact" in row.values()
    ]
    assert len(rows) == 3
    assert rows[0] == rows[1] == rows[2]


def test_hybrid_eval_reads_answers_in_the_language_of_the_index(builder, docs, fake, tmp_path) -> None:
    builder.write(builder.source(docs("a", 8)), language="de")
    there = ["--opensearch", fake.url, "--name", "wiki"]
    sparta("push", "--index", builder.folder.path, *there)
    (tmp_path / "questions.tsv").write_text("text of a3\t['a3']\n")
    refused = hybrid("eval", *there, "--dataset", tmp_path / "questions.tsv", "--answers")
    assert "ships no reader for the language 'de'" in refused.stderr


def test_export_says_what_it_wrote(opened, builder, tmp_path: Path) -> None:
    export = [
        "export",
        "--index",
        builder.folder.path,
        "--format",
        "opensearch",
        "--output",
        tmp_path / "out",
    ]
    done = sparta(*export)
    assert done.exit_code == 0, done.output
    assert "60 passages" in done.stdout
    assert (tmp_path / "out" / "README.md").is_file()
    again = sparta(*export)
    assert (again.exit_code, "already contains files" in again.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_certificates_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made, *more], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(Fake(), context) as fake:
        with (
            Server(Access(fake.url, environment={})) as server,
            pytest.raises(ServerError, match="certificate of the server cannot be verified"),
        ):
            server.request("GET", "/_cluster/health")
        for access in (
            Access(fake.url, ca=str(certificate), environment={}),
            Access(fake.url, insecure=True, environment={}),
        ):
            with Server(access) as server:
                assert server.request("GET", "/_cluster/health")["status"] == "green"
