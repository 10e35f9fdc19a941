"""The model does what eq. 2 to 6 say, whatever the batches, windows and bits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import sparta.models.document_encoder
from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.models.config import Lexical, SpartaConfig
from sparta.models.document_encoder import DocumentEncoder, fit_quantizer, greatest
from sparta.models.load import calibration_passages, load_model
from sparta.models.quantize import Quantizer
from sparta.models.resolve import default_model_folder, hash_folder, known_query_side
from sparta.models.sparta import SpartaModel
from sparta.neural.checkpoint import load_state, quantize_rows, save_state
from sparta.neural.encoding import length_sorted_batches, pick_dtype, with_halving
from sparta.neural.inputs import ANSWER, CONTEXT, InputLayout, equal_windows, fixed_window
from sparta.neural.pooling import pad_inputs, pooled_positions

pytestmark = pytest.mark.usefixtures("one_thread")

Make = Callable[..., SpartaModel]

TEXTS = [
    "Larry Page and Sergey Brin founded Google in a small house.",
    "moon",
    "北京 is a city, a large city in China",
    "the earth of all the years and the west of the east " * 4,
    "",
    "who wrote the paper about relativity and the energy of light?",
]


def brute_force(
    model: SpartaModel, text: str, *, segments: bool = True, special: bool = False, logs: int = 1
) -> np.ndarray:
    """Eq. 4 to 6 for one text alone: a loop over terms and over tokens, in plain Python numbers."""
    ids = model.tokenizer.encode(text).ids
    marks = [0] + [1 if segments else 0] * (len(ids) - 2) + [0]
    with torch.no_grad():
        states = model.encoder(
            input_ids=torch.tensor([ids]),
            token_type_ids=torch.tensor([marks]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        ).last_hidden_state[0]
    positions = range(len(ids)) if special else range(1, len(ids) - 1)
    tied = model.encoder.get_input_embeddings().weight
    table = (tied if model.config.tied else model.term_embeddings).detach()
    weights = np.zeros(len(table))
    for term in range(len(table)):
        piece = model.tokenizer.id_to_token(term)
        if piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") or piece.startswith("[unused"):
            continue
        if piece in set(".,;:!?'\"()"):
            continue
        products = [float(torch.dot(table[term], states[j])) for j in positions]
        if not products:
            continue
        feature = max(0.0, max(products) * model.scale.item() + model.bias.item())
        for _ in range(logs):
            feature = np.log(1 + feature)
        weights[term] = feature
    return weights


def terms_of(model: SpartaModel) -> list[int]:
    """The entries that may have weights: not the 15 that are special or unused, not punctuation."""
    marks = {model.tokenizer.token_to_id(mark) for mark in ".,;:!?'\"()"}
    return [i for i in range(15, model.tokenizer.get_vocab_size()) if i not in marks]


def dense(model: SpartaModel, texts: Sequence[str | Passage], **options: object) -> np.ndarray:
    return model.encode_document(texts, **{"dtype": "fp32", **options}).toarray()


# ---------------------------------------------------------------------- eq. 2 to 6


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_weights_equal_brute_force(make_tiny_model: Make, tied: bool, special: bool) -> None:
    model = make_tiny_model(SpartaConfig(tied=tied, pool_special=special))
    rows = dense(model, TEXTS)
    for row, text in zip(rows, TEXTS, strict=True):
        np.testing.assert_allclose(row, brute_force(model, text, special=special), atol=1e-5)
    assert (rows[0] > 0).sum() > 10
    assert not rows[:, :15].any(), "special and unused entries have no weights"


@pytest.mark.parametrize("shared", [False, True])
def test_occurrences_add_to_the_weights(make_tiny_model: Make, tmp_path: Path, shared: bool) -> None:
    """Those in the title and the answer, not those around it; in a sum of their own, whatever the batch."""
    layout = InputLayout(use_title=True, use_context=True, share_context=True) if shared else InputLayout()
    text = "the moon of the earth. larry page founded google google."
    passages = [
        Passage("0", text[:22], "moon", text, 0, 22),
        Passage("1", text[23:], "moon", text, 23, len(text)),
        Passage("2", "earth", "moon"),
        Passage("3", ""),
    ]
    plain, model = (make_tiny_model(SpartaConfig(layout=layout)) for _ in range(2))
    torch.manual_seed(1)
    gains = torch.rand(len(plain.term_matrix())) - 0.2
    lexical = Lexical(6.0)
    model.add_lexical(lexical, gains)
    model.save_pretrained(tmp_path)
    again = SpartaModel.load(tmp_path)
    assert again.config.lexical == lexical
    added = dense(again, passages) - dense(plain, passages)
    expected = np.zeros_like(added)
    title = "" if not layout.use_title else "moon "
    for row, passage in enumerate(passages):
        own = model.tokenizer.encode(
            f"{title if passage.title else ''}{passage.text}", add_special_tokens=False
        ).ids
        for term in set(own):
            n = own.count(term)
            saturated = n / (n + 0.9 * (0.6 + 0.4 * len(own) / 6))
            expected[row, term] = max(0.0, float(gains[term])) * saturated
    expected[:, :15] = 0
    expected[:, model.tokenizer.token_to_id(".")] = 0
    np.testing.assert_allclose(added, expected, atol=1e-5)
    assert (expected > 0).sum() > 5
    np.testing.assert_allclose(dense(again, passages[:1])[0], dense(again, passages)[0], atol=1e-6)


def test_log_count_and_no_answer_segment(make_tiny_model: Make) -> None:
    config = SpartaConfig(layout=InputLayout(answer_segment=CONTEXT), log_count=2)
    model = make_tiny_model(config)
    for row, text in zip(dense(model, TEXTS), TEXTS, strict=True):
        np.testing.assert_allclose(row, brute_force(model, text, segments=False, logs=2), atol=1e-5)


def test_vocabulary_chunks_change_nothing(tiny_model: SpartaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dense(tiny_model, TEXTS)
    monkeypatch.setattr(sparta.models.document_encoder, "TERM_CHUNK", 37)
    np.testing.assert_allclose(dense(tiny_model, TEXTS), whole, atol=1e-6)


def test_a_text_without_words_has_no_terms(make_tiny_model: Make) -> None:
    assert dense(make_tiny_model(), ["", " \t ", "moon"]).any(axis=1).tolist() == [False, False, True]


def test_questions_count_every_occurrence(tiny_model: SpartaModel) -> None:
    question = "the moon, the earth and the Moon"
    bag = tiny_model.query_tokenizer().terms(question)
    assert bag == {"the": 3, "moon": 2, "earth": 1, "and": 1}
    row = tiny_model.encode_query(question).toarray()[0]
    assert {tiny_model.tokenizer.id_to_token(int(i)): row[i] for i in row.nonzero()[0]} == bag


def test_the_score_is_the_sum_over_question_tokens(tiny_model: SpartaModel) -> None:
    question = "moon moon earth"
    ids = tiny_model.tokenizer.encode(question, add_special_tokens=False).ids
    expected = [sum(brute_force(tiny_model, text)[i] for i in ids) for text in TEXTS]
    queries = tiny_model.encode_query([question, ""])
    documents = tiny_model.encode_document(TEXTS, dtype="fp32")
    scores = tiny_model.similarity(queries, documents)
    assert scores.shape == (2, len(TEXTS))
    np.testing.assert_allclose(scores[0], expected, atol=1e-4)
    assert not scores[1].any()


def test_unknown_tokens_of_a_question_do_not_count(tiny_model: SpartaModel) -> None:
    assert tiny_model.encode_query("☃").nnz == 0


def test_names_of_special_tokens_are_words_in_texts(tiny_model: SpartaModel) -> None:
    """A text that says "[SEP]" ends no segment, and a question of "[CLS]" asks for its letters."""
    special = {tiny_model.tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[MASK]")}
    assert not special & set(tiny_model.tokenizer.encode("[SEP] [MASK]", add_special_tokens=False).ids)
    assert tiny_model.encode_query("[CLS]").nnz > 0


# ---------------------------------------------------------------------- batches


def test_scores_do_not_depend_on_the_batch_in_fp32(tiny_model: SpartaModel) -> None:
    alone = np.concatenate([dense(tiny_model, [text]) for text in TEXTS])
    for options in ({"batch_size": 2}, {"batch_size": 256}):
        np.testing.assert_allclose(dense(tiny_model, TEXTS, **options), alone, atol=1e-5)
    np.testing.assert_allclose(dense(tiny_model, TEXTS[::-1])[::-1], alone, atol=1e-5)


def check_bf16(model: SpartaModel, texts: Sequence[str | Passage]) -> None:
    """Two steps of 8 bits at most between a text alone and the same text in batches of all kinds."""
    assert model.config.quantizer is not None
    step = model.config.quantizer.step
    alone = np.concatenate([dense(model, [text], dtype="bf16") for text in texts])
    for batch_size in (3, 256):
        together = dense(model, texts, dtype="bf16", batch_size=batch_size)
        assert np.abs(alone - together).max() <= 2 * step
    for text, row in zip(texts, alone, strict=True):
        assert np.abs(dense(model, [text, "the moon " * 20], dtype="bf16")[0] - row).max() <= 2 * step


def test_scores_do_not_depend_on_the_batch_in_bf16(tiny_model: SpartaModel) -> None:
    check_bf16(tiny_model, TEXTS)


@pytest.mark.skipif(not default_model_folder().is_dir(), reason="the default model is not here")
def test_scores_of_the_default_model_do_not_depend_on_the_batch() -> None:
    model = load_model()
    assert isinstance(model, SpartaModel)
    texts = calibration_passages()[::4]
    check_bf16(model, texts)
    alone = np.concatenate([dense(model, [text]) for text in texts])
    np.testing.assert_allclose(dense(model, texts), alone, atol=1e-5)


def test_padding_in_16_bits_stays_within_the_longest_input(make_tiny_model: Make) -> None:
    model = make_tiny_model(SpartaConfig(layout=InputLayout(max_length=20, overlap=2)))
    encoder = DocumentEncoder(model, dtype="bf16")
    assert [encoder._padded(n) for n in (1, 16, 17, 20)] == [16, 16, 20, 20]
    assert [DocumentEncoder(model, dtype="fp32")._padded(n) for n in (1, 17)] == [1, 17]


def test_the_greatest_by_the_bits() -> None:
    """Of any numbers that 16 bits can say, as the floats are; infinities and zeros are met."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.bfloat16)
    numbers = every[~every.isnan()]
    generator = torch.Generator().manual_seed(1)
    for pool in (numbers, numbers[numbers <= 0]):
        logits = pool[torch.randint(len(pool), (7, 3, 5000), generator=generator)]
        found = greatest(logits, by_bits=True)
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, logits.amax(dim=1))
    inf = float("inf")
    columns = [
        [inf, -inf, 1.0],
        [-inf, -inf, -inf],
        [-0.0, 0.0, -1.0],
        [-0.0, -0.0, -2.0],
        [-inf, -3.0, -4.0],
    ]
    logits = torch.tensor(columns).bfloat16().T[None]
    assert greatest(logits, by_bits=True).tolist() == [[inf, -inf, 0.0, 0.0, -3.0]]


