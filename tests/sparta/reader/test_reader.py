"""Readers on disk, and what they make of unusual texts."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sparta.base.errors import InputError, ModelError
from sparta.base.records import Hit
from sparta.reader.config import (
    DEFAULT_READER,
    Calibration,
    ReaderConfig,
    ReaderLayout,
    path_reader_folder,
    reader_folder,
)
from sparta.reader.reader import Reader
from sparta.reader.records import Text, text_of
from sparta.reader.span_reader import SpanReader, padded
from sparta.reader.stored_reader import StoredReader
from sparta.reader.windows import windows

pytestmark = pytest.mark.usefixtures("one_thread")
QUESTION = "who founded google"
TEXTS = [
    Text("larry page and sergey brin founded google in a house", "google"),
    Text("the moon of the earth"),
    Text(""),
    Text(" ".join(["the king of germany was west of the sun"] * 12), "king"),
]


def test_saved_and_opened(tiny_reader: SpanReader, tmp_path: Path) -> None:
    config = replace(tiny_reader.config, answer=Calibration(2.0, -1.0), weight=0.3)
    tiny_reader.config = config
    tiny_reader.save_pretrained(tmp_path / "reader")
    opened = Reader.open(tmp_path / "reader", device="cpu", dtype="fp32")
    assert opened.config == config
    assert isinstance(opened.model, StoredReader)
    by_openvino, by_torch = (
        [span for spans in reader.read(QUESTION, TEXTS) for span in spans]
        for reader in (opened, Reader(tiny_reader))
    )
    assert [span[:3] for span in by_openvino] == [span[:3] for span in by_torch]
    assert [s.score for s in by_openvino] == pytest.approx([s.score for s in by_torch], abs=1e-4)


def test_eight_bits_change_little(tiny_reader: SpanReader, tmp_path: Path) -> None:
    tiny_reader.save_pretrained(tmp_path / "reader", int8=True)
    opened = SpanReader.load(str(tmp_path / "reader"))
    made = windows(QUESTION, TEXTS, tiny_reader.tokenizer, tiny_reader.config.layout)
    with torch.no_grad():
        before, after = (model(*padded(made)) for model in (tiny_reader, opened))
    readable = before > -torch.inf
    assert (before - after)[readable].abs().max() < 0.05 * before[readable].abs().max()


def test_spans_lie_in_their_texts_best_first(tiny_reader: SpanReader) -> None:
    found = Reader(tiny_reader).read(QUESTION, TEXTS, n=4)
    assert [len(own) for own in found] == [4, 4, 0, 4]
    for number, (text, own) in enumerate(zip(TEXTS, found, strict=True)):
        assert all(span.passage == number and 0 <= span.start < span.end <= len(text.text) for span in own)
        assert [s.score for s in own] == sorted((s.score for s in own), reverse=True)
        assert len({(s.start, s.end) for s in own}) == len(own)


def test_a_passage_is_read_as_if_it_were_the_only_one(tiny_reader: SpanReader) -> None:
    reader = Reader(tiny_reader)
    together = reader.read_all([QUESTION, "the sun"], [TEXTS, TEXTS[::-1]])
    for text, own in zip(TEXTS, together[0], strict=True):
        [one] = reader.read(QUESTION, [text])
        assert [s[1:3] for s in one] == [s[1:3] for s in own]
        assert [s.score for s in one] == pytest.approx([s.score for s in own], abs=1e-5)


@pytest.mark.parametrize("global_tokens", [0, 2])
def test_text_by_text(encoder_folder: Path, global_tokens: int) -> None:
    reader = Reader(SpanReader.from_encoder(encoder_folder, ReaderConfig(global_tokens=global_tokens)))
    one_by_one, together = (
        [span for spans in read for span in spans]
        for read in (reader.read_each(QUESTION, TEXTS, 3), reader.read(QUESTION, TEXTS, 3))
    )
    assert [span[:3] for span in one_by_one] == [span[:3] for span in together]
    assert [s.score for s in one_by_one] == pytest.approx([s.score for s in together], abs=1e-5)


def test_what_is_not_asked_for_is_not_read(tiny_reader: SpanReader) -> None:
    reader, scored = Reader(tiny_reader), []

    def slowly(*_: object) -> None:
        scored.append(1)
        time.sleep(0.01)

    with tiny_reader.encoder.register_forward_pre_hook(slowly):
        reading = reader.read_each(QUESTION, [TEXTS[0]] * 200)
        next(reading)
        reading.close()
    assert 0 < len(scored) < 50


def test_a_question_longer_than_its_room_is_read_in_part(tiny_reader: SpanReader) -> None:
    long = " ".join(["founded"] * 400)
    layout = tiny_reader.config.layout
    made = windows(long, TEXTS, tiny_reader.tokenizer, layout)
    assert max(len(w.ids) for w in made) <= layout.max_length
    assert Reader(tiny_reader).read(long, TEXTS)[0]


def test_no_texts(tiny_reader: SpanReader) -> None:
    assert Reader(tiny_reader).read(QUESTION, []) == []
    assert Reader(tiny_reader).read("", [Text("moon")])[0]


def test_models_of_another_layout_are_refused(
    tiny_reader: SpanReader, tiny_model_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="is not a reader"):
        Reader.open(tiny_model_folder)
    (tmp_path / "empty").mkdir()
    for name, said in (("nowhere", "no such folder of a reader"), ("empty", "the folder is not a reader")):
        with pytest.raises(ModelError, match=said):
            reader_folder(tmp_path / name)
    tiny_reader.save_pretrained(tmp_path / "reader")
    config = json.loads((tmp_path / "reader" / "config.json").read_text())

    def with_reader(**changes: object) -> dict[str, object]:
        return {**config, "reader": {**config["reader"], **changes}}

    for broken, said in (
        ({**config, "reader": {"layout": {}}}, "the configuration of the reader is not valid"),
        ({**config, "hidden_size": 16}, "expected weights that fit config.json"),
        (with_reader(layout={"max_length": 10}), "windows need at least"),
        (with_reader(layout={"longest_answer": -1}), "at least 1 wordpiece"),
        (with_reader(layout={"max_length": 16, "overlap": 2, "longest_question": 8}), "room for a text"),
        (with_reader(global_tokens=-4), "found -4"),
        (with_reader(weight=7), "and 7"),
        (with_reader(passage={"a": "x", "b": 0}), "could not convert"),
        (with_reader(passage={"a": float("nan"), "b": 0}), "a = nan"),
        (with_reader(sum_mentions="false"), "found 'false'"),
    ):
        (tmp_path / "reader" / "config.json").write_text(json.dumps(broken))
        with pytest.raises(ModelError, match=said):
            Reader.open(tmp_path / "reader")
    longer = with_reader(layout={"max_length": 3200})
    (tmp_path / "reader" / "config.json").write_text(json.dumps(longer))
    for open_reader in (Reader.open, StoredReader, SpanReader.load):  # on a CPU, with OpenVINO and with torch
        with pytest.raises(ModelError, match=r"config\.json: expected at most 512 wordpieces, .* found 3200"):
            open_reader(tmp_path / "reader")


def test_fusion_in_encoder_is_saved_with_its_tokens(encoder_folder: Path, tmp_path: Path) -> None:
    layout = ReaderLayout(max_length=48, overlap=16, longest_question=12)
    fused = SpanReader.from_encoder(encoder_folder, ReaderConfig(layout, global_tokens=3)).eval()
    fused.save_pretrained(tmp_path / "fused")
    opened = Reader.open(tmp_path / "fused", device="cpu", dtype="fp32")
    for ours, theirs in zip(opened.read(QUESTION, TEXTS), Reader(fused).read(QUESTION, TEXTS), strict=True):
        assert [span[:3] for span in ours] == [span[:3] for span in theirs]
        assert [span.score for span in ours] == pytest.approx([span.score for span in theirs], abs=1e-5)
    alone = opened.read(QUESTION, TEXTS[:1])[0]
    assert alone[0].score != opened.read(QUESTION, TEXTS)[0][0].score  # passages tell each other


def test_layouts_that_leave_no_room_are_refused() -> None:
    with pytest.raises(InputError, match="windows need at least 128"):
        ReaderLayout(max_length=100)


def test_reading_takes_no_threads_from_what_comes_later(tiny_reader: SpanReader, words: list[str]) -> None:
    """A thread that begins after it would compute with one, as its own threads do."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        Reader(tiny_reader).read(words[0], [Text(words[1]), Text(words[2])])
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)


