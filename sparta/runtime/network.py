"""Compiled networks, which several threads may run at once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from sparta.neural.batches import Tokens, padded, rounded_length
from sparta.runtime.graph import MASKED, Graph, Ranges
from sparta.runtime.memory import return_freed_memory
from sparta.runtime.processor import check_process, core, settings, threads
from sparta.runtime.weights import Floats

if TYPE_CHECKING:
    import openvino


class Network:
    """A compiled graph. Calls from different threads run at once and share the processors.

    :param arithmetic: `int8`, `bf16` or `fp32`
    :param streams: the number of calls that may run at once; None means one for each processor
    :param between_nodes: the float format between 8-bit products; None means the processor's fastest
    """

    def __init__(
        self,
        model: openvino.Model,
        arithmetic: str,
        streams: int | None = None,
        between_nodes: str | None = None,
    ) -> None:
        self.streams = streams or threads()
        check_process()
        chosen = settings(arithmetic, self.streams, between_nodes)
        self._compiled = core().compile_model(model, "CPU", chosen)
        self._idle: list[Any] = []  # requests between two calls; a list's pop and append are atomic

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """Return the outputs for these inputs."""
        check_process()
        try:
            request = self._idle.pop()
        except IndexError:
            return_freed_memory()  # whoever compiled the network has released its weights by now
            request = self._compiled.create_infer_request()
        outputs: Any = request.infer(list(inputs), share_inputs=True, share_outputs=True)
        copies = [np.array(outputs[number]) for number in range(len(self._compiled.outputs))]
        self._idle.append(request)
        return copies


def arrays(
    inputs: Sequence[Tokens], length: int | None = None, *, max_length: int | None = None
) -> dict[str, np.ndarray]:
    """Return the inputs of `Graph.encoder` for texts: ids, mask and segments, each `(n, length)`.

    :param length: the padded length; None means the length of the longest text
    :param max_length: round the length of the longest text, to at most this length
    """
    if max_length is not None:
        length = rounded_length(max(len(text.ids) for text in inputs), max_length)
    ids, is_token, segments = padded(inputs, length)
    mask = np.where(is_token, np.float32(0), np.float32(MASKED))
    return {"ids": ids.astype(np.int32), "mask": mask, "segments": segments.astype(np.int32)}


class EncoderNetwork:
    """A compiled graph that begins with an encoder: from texts to the graph's output.

    :param build: adds the network to a graph, and returns its output
    :param ranges: the calibrated ranges for int8; None for other arithmetics
    :param max_length: the largest length to which texts are padded
    :param streams: the number of calls that may run at once; None means one for each processor
    """

    def __init__(
        self,
        build: Callable[[Graph], Any],
        arithmetic: str,
        ranges: Ranges | None,
        max_length: int,
        streams: int | None = None,
    ) -> None:
        # In bf16, converting 8-bit weights at each product takes a third of the time of a short text.
        graph = Graph(ranges, converts_late=arithmetic != "bf16")
        self._network = Network(graph.model([build(graph)]), arithmetic, streams)
        self._arguments, self._max_length = graph.arguments, max_length
        self.streams = self._network.streams

    def __call__(self, inputs: Sequence[Tokens]) -> Floats:
        """Return the output for texts, `(n, padded length, …)`, or as `build` reduces it."""
        [output] = self._network(*self._arguments(**arrays(inputs, max_length=self._max_length)))
        return output


def in_threads[T, R](compute: Callable[[T], R], items: Sequence[T], streams: int) -> Generator[R]:
    """Yield `compute(item)` for all items in order, computing `streams` items at once.

    Closing the generator cancels the items that have not begun. A single item needs no new thread.
    """
    if len(items) == 1:
        yield compute(items[0])
        return
    with ThreadPoolExecutor(streams) as pool:
        yield from pool.map(compute, items)
