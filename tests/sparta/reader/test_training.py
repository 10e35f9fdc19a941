"""Training a reader: the loss worked by hand, learning, the same twice, and resumed."""

from __future__ import annotations

import json
import math
import random
import shutil
import unicodedata
from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    RobertaConfig,
    RobertaModel,
)

from sparta.base.errors import InputError, ModelError
from sparta.base.remedies import Option
from sparta.neural.backbones import encoder_config, load_encoder
from sparta.reader.config import ReaderConfig, ReaderLayout
from sparta.reader.examples import ReadingExample, read_examples
from sparta.reader.reader import Reader
from sparta.reader.records import Text
from sparta.reader.span_reader import SpanReader, padded
from sparta.reader.train import (
    ReaderRecipe,
    ReaderTraining,
    ReadingSet,
    train_reader,
)
from sparta.reader.training import span_loss, targets
from sparta.reader.windows import windows
from tests.sparta.reader.made_data import COLORS, THINGS, USUAL, written

pytestmark = pytest.mark.usefixtures("one_thread")
LAYOUT = ReaderLayout(max_length=48, overlap=16, longest_question=12, longest_answer=6)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """`the COLOR THING …`: asked for the word before the thing."""
    draw = random.Random(1)
    lines = []
    for _ in range(200):
        things = draw.sample(THINGS, 3)
        colors = draw.sample(COLORS, 3)
        text = " and ".join(f"the {c} {t}" for c, t in zip(colors, things, strict=True))
        lines.append({"question": f"which {things[1]}", "positive": text, "answers": [colors[1]]})
    return written(tmp_path, lines)


def recipe(encoder: Path, **changes: object) -> ReaderRecipe:
    usual = {**USUAL, "encoder": str(encoder), "train_length": 48, "layout": LAYOUT}
    return ReaderRecipe(**{**usual, **changes})


def test_the_loss_by_hand() -> None:
    inf = math.inf
    start = torch.tensor([[1.0, 2.0, -inf], [0.5, -inf, -inf]])
    end = torch.tensor([[0.0, 1.0, -inf], [3.0, -inf, -inf]])
    scores = torch.stack([start, end])
    # over all windows, and "no answer" with score 0; two spans of the first window are right
    all_starts = math.log(math.exp(1) + math.exp(2) + math.exp(0.5) + 1)
    all_ends = math.log(math.exp(0) + math.exp(1) + math.exp(3) + 1)
    right_start, right_end = math.log(math.exp(1) + math.exp(2)), math.log(math.exp(0) + math.exp(1))
    expected = (all_starts - right_start + all_ends - right_end) / 2
    assert float(span_loss(scores, [[(0, 0), (1, 1)], []])) == pytest.approx(expected)
    # places that two spans share count once
    nested = (all_starts - right_start + all_ends - 1.0) / 2
    assert float(span_loss(scores, [[(0, 1), (1, 1)], []])) == pytest.approx(nested)
    # none is right: "no answer" is
    assert float(span_loss(scores, [[], []])) == pytest.approx((all_starts + all_ends) / 2)


def test_targets_are_whole_answers(tiny_reader) -> None:
    text = "larry page and sergey brin founded google"
    [window] = windows("who", [Text(text)], tiny_reader.tokenizer, LAYOUT)
    place = text.index("sergey")
    [(first, last)] = targets(window, [(place, place + len("sergey brin"))])
    offsets = window.offsets[first - window.text_start], window.offsets[last - window.text_start]
    assert text[offsets[0][0] : offsets[1][1]] == "sergey brin"
    assert targets(window, [(len(text) + 1, len(text) + 4)]) == []


def test_a_target_may_begin_and_end_with_what_no_wordpiece_has(tiny_reader) -> None:
    text = "who founded \x07google\x07 in a house"
    [window] = windows("who", [Text(text)], tiny_reader.tokenizer, LAYOUT)
    place = text.index("\x07")
    [(first, last)] = targets(window, [(place, place + len("\x07google\x07"))])
    assert text[window.offsets[first - window.text_start][0] :].startswith("google")
    assert first == last
    cut = window._replace(offsets=window.offsets[2:])  # may begin in the middle of the answer
    assert targets(cut, [(place, place + len("\x07google\x07"))]) == []


