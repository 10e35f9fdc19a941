"""A dense channel names what encoded it, and warns if another runtime or arithmetic goes on."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dense.channel.builder import ShardSizes
from dense.channel.sync import build_dense
from dense.models.resolve import ModelIdentity
from dense.search.store import VectorFolder, describe_vectors, write_shard
from sparta.base.errors import IndexStateError, Interrupted
from sparta.runtime.processor import capabilities, mixed_with
from sparta.shards.folder import open_output
from tests.dense.channel.channels import done
from tests.moments import at, ctrl_c
from tests.programs import dense, sparta

pytestmark = pytest.mark.jvm
OTHER = "int8" if "int8" in capabilities() else "bf16"
"""An arithmetic that is not the default one of the tiny model, fp32."""
OTHER_NAME = f"openvino {OTHER}{mixed_with(OTHER)}"
SIZES = ShardSizes(largest=24, first=16, seconds=1e6)
needs_another = pytest.mark.skipif(OTHER not in capabilities(), reason="this processor computes in fp32 only")


def channel(index: Path) -> dict[str, Any]:
    [path] = index.glob("dense-*/manifest.json")
    return dict(json.loads(path.read_text()))


def store(index: Path) -> VectorFolder:
    [path] = index.glob("dense-*/vectors-*")
    return VectorFolder(path)


def test_the_manifests_name_runtime_and_arithmetic(
    index: Path, model: Path, corpus: Path, tmp_path: Path
) -> None:
    build_dense(index, str(model), device="cpu")
    assert channel(index)["arithmetic"] == store(index).arithmetic == "openvino fp32"
    done(dense, "encode", "--corpus", corpus, "--model", model, "--output", tmp_path / "v")
    assert VectorFolder(tmp_path / "v").arithmetic == "openvino fp32"


def test_an_append_with_another_arithmetic_warns(made: Path, write_jsonl: Any, tmp_path: Path) -> None:
    def append(name: str) -> str:
        more = write_jsonl(tmp_path / f"{name}.jsonl", [{"id": name, "text": f"the moon {name}"}])
        return done(sparta, "index", "--corpus", more, "--append", "--index", made)

    assert "new vectors with" not in append("same")
    store_path = store(made).folder / "manifest.json"
    stored = json.loads(store_path.read_text())
    del stored["checksum"]
    store_path.write_text(json.dumps({**stored, "arithmetic": "torch bf16"}))
    warning = "were encoded with torch bf16, new vectors with openvino fp32"
    assert append("other").count(warning) == 1
    assert channel(made)["arithmetic"] == store(made).arithmetic == "torch bf16"


@needs_another
def test_an_interrupted_channel_remembers_its_arithmetic(
    index: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with at("rename", "shard-00001.*", ctrl_c), pytest.raises(Interrupted):
        build_dense(index, str(model), dtype=OTHER, device="cpu", shard_sizes=ShardSizes(first=16))
    [shard] = index.glob("dense-*/vectors-*/shard-*.safetensors")
    build_dense(index, str(model), dtype="fp32", device="cpu")
    assert f"were encoded with {OTHER_NAME}, new vectors with openvino fp32" in caplog.text
    assert channel(index)["arithmetic"] == OTHER_NAME
    assert shard.exists()


@needs_another
def test_vectors_of_a_folder_bring_their_arithmetic(
    index: Path, model: Path, corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = ("--model", model, "--dtype", OTHER, "--device", "cpu")
    done(dense, "encode", "--corpus", corpus, *options, "--output", tmp_path / "v")
    build_dense(index, str(model), vectors=[tmp_path / "v"])
    assert channel(index)["arithmetic"] == OTHER_NAME
    assert caplog.text == ""


@needs_another
def test_overwrite_with_a_named_arithmetic_encodes_all_again(made: Path, model: Path) -> None:
    assert build_dense(made, str(model), overwrite=True).encoded == 0
    report = build_dense(made, str(model), overwrite=True, dtype=OTHER, device="cpu")
    assert report.encoded == report.passages
    assert channel(made)["arithmetic"] == OTHER_NAME
    assert build_dense(made, str(model), overwrite=True, dtype=OTHER, device="cpu").encoded == 0


def test_a_named_arithmetic_replaces_only_vectors_of_others(index: Path, model: Path, tmp_path: Path) -> None:
    """One of three shards has another arithmetic; the manifest of the vectors names that of the first."""
    build_dense(index, str(model), device="cpu", shard_sizes=SIZES)
    mixed = store(index)
    assert [len(shard) for shard in mixed.shards] == [16, 24, 10]
    assert {shard.arithmetic for shard in mixed.shards} == {"openvino fp32"}
    write_shard(mixed.folder, replace(mixed.shards[1], arithmetic="torch bf16"))
    outside = Path(shutil.copytree(mixed.folder, tmp_path / "v"))
    report = build_dense(index, str(model), overwrite=True, dtype="fp32", device="cpu", vectors=[outside])
    assert (report.encoded, report.copied_vectors, report.kept) == (24, 0, 26)
    assert {shard.arithmetic for shard in store(index).shards} == {"openvino fp32"}
    assert build_dense(index, str(model), overwrite=True, dtype="fp32", device="cpu").encoded == 0


def test_vectors_that_name_no_arithmetic_are_encoded_again_with_one_warning(
    made: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for shard in store(made).shards:
        write_shard(store(made).folder, replace(shard, arithmetic=""))
    warning = "do not name their arithmetic and are encoded again"
    for n_encoded, n_warnings in ((50, 1), (0, 0)):
        caplog.clear()
        report = build_dense(made, str(model), overwrite=True, dtype="fp32", device="cpu")
        assert (report.encoded, caplog.text.count(f" 50 vectors {warning}")) == (n_encoded, n_warnings)


def test_a_remedy_names_the_arithmetic_as_the_option_takes_it(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    manifest = describe_vectors(
        ModelIdentity("m", "0"), 4, "float16", "passage", options={"dtype": "float32"}
    )
    open_output(tmp_path / "v", manifest, resume=False)
    with pytest.raises(IndexStateError) as refused:
        open_output(tmp_path / "v", {**manifest, "options": {"dtype": "int8"}}, resume=True)
    assert "--resume and --dtype fp32," in refused.value.for_command_line()


@needs_another
def test_resuming_an_encoding_with_another_arithmetic_is_refused(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    command = ("encode", "--corpus", corpus, "--model", model, "--output", tmp_path / "v", "--device", "cpu")
    done(dense, *command)
    again = dense(*command, "--resume", "--dtype", OTHER)
    assert again.exit_code
    assert "repeat the original command with --resume and --dtype fp32" in " ".join(again.output.split())
    done(dense, *command, "--resume", "--dtype", "fp32")
