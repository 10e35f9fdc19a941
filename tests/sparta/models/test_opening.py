"""A model is opened by its folder or name."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from sparta.base.errors import ModelError, StorageError
from sparta.index.inputs.open_encoder import OpenEncoder
from sparta.models.document_encoder import fit_quantizer
from sparta.models.folders.tokenizer import load_tokenizer, shared_tokenizer
from sparta.models.load import calibration_passages, load_model, load_module
from sparta.models.quantize import Quantizer
from sparta.models.resolve import folder_with, hash_folder, known_query_side
from sparta.models.sparta import SpartaModel
from sparta.models.stored_model import open_stored
from tests.moments import watched
from tests.sparta.models.brute_force import TEXTS, Make, broken_copy, dense, passages

pytestmark = pytest.mark.usefixtures("one_thread")


def test_load_model_names_and_hashes(tiny_model_folder: Path) -> None:
    model = load_model(tiny_model_folder)
    assert model.name == str(tiny_model_folder)
    assert model.identity == hash_folder(tiny_model_folder)
    assert model.query_side().model_hash == model.identity
    assert model.config.quantizer is not None
    other = load_model(tiny_model_folder, bits=4)
    assert other.config.quantizer == Quantizer(model.config.quantizer.max_weight, 4)


@pytest.mark.parametrize("bits", [None, 4])
def test_what_a_model_is_can_be_known_without_loading_it(tiny_model_folder: Path, bits: int | None) -> None:
    known = known_query_side(tiny_model_folder, bits)
    assert known is not None
    assert known.identity() == load_model(tiny_model_folder, bits=bits).query_side().identity()


def test_what_is_no_model_is_not_known(tmp_path: Path, tiny_model_folder: Path) -> None:
    assert known_query_side("an/id", None) is None
    assert known_query_side(tmp_path, None) is None
    for change in (lambda c: c["sparta"].update(quantizer=None), lambda c: c.pop("sparta")):
        folder = broken_copy(tiny_model_folder, tmp_path / str(id(change)), change)
        assert known_query_side(folder, None) is None


def test_a_changed_folder_has_another_hash(tiny_model_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_model_folder, tmp_path / "copy"))
    assert hash_folder(folder) == hash_folder(tiny_model_folder)
    (folder / "README.md").write_text("a card changes nothing")
    assert hash_folder(folder) == hash_folder(tiny_model_folder)
    (folder / "vocab.txt").write_text("x")
    assert hash_folder(folder) != hash_folder(tiny_model_folder)


@pytest.mark.parametrize(
    "read", [hash_folder, lambda folder: folder_with("sparta", folder), lambda folder: load_model(folder)]
)
def test_a_model_on_a_disk_that_fails_is_not_damaged(
    tiny_model_folder: Path, tmp_path: Path, read: Callable[[Path], object]
) -> None:
    def fail(action: str, path: Path) -> None:
        if action == "read" and path.name == "config.json":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    folder = Path(shutil.copytree(tiny_model_folder, tmp_path / "copy"))
    with watched(fail), pytest.raises(StorageError, match="cannot be read: Input/output error") as caught:
        read(folder)
    assert caught.value.where == str(folder / "config.json")


def test_an_open_encoder_is_opened_again_when_its_files_have_changed(
    tiny_model_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_model_folder, tmp_path / "copy"))
    kept, second = OpenEncoder(), OpenEncoder()
    first = kept.open(str(folder), 8)
    assert kept.open(str(folder), 8) is second.open(str(folder), 8) is first
    assert kept.open(str(folder), 4).config.quantizer.bits == 4
    change = {"max_weight": 7}
    other = broken_copy(folder, tmp_path / "other", lambda c: c["sparta"]["quantizer"].update(change))
    shutil.copy(other / "config.json", folder)
    assert kept.open(str(folder), 8).config.quantizer.max_weight == 7
    released = weakref.ref(first)
    del first, second
    gc.collect()
    assert released() is None


def test_a_changed_file_of_the_same_size_and_time_has_another_hash(
    tiny_model_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_model_folder, tmp_path / "copy"))
    before, config = hash_folder(folder), folder / "config.json"
    times = config.stat()
    time.sleep(0.02)  # longer than a tick of the clock of a file system
    config.write_bytes(config.read_bytes().replace(b"32", b"31"))
    os.utime(config, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert config.stat().st_size == times.st_size
    assert hash_folder(folder) != before


def test_a_model_without_a_quantizer_is_calibrated(tiny_model_folder: Path, tmp_path: Path) -> None:
    folder = broken_copy(tiny_model_folder, tmp_path / "m", lambda c: c["sparta"].update(quantizer=None))
    model = load_model(folder)
    rows = dense(model, calibration_passages())
    assert model.config.quantizer is not None
    assert rows.max() < model.config.quantizer.max_weight < 1.2 * rows.max()


def test_calibration_texts() -> None:
    texts = [passage.text for passage in calibration_passages()]
    assert len(texts) == len(set(texts)) == 64


def test_a_model_that_writes_nothing_is_not_calibrated(make_tiny_model: Make) -> None:
    model = make_tiny_model()
    model.bias.data.fill_(-1000)
    with pytest.raises(ModelError, match="no term of the calibration texts"):
        fit_quantizer(model, passages(TEXTS))


@pytest.mark.parametrize("name", ["/no/such/model", "./no-such-model", "no-such-model", "a/b/c"])
def test_a_folder_that_is_not_there(name: str) -> None:
    with pytest.raises(ModelError, match="no such model folder"):
        load_model(name)


def test_a_hub_id_without_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # it was read at import
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="the download from the hub failed") as caught:
        load_model("nobody/no-such-model")
    assert "check the name and the network" in str(caught.value)
    assert "\n" not in caught.value.message


def test_the_output_of_a_training_is_named_by_its_folder(tmp_path, tiny_model_folder):
    """`--model OUTPUT` opens `OUTPUT/best`, with and without torch."""
    import shutil

    from sparta.models.load import load_model
    from sparta.models.resolve import known_query_side

    shutil.copytree(tiny_model_folder, tmp_path / "out" / "best")
    opened = load_model(tmp_path / "out").query_side()
    assert opened.model_hash == load_model(tiny_model_folder).query_side().model_hash
    known = known_query_side(tmp_path / "out", None)
    assert known is not None
    assert known.model_hash == opened.model_hash


def test_a_model_that_is_replaced_while_it_is_opened(
    tiny_model_folder: Path, make_tiny_model: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights would get the hash of the new ones, in manifests and for the ranges of 8 bits."""
    folder = shutil.copytree(tiny_model_folder, tmp_path / "model")

    def opened(path: Path) -> object:
        model = open_stored(path)
        make_tiny_model(seed=7).save_pretrained(folder)
        return model

    def load(path: Path) -> object:
        model = SpartaModel.load(path)
        make_tiny_model(seed=8).save_pretrained(folder)
        return model

    monkeypatch.setattr("sparta.models.load.open_stored", opened)
    assert load_model(folder, device="cpu").identity == hash_folder(folder), "it is opened once more"
    monkeypatch.setattr("sparta.models.load._load", load)
    with pytest.raises(ModelError, match="changed"):
        load_module(folder)


def test_indexes_of_one_model_share_a_tokenizer(tiny_model_folder: Path, tmp_path: Path) -> None:
    first = shared_tokenizer(tiny_model_folder)
    copy = shutil.copytree(tiny_model_folder, tmp_path / "model")
    assert shared_tokenizer(copy) is first
    assert load_tokenizer(copy) is not first
    (copy / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    other = shared_tokenizer(copy)
    assert other is not first
    (copy / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        shared_tokenizer(copy)