@pytest.mark.slow
def test_it_learns(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    result = train_reader([(data, None)], recipe(encoder_folder, steps=150), tmp_path / "out")
    reader = Reader.open(result.folder, device="cpu", dtype="fp32")
    text = Text("the red star and the old river and the young city")
    [[best, *_]] = reader.read("which river", [text], 1)
    assert text.text[best.start : best.end] == "old"
    card = (result.folder / "README.md").read_text()
    assert "| data.jsonl | 200 | 200 |" in card
    assert "F1" in card


@pytest.mark.slow
def test_the_same_twice_and_resumed(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    sets = [ReadingSet("data", read_examples(data))]
    figures = []
    for folder in ("a", "b"):
        training = ReaderTraining(recipe(encoder_folder), sets, tmp_path / folder)
        training.run()
        figures.append((training.validate(), _weights(training)))
    assert figures[0][0] == figures[1][0]
    assert torch.equal(figures[0][1], figures[1][1])

    class StoppedError(Exception):
        pass

    part = ReaderTraining(recipe(encoder_folder), sets, tmp_path / "c")
    usual = part.loss

    def stopping(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        if step == 6:
            raise StoppedError
        return usual(step)

    part.loss = stopping  # type: ignore[method-assign]
    with pytest.raises(StoppedError):
        part.run()
    again = ReaderTraining(recipe(encoder_folder), sets, tmp_path / "c")
    again.run(resume=True)
    assert torch.equal(_weights(again), figures[0][1])
    other = ReaderTraining(recipe(encoder_folder, negatives=0.1), sets, tmp_path / "c")
    with pytest.raises(InputError, match="the settings differ from the settings of the started training"):
        other.run(resume=True)


def _weights(training: ReaderTraining) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in training.model.parameters()])


@pytest.mark.parametrize("changes", [{"globally": False}, {"global_tokens": 2, "layer_decay": 0.9}])
def test_the_other_forms_train_too(data: Path, encoder_folder: Path, tmp_path: Path, changes: dict) -> None:
    result = train_reader([(data, 40)], recipe(encoder_folder, steps=2, **changes), tmp_path / "out")
    assert result.step == 2


@pytest.mark.parametrize("globally", [True, False])
def test_what_the_softmax_runs_over(data: Path, encoder_folder: Path, tmp_path: Path, globally: bool) -> None:
    """The places of all passages of a question and "no answer", or those of each passage and "no answer"."""
    own = recipe(encoder_folder, negatives=1.0, unanswered=0.0, globally=globally)
    training = ReaderTraining(own, [ReadingSet("data", read_examples(data))], tmp_path)
    expected: list[float] = []
    for number, read in training.batch(0):
        assert [window.passage >= 0 for window in read] == [True, False]
        right = targets(read[0], training.examples[number].spans[read[0].passage])
        scores = training.model(*padded(read)).detach().double().exp()  # (2, 2, length)
        correct = [sum(scores[side, 0, at] for at in {span[side] for span in right}) for side in (0, 1)]
        if globally:
            shares = [correct[side] / (1 + scores[side].sum()) for side in (0, 1)]
            expected.append(-float(sum(map(torch.log, shares))) / 2)
        else:
            with_answer = [correct[side] / (1 + scores[side, 0].sum()) for side in (0, 1)]
            without = [1 / (1 + scores[side, 1].sum()) for side in (0, 1)]
            expected += [-float(sum(map(torch.log, shares))) / 2 for shares in (with_answer, without)]
    loss, _ = training.loss(0)
    assert float(loss.detach()) == pytest.approx(sum(expected) / len(expected), rel=1e-4)


def test_layers_learn_at_rates_of_their_own(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    sets = [ReadingSet("data", read_examples(data))]
    training = ReaderTraining(recipe(encoder_folder, layer_decay=0.5, global_tokens=2), sets, tmp_path)
    groups = training.parameter_groups()
    factors = {group["factor"] for group in groups}
    assert factors == {10.0, 1.0, 0.5, 0.25}  # spans and global tokens; two layers; embeddings
    sizes = sum(p.numel() for group in groups for p in group["params"])
    assert sizes == sum(p.numel() for p in training.model.parameters())


def test_fewer_questions_than_a_batch_are_refused(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a batch needs 8 training questions, found 5"):
        train_reader([(data, 5)], recipe(encoder_folder), tmp_path / "out")


def test_windows_longer_than_the_encoder_are_refused(
    data: Path, encoder_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"expected at most 512 wordpieces, .* found 600"):
        train_reader([data], recipe(encoder_folder, train_length=600), tmp_path / "out")


def test_global_tokens_go_on(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    first = train_reader([data], recipe(encoder_folder, steps=2, global_tokens=2), tmp_path / "a")
    again = ReaderTraining(
        recipe(first.folder, global_tokens=2), [ReadingSet("data", read_examples(data))], tmp_path / "b"
    )
    before = SpanReader.load(first.folder)
    assert torch.equal(again.model.encoder.global_states, before.encoder.global_states)
    with pytest.raises(InputError, match="has 2 global tokens, but the option says 3"):
        train_reader([data], recipe(first.folder, global_tokens=3), tmp_path / "c")


def test_a_file_is_named_once(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the same file is named twice"):
        train_reader([(data, 5), (data, None)], recipe(encoder_folder), tmp_path / "out")


def test_a_question_may_have_several_passages_without_its_answer(
    encoder_folder: Path, tmp_path: Path
) -> None:
    own = tmp_path / "mined.jsonl"
    without = [{"text": f"the {color} house"} for color in COLORS[1:6]]
    mined = [
        {
            "question": f"which star {i}",
            "answers": ["red"],
            "passages": [{"text": f"the red star {i}"}, *without],
        }
        for i in range(30)
    ]
    own.write_text("\n".join(map(json.dumps, mined)))
    near = tmp_path / "pairs.jsonl"
    pairs = [
        {"question": f"which {thing} {i}", "positive": f"the {color} {thing} {i}", "answers": [color]}
        for i, (color, thing) in enumerate(zip(COLORS * 4, THINGS * 4, strict=True))
    ]
    near.write_text("\n".join(map(json.dumps, pairs)))
    for path in (own, near):
        settings = recipe(encoder_folder, passages=4, negatives=1.0, unanswered=0.0, held_out=1)
        training = ReaderTraining(settings, [ReadingSet(path.name, read_examples(path))], tmp_path / "out")
        for number, windows_of in training.batch(0):
            answers = training.examples[number].answers
            assert [w.passage for w in windows_of][1:] == [-1] * (len(windows_of) - 1)
            assert windows_of[0].passage == 0
            texts = [training.model.tokenizer.decode(w.ids) for w in windows_of[1:]]
            assert len(set(texts)) == len(texts)
            assert not any(answers[0] in text for text in texts)
            assert len(texts) == 3 or (path == near and len(texts) < 3)  # few stand near the file's end
        assert torch.isfinite(training.loss(0)[0])
    with pytest.raises(InputError, match="at least 2 passages per question, found 1"):
        ReaderTraining(recipe(encoder_folder, passages=1), [], tmp_path / "out")


def test_a_short_encoder_shortens_the_windows(data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    short = tmp_path / "short"
    encoder = load_encoder(encoder_folder)
    config = BertConfig(**{**encoder_config(encoder), "max_position_embeddings": 256})
    BertModel(config, add_pooling_layer=False).save_pretrained(short)
    shutil.copy(Path(encoder_folder) / "tokenizer.json", short)
    train_reader([data], recipe(short, steps=1, train_length=128, layout=ReaderLayout()), tmp_path / "out")
    layout = SpanReader.load(tmp_path / "out" / "best").config.layout
    assert (layout.max_length, layout.overlap) == (256, 64)


def test_another_number_of_processes_is_another_training(
    data: Path, encoder_folder: Path, tmp_path: Path
) -> None:
    train_reader([data], recipe(encoder_folder, steps=1), tmp_path / "out")
    checkpoint = tmp_path / "out" / "state.pt"
    content = torch.load(checkpoint)
    content["facts"]["processes"] = 2
    torch.save(content, checkpoint)
    with pytest.raises(InputError, match="processes"):
        train_reader([data], recipe(encoder_folder, steps=1), tmp_path / "out", resume=True)


@pytest.mark.parametrize("kind", ["distilbert", "roberta"])
def test_encoders_without_two_token_types(
    kind: str, data: Path, encoder_folder: Path, tmp_path: Path
) -> None:
    words = encoder_config(load_encoder(encoder_folder))["vocab_size"]
    size = {"vocab_size": words, "pad_token_id": 0}
    if kind == "distilbert":
        config = DistilBertConfig(dim=32, n_layers=2, n_heads=2, hidden_dim=64, **size)
        encoder = DistilBertModel(config)
    else:
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        config = RobertaConfig(type_vocab_size=1, max_position_embeddings=600, **sizes, **size)
        encoder = RobertaModel(config, add_pooling_layer=False)
    encoder.save_pretrained(tmp_path / kind)
    shutil.copy(Path(encoder_folder) / "tokenizer.json", tmp_path / kind)
    train_reader([data], recipe(tmp_path / kind, steps=1), tmp_path / "out")
    assert len(Reader.open(tmp_path / "out" / "best").read("who", [Text("Ada wrote it")])) == 1


def test_a_language_begins_with_its_reader() -> None:
    assert ReaderRecipe().beginning() == "reader-bge-small-en"
    assert ReaderRecipe(language="zh").beginning() == "reader-small-zh"
    with pytest.raises(ModelError, match="sparta ships no reader for the language 'de'") as caught:
        ReaderRecipe(language="de").beginning()
    assert caught.value.remedy.options == [Option("encoder")]


def negatives(training: ReaderTraining, steps: int) -> dict[int, list[list[int]]]:
    """The wordpieces of the windows without an answer that the steps read, by the number of the example."""
    read: dict[int, list[list[int]]] = {}
    for step in range(steps):
        for number, made in training.batch(step):
            read.setdefault(number, []).extend(window.ids for window in made if window.passage < 0)
    return read


def ids_of(training: ReaderTraining, question: str, text: Text) -> list[int]:
    [window] = training.model.windows(question, [text], training.layout)
    return list(window.ids)


def test_a_text_near_by_that_holds_the_answer_is_no_negative(encoder_folder: Path, tmp_path: Path) -> None:
    """Also in another form of Unicode, or without its article."""
    held = ["Beatles were here", unicodedata.normalize("NFD", "in Besançon today")]
    answers = ["The Beatles", "Besançon"]
    texts = [f"{text} {color}" for color in COLORS for text in held] * 2
    own = [ReadingExample(f"q{i}", (answers[i % 2],), (Text(t),), (((0, 2),),)) for i, t in enumerate(texts)]
    given = recipe(encoder_folder, held_out=0, negatives=1.0)
    one = ReaderTraining(given, [ReadingSet("a", own)], tmp_path / "out")
    seen = negatives(one, 20)
    assert len(seen) == len(own)
    for number, read in seen.items():
        example = one.examples[number]
        of_the_other_answer = texts[1 - answers.index(example.answers[0]) :: 2]
        right = [ids_of(one, example.question, Text(text)) for text in of_the_other_answer]
        assert all(ids in right for ids in read)
    assert sum(map(len, seen.values())) > 100


def test_a_passage_that_answers_in_another_example_is_no_negative(
    encoder_folder: Path, tmp_path: Path
) -> None:
    """The question stands in the file with other answers, too."""
    spans = (((0, 1),), ())
    texts = [Text("a is right"), Text("b is right too"), Text("c")]
    own = [
        ReadingExample("q", ("a",), (texts[0], texts[1]), spans),
        ReadingExample("q", ("b",), (texts[1], texts[2]), spans),
        *(ReadingExample(f"q{i}", ("a",), (Text(f"a{i}"),), spans[:1]) for i in range(20)),
    ]
    given = recipe(encoder_folder, held_out=0, negatives=1.0, batch_size=2)
    one = ReaderTraining(given, [ReadingSet("a", own)], tmp_path / "out")
    numbers = {e.answers: i for i, e in enumerate(one.examples) if e.question == "q"}
    assert 0 < numbers["b",] - numbers["a",] < 13, "near enough"
    seen = negatives(one, 200)
    first, second = seen[numbers["a",]], seen[numbers["b",]]
    assert len(first) > 10
    assert len(second) > 10
    assert ids_of(one, "q", texts[1]) not in first
    assert all(ids == ids_of(one, "q", texts[2]) for ids in second)


def test_only_answers_that_the_reader_can_give_are_trained(encoder_folder: Path, tmp_path: Path) -> None:
    """An answer of seven short words is too long; one passage of the first question has a short answer."""
    long, short = "a b c d e f g", "google"
    texts = [Text(f"{long} founded"), Text(f"{short} founded"), Text(f"{long} was here")]
    spans = [((0, len(long)),), ((0, len(short)),), ((0, len(long)),)]
    examples = [
        ReadingExample("q", (long, short), (*texts[:2],), (*spans[:2],)),
        ReadingExample("too long", (long,), (texts[2],), (spans[2],)),
        *(ReadingExample(f"q{i}", (short,), (texts[1],), (spans[1],)) for i in range(7)),
    ]
    one = ReaderTraining(
        recipe(encoder_folder, held_out=0, negatives=0.0), [ReadingSet("a", examples)], tmp_path / "out"
    )
    assert [example.question for example in one.examples if example.question == "too long"] == []
    assert len(one.examples) == 8
    for step in range(20):
        for number, made in one.batch(step):
            [window] = made
            assert targets(window, one.examples[number].spans[window.passage])
            assert window.passage == (1 if one.examples[number].question == "q" else 0)


def test_targets_are_answers_of_at_most_the_longest_length(encoder_folder: Path) -> None:
    text = Text("a b c d e f g founded by google")
    spans = [(0, 13), (25, 31)]
    [window] = SpanReader.from_encoder(encoder_folder, ReaderConfig(layout=LAYOUT)).windows(
        "q", [text], LAYOUT
    )
    both = targets(window, spans)
    assert len(both) == 2
    assert targets(window, spans, LAYOUT.longest_answer) == both[1:]


def test_training_windows_shorter_than_two_questions(encoder_folder: Path, tmp_path: Path) -> None:
    own = [ReadingExample(f"q{i}", ("a",), (Text(f"a{i}"),), (((0, 1),),)) for i in range(60)]
    with pytest.raises(InputError) as caught:
        ReaderTraining(recipe(encoder_folder, train_length=20), [ReadingSet("a", own)], tmp_path / "out")
    assert caught.value.remedy.options == [Option("train_length", 24), Option("longest_question")]
