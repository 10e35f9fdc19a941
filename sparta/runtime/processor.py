"""OpenVINO on this machine: what its processor multiplies fast, and how networks are compiled for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sparta.base.errors import InputError, ModelError
from sparta.base.extras import optional_packages
from sparta.base.remedies import Option, remedy
from sparta.lucene.container import container_processors

if TYPE_CHECKING:
    import openvino

ARITHMETICS = ("int8", "bf16", "fp32")
WIDE = 256
"""The width from which an encoder is faster in 8 bits."""
_CONVERTER = "openvino.tools.ovc"
_HINTS = {"bf16": "bf16", "fp32": "f32"}
_WITH_VNNI, _WITH_BF16 = frozenset({"avx512_vnni"}), frozenset({"avx512_vnni", "avx512_bf16"})
_LIMITS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("SSE41", "AVX", "AVX2", "AVX512_CORE"), frozenset()),
    **dict.fromkeys(("AVX2_VNNI", "AVX2_VNNI_2"), frozenset({"avx_vnni"})),
    "AVX512_CORE_VNNI": _WITH_VNNI,
    **dict.fromkeys(("AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX10_1_512"), _WITH_BF16),
}
"""The flags that matter here, of those that a value of oneDNN's variable allows; other values allow all."""
_CAPABILITIES = {"int8": "INT8", "bf16": "BF16", "fp32": "FP32"}


@contextmanager
def without_module(name: str) -> Iterator[None]:
    """Let imports of a module fail until the block ends, unless it is imported already."""
    is_imported = name in sys.modules
    if not is_imported:
        sys.modules[name] = None  # type: ignore[assignment]  # as Python documents it
    try:
        yield
    finally:
        if not is_imported:
            sys.modules.pop(name, None)


@lru_cache(1)
def runtime() -> Any:
    """Return the module openvino, imported without its model converter.

    The converter takes three times as long to import as the rest, and imports a package for telemetry. sparta
    needs neither.

    :raises InputError: openvino is not installed.
    """
    with without_module(_CONVERTER), optional_packages():  # openvino leaves out what it cannot import
        import openvino
    if not hasattr(openvino, "convert_model"):
        openvino.__getattr__ = _converter  # other packages of this process find the converter where it was
    return openvino


def _converter(name: str) -> Any:
    """Return openvino's converter, which is imported at its first use."""
    if name != "convert_model":
        raise AttributeError(f"module 'openvino' has no attribute {name!r}")
    from openvino.tools.ovc import convert_model

    return convert_model


@lru_cache(1)
def core() -> openvino.Core:
    """Return OpenVINO's core, which compiles networks."""
    return runtime().Core()


_compiled_in: list[int] = []


class ForkedError(ModelError):
    """A process was forked after OpenVINO had compiled a network in its parent."""


def check_process() -> None:
    """Raise if this process was forked after OpenVINO had compiled a network; a call would hang.

    :raises ForkedError: this process is such a fork.
    """
    if not _compiled_in:
        _compiled_in.append(os.getpid())
    if _compiled_in[0] != os.getpid():
        raise ForkedError(
            f"OpenVINO runs in process {_compiled_in[0]} and cannot be used in its fork, {os.getpid()}",
            remedy='start workers with multiprocessing.get_context("spawn"), or fork before models are used',
        )


_limit: list[int] = []


def use_threads(number: int) -> None:
    """Limit the number of threads that encode in this process."""
    _limit[:] = [number]


def threads() -> int:
    """Return the number of threads that encode: one for each processor that this process may use.

    A container may have fewer processors than its machine: the quota of its cgroup, rounded up.
    """
    if _limit:
        return _limit[0]
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(n, container_processors() or n)


@lru_cache(1)
def capabilities() -> frozenset[str]:
    """Return the arithmetics that this processor computes in hardware: a subset of `ARITHMETICS`.

    int8 needs instructions that sum products of 8-bit integers in 32 bits (VNNI or AMX). Older x86 processors
    sum pairs in 16 bits, which can overflow. bf16 needs instructions too: OpenVINO also lists it where it is
    only emulated.
    """
    supported = core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    in_hardware = {"int8": _sums_in_32_bits(), "bf16": has_bf16(), "fp32": True}
    return frozenset(name for name in ARITHMETICS if _CAPABILITIES[name] in supported and in_hardware[name])


