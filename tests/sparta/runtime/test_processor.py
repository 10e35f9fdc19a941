"""The arithmetic follows the processor: no 8 bits where sums overflow, no bf16 where it is only emulated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from sparta.base.errors import InputError
from sparta.runtime import processor


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    processor.capabilities.cache_clear()
    yield
    processor.capabilities.cache_clear()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"avx2"}, {"fp32"}),
        ({"avx2", "avx_vnni"}, {"int8", "fp32"}),
        ({"avx512_vnni"}, {"int8", "fp32"}),
        ({"avx512_vnni", "avx512_bf16"}, {"int8", "bf16", "fp32"}),
    ],
)
def test_arithmetics_need_instructions(
    flags: set[str], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "processor_flags", lambda: frozenset(flags))
    supported = {*processor.core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")}
    expected = {name for name in expected if name.upper() in supported}
    assert processor.capabilities() == expected
    assert processor.pick_arithmetic("auto", 384) == ("int8" if "int8" in expected else "fp32")
    assert processor.pick_arithmetic("auto", 128) == "fp32"
    for name in {"int8", "bf16"} - expected:
        with pytest.raises(InputError, match=f"does not compute in {name}") as caught:
            processor.pick_arithmetic(name, 384)
        assert "dtype='auto'" in str(caught.value)


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("AuthenticAMD", "avx512_vnni avx512_bf16", "bf16"),
        ("GenuineIntel", "avx512_vnni avx512_bf16", "fp32"),
        ("GenuineIntel", "avx512_vnni avx512_bf16 amx_bf16", "bf16"),
        ("AuthenticAMD", "avx512_vnni", "fp32"),
    ],
)
def test_the_faster_floats(vendor: str, flags: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_cpuinfo", {"vendor_id": vendor, "flags": flags}.__getitem__)
    assert processor.pick_arithmetic("auto", 384, in_floats=True) == expected
    assert processor.mixed_with("int8") == f"+{expected}"
    assert processor.settings("int8", 1)["INFERENCE_PRECISION_HINT"] == (
        "bf16" if expected == "bf16" else "f32"
    )
    assert processor.pick_arithmetic("auto", 128, in_floats=True) == "fp32"
    with pytest.raises(InputError, match="not in 8 bits"):
        processor.pick_arithmetic("int8", 384, in_floats=True)


def test_unknown_arithmetics_are_refused() -> None:
    with pytest.raises(InputError, match="found 'int4'"):
        processor.pick_arithmetic("int4", 384)


def test_onednns_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "amx_bf16"}
    monkeypatch.setattr(processor, "_cpuinfo", lambda _: " ".join(flags))
    for limit, left in (
        ("avx2", set()),
        ("AVX2_VNNI", {"avx_vnni"}),
        ("AVX512_CORE_VNNI", {"avx512_vnni"}),
        ("AVX512_CORE_BF16", {"avx512_vnni", "avx512_bf16"}),
        ("DEFAULT", flags),
    ):
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
        assert processor.processor_flags() == left
        monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
        monkeypatch.setenv("DNNL_MAX_CPU_ISA", limit)  # the older name
        assert processor.processor_flags() == left


@pytest.mark.parametrize(("quota", "expected"), [(2, 2), (8, 5), (None, 5)])
def test_the_quota_of_a_container_counts(
    quota: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "_limit", [])
    monkeypatch.setattr(processor, "container_processors", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(5))
    assert processor.threads() == expected


_ENCODE = """
import json
from sparta.models.load import load_model
from sparta.runtime.processor import pick_arithmetic
model = load_model(device="cpu")
texts = ["Google was founded by Larry Page.", "The moon orbits the earth once in 27 days.",
         "Photosynthesis turns light into sugar in the leaves of plants."]
print(json.dumps([pick_arithmetic("auto", 384), model.encode_document(texts).toarray().tolist()]))
"""


def impacts_under(limit: str) -> tuple[str, np.ndarray]:
    """The arithmetic of `auto`, and the weights of three texts, if OpenVINO may use these instructions."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": limit}
    result = subprocess.run(
        [sys.executable, "-c", _ENCODE], capture_output=True, text=True, env=environment, check=True
    )
    arithmetic, weights = json.loads(result.stdout)
    return arithmetic, np.array(weights)


@pytest.mark.slow
@pytest.mark.skipif(
    "avx512_vnni" not in processor.processor_flags(), reason="limits a processor that has VNNI"
)
def test_older_processors_rank_alike() -> None:
    exact_name, exact = impacts_under("AVX2")
    vnni_name, in_8_bits = impacts_under("AVX512_CORE_VNNI")
    assert (exact_name, vnni_name) == ("fp32", "int8")
    for weights in (in_8_bits, impacts_under("AVX512_CORE_BF16")[1]):
        assert 0 < np.abs(weights - exact).sum() < 0.1 * exact.sum()
        for row, exact_row in zip(weights, exact, strict=True):
            assert {*np.argsort(-row)[:5]} <= {*np.argsort(-exact_row)[:15]}


_FORK = """
import multiprocessing
from sparta.base.errors import ModelError
from sparta.models.load import load_model

def encode():
    try:
        model.encode_document(["the moon"])
    except ModelError as error:
        print(error)

model = load_model(device="cpu")
encode()
child = multiprocessing.get_context("fork").Process(target=encode)
child.start()
child.join(60)
child.kill()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_is_told_that_it_cannot_encode() -> None:
    """OpenVINO's threads do not survive a fork: without the error, the process would wait forever."""
    result = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, text=True, check=True)
    assert "OpenVINO runs in process" in result.stdout
    assert 'get_context("spawn")' in result.stdout
