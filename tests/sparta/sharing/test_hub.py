"""Publishing and fetching indexes and models, against a hub on this machine.

Most commands run in this process; the first test and the last one run them as a user does.
"""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from huggingface_hub import close_session, get_session

from dense.channel.folder import ChannelFolder
from dense.channel.passages import commit_of
from dense.channel.sync import build_dense
from sparta import Index, load_model
from sparta.base.errors import (
    InputError,
    JavaError,
    MissingPackageError,
    ModelError,
    ServerError,
    SpartaError,
    StorageError,
)
from sparta.index.folder import IndexFolder
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.index.plan import committed
from sparta.sharing.hub import _kind_of, hub_errors, pull, push_index, push_model
from sparta.sharing.paths import _without_paths, remove_local_paths
from tests.cli.commands import sparta_process
from tests.moments import no_temporary_files
from tests.programs import sparta
from tests.sparta.sharing.hub_server import TOKEN, Hub, running_hub
from tests.sparta.sharing.test_backup import FORMATS, is_undamaged, rankings

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the models of the indexes."""
    models = Path(shutil.copytree(FORMATS / "models", tmp_path / "work"))
    monkeypatch.chdir(models)
    return models


@pytest.fixture
def run(hub: Hub, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process, which knows this hub; `token` is the access token."""
    from huggingface_hub import constants

    for name, value in {
        "ENDPOINT": hub.address,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.address + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_TOKEN_PATH": str(tmp_path / "token"),
        "HF_HUB_DISABLE_XET": True,
    }.items():
        monkeypatch.setattr(constants, name, value)

    def run(*arguments: object, token: str | None = TOKEN) -> CompletedProcess[str]:
        if token:
            monkeypatch.setenv("HF_TOKEN", token)
        else:
            monkeypatch.delenv("HF_TOKEN", raising=False)
        result = sparta(*arguments)
        return CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def run_process(hub: Hub, work: Path, tmp_path: Path) -> Run:
    """The same, in a process of its own, which learns of the hub from its variables."""

    def run(*arguments: object, token: str | None = TOKEN) -> CompletedProcess[str]:
        home = str(tmp_path / "home")
        variables = {
            "HF_ENDPOINT": hub.address,
            "HF_TOKEN": token,
            "HF_HOME": home,
            "HF_HUB_DISABLE_XET": "1",
        }
        return sparta_process(*arguments, **variables)

    return run


@pytest.fixture
def index(tmp_path: Path, work: Path) -> Path:
    """An index with all channels whose manifests name local paths."""
    return Path(shutil.copytree(FORMATS / "whole-2-sparta", tmp_path / "index"))


@pytest.mark.slow
def test_an_index_is_pushed_and_pulled(tmp_path, hub, run_process, index):
    pushed = run_process("upload", "me/ix", "--index", index)
    assert pushed.returncode == 0, pushed.stderr
    assert pushed.stdout == f"{hub.address}/me/ix\nfetch it with: sparta pull me/ix\n"
    pulled = run_process("pull", "me/ix", tmp_path / "pulled", token=None)
    assert pulled.returncode == 0, pulled.stderr
    assert rankings(tmp_path / "pulled") == rankings(index)
    assert is_undamaged(tmp_path / "pulled")
    with Index(tmp_path / "pulled") as grown:
        grown.append([{"id": "new", "text": "Stars of the sky."}])
        assert len(grown) == 15
    assert b"sparta pull me/ix" in hub.repositories["me/ix"]["README.md"]


@pytest.mark.slow
def test_no_local_path_is_published(tmp_path, hub, run):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "text": "The moon."}\n{"id": "broken"}\n')
    built = run(
        "index", "--corpus", corpus, "--index", tmp_path / "ix", "--channels", "bm25", "--skip-invalid"
    )
    assert built.returncode == 0, built.stderr
    assert run("upload", "me/ix", "--index", tmp_path / "ix").returncode == 0
    files = hub.repositories["me/ix"]
    assert not [name for name, content in files.items() if str(tmp_path).encode() in content]
    assert b"corpus.jsonl:2" in b"".join(files.values())
    assert run("pull", "me/ix", tmp_path / "pulled").returncode == 0
    assert is_undamaged(tmp_path / "pulled")


