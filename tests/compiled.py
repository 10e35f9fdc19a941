"""Networks that tests compile: equal graphs are compiled once in a process."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from hashlib import blake2b
from typing import Any

_MOST = 16


class SharingCore:
    """OpenVINO's core, but a graph with the content and settings of an earlier one is that compiled graph.

    Most tests open a model of the same few; compiling takes most of the time of opening one.
    """

    def __init__(self, core: Any) -> None:
        self._core = core
        self._compiled: OrderedDict[bytes, Any] = OrderedDict()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def compile_model(self, model: Any, device: str, settings: dict[str, Any]) -> Any:
        """Return the compiled graph."""
        key = content(model, device, settings)
        if key not in self._compiled:
            self._compiled[key] = self._core.compile_model(model, device, settings)
        self._compiled.move_to_end(key)
        if len(self._compiled) > _MOST:
            self._compiled.popitem(last=False)
        return self._compiled[key]


@cache
def sharing_core() -> SharingCore:
    """Return the core that all networks of this process are compiled with."""
    from sparta.runtime.processor import core

    return SharingCore(core())


def content(model: Any, *more: object) -> bytes:
    """Return a hash of all that decides what a graph computes: its operations, constants and edges."""
    digest = blake2b(repr(more).encode())
    numbers: dict[str, int] = {}
    for number, node in enumerate(model.get_ordered_ops()):
        numbers[node.get_name()] = number
        sources = [
            (numbers[source.get_node().get_name()], source.get_index())
            for source in (place.get_source_output() for place in node.inputs())
        ]
        digest.update(repr((node.get_type_name(), sorted(node.get_attributes().items()), sources)).encode())
        if node.get_type_name() == "Constant":
            array = node.data
            digest.update(repr((str(node.get_element_type()), array.shape)).encode())
            digest.update(array.tobytes())
    ends = [*model.get_parameters(), *model.get_results()]
    digest.update(repr([numbers[node.get_name()] for node in ends]).encode())
    return digest.digest()