@pytest.mark.parametrize(("dtype", "by_bits"), [("bf16", True), ("fp32", False)])
def test_which_numbers_are_compared_by_their_bits(
    tiny_model: SpartaModel, dtype: str, by_bits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def watched(logits: torch.Tensor, *, by_bits: bool) -> torch.Tensor:
        asked.append(by_bits)
        return greatest(logits, by_bits=by_bits)

    monkeypatch.setattr("sparta.models.document_encoder.greatest", watched)
    DocumentEncoder(tiny_model, dtype=dtype).encode(passages(TEXTS[:1]))
    assert set(asked) == {by_bits}


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_what_is_no_number_is_not_lost(
    tiny_model: SpartaModel, dtype: str, sign: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = tiny_model.hidden_states

    def broken(ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        hidden = original(ids, mask, segments).clone()
        hidden[0, 1] = torch.copysign(torch.tensor(float("nan")), torch.tensor(sign))
        return hidden

    monkeypatch.setattr(tiny_model, "hidden_states", broken)
    with pytest.raises(ModelError, match="expected finite weights"):
        DocumentEncoder(tiny_model, dtype=dtype).encode(passages(TEXTS[:1]))


def test_batches_stay_under_the_token_budget() -> None:
    lengths = [3, 50, 7, 7, 120, 9, 1, 40, 3, 3]
    batches = list(length_sorted_batches(lengths, 60, 4))
    assert sorted(i for batch in batches for i in batch) == list(range(10))
    for batch in batches:
        assert len(batch) <= 4
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 60
    flat = [lengths[i] for batch in batches for i in batch]
    assert flat == sorted(lengths, reverse=True)
    assert batches[0] == [4], "one text always fits"
    assert list(length_sorted_batches([], 60, 4)) == []


def test_the_encoder_sees_batches_under_its_budget(
    tiny_model: SpartaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []
    original = tiny_model.hidden_states

    def watch(ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(ids.shape))
        return original(ids, mask, segments)

    monkeypatch.setattr(tiny_model, "hidden_states", watch)
    texts = [f"{text} {number}" for number in ("one", "two", "three") for text in TEXTS]
    DocumentEncoder(tiny_model, dtype="fp32", token_budget=50).encode(passages(texts))
    assert sum(n for n, _ in seen) == len(texts)
    assert all(n == 1 or n * length <= 50 for n, length in seen)


def passages(texts: Sequence[str]) -> list[Passage]:
    return [Passage(str(i), text) for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    "error", [torch.cuda.OutOfMemoryError("no"), RuntimeError("CUDA out of memory"), MemoryError()]
)
def test_halving_gives_the_same(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    sizes: list[int] = []

    def double(items: Sequence[int]) -> list[int]:
        sizes.append(len(items))
        if len(items) > 3:
            raise error
        return [2 * i for i in items]

    assert with_halving(double, list(range(13))) == [2 * i for i in range(13)]
    assert max(size for size in sizes if size <= 3) == 3
    assert "out of memory with 13 texts in a batch: trying 6" in caplog.text


def test_what_does_not_fit_alone_raises() -> None:
    def never(items: Sequence[int]) -> list[int]:
        raise torch.cuda.OutOfMemoryError("no")

    with pytest.raises(torch.cuda.OutOfMemoryError):
        with_halving(never, [1, 2, 3])


def test_other_errors_are_not_retried() -> None:
    calls = []

    def broken(items: Sequence[int]) -> list[int]:
        calls.append(items)
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        with_halving(broken, [1, 2, 3])
    assert len(calls) == 1


def test_encoding_survives_a_lack_of_memory(tiny_model: SpartaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = dense(tiny_model, TEXTS)
    original = tiny_model.hidden_states

    def small_only(ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        if len(ids) > 2:
            raise torch.cuda.OutOfMemoryError("no memory for this batch")
        return original(ids, mask, segments)

    monkeypatch.setattr(tiny_model, "hidden_states", small_only)
    np.testing.assert_allclose(dense(tiny_model, TEXTS), expected, atol=1e-5)


def test_pick_dtype() -> None:
    cpu = torch.device("cpu")
    assert pick_dtype("fp32", cpu) == torch.float32
    assert pick_dtype("bf16", cpu) == torch.bfloat16
    assert pick_dtype("auto", cpu) in (torch.float32, torch.bfloat16)
    assert pick_dtype("auto", torch.device("mps")) == torch.float32


# ---------------------------------------------------------------------- inputs


def pieces(model: SpartaModel, layout: InputLayout, passage: Passage) -> list[tuple[list[str], list[int]]]:
    return [
        ([model.tokenizer.id_to_token(i) or "" for i in window.ids], window.segments)
        for window in layout.windows(passage, model.tokenizer)
    ]


CONTEXT_TEXT = "one two three four five who was king six seven eight"
IN_CONTEXT = Passage("1", "who was king", context=CONTEXT_TEXT, start=24, end=36)


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
    rows, counts = DocumentEncoder(model, dtype="fp32", max_batch=3).encode(
        passages(["the moon", long, "", "the earth"]), told.append
    )
    assert (counts.passages, counts.windowed, counts.empty) == (4, 1, 1)
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


# ---------------------------------------------------------------------- one context, many answers

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


def test_a_shared_context_is_encoded_once(make_tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_tiny_model(SpartaConfig(layout=replace(SHARED, max_length=64)))
    inputs = [*answers_in(STORY, STORY_SPANS), Passage("x", "the moon"), *answers_in("the sun", [(0, 7)])]
    expected = dense(model, inputs)
    seen: list[int] = []
    original = model.hidden_states
    monkeypatch.setattr(model, "hidden_states", lambda *a: (seen.append(len(a[0])), original(*a))[1])
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
    with pytest.raises(ModelError, match="expected pool_special or share_context, found both"):
        SpartaConfig(layout=SHARED, pool_special=True)


# ---------------------------------------------------------------------- the API


def test_encode_document_shapes(tiny_model: SpartaModel) -> None:
    vocabulary = tiny_model.tokenizer.get_vocab_size()
    assert tiny_model.encode_document("moon").shape == (1, vocabulary)
    assert tiny_model.encode_document(Passage("x", "moon")).shape == (1, vocabulary)
    assert tiny_model.encode_document([]).shape == (0, vocabulary)
    matrix = tiny_model.encode_document(["moon", Passage("x", "earth")], show_progress_bar=True, device="cpu")
    assert matrix.shape == (2, vocabulary)
    assert matrix.dtype == np.float32
    assert tiny_model.encode_query("moon").shape == (1, vocabulary)
    assert tiny_model.encode_query([]).shape == (0, vocabulary)


@pytest.mark.parametrize("top_k", [1, 5, 20])
def test_max_active_dims_keeps_the_strongest(tiny_model: SpartaModel, top_k: int) -> None:
    for whole, cut in zip(
        dense(tiny_model, TEXTS), dense(tiny_model, TEXTS, max_active_dims=top_k), strict=True
    ):
        order = [i for i in np.lexsort((np.arange(len(whole)), -whole))[:top_k] if whole[i] > 0]
        expected = np.zeros_like(whole)
        expected[order] = whole[order]
        np.testing.assert_array_equal(cut, expected)


def test_max_active_dims_above_the_vocabulary_is_the_identity(tiny_model: SpartaModel) -> None:
    np.testing.assert_array_equal(dense(tiny_model, TEXTS, max_active_dims=10**6), dense(tiny_model, TEXTS))


def test_decode(tiny_model: SpartaModel) -> None:
    matrix = tiny_model.encode_document(["the moon", "", "larry page"], dtype="fp32")
    decoded = tiny_model.decode(matrix, top_k=3)
    assert [len(terms) for terms in decoded] == [3, 0, 3]
    assert {"the", "moon"} <= {term for term, _ in decoded[0]}
    for terms, row in zip(tiny_model.decode(matrix), matrix.toarray(), strict=True):
        weights = [weight for _, weight in terms]
        assert weights == sorted(weights, reverse=True)
        np.testing.assert_allclose(sorted(weights), sorted(row[row > 0]))


def test_query_side_without_a_quantizer_is_refused(make_tiny_model: Make) -> None:
    with pytest.raises(ModelError, match="no quantizer"):
        make_tiny_model().query_side()


def test_gradients_are_not_kept(tiny_model: SpartaModel) -> None:
    tiny_model.encode_document(TEXTS)
    assert all(parameter.grad is None for parameter in tiny_model.parameters())


# ---------------------------------------------------------------------- folders


def same_state(left: SpartaModel, right: SpartaModel) -> bool:
    a, b = left.state_dict(), right.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("tied", [False, True])
def test_a_saved_model_is_the_same(make_tiny_model: Make, tmp_path: Path, tied: bool) -> None:
    config = SpartaConfig(
        layout=InputLayout(use_title=True, max_length=100, overlap=7),
        tied=tied,
        pool_special=True,
        quantizer=Quantizer(2.5, 6),
    )
    model = make_tiny_model(config, seed=4)
    model.save_pretrained(tmp_path / "a")
    loaded = SpartaModel.load(tmp_path / "a")
    assert loaded.config == config
    assert same_state(model, loaded)
    assert not loaded.training
    np.testing.assert_array_equal(dense(loaded, TEXTS), dense(model, TEXTS))
    loaded.save_pretrained(tmp_path / "b")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_int8_is_close_and_deterministic(make_tiny_model: Make, tmp_path: Path) -> None:
    model = make_tiny_model()
    for name in ("a", "b"):
        model.save_pretrained(tmp_path / name, int8=True)
    model.save_pretrained(tmp_path / "full")
    weights = [(tmp_path / name / "model.safetensors") for name in ("a", "b", "full")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert weights[0].stat().st_size < 0.6 * weights[2].stat().st_size
    modes = {path.stat().st_mode for path in (tmp_path / "a").iterdir()}
    assert len(modes) == 1, "who may read the configuration may read the weights"
    loaded = SpartaModel.load(tmp_path / "a")
    assert same_state(loaded, SpartaModel.load(tmp_path / "b"))
    assert np.abs(dense(loaded, TEXTS) - dense(model, TEXTS)).max() < 0.05
    loaded.save_pretrained(tmp_path / "c", int8=True)
    assert same_state(loaded, SpartaModel.load(tmp_path / "c")), "saving what was loaded loses nothing more"


def test_quantize_rows(tmp_path: Path) -> None:
    values = torch.randn(70, 64, generator=torch.Generator().manual_seed(0))
    values[3] = 0
    integers, scale = quantize_rows(values)
    assert integers.dtype == torch.int8
    assert integers.abs().amax(dim=1).tolist() == [0 if row == 3 else 127 for row in range(70)]
    assert ((integers * scale[:, None] - values).abs() <= scale[:, None] / 2 + 1e-7).all()
    state = {
        "large": values,
        "vector": values[0],
        "small": values[:2],
        "ids": torch.arange(5000).view(100, 50),
    }
    save_state(tmp_path / "s.safetensors", state, int8=True)
    loaded = load_state(tmp_path / "s.safetensors")
    assert loaded.keys() == state.keys()
    assert torch.equal(loaded["large"], integers.float() * scale[:, None])
    for name in ("vector", "small", "ids"):
        assert torch.equal(loaded[name], state[name])


def test_a_model_on_an_encoder(make_tiny_model: Make, tmp_path: Path) -> None:
    source = make_tiny_model()
    source.encoder.half().save_pretrained(tmp_path / "encoder")
    source.tokenizer.save(str(tmp_path / "encoder" / "tokenizer.json"))
    model = SpartaModel.from_encoder(tmp_path / "encoder")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.term_embeddings is not None
    assert torch.equal(model.term_embeddings, model.encoder.get_input_embeddings().weight)
    model.term_embeddings.data += 1
    assert not torch.equal(model.term_embeddings, model.encoder.get_input_embeddings().weight)
    model.save_pretrained(tmp_path / "saved")
    assert str(tmp_path) not in (tmp_path / "saved" / "config.json").read_text()
    assert same_state(SpartaModel.load(tmp_path / "saved"), model), (
        "float32, whatever the encoder was saved in"
    )


def test_encoders_with_computed_buffers_load(tiny_model: SpartaModel, tmp_path: Path) -> None:
    """ModernBERT has rotary tables, which are not in its weights."""
    from transformers import ModernBertConfig, ModernBertModel

    config = ModernBertConfig(
        vocab_size=tiny_model.tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        pad_token_id=0,
        cls_token_id=12,
        sep_token_id=13,
        bos_token_id=12,
        eos_token_id=13,
    )
    torch.manual_seed(0)
    model = SpartaModel(ModernBertModel(config), tiny_model.tokenizer, SpartaConfig(quantizer=Quantizer(1.0)))
    model.scale.data.fill_(5)
    model.save_pretrained(tmp_path)
    loaded = SpartaModel.load(tmp_path)
    np.testing.assert_array_equal(dense(loaded, TEXTS[:3]), dense(model.eval(), TEXTS[:3]))


def test_a_tokenizer_with_more_words_than_terms_is_refused(make_tiny_model: Make) -> None:
    model = make_tiny_model()
    model.tokenizer.add_tokens(["newword"])
    with pytest.raises(
        ModelError, match="expected at most 364 wordpieces, as many as term embeddings, found 365"
    ):
        SpartaModel(model.encoder, model.tokenizer, model.config)


def broken_copy(source: Path, target: Path, change: Callable[[dict[str, object]], object]) -> Path:
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text())
    change(config)
    (target / "config.json").write_text(json.dumps(config))
    return target


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["sparta"].update(format_version=2), "expected a model of format 1 or older, found 2"),
        (lambda c: c["sparta"].pop("format_version"), "found None"),
        (lambda c: c["sparta"].update(layout={"max_size": 3}), "not as expected"),
        (lambda c: c["sparta"].update(unheard_of=3), "not as expected"),
        (lambda c: c["sparta"]["quantizer"].update(bits=99), "not as expected: bits must be 1 to 16"),
        (lambda c: c.update(sparta=[1]), "expected sparta to be an object, found list"),
        (lambda c: c.update(model_type="no-such-model"), "expected the configuration of an encoder"),
        (lambda c: c.pop("model_type"), "expected the configuration of an encoder"),
        (lambda c: c.update(hidden_size=64), "the weights do not fit"),
        (lambda c: c.update(num_hidden_layers=3), "the weights do not fit"),
        (lambda c: c["sparta"].update(tied=True), "the weights do not fit"),
    ],
)
def test_broken_configurations_are_refused(
    tiny_model_folder: Path, tmp_path: Path, change: Callable[[dict[str, object]], object], message: str
) -> None:
    folder = broken_copy(tiny_model_folder, tmp_path / "broken", change)
    with pytest.raises(ModelError, match=message):
        load_model(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"{", "expected a JSON object, could not read it"),
        ("config.json", b"[]", "expected a JSON object, found list"),
        ("config.json", None, "expected a JSON object, could not read it"),
        ("model.safetensors", b"\x00" * 20, "expected model weights in safetensors form"),
        ("model.safetensors", None, "expected model weights in safetensors form"),
        ("tokenizer.json", b"{}", "expected a tokenizer"),
        ("tokenizer.json", None, "expected a tokenizer"),
    ],
)
def test_broken_files_are_refused(
    tiny_model_folder: Path, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    folder = Path(shutil.copytree(tiny_model_folder, tmp_path / "broken"))
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=message):
        load_model(folder)


def test_a_truncated_weights_file_is_refused(tiny_model_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_model_folder, tmp_path / "broken"))
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="could not read them"):
        load_model(folder)


# ---------------------------------------------------------------------- opening


def test_load_model_names_and_hashes(tiny_model_folder: Path) -> None:
    model = load_model(tiny_model_folder)
    assert model.name == str(tiny_model_folder)
    assert model.identity == hash_folder(tiny_model_folder)
    assert model.query_side().model_hash == model.identity
    assert model.config.quantizer is not None
    other = load_model(tiny_model_folder, bits=4)
    assert other.config.quantizer == Quantizer(model.config.quantizer.max_weight, 4)


@pytest.mark.parametrize("bits", [None, 4])
def test_what_a_model_is_can_be_known_without_loading_it(tiny_model_folder: Path, bits: int | None) -> None:
    known = known_query_side(tiny_model_folder, bits)
    assert known is not None
    assert known.identity() == load_model(tiny_model_folder, bits=bits).query_side().identity()


def test_what_is_no_model_is_not_known(tmp_path: Path, tiny_model_folder: Path) -> None:
    assert known_query_side("an/id", None) is None
    assert known_query_side(tmp_path, None) is None
    for change in (lambda c: c["sparta"].update(quantizer=None), lambda c: c.pop("sparta")):
        folder = broken_copy(tiny_model_folder, tmp_path / str(id(change)), change)
        assert known_query_side(folder, None) is None


def test_a_changed_folder_has_another_hash(tiny_model_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_model_folder, tmp_path / "copy"))
    assert hash_folder(folder) == hash_folder(tiny_model_folder)
    (folder / "README.md").write_text("a card changes nothing")
    assert hash_folder(folder) == hash_folder(tiny_model_folder)
    (folder / "vocab.txt").write_text("x")
    assert hash_folder(folder) != hash_folder(tiny_model_folder)