def test_skipped_records_leave_no_local_path(tmp_path, index):
    """Their paths are in Lucene's commit, which the dense channel names."""
    folder = IndexFolder(index)
    live = folder.require_live()
    progress = committed(folder, live)
    skips = {"first_skips": [{"where": f"{tmp_path}/corpus.jsonl:2", "reason": "no text"}]}
    with folder.writer(live) as writer:
        writer.commit(replace(progress, source=skips).dumps())
    build_dense(index)
    path = live.job.source
    assert path.startswith("/tmp/sparta-formats/")
    remove_local_paths(index)
    published = folder.require_live()
    assert published.job.source == Path(path).name
    assert committed(folder, published).job == published.job.id
    assert not [file for file in index.rglob("*.json") if str(tmp_path).encode() in file.read_bytes()]
    assert committed(folder, live).source["first_skips"][0]["where"] == "corpus.jsonl:2"
    channel = ChannelFolder(folder.dense_path(live)).read()
    assert channel.commit == commit_of(folder.lucene_path(live))
    assert is_undamaged(index)


def test_an_index_that_an_earlier_release_uploaded_can_be_opened(tmp_path):
    """That release removed the path of the job from the manifest alone."""
    path, corpus = tmp_path / "own", tmp_path / "c.jsonl"
    corpus.write_text('{"id": "a", "text": "the moon"}\n')
    build_index(path, corpus, options=IndexOptions(channels="bm25"))
    folder = IndexFolder(path)
    state = folder.state()

    def write(source: str) -> None:
        job = replace(state.live.job, source=source)
        folder.write_state(replace(state, live=replace(state.live, job=job)))

    write("c.jsonl")
    assert is_undamaged(path)
    write("/another/c.jsonl")
    assert not is_undamaged(path)


@pytest.mark.slow
def test_a_second_push_replaces_the_first(tmp_path, hub, run, index):
    assert run("upload", "me/ix", "--index", index).returncode == 0
    first = set(hub.repositories["me/ix"])
    with Index(index) as changed:
        changed.delete(["mill"])
    assert run("upload", "me/ix", "--index", index).returncode == 0
    assert first - set(hub.repositories["me/ix"])  # files of the replaced commit are gone
    assert run("pull", "me/ix", tmp_path / "pulled").returncode == 0
    assert rankings(tmp_path / "pulled") == rankings(index)


@pytest.mark.slow
def test_a_model_is_pushed_and_pulled(tmp_path, hub, run):
    model = FORMATS / "models" / "tiny-sparta"
    assert run("upload", "me/model", "--model", model).returncode == 0
    pulled = run("pull", "me/model", tmp_path / "pulled", token=None)
    assert pulled.returncode == 0, pulled.stderr
    assert "sparta index --corpus FILE --model" in pulled.stdout
    assert load_model(tmp_path / "pulled").query_side().identity() | {"name": ""} == load_model(
        model
    ).query_side().identity() | {"name": ""}


@pytest.mark.slow
def test_a_private_repository_needs_a_token(tmp_path, hub, run, index):
    assert run("upload", "me/secret", "--private", "--index", index).returncode == 0
    refused = run("pull", "me/secret", tmp_path / "pulled", token=None)
    assert refused.returncode == 1
    assert "$HF_TOKEN" in refused.stderr
    assert not (tmp_path / "pulled").exists()


def test_private_never_publishes(hub, run):
    """The hub does not make a public repository private."""
    hub.repositories["me/model"] = {}
    model = ("upload", "me/model", "--model", FORMATS / "models" / "tiny-sparta")
    refused = run(*model, "--private")
    assert refused.returncode == 2
    assert "the repository exists and is public" in refused.stderr
    assert hub.repositories["me/model"] == {}
    hub.private.add("me/model")
    assert run(*model, "--private").returncode == 0
    assert hub.repositories["me/model"]


def test_an_upload_has_one_kind(hub, run, index):
    """Else the index would be left out silently."""
    model = FORMATS / "models" / "tiny-sparta"
    refused = run("upload", "me/model", "--model", model, "--index", index)
    assert refused.returncode == 2
    assert "--model cannot be combined with --index" in refused.stderr
    assert not hub.repositories


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.pop("manifest.json"), "neither manifest.json nor config.json"),
        (lambda files: files.pop("sparta-000001/_0.cfs"), "damaged"),
        (lambda files: files.update({"sparta-000001/_0.cfs": b"other bytes"}), "damaged"),
        (lambda files: files.update({"manifest.json": b"[" * 100_000}), "damaged"),
    ],
)
def test_a_damaged_index_never_appears(tmp_path, hub, run, index, change, message):
    assert run("upload", "me/ix", "--index", index).returncode == 0
    change(hub.repositories["me/ix"])
    refused = run("pull", "me/ix", tmp_path / "pulled")
    assert refused.returncode == 2, refused.stderr
    assert message in refused.stderr
    assert not (tmp_path / "pulled").exists()
    assert not list(tmp_path.glob(".sparta-*"))