def _sums_in_32_bits() -> bool:
    flags = processor_flags()
    return bool(flags & {"avx512_vnni", "avx_vnni", "amx_int8"})


def has_bf16() -> bool:
    """Return whether the processor has instructions for products of bf16 (AVX-512 BF16 or AMX)."""
    return bool(processor_flags() & {"avx512_bf16", "amx_bf16"})


def prefers_bf16() -> bool:
    """Return whether products of bf16 are faster than products of float32.

    They are with AMX, and with AMD's AVX-512 BF16. With Intel's AVX-512 BF16, an encoder took 1.6 times as
    long as in float32 (Emerald Rapids without AMX).
    """
    flags = processor_flags()
    return "amx_bf16" in flags or ("avx512_bf16" in flags and _cpuinfo("vendor_id") == "AuthenticAMD")


def float_arithmetic() -> str:
    """Return the faster of bf16 and fp32."""
    return "bf16" if prefers_bf16() else "fp32"


def mixed_with(arithmetic: str) -> str:
    """Return `+bf16` or `+fp32` for int8: the arithmetic of the products that are not in 8 bits."""
    return f"+{float_arithmetic()}" if arithmetic == "int8" else ""


def processor_flags() -> frozenset[str]:
    """Return the processor's flags, without those that the environment forbids OpenVINO to use.

    The variable is `ONEDNN_MAX_CPU_ISA`, or its older name `DNNL_MAX_CPU_ISA`.
    """
    names = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
    limit = next(filter(None, map(os.environ.get, names)), "").upper()
    flags = frozenset(_cpuinfo("flags").split())
    return flags & _LIMITS[limit] if limit in _LIMITS else flags


@lru_cache
def _cpuinfo(name: str) -> str:
    """Return the first value of a field of /proc/cpuinfo; empty on other systems and processors."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 (a file without a size)
            line = next((line for line in lines if line.startswith(name)), "")
    except OSError:
        return ""
    return line.partition(":")[2].strip()


def pick_arithmetic(name: str, width: int, *, in_floats: bool = False) -> str:
    """Return `int8`, `bf16` or `fp32`: the arithmetic of a CPU for an encoder of this width.

    `auto` means int8 for encoders of at least `WIDE` where the processor has it in hardware, else fp32.

    :param in_floats: the model is not computed in 8 bits: `auto` means the faster of bf16 and fp32, and fp32
        for narrow encoders
    :raises InputError: the name is unknown, or the processor or the model does not support this arithmetic.
    """
    if name == "auto" and in_floats:
        return float_arithmetic() if width >= WIDE else "fp32"
    if name == "auto":
        return "int8" if "int8" in capabilities() and width >= WIDE else "fp32"
    if name == "int8" and in_floats:
        raise InputError(
            "this model computes in bf16 or fp32, not in 8 bits",
            remedy=remedy("use {}", Option("dtype", "auto")),
        )
    if name not in ARITHMETICS:
        raise InputError(
            f"a CPU computes in {', '.join(ARITHMETICS)} or auto, found {name!r}",
            remedy=remedy("use {}", Option("dtype", "auto")),
        )
    if name not in capabilities():
        raise InputError(
            f"this processor does not compute in {name}",
            remedy=remedy("use {}", Option("dtype", "auto")),
        )
    return name


def settings(arithmetic: str, streams: int, between_nodes: str | None = None) -> dict[str, str]:
    """Return OpenVINO's settings for a network: `streams` inferences at once, which share all threads.

    :param between_nodes: the float format between the products of int8; None means the faster
        of bf16 and fp32
    """
    if arithmetic == "int8":
        arithmetic = between_nodes or float_arithmetic()
    return {
        "INFERENCE_PRECISION_HINT": _HINTS[arithmetic],
        "NUM_STREAMS": str(streams),
        "INFERENCE_NUM_THREADS": str(max(streams, threads())),
        "ENABLE_CPU_PINNING": "NO",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",  # otherwise OpenVINO may round the states itself
    }
