"""What a reader of paths reads and tells, by hand on a tiny model; its folder; bad input."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sparta.base.errors import InputError, ModelError
from sparta.base.records import Hit
from sparta.reader.config import ReaderConfig, ReaderLayout, path_reader_folder
from sparta.reader.decode import PathScores
from sparta.reader.path_inputs import PathLayout, length_limits
from sparta.reader.path_model import PathModel
from sparta.reader.path_reader import PathReader, PathReading
from sparta.reader.records import Text, focused_text
from sparta.reader.span_reader import SpanReader
from sparta.reader.stored_reader import StoredPathReader
from sparta.runtime.calibration import fixed_lines

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = PathLayout(max_length=64, longest_question=12, longest_answer=3)
RED = Text("the red house and the old school", "street")
SEA = Text("the sea in winter", "")


@pytest.fixture
def reader(encoder_folder: Path) -> PathModel:
    torch.manual_seed(4)
    return PathModel.from_encoder(encoder_folder, SMALL).eval()


def words(reader: PathModel, ids: list[int]) -> list[str]:
    return [str(reader.tokenizer.id_to_token(i)) for i in ids]


def test_an_input_is_that_of_the_paper(reader: PathModel) -> None:
    made = reader.make_input("which house", [RED, SEA], [[(0, 13), (14, 32)], []])
    title, text = "[unused0] street [SEP]", "the red house and the old school"
    expected = f"[CLS] which house [SEP] yes no {title} {text} [unused0] the sea"
    assert " ".join(words(reader, made.ids)).startswith(expected)
    assert words(reader, [made.ids[-1], *(made.ids[i] for i in made.choices)]) == ["[SEP]", "yes", "no"]
    assert [made.ids[part.mark] for part in made.parts] == [reader.tokenizer.token_to_id("[unused0]")] * 2
    assert [made.ids[part.text_start] for part in made.parts] == [reader.tokenizer.token_to_id("the")] * 2
    assert made.segments == [0] * 4 + [1] * (len(made.ids) - 4)
    start = made.parts[0].text_start
    assert made.sentences == [(0, 0, start, start + 3), (0, 1, start + 3, start + 7)]
    assert made.parts[0].offsets[:2] == [(0, 3), (4, 7)]


def test_what_is_too_long_is_cut_alike(reader: PathModel) -> None:
    long = Text("red " * 100, "old " * 100)
    made = reader.make_input("which " * 100, [long, SEA, long])
    assert len(made.ids) == SMALL.max_length
    assert words(reader, made.ids)[1:14] == ["which"] * 12 + ["[SEP]"]
    first, whole, last = (len(part.offsets) for part in made.parts)
    assert whole == len(reader.tokenizer.encode(SEA.text, add_special_tokens=False).ids)
    assert 0 <= last - first <= 1
    assert length_limits([5, 100, 7, 100], 50) == [5, 19, 7, 19]
    assert length_limits([1, 2], 50) == [1, 2]
    with pytest.raises(InputError, match="1 to 7 passages here, found 8"):
        reader.make_input("", [SEA] * 8)
    with pytest.raises(InputError, match="found 0"):
        reader.make_input("which", [])


def test_together_is_as_alone(reader: PathModel) -> None:
    inputs = [reader.make_input("which house", own) for own in ([RED, SEA], [SEA], [RED])]
    together = reader(inputs)
    for row, one in enumerate(inputs):
        alone = reader([one])
        n, length = 1 + len(one.parts), len(one.ids)
        torch.testing.assert_close(together.passages[row, :n], alone.passages[0], atol=1e-5, rtol=1e-5)
        assert together.passages[row, n:].isinf().all()
        torch.testing.assert_close(together.spans[:, row, :length], alone.spans[:, 0], atol=1e-5, rtol=1e-5)
        assert together.spans[:, row, length:].isinf().all()
    answerable = reader(inputs).spans[0, 0].isfinite().nonzero().flatten().tolist()
    parts = inputs[0].parts
    places = [i for part in parts for i in range(part.text_start, part.text_start + len(part.offsets))]
    assert answerable == [*inputs[0].choices, *places]


def scored(reader: PathModel, high: dict[int, tuple[float, float]]) -> None:
    """Let starts and ends at some places score so much, others -3; sentences and passages by their number."""

    def replaced(_model: PathModel, inputs: tuple, _scores: PathScores) -> PathScores:
        [one] = inputs[0]
        spans = torch.full((2, 1, len(one.ids)), -3.0)
        for at, (start, end) in high.items():
            spans[0, 0, at], spans[1, 0, at] = start, end
        counts = [len(one.parts), len(one.sentences)]
        passages, sentences = (torch.tensor([[1.5, *(float(i) for i in range(n))]]) for n in counts)
        return PathScores(spans, passages, sentences)

    reader.register_forward_hook(replaced)


def test_the_best_span_of_one_passage_is_the_answer(reader: PathModel) -> None:
    made = reader.make_input("which house", [RED, SEA])
    first, second = (part.text_start for part in made.parts)
    # the best start is in the first passage, the best end in the second: a span has both in one
    scored(reader, {first + 1: (5, -1), first + 2: (0, 2), second + 1: (0, 6)})
    [read] = PathReader(reader).read("which house", [[RED, SEA]])
    assert read.answer[:1] + read.answer[2:] == ("red house", 0, 4, 13)
    starts = math.exp(5) + 2 * math.exp(0) + (len(made.ids) - 3) * math.exp(-3)
    ends = math.exp(-1) + math.exp(2) + math.exp(6) + (len(made.ids) - 3) * math.exp(-3)
    assert read.answer.score == pytest.approx(math.exp(5 + 2) / starts / ends, rel=1e-4)
    assert read.scores == [-1.5, -0.5]
    assert read.sentences is None
    scored(reader, {made.choices[1]: (4, 4)})
    [read] = PathReader(reader).read("which house", [[RED, SEA]])
    assert (read.answer.text, read.answer.passage) == ("no", -1)


def test_openvino_scores_sentences_as_torch_does(encoder_folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(4)
    reader = PathModel.from_encoder(encoder_folder, PathLayout(max_length=64, longest_question=12)).eval()
    reader.save_pretrained(tmp_path)
    stored = StoredPathReader(tmp_path, "fp32")
    paths = [([RED, SEA], [[(0, 13), (14, 32)], [(0, 17)]]), ([SEA], [[(0, 7)]])]
    batch = [reader.make_input("which house", *path) for path in paths]
    assert batch == [stored.make_input("which house", *path) for path in paths]
    [ours], [theirs] = list(stored.each([batch])), list(reader.each([batch]))
    length = theirs.spans.shape[2]
    np.testing.assert_allclose(ours.spans[..., :length], theirs.spans, atol=1e-5)
    assert np.isneginf(ours.spans[..., length:]).all()
    np.testing.assert_allclose(ours.passages, theirs.passages, atol=1e-5)
    np.testing.assert_allclose(ours.sentences, theirs.sentences, atol=1e-5)
    with pytest.raises(InputError, match="bf16 or fp32"):
        StoredPathReader(tmp_path, "int8")


def test_supporting_sentences_are_those_above_the_threshold(encoder_folder: Path) -> None:
    layout = PathLayout(max_length=64, longest_question=12, sentences=True)
    reader = PathModel.from_encoder(encoder_folder, layout)
    scored(reader, {})
    text = Text("The house is red. It is old. The sea is new.")
    [read] = PathReader(reader).read("which", [[text, SEA]])
    assert read.sentences is not None
    assert [text.text[a:b] for a, b in read.sentences[0]] == ["The sea is new."]  # scores 0, 1, 2; 3 of SEA
    assert read.sentences[1] == [(0, len(SEA.text))]


def read_all(reader: PathReader) -> list[PathReading]:
    """Read one path, and paths of other lengths beside it."""
    return reader.read("which house", [[RED, SEA], [SEA], [RED, RED, SEA]])


def test_a_folder_is_read_back(reader: PathModel, tmp_path: Path) -> None:
    reader.save_pretrained(tmp_path / "best")
    again = PathReader.open(tmp_path, device="cpu", dtype="fp32")
    assert isinstance(again.model, StoredPathReader)
    for ours, theirs in zip(read_all(again), read_all(PathReader(reader)), strict=True):
        assert ours.answer._replace(score=0) == theirs.answer._replace(score=0)
        assert ours.answer.score == pytest.approx(theirs.answer.score, rel=1e-4)
        assert ours.scores == pytest.approx(theirs.scores, abs=1e-4)
    with pytest.raises(ModelError, match="no such folder of a path reader"):
        PathReader.open(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="the folder is not a path reader"):
        PathReader.open(tmp_path / "empty")
    for damage, said in (
        ({"path_reader": {"max_length": 64, "longest_question": "12"}}, "whole numbers"),
        ({"path_reader": {"unknown": 1}}, "unknown"),
        ({"hidden_size": 48}, "weights"),
        ({"path_reader": {"max_length": 9999}}, "at most .* wordpieces"),
    ):
        broken = tmp_path / "broken"
        shutil.copytree(tmp_path / "best", broken, dirs_exist_ok=True)
        config = json.loads((broken / "config.json").read_text())
        (broken / "config.json").write_text(json.dumps({**config, **damage}))
        with pytest.raises(ModelError, match=said):
            PathReader.open(broken)


def test_what_it_cannot_begin_with(encoder_folder: Path, tmp_path: Path) -> None:
    SpanReader.from_encoder(encoder_folder, ReaderConfig(ReaderLayout(), 2)).save_pretrained(
        tmp_path / "fused"
    )
    with pytest.raises(ModelError, match="a reader with global tokens"):
        PathModel.from_encoder(tmp_path / "fused", SMALL)
    with pytest.raises(InputError, match=r"expected at most 512 wordpieces, .* found 4096"):
        PathModel.from_encoder(encoder_folder, PathLayout(max_length=4096))
    for old, new, said in (
        ("[unused", "[other", "one of which must mark passages"),
        ('"yes"', '"yess"', "contain the words yes and no"),
    ):
        other = tmp_path / new.strip('["')
        shutil.copytree(encoder_folder, other)
        changed = (other / "tokenizer.json").read_text().replace(old, new)
        (other / "tokenizer.json").write_text(changed)
        with pytest.raises(ModelError, match=said):
            PathModel.from_encoder(other, SMALL)
    for wrong in ({"max_length": 0}, {"longest_answer": 2.5}, {"max_length": 40}, {"sentences": 1}):
        with pytest.raises(InputError, match="whole numbers"):
            PathLayout(**wrong)


def test_a_reader_lends_its_span_layer(encoder_folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(4)
    own = SpanReader.from_encoder(encoder_folder, ReaderConfig())
    own.save_pretrained(tmp_path / "own")
    made = PathModel.from_encoder(tmp_path / "own", SMALL)
    assert torch.equal(made.spans.weight, own.spans.weight)


def test_empty_texts_and_cut_sentences(reader: PathModel, encoder_folder: Path) -> None:
    [read] = PathReader(reader).read("which house", [[Text("", "street"), Text("", "")]])
    assert read.answer.passage == -1, "where no text is, yes or no is all that can be said"
    assert len(read.scores) == 2
    assert read.sentences is None
    long = Text("red " * 80 + ". " + "The sea is old.")
    made = reader.make_input("which", [long], [[(0, 321), (322, 337)]])
    assert [number for _, number, _, _ in made.sentences] == [0], "what is cut off is not scored"


def test_a_long_passage_is_read_around_its_focus(reader: PathModel) -> None:
    text = "red " * 80 + "the old sea " + "red " * 80

    def offsets(*focus: int) -> list[tuple[int, int]]:
        made = reader.make_input("which", [Text(text, "", focus)])  # type: ignore[arg-type]
        [part] = made.parts
        pieces = words(reader, made.ids[part.text_start :])[: len(part.offsets)]
        assert len(made.ids) == SMALL.max_length
        assert pieces == [text[start:end] for start, end in part.offsets]
        return part.offsets

    around, length = offsets(320, 331), len(offsets(0, 0))
    before, after = 320 - around[0][0], around[-1][1] - 331
    assert (before, after) == (pytest.approx(4 * (length - 3) / 2, abs=4), pytest.approx(before, abs=8))
    for beginning in ((0, 0), (4, 7), (0, len(text))):
        assert offsets(*beginning)[0] == (0, 3)
    assert offsets(320, len(text))[0][0] == 320, "a focus longer than the window"
    assert offsets(len(text) - 4, len(text) - 1)[-1] == (len(text) - 4, len(text) - 1)


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"context": "a sea. a sea. It is.", "start": 7}, Text("a sea. a sea. It is.", "T", (7, 13))),
        ({"context": "a sea. a sea. It is."}, Text("a sea. a sea. It is.", "T", (0, 6))),
        ({"start": 700}, Text("a sea.", "T", (0, 6))),
    ],
)
def test_the_focus_of_a_hit(metadata: dict[str, Any], text: Text) -> None:
    assert focused_text(Hit("p", 1.0, "T", "a sea.", metadata)) == text


@pytest.mark.release
def test_the_shipped_path_reader_chooses_torchs_paths() -> None:
    """Each sentence of the fixed texts asks for its own text, among pairs with nine others."""
    texts = [Text(line) for line in fixed_lines("calibration.txt")]
    stored = PathReader.open(device="cpu")
    by_torch = PathReader(PathModel.open(path_reader_folder(), "cpu", "fp32"))
    same = 0
    for number in range(50):
        question = " ".join(texts[number].text.split()[:12])
        paths = [[texts[number], texts[(number + step) % len(texts)]] for step in range(1, 6)]
        best = [
            max(range(len(paths)), key=[sum(r.scores) for r in reader.read(question, paths)].__getitem__)
            for reader in (stored, by_torch)
        ]
        same += best[0] == best[1]
    assert same >= 49


def test_scores_that_are_no_numbers_are_refused(reader: PathModel) -> None:
    """Otherwise the answer would be yes, the first choice."""
    with torch.no_grad():
        for parameter in reader.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(ModelError, match="infinite or not numbers"):
        PathReader(reader).read("which house", [[RED, SEA]])
