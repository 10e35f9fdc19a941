"""Turn start and end scores into answer spans."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sparta.reader.records import Span
from sparta.reader.windows import Window


def best_spans(scores: torch.Tensor, batch: Sequence[Window], n: int, longest: int) -> list[Span]:
    """Return the `n` best spans of each window, best first; no span has more than `longest` wordpieces.

    :param scores: `(2, windows, length)`, start and end scores, -inf at positions outside the text
    """
    start, end = scores
    size = min(longest, start.shape[1])
    ends = torch.nn.functional.pad(end, (0, size - 1), value=-torch.inf).unfold(1, size, 1)
    sums = (start[:, :, None] + ends).flatten(1)
    best, places = sums.topk(min(n, sums.shape[1]), dim=1)
    spans = []
    for window, window_scores, window_places in zip(batch, (best / 2).tolist(), places.tolist(), strict=True):
        for score, place in zip(window_scores, window_places, strict=True):
            if score > -torch.inf:
                first = place // size - window.text_start
                last = first + place % size
                span = (window.offsets[first][0], window.offsets[last][1])
                spans.append(Span(window.passage, *span, score))
    return spans