def test_a_model_without_a_quantizer_is_calibrated(tiny_model_folder: Path, tmp_path: Path) -> None:
    folder = broken_copy(tiny_model_folder, tmp_path / "m", lambda c: c["sparta"].update(quantizer=None))
    model = load_model(folder)
    rows = dense(model, calibration_passages())
    assert model.config.quantizer is not None
    assert rows.max() < model.config.quantizer.max_weight < 1.2 * rows.max()


def test_calibration_texts() -> None:
    texts = [passage.text for passage in calibration_passages()]
    assert len(texts) == len(set(texts)) == 64


def test_a_model_that_writes_nothing_is_not_calibrated(make_tiny_model: Make) -> None:
    model = make_tiny_model()
    model.bias.data.fill_(-1000)
    with pytest.raises(ModelError, match="the model writes no terms"):
        fit_quantizer(model, passages(TEXTS))


@pytest.mark.parametrize("name", ["/no/such/model", "./no-such-model", "no-such-model", "a/b/c"])
def test_a_folder_that_is_not_there(name: str) -> None:
    with pytest.raises(ModelError, match="expected a model folder, found none"):
        load_model(name)


def test_a_hub_id_without_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # it was read at import
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="could not get it") as caught:
        load_model("nobody/no-such-model")
    assert "check the name and the network" in str(caught.value)
    assert "\n" not in caught.value.message


def test_the_output_of_a_training_is_named_by_its_folder(tmp_path, tiny_model_folder):
    """`--model OUTPUT` opens `OUTPUT/best`, with and without torch."""
    import shutil

    from sparta.models.load import load_model
    from sparta.models.resolve import known_query_side

    shutil.copytree(tiny_model_folder, tmp_path / "out" / "best")
    opened = load_model(tmp_path / "out").query_side()
    assert opened.model_hash == load_model(tiny_model_folder).query_side().model_hash
    known = known_query_side(tmp_path / "out", None)
    assert known is not None
    assert known.model_hash == opened.model_hash
