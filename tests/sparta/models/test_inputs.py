"""What the encoder reads of a passage: titles, contexts, windows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.models.config import SpartaConfig
from sparta.models.document_encoder import DocumentEncoder
from sparta.models.sparta import SpartaModel
from sparta.neural.batches import pooled_positions
from sparta.neural.inputs import ANSWER, CONTEXT, InputLayout, equal_windows
from sparta.neural.pooling import pad_inputs
from tests.sparta.models.brute_force import CONTEXT_TEXT, Make, brute_force, dense, passages, terms_of

pytestmark = pytest.mark.usefixtures("one_thread")


def pieces(model: SpartaModel, layout: InputLayout, passage: Passage) -> list[tuple[list[str], list[int]]]:
    return [
        ([model.tokenizer.id_to_token(i) or "" for i in window.ids], window.segments)
        for window in layout.windows(passage, model.tokenizer)
    ]


def test_segments_are_1_for_the_answer_and_0_for_the_context(tiny_model: SpartaModel) -> None:
    assert CONTEXT_TEXT[24:36] == "who was king"
    text = "four five who was king year years ."
    passage = Passage("1", "who was king", context=text, start=10, end=22)
    [(words, segments)] = pieces(tiny_model, InputLayout(use_context=True), passage)
    assert words == ["[CLS]", *text.split(), "[SEP]"]
    assert segments == [0, 0, 0, ANSWER, ANSWER, ANSWER, 0, 0, 0, 0]
    [(words, segments)] = pieces(tiny_model, InputLayout(), passage)
    assert words == ["[CLS]", "who", "was", "king", "[SEP]"]
    assert segments == [0, 1, 1, 1, 0]
    [(_, segments)] = pieces(tiny_model, InputLayout(answer_segment=CONTEXT), passage)
    assert segments == [0] * 5


def test_the_segments_reach_the_encoder(make_tiny_model: Make) -> None:
    """Answer and context as a pair of segments give other weights than one text; both equal plain BERT's."""
    model = make_tiny_model(SpartaConfig(layout=InputLayout(use_context=True)))
    text = "the year who was king of germany"
    [inside] = dense(model, [Passage("1", "who was king", context=text, start=9, end=21)])
    ids = torch.tensor([model.tokenizer.encode(text).ids])
    marks = torch.tensor([[0, 0, 0, 1, 1, 1, 0, 0, 0]])
    with torch.no_grad():
        states = model.encoder(input_ids=ids, token_type_ids=marks).last_hidden_state[0, 1:-1]
        products = (states @ model.term_matrix().T).amax(0) * model.scale + model.bias
    expected = torch.log1p(torch.relu(products)).numpy()
    terms = terms_of(model)
    np.testing.assert_allclose(inside[terms], expected[terms], atol=1e-5)
    assert np.abs(inside - dense(model, [text])[0]).max() > 1e-3


def test_a_title_stands_before_the_text(tiny_model: SpartaModel) -> None:
    passage = Passage("1", "the moon", title="Larry Page")
    [(words, _)] = pieces(tiny_model, InputLayout(use_title=True), passage)
    assert words == ["[CLS]", "larry", "page", "the", "moon", "[SEP]"]
    [(words, _)] = pieces(tiny_model, InputLayout(), passage)
    assert words == ["[CLS]", "the", "moon", "[SEP]"]
    [(words, _)] = pieces(tiny_model, InputLayout(use_title=True), Passage("1", "the moon"))
    assert words == ["[CLS]", "the", "moon", "[SEP]"]
    layout = InputLayout(use_title=True, use_context=True)
    [(words, segments)] = pieces(
        tiny_model, layout, replace(passage, context="see the moon", start=4, end=12)
    )
    assert words == ["[CLS]", "larry", "page", "see", "the", "moon", "[SEP]"]
    assert segments == [0, 0, 0, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("before", "after", "room", "expected"),
    [
        (10, 10, 6, (3, 3)),
        (10, 10, 7, (3, 4)),
        (1, 10, 6, (1, 5)),  # what the left side does not use goes to the right
        (10, 1, 6, (5, 1)),
        (0, 10, 6, (0, 6)),
        (10, 0, 6, (6, 0)),
        (2, 2, 6, (2, 2)),
        (10, 10, 0, (0, 0)),
        (0, 0, 6, (0, 0)),
    ],
)
def test_equal_windows(before: int, after: int, room: int, expected: tuple[int, int]) -> None:
    assert equal_windows(before, after, room) == expected


