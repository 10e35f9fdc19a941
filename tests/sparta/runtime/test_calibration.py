"""Ranges are measured once, shipped, cached, and measured again if the cache is damaged or closed to us."""

from __future__ import annotations

import os
import pickle
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from sparta.base.errors import ModelError
from sparta.base.files import temporary_name
from sparta.models.load import load_model
from sparta.models.resolve import default_model_folder
from sparta.runtime import calibration, processor
from sparta.runtime.cache import cached
from sparta.runtime.calibration import FILE, cache_file, calibration_lines, ranges_of
from sparta.runtime.graph import Graph
from sparta.runtime.network import Network
from sparta.runtime.processor import capabilities
from tests.sparta.models.brute_force import TEXTS, dense
from tests.sparta.runtime.test_graph import bert

KEY = "a model"


def test_a_cache_folder_loses_what_killed_processes_left(tmp_path: Path) -> None:
    old, new = (tmp_path / temporary_name() for _ in range(2))
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    assert cached(tmp_path / "a.npz", lambda data: data, lambda: b"made") == b"made"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([new.name, "a.npz"])


@pytest.fixture
def ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that returns the ranges of a small encoder, and the number of measurements so far."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tokenizer, (_, encoder) = load_model(device="cpu").tokenizer, bert()
    encoder = encoder._replace(words=encoder.words._replace(numbers=np.tile(encoder.words.numbers, (260, 1))))
    encoder = encoder._replace(positions=np.tile(encoder.positions, (5, 1)))
    built: list[Graph] = []  # a measurement builds the network once

    def build(graph: Graph):
        built.append(graph)
        return graph.encoder(encoder, with_segments=True)

    def find(folder: Path = tmp_path):
        return ranges_of(build, tokenizer, folder, KEY), len(built)

    return find


@pytest.fixture
def any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are measured in floats: processors without 8-bit instructions can measure them as well."""
    monkeypatch.setattr(processor, "capabilities", lambda: frozenset(processor.ARITHMETICS))


def same(left, right) -> bool:
    return left.keys() == right.keys() and all(np.allclose(left[k], right[k], rtol=1e-3) for k in left)


def test_they_are_measured_once(ranges, tmp_path):
    first, n = ranges()
    assert (n, len(first)) == (1, 9)
    again, n = ranges()
    assert n == 1
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert cache_file(KEY).is_file()
    assert cache_file(KEY).is_relative_to(tmp_path / "cache")


@pytest.mark.slow
def test_a_damaged_cache_is_measured_again(ranges):
    first, _ = ranges()
    for damage in (b"", b"no zip file", cache_file(KEY).read_bytes()[:-200]):
        cache_file(KEY).write_bytes(damage)
        again, _ = ranges()
        assert same(first, again)
    assert ranges()[1] == 4, "the last measurement was stored"


def test_a_home_that_cannot_be_written(ranges, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(ranges()[0]) == 9


def test_without_a_home_nothing_is_kept(ranges, tmp_path, monkeypatch):
    """Not in a folder named ~ either."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # of a user without a home folder
    monkeypatch.chdir(tmp_path)
    assert len(ranges()[0]) == 9
    assert not list(tmp_path.iterdir())


def test_the_folder_comes_first(ranges, tmp_path):
    first, _ = ranges()
    twice = {name: 2 * values for name, values in first.items()}
    calibration.write(tmp_path / FILE, twice, KEY)
    doubled, n = ranges()
    assert n == 1
    assert same(doubled, twice)
    calibration.write(tmp_path / FILE, twice, "other weights")
    assert same(ranges()[0], first), "the ranges of other weights are not used"