@pytest.mark.parametrize("kind", [JavaError, StorageError])
def test_a_machine_that_cannot_check_an_index_does_not_blame_its_owner(
    tmp_path: Path, hub: Hub, run: Run, kind: type[SpartaError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> str:
        raise kind("the limit is too low", where=str(path), remedy="raise the limit")

    texts = tmp_path / "texts"
    Index.create(texts, [{"text": "moon"}], options=IndexOptions(channels="bm25")).close()
    files = [file for file in texts.rglob("*") if file.is_file()]
    hub.repositories["me/texts"] = {str(file.relative_to(texts)): file.read_bytes() for file in files}
    monkeypatch.setattr("sparta.index.verify.check_index", fail)
    refused = run("pull", "me/texts", tmp_path / "pulled")
    assert refused.returncode == 1
    assert refused.stderr.endswith("me/texts/sparta-000001: the limit is too low\n  → raise the limit\n")
    assert ".sparta-" not in refused.stderr
    assert not (tmp_path / "pulled").exists()


@pytest.mark.slow
def test_files_that_no_index_has_are_not_fetched(tmp_path, hub, run, index):
    names = (
        *("../outside", "sparta-000001/../../outside", "dense-000001/model.pkl"),
        *("pytorch_model.bin", ".bashrc"),
    )
    assert run("upload", "me/ix", "--index", index).returncode == 0
    hub.repositories["me/ix"] |= dict.fromkeys(names, b"hostile")
    assert run("pull", "me/ix", tmp_path / "deep" / "pulled").returncode == 0
    fetched = [file for file in tmp_path.rglob("*") if file.is_file() and file.read_bytes() == b"hostile"]
    assert fetched == []


@pytest.mark.slow
def test_wrong_names_and_folders_are_refused(tmp_path, run, index):
    assert run("pull", "me/none", tmp_path / "new").returncode == 1
    assert run("pull", "not a name", tmp_path / "new").returncode == 2
    assert run("pull", "me/none", index).returncode == 2
    assert run("upload", "me/ix", "--index", tmp_path / "none").returncode == 2
    assert run("upload", "me/ix", "--model", tmp_path).returncode == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_an_unreachable_hub_is_an_error(tmp_path, index):
    failed = sparta_process(
        "upload",
        "me/ix",
        "--index",
        index,
        HF_ENDPOINT="http://127.0.0.1:9",
        HF_TOKEN=TOKEN,
        HF_HOME=str(tmp_path),
    )
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: me/ix: the hub failed: ")
    assert "Traceback" not in failed.stderr


def test_an_exported_model_is_published_with_its_code(tmp_path, hub, run):
    """Without the code that `modules.json` names, nobody can open it. A fetched model has no code."""
    model = tmp_path / "exported"
    model.mkdir()
    (model / "modules.json").write_text('[{"type": "modeling_sparta.SpartaRouter", "path": ""}]')
    for name in ("router_config.json", "model.safetensors", "modeling_sparta.py", "modeling_x.py", "a.bin"):
        (model / name).write_text("{}")
    pushed = run("upload", "me/exported", "--model", model)
    assert pushed.returncode == 0, pushed.stderr
    assert "because sparta uploads only what it reads of a model: a.bin, modeling_x.py" in pushed.stderr
    code = {"modeling_sparta.py", "modeling_x.py", "a.bin"} & set(hub.repositories["me/exported"])
    assert code == {"modeling_sparta.py"}
    assert run("pull", "me/exported", tmp_path / "pulled").returncode == 0
    assert not list((tmp_path / "pulled").glob("*.py"))


@pytest.mark.parametrize(
    ("config", "usage"),
    [
        ('{"sparta": {}}', "sparta index --corpus FILE --model pulled"),
        ('{"dense": {}}', "dense index --model pulled"),
        ('{"reader": {}}', "sparta answer 'a question' --reader pulled"),
        ('{"architectures": ["BertForSequenceClassification"]}', ""),
    ],
)
def test_the_command_after_a_pull_fits_the_model(hub, run, config, usage):
    hub.repositories["me/m"] = {"config.json": config.encode(), "model.safetensors": b"weights"}
    pulled = run("pull", "me/m", "pulled")
    assert pulled.returncode == 0, pulled.stderr
    assert pulled.stdout == "pulled: model, 0.0 MB\n" + (f"try: {usage}\n" if usage else "")


@pytest.mark.parametrize("kind", [ConnectionError, TimeoutError])
def test_errors_of_the_network_are_the_hubs(kind):
    """The client that uploads files raises them as they are."""
    with pytest.raises(ServerError, match="the hub failed: error sending request"), hub_errors("me/m"):
        raise kind("error sending request")


def test_an_error_of_the_disk_stays_and_a_variable_that_stops_the_client_is_named(monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left") as raised, hub_errors("me/m"):
        raise full
    assert raised.value is full
    close_session()
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    with pytest.raises(MissingPackageError, match="a SOCKS proxy needs"), hub_errors("me/m"):
        get_session()
    close_session()


def test_an_address_of_the_hub_without_its_scheme_is_named(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "huggingface.co")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "huggingface.co")
    with pytest.raises(InputError, match=r"^\$HF_ENDPOINT: .*\n  → unset HF_ENDPOINT"):
        pull("me/m", "pulled")


def test_models_in_modules_are_published_whole(tmp_path, monkeypatch):
    """A SparseEncoder with a router keeps its networks in folders, and may have no config.json of its own."""
    names = {
        "modules.json",
        "router_config.json",
        "config_sentence_transformers.json",
        "query_0_SparseStaticEmbedding/model.safetensors",
        "document_0_MLMTransformer/config.json",
        "document_0_MLMTransformer/model-00001-of-00002.safetensors",
        "document_0_MLMTransformer/model.safetensors.index.json",
        "document_0_MLMTransformer/tokenizer.json",
        "document_1_SpladePooling/config.json",
    }
    others = {"checkpoint-10/model.safetensors", "state.pt", "notes/a.json", "1_data/train.json"}
    others |= {"1_Pooling/customers.json", "2024_private/model.safetensors"}
    for name in names | others:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    published = []
    monkeypatch.setattr(
        "sparta.sharing.hub._push", lambda _folder, _repo, files, *_: published.extend(files) or ""
    )
    push_model(tmp_path, "me/m")
    assert set(published) == names
    kind, wanted = _kind_of("me/m", sorted(names | others))
    assert (kind, set(wanted)) == ("model", names)
    with pytest.raises(ModelError, match="no weights in safetensors"):
        _kind_of("me/m", ["config.json", "pytorch_model.bin"])


def test_an_index_of_a_million_updates_is_fetched_whole():
    folders = ["sparta-1000000/segments_2", "tokenizer-1000000/tokenizer.json"]
    vectors = ["manifest.json", "rows-1000000.npy", "search-1000000.faiss", "vectors-1000000/manifest.json"]
    names = ["manifest.json", *folders, *(f"dense-1000000/{name}" for name in vectors)]
    assert _kind_of("me/ix", names) == ("index", names)


def test_paths_with_spaces_are_removed_and_queries_stay():
    stored = {
        "source": "/home/me/My Documents/a client/wiki.jsonl",
        "message": "bad line in /home/me/wiki.jsonl:3, see http://host/a/b",
        "folders": ["/wiki.jsonl", "sparta-small-en"],
        "reading": {"query": "select * from t where p like '/a/b/%'"},
    }
    assert _without_paths(stored) == {
        "source": "wiki.jsonl",
        "message": "bad line in wiki.jsonl:3, see http://host/a/b",
        "folders": ["wiki.jsonl", "sparta-small-en"],
        "reading": stored["reading"],
    }


def test_an_index_whose_copy_has_no_folder_is_not_pushed(index, monkeypatch):
    """Neither the folder of the index nor that of temporary files can be written."""

    def refuse(_parent: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("sparta.sharing.hub.temporary_folder", refuse)
    with pytest.raises(StorageError, match="cannot be written: Permission denied"):
        push_index(index, "me/ix")
    monkeypatch.setattr("tempfile.gettempdir", no_temporary_files)
    with pytest.raises(StorageError, match=r"no folder for temporary files .*\n.*set TMPDIR"):
        push_index(index, "me/ix")