def test_without_a_name_it_is_the_one_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a folder of that name is in the working directory; by its name it is this one."""
    monkeypatch.chdir(tmp_path)
    shipped = {reader_folder(): DEFAULT_READER, path_reader_folder(): "path-reader-bge-small-en"}
    for folder, name in shipped.items():
        Path(name).mkdir()
        assert folder.name == name
    assert {reader_folder(), path_reader_folder()} == {*shipped}
    assert all(folder.is_absolute() for folder in shipped)
    with pytest.raises(ModelError, match="folder is not a reader"):
        reader_folder(DEFAULT_READER)


def test_metadata_called_context_is_read_where_it_holds_the_text() -> None:
    def read(context: object) -> str:
        return text_of(Hit("1", 1.0, text="by Ada", metadata={"context": context})).text

    assert [read(one) for one in ("news", "", 7, "It was written by Ada.")] == [
        *(["by Ada"] * 3),
        "It was written by Ada.",
    ]


def test_scores_that_are_no_numbers_are_refused(tiny_reader: SpanReader, tmp_path: Path) -> None:
    """A damaged weight: otherwise no answer would look like one that the texts do not have."""
    with torch.no_grad():
        tiny_reader.spans.weight[0, 0] = torch.nan
    tiny_reader.save_pretrained(tmp_path / "reader")
    for reader in (Reader(tiny_reader), Reader.open(tmp_path / "reader", device="cpu")):
        with pytest.raises(ModelError, match="infinite or not numbers") as caught:
            reader.read(QUESTION, TEXTS)
        assert caught.value.remedy
        with pytest.raises(ModelError, match="infinite or not numbers"):
            list(reader.read_each(QUESTION, TEXTS))


@pytest.mark.parametrize("dtype", ["fp16", "int4"])
def test_an_arithmetic_that_a_cpu_lacks_is_refused(
    tiny_reader: SpanReader, tmp_path: Path, dtype: str
) -> None:
    """Torch would compute in it, slowly."""
    tiny_reader.save_pretrained(tmp_path / "reader")
    with pytest.raises(InputError, match=f"found '{dtype}'"):
        Reader.open(tmp_path / "reader", device="cpu", dtype=dtype)