@pytest.mark.skipif("int8" not in capabilities(), reason="the processor has no int8")
def test_what_all_states_share_takes_no_precision(make_tiny_model, tmp_path, monkeypatch):
    """A multiple of 1/γ has the same product with all states; added to all terms, it only moves the bias."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    errors = []
    for name, added in (("plain", 0.0), ("shared", 40.0)):
        model = make_tiny_model()
        norm = model.encoder.encoder.layer[-1].output.LayerNorm
        with torch.no_grad():
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_()
            direction = 1 / norm.weight
            model.term_embeddings += added * direction / (direction @ norm.bias)
            model.bias -= added * model.scale
        model.save_pretrained(tmp_path / name)
        stored = load_model(tmp_path / name, device="cpu")
        exact, rounded = (stored.encode_document(TEXTS, dtype=d).toarray() for d in ("fp32", "int8"))
        np.testing.assert_allclose(exact, dense(model, TEXTS), atol=1e-4)
        errors.append(np.abs(rounded - exact).sum() / exact.sum())
    assert 0 < errors[1] < 1.5 * errors[0]


@pytest.mark.slow
@pytest.mark.usefixtures("any_processor")
def test_the_shipped_ranges_are_those_of_the_shipped_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "model"
    shutil.copytree(default_model_folder(), folder, ignore=shutil.ignore_patterns(FILE))
    load_model(folder, device="cpu").backend("int8")
    [measured] = (tmp_path / "sparta").rglob("*.npz")
    with np.load(measured) as found, np.load(default_model_folder() / FILE) as shipped:
        assert same(dict(shipped), dict(found))


@pytest.mark.slow
@pytest.mark.usefixtures("any_processor")
def test_no_shipped_model_measures_its_ranges_again(tmp_path, monkeypatch):
    """The reader did after its threshold had changed: its first answer on each machine took longer.

    Nothing is compiled here: a measurement would fail.
    """
    monkeypatch.setattr(Network, "__init__", lambda self, *_, **__: setattr(self, "streams", 1))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # a measurement would be written there
    script = Path(__file__).parents[3] / "scripts" / "calibrate.py"
    open_in_8_bits = runpy.run_path(str(script))["open_in_8_bits"]
    folders = [path for path in default_model_folder().parent.iterdir() if path.is_dir()]
    with_ranges = [path for path in folders if (path / FILE).is_file()]
    assert len(with_ranges) >= 2
    assert all(open_in_8_bits(path) for path in with_ranges)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_weights_are_released_and_read_again(tmp_path):
    folder, elsewhere = tmp_path / "model", tmp_path / "elsewhere"
    shutil.copytree(default_model_folder(), folder)
    model = load_model(folder, device="cpu")
    text = "Google was founded by Larry Page."
    first = model.encode_document(text, dtype="fp32").toarray()
    folder.rename(elsewhere)
    with pytest.raises(ModelError):  # a pickle holds the weights
        pickle.dumps(model)
    elsewhere.rename(folder)
    copied = pickle.loads(pickle.dumps(model))
    copied.folder = tmp_path / "a machine without the folder"
    for other in (copied, copied, model):  # a copy keeps its weights, and compiles twice
        other.encode_document(text, dtype="bf16" if "bf16" in capabilities() else "fp32")
        np.testing.assert_allclose(other.encode_document(text, dtype="fp32").toarray(), first, atol=1e-5)
    again = pickle.loads(pickle.dumps(copied))
    np.testing.assert_allclose(again.encode_document(text, dtype="fp32").toarray(), first, atol=1e-5)


def test_texts_that_a_tokenizer_does_not_know_are_left_out():
    english = calibration_lines(load_model(device="cpu").tokenizer)
    chinese = calibration_lines(load_model(default_model_folder().parent / "sparta-small-zh").tokenizer)
    assert len(english) > 50
    assert len(chinese) >= 16


@pytest.mark.slow
def test_neither_torch_nor_telemetry_is_loaded(tmp_path):
    code = (
        "import sys; from sparta.models.load import load_model\n"
        "load_model(device='cpu').encode_document('Google was founded by Larry Page.')\n"
        "print([name for name in ('torch', 'transformers', 'openvino_telemetry') if name in sys.modules])\n"
        "import openvino; openvino.convert_model\n"  # the converter is there for those who want it
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.stdout == "[]\n", result.stderr


@pytest.mark.slow
def test_a_short_encoder_and_an_unknown_script(ranges, tmp_path):
    tokenizer = load_model(device="cpu").tokenizer
    _, encoder = bert()  # 60 positions, fewer than the longest text; wordpieces beyond its vocabulary
    with pytest.raises(ModelError, match="the model has 120"):
        ranges_of(lambda g: g.encoder(encoder, with_segments=True), tokenizer, tmp_path, "short")
    larger = encoder._replace(words=encoder.words._replace(numbers=np.tile(encoder.words.numbers, (260, 1))))
    assert len(ranges_of(lambda g: g.encoder(larger, with_segments=False), tokenizer, tmp_path, "short")) == 9
    nothing = Tokenizer(WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}, unk_token="[UNK]"))
    assert len(calibration_lines(nothing)) >= 64


def test_graphs_share_no_parameters():
    graph = Graph()
    assert graph.arguments(ids=np.zeros(1)) == []
