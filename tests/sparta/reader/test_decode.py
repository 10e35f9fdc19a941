"""Spans from scores, against trying all of them."""

import itertools

import torch

from sparta.reader.decode import best_spans
from sparta.reader.windows import Window


def window(passage, start, size):
    return Window(
        passage, list(range(start + size + 1)), 0, start, [(10 * i, 10 * i + 7) for i in range(size)]
    )


def test_all_spans_are_tried():
    generator = torch.Generator().manual_seed(3)
    batch = [window(0, 3, 9), window(4, 5, 4)]
    scores = torch.randn((2, 2, 13), generator=generator)
    readable = torch.zeros((2, 13), dtype=torch.bool)
    readable[0, 3:12] = True
    readable[1, 5:9] = True
    scores = scores.masked_fill(~readable, -torch.inf)
    for longest in (1, 3, 50):
        found = best_spans(scores.numpy(), batch, 4, longest)
        for row, one in enumerate(batch):
            inside = range(one.text_start, one.text_start + len(one.offsets))
            tried = [
                (
                    float(scores[0, row, i] + scores[1, row, j]) / 2,
                    10 * (i - one.text_start),
                    10 * (j - one.text_start) + 7,
                )
                for i, j in itertools.product(inside, inside)
                if i <= j < i + longest
            ]
            best = sorted(tried, reverse=True)[:4]
            own = [(s.score, s.start, s.end) for s in found if s.passage == one.passage]
            assert [(start, end) for _, start, end in own] == [(start, end) for _, start, end in best]
            assert torch.allclose(torch.tensor([s for s, *_ in own]), torch.tensor([s for s, *_ in best]))


def test_fewer_spans_than_asked_for():
    scores = torch.full((2, 1, 4), -torch.inf)
    scores[:, 0, 2] = torch.tensor([1.0, 3.0])
    [span] = best_spans(scores.numpy(), [window(7, 2, 1)], 5, 30)
    assert span == (7, 0, 7, 2.0)
