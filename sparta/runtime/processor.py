"""OpenVINO on this machine: what its processor multiplies fast, and how networks are compiled for it."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sparta.base.errors import InputError
from sparta.base.extras import optional_packages
from sparta.base.remedies import Option, remedy

if TYPE_CHECKING:
    import openvino

ARITHMETICS = ("int8", "bf16", "fp32")
WIDE = 256
"""The width from which an encoder is faster in 8 bits."""
_CONVERTER = "openvino.tools.ovc"
_HINTS = {"bf16": "bf16", "fp32": "f32"}
_CAPABILITIES = {"int8": "INT8", "bf16": "BF16", "fp32": "FP32"}


@lru_cache(1)
def runtime() -> Any:
    """Return the module openvino, imported without its model converter.

    The converter takes three times as long to import as the rest, and imports a package for telemetry. sparta
    needs neither.

    :raises InputError: openvino is not installed.
    """
    is_imported = "openvino" in sys.modules or _CONVERTER in sys.modules
    if not is_imported:
        sys.modules[_CONVERTER] = None  # type: ignore[assignment]  # openvino leaves out what it cannot import
    try:
        with optional_packages():
            import openvino
    finally:
        if not is_imported:
            sys.modules.pop(_CONVERTER, None)
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


_limit: list[int] = []


def use_threads(number: int) -> None:
    """Limit the number of threads that encode in this process."""
    _limit[:] = [number]


def threads() -> int:
    """Return the number of threads that encode: one for each processor that this process may use."""
    if _limit:
        return _limit[0]
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(1)
def capabilities() -> frozenset[str]:
    """Return the arithmetics that this processor computes in hardware: a subset of `ARITHMETICS`.

    int8 needs instructions that sum products of 8-bit integers in 32 bits (VNNI or AMX). Older x86 processors
    sum pairs in 16 bits, which can overflow.
    """
    supported = core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    names = {name for name in ARITHMETICS if _CAPABILITIES[name] in supported}
    return frozenset(names if _sums_in_32_bits() else names - {"int8"})


def _sums_in_32_bits() -> bool:
    flags = _processor_flags()
    return bool(flags & {"avx512_vnni", "avx_vnni", "amx_int8"})


def multiplies_bf16() -> bool:
    """Return whether the processor has instructions for products of bf16 (AVX-512 BF16 or AMX)."""
    return bool(_processor_flags() & {"avx512_bf16", "amx_bf16"})


def mixed_with(arithmetic: str) -> str:
    """Return `+bf16` for int8 where bf16 is multiplied in hardware, and so some products stay in bf16."""
    return "+bf16" if arithmetic == "int8" and multiplies_bf16() else ""


@lru_cache(1)
def _processor_flags() -> frozenset[str]:
    """Return the flags of /proc/cpuinfo; empty on other systems and processors."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 (a file without a size)
            line = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return frozenset()
    return frozenset(line.partition(":")[2].split())


def pick_arithmetic(name: str, width: int) -> str:
    """Return `int8`, `bf16` or `fp32`: the arithmetic of a CPU for an encoder of this width.

    `auto` means int8 for encoders of at least `WIDE` where the processor has it in hardware, else fp32.

    :raises InputError: the name is unknown, or the processor does not support this arithmetic.
    """
    if name == "auto":
        return "int8" if "int8" in capabilities() and width >= WIDE else "fp32"
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
    """Return OpenVINO's settings for a network: `streams` inferences at once, with one thread each.

    :param between_nodes: the float format between the products of int8; None means bf16 if the processor
        multiplies bf16 in hardware, else fp32
    """
    if arithmetic == "int8":
        arithmetic = between_nodes or ("bf16" if multiplies_bf16() else "fp32")
    return {
        "INFERENCE_PRECISION_HINT": _HINTS[arithmetic],
        "NUM_STREAMS": str(streams),
        "INFERENCE_NUM_THREADS": str(streams),
        "ENABLE_CPU_PINNING": "NO",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",  # otherwise OpenVINO may round the states itself
    }