def test_context_is_cut_to_equal_windows_around_the_answer(tiny_model: SpartaModel) -> None:
    """10 places: 2 for the frame, 3 for the answer, 5 for the context of 5 words before and 3 after."""
    small = InputLayout(use_context=True, max_length=10, overlap=2)
    words = "four five who was king one two three north south"
    passage = Passage("1", "who was king", context=words, start=10, end=22)
    [(cut, segments)] = pieces(tiny_model, small, passage)
    assert cut == ["[CLS]", *words.split()[:8], "[SEP]"], "two words before, three after: all that fits"
    assert segments == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0]
    short = "five who was king one two three north south east west"
    [(cut, _)] = pieces(tiny_model, small, Passage("1", "who was king", context=short, start=5, end=17))
    assert cut == ["[CLS]", *short.split()[:8], "[SEP]"], "one word before leaves four places after"
    late = "one two three north south west who was king five"
    start = late.index("who")
    [(cut, segments)] = pieces(
        tiny_model, small, Passage("1", "who was king", context=late, start=start, end=start + 12)
    )
    assert cut == ["[CLS]", *late.split()[2:], "[SEP]"], "one word after leaves four places before"
    assert segments == [0, 0, 0, 0, 0, 1, 1, 1, 0, 0]


def test_long_answers_are_cut_into_overlapping_windows(tiny_model: SpartaModel) -> None:
    words = "one two three four five king queen moon earth sun who was west of years"
    ids = tiny_model.tokenizer.encode(words, add_special_tokens=False).ids
    layout = InputLayout(max_length=8, overlap=2, use_context=True)
    passage = Passage("1", words, context=f"who {words} west", start=4, end=4 + len(words))
    windows = layout.windows(passage, tiny_model.tokenizer)
    inner = [window.ids[1:-1] for window in windows]
    assert [len(part) for part in inner] == [6, 6, 6, 3]
    assert all(len(window.ids) <= 8 for window in windows)
    assert all(left[-2:] == right[:2] for left, right in pairwise(inner))
    assert inner[0] + [i for window in inner[1:] for i in window[2:]] == ids
    assert all(window.segments == [0, *[1] * (len(window.ids) - 2), 0] for window in windows)


@pytest.mark.parametrize("length", range(1, 40))
def test_windows_cover_every_token_and_no_more_than_needed(tiny_model: SpartaModel, length: int) -> None:
    layout = InputLayout(max_length=12, overlap=3)
    windows = layout.windows(Passage("1", "moon " * length), tiny_model.tokenizer)
    inner = [len(window.ids) - 2 for window in windows]
    assert sum(inner) - 3 * (len(inner) - 1) == length
    assert max(inner) <= 10
    assert min(inner) > 3 or len(inner) == 1


def test_windows_are_merged_by_maximum_and_counted(make_tiny_model: Make) -> None:
    layout = InputLayout(max_length=8, overlap=2)
    model = make_tiny_model(SpartaConfig(layout=layout))
    long = "one two three four five king queen moon earth sun who was west"
    told: list[int] = []
    rows, windowed = DocumentEncoder(model, dtype="fp32", max_batch=3).encode(
        passages(["the moon", long, "", "the earth"]), told.append
    )
    assert windowed == 1
    assert sum(told) == 4, "progress counts passages, not windows"
    ids = model.tokenizer.encode(long, add_special_tokens=False).ids
    parts = [" ".join(model.tokenizer.id_to_token(i) or "" for i in ids[s : s + 6]) for s in (0, 4, 8)]
    assert len(ids) == 13
    expected = np.max([brute_force(model, part) for part in parts], axis=0)
    start, end = rows.indptr[1:3]
    merged = np.zeros(len(expected))
    merged[rows.term_ids[start:end]] = rows.weights[start:end]
    np.testing.assert_allclose(merged, expected, atol=1e-5)
    assert (np.diff(rows.term_ids[start:end]) > 0).all(), "one entry a term, ids ascending"
    np.testing.assert_allclose(dense(model, [long, "the moon"])[1], brute_force(model, "the moon"), atol=1e-5)


def test_top_k_of_a_windowed_passage_is_taken_after_the_merge(make_tiny_model: Make) -> None:
    model = make_tiny_model(SpartaConfig(layout=InputLayout(max_length=8, overlap=2)))
    long = "one two three four five king queen moon earth sun who was west"
    [whole] = dense(model, [long])
    [cut] = dense(model, [long, "the moon"], max_active_dims=7)[:1]
    strongest = np.lexsort((np.arange(len(whole)), -whole))[:7]
    np.testing.assert_array_equal(cut.nonzero()[0], np.sort(strongest))


def test_an_impossible_layout_is_refused() -> None:
    with pytest.raises(ModelError, match="expected overlap below max_length - 2, found 64 and 66"):
        InputLayout(max_length=66)


def test_padding_and_positions_of_the_maximum(tiny_model: SpartaModel) -> None:
    layout = tiny_model.config.layout
    windows = [layout.windows(Passage("1", text), tiny_model.tokenizer)[0] for text in ("the moon", "")]
    ids, mask, segments = pad_inputs(windows)
    assert ids.shape == mask.shape == segments.shape == (2, 4)
    assert mask.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    positions, any_at_all = pooled_positions(windows, [0, 1], 4, pool_special=False)
    assert positions[0].tolist() == [1, 2]
    assert any_at_all.tolist() == [True, False]
    positions, any_at_all = pooled_positions(windows, [0, 1], 4, pool_special=True)
    assert positions.tolist() == [[0, 1, 2, 3], [4, 5, 4, 4]], "the shorter repeats one of its own"
    assert any_at_all.tolist() == [True, True]
