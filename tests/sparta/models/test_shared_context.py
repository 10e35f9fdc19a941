"""Many answers in one context."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.models.config import Lexical, SpartaConfig
from sparta.models.document_encoder import DocumentEncoder
from sparta.models.sparta import SpartaModel
from sparta.neural.inputs import CONTEXT, InputLayout, fixed_window
from tests.sparta.models.brute_force import Make, brute_force, dense, terms_of

pytestmark = pytest.mark.usefixtures("one_thread")

SHARED = InputLayout(use_title=True, use_context=True, share_context=True, max_length=16, overlap=2)

STORY = "who was king of germany . the moon was west of the earth . two years"

STORY_SPANS = [(0, 25), (26, 58), (59, 68)]


def answers_in(text: str, spans: list[tuple[int, int]], title: str = "Page") -> list[Passage]:
    return [Passage(str(i), text[a:b], title, text, a, b) for i, (a, b) in enumerate(spans)]


def test_a_shared_context_gives_all_answers_the_same_tokens(tiny_model: SpartaModel) -> None:
    layout = replace(SHARED, max_length=64)
    windows = [layout.windows(p, tiny_model.tokenizer)[0] for p in answers_in(STORY, STORY_SPANS)]
    words = [tiny_model.tokenizer.id_to_token(i) for i in windows[0].ids]
    assert words == ["[CLS]", "page", *STORY.split(), "[SEP]"]
    assert all(windows[0].shares_tokens(w) for w in windows)
    assert [words[w.start : w.end] for w in windows] == [STORY[a:b].split() for a, b in STORY_SPANS]
    assert [w.lead for w in windows] == [1, 1, 1]
    assert set(windows[0].segments) == {CONTEXT}
    [alone] = layout.windows(Passage("1", "the moon"), tiny_model.tokenizer)
    assert (alone.lead, alone.start, alone.end) == (0, 1, 3)


def test_answers_in_a_shared_context_equal_the_maximum_over_their_own_states(make_tiny_model: Make) -> None:
    """Plain BERT over the whole text, then eq. 4 to 6 over the title's and the answer's tokens."""
    model = make_tiny_model(SpartaConfig(layout=replace(SHARED, max_length=64)))
    rows = dense(model, [*answers_in(STORY, STORY_SPANS), "the moon"])
    ids = torch.tensor([model.tokenizer.encode("Page " + STORY).ids])
    with torch.no_grad():
        states = model.encoder(input_ids=ids, token_type_ids=torch.zeros_like(ids)).last_hidden_state[0]
    at = 2
    for row, (a, b) in zip(rows, STORY_SPANS, strict=False):
        n = len(STORY[a:b].split())
        own = torch.cat([states[1:2], states[at : at + n]])
        with torch.no_grad():
            products = (own @ model.term_matrix().T).amax(0) * model.scale + model.bias
        expected = torch.log1p(torch.relu(products)).numpy()
        np.testing.assert_allclose(row[terms_of(model)], expected[terms_of(model)], atol=1e-5)
        at += n
    np.testing.assert_allclose(rows[3], brute_force(model, "the moon", segments=False), atol=1e-5)
    assert np.abs(rows[0] - rows[1]).max() > 1e-3


@pytest.mark.parametrize("budget", [1, 20, 4096])
def test_a_context_gives_its_share_of_the_weights(make_tiny_model: Make, tmp_path: Path, budget: int) -> None:
    """As a passage of its own would have them, occurrences and all; what has no context keeps its weights."""
    layout = replace(SHARED, max_length=64)
    plain = make_tiny_model(SpartaConfig(layout=layout))
    torch.manual_seed(1)
    plain.add_lexical(Lexical(6.0), torch.rand(len(plain.term_matrix())))
    model = make_tiny_model(SpartaConfig(layout=layout, context_share=0.25))
    model.add_lexical(plain.config.lexical, plain.gains)
    model.save_pretrained(tmp_path)
    again = SpartaModel.load(tmp_path)
    assert again.config.context_share == 0.25
    other = STORY.replace("germany", "china")
    inputs = [
        *answers_in(STORY, STORY_SPANS),
        Passage("x", "the moon"),
        *answers_in(other, STORY_SPANS[1:]),
        *answers_in("the sun", [(0, 7)]),
    ]
    texts = [STORY] * 3 + ["the moon"] + [other] * 2 + ["the sun"]
    whole = [Passage("", text, one.title) for text, one in zip(texts, inputs, strict=True)]
    rows, _ = DocumentEncoder(again, dtype="fp32", token_budget=budget).encode(inputs)
    found = np.zeros((len(inputs), len(plain.term_matrix())), dtype=np.float32)
    found[np.repeat(np.arange(len(inputs)), np.diff(rows.indptr)), rows.term_ids] = rows.weights
    expected = 0.75 * dense(plain, inputs) + 0.25 * dense(plain, whole)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    moved = np.abs(found - dense(plain, inputs)).max(1) > 1e-3
    assert moved.tolist() == [True] * 3 + [False] + [True] * 2 + [False]


@pytest.mark.parametrize(("share", "layout"), [(1.0, SHARED), (-0.1, SHARED), (0.3, InputLayout())])
def test_a_context_share_that_cannot_be_is_refused(share: float, layout: InputLayout) -> None:
    with pytest.raises(ModelError, match="and 0 without share_context, found"):
        SpartaConfig(layout=layout, context_share=share)


def test_a_shared_context_is_encoded_once(make_tiny_model: Make) -> None:
    model = make_tiny_model(SpartaConfig(layout=replace(SHARED, max_length=64)))
    inputs = [*answers_in(STORY, STORY_SPANS), Passage("x", "the moon"), *answers_in("the sun", [(0, 7)])]
    expected = dense(model, inputs)
    seen: list[int] = []

    def count(_module: Any, _inputs: Any, named: dict[str, Any]) -> None:
        seen.append(len(named["input_ids"]))

    with model.encoder.register_forward_pre_hook(count, with_kwargs=True):
        np.testing.assert_allclose(dense(model, inputs), expected)
    assert sum(seen) == 3, "three texts, five answers"
    for i, one in enumerate(inputs):
        np.testing.assert_allclose(dense(model, [one])[0], expected[i], atol=1e-5)


@pytest.mark.parametrize("budget", [1, 20, 64])
def test_pooling_in_parts_changes_nothing(make_tiny_model: Make, budget: int) -> None:
    model = make_tiny_model(SpartaConfig(layout=SHARED))
    texts = [*answers_in(STORY, STORY_SPANS), *answers_in(STORY + " . the earth", STORY_SPANS, "King")]
    whole, _ = DocumentEncoder(model, dtype="fp32").encode(texts)
    parts, _ = DocumentEncoder(model, dtype="fp32", token_budget=budget).encode(texts)
    np.testing.assert_array_equal(parts.indptr, whole.indptr)
    np.testing.assert_array_equal(parts.term_ids, whole.term_ids)
    np.testing.assert_allclose(parts.weights, whole.weights, atol=1e-5)


def test_a_long_shared_context_is_cut_alike_for_all_answers(tiny_model: SpartaModel) -> None:
    """16 places, 2 for the frame and 1 for the title: 13 in windows that begin at every sixth word."""
    words = " ".join(["one", "two", "three", "four", "five", "king"][i % 6] for i in range(40))
    starts = [i for i in range(len(words)) if i == 0 or words[i - 1] == " "]
    spans = [(start, start + len(words[start:].split()[0])) for start in starts]
    windows = [SHARED.windows(p, tiny_model.tokenizer)[0] for p in answers_in(words, spans)]
    assert all(w.end - w.start == 1 and len(w.ids) <= 16 for w in windows)
    assert len({tuple(w.ids) for w in windows}) < 8
    for n, (window, (a, b)) in enumerate(zip(windows, spans, strict=True)):
        assert tiny_model.tokenizer.id_to_token(window.ids[window.start]) == words[a:b]
        beside = min(window.start - 2, len(window.ids) - 1 - window.end)
        assert beside >= min(3, n, 39 - n), "an answer stands well inside its window"


@pytest.mark.parametrize("before", range(12))
@pytest.mark.parametrize("answer", [1, 4, 9, 10])
@pytest.mark.parametrize("after", [0, 3, 30])
def test_fixed_windows_hold_the_answer(before: int, answer: int, after: int) -> None:
    left, right = fixed_window(before, answer, after, 10)
    assert 0 <= left <= before
    assert 0 <= right <= after
    assert left + answer + right <= 10
    assert left + answer + right == min(10, before + answer + after) or right == after


def test_a_title_that_is_too_long_leaves_room(tiny_model: SpartaModel) -> None:
    passage = answers_in("the moon was west", [(4, 8)], title="moon " * 40)[0]
    [window] = SHARED.windows(passage, tiny_model.tokenizer)
    assert len(window.ids) <= 16
    assert window.lead == 4
    assert tiny_model.tokenizer.id_to_token(window.ids[window.start]) == "moon"


def test_special_tokens_cannot_belong_to_one_of_many_answers() -> None:
    with pytest.raises(ModelError, match="pool_special and share_context exclude each other"):
        SpartaConfig(layout=SHARED, pool_special=True)
