import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta.base.errors import IndexStateError, InputError, ModelError
from sparta.base.records import Passage

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def words(tiny_vocabulary) -> list[str]:
    return [t for t in tiny_vocabulary if t.isascii() and t.isalpha() and len(t) > 3]


@pytest.fixture(scope="module")
def records(words) -> list[dict[str, Any]]:
    """The question asks for two of the words of its answer."""
    rng = random.Random(3)
    made = []
    for i in range(80):
        answer = rng.sample(words, 5)
        made.append({"question": " ".join(answer[:2]), "positive": " ".join(answer), "title": f"t{i // 8}"})
    return made


@pytest.fixture
def pairs_file(records, write_jsonl, tmp_path) -> Path:
    return write_jsonl(tmp_path / "pairs.jsonl", records)


@pytest.fixture
def training(pairs_file, make_tiny_model, tmp_path) -> Callable[..., Any]:
    """Make a training of the tiny model on the pairs; `config` and `trainer` override what is usual."""
    from sparta.neural.trainer import TrainerConfig
    from sparta.train import SpartaTraining, TrainConfig, open_set

    def make(
        name: str = "out",
        *,
        trainer: dict[str, Any] | None = None,
        seed: int = 0,
        batch: int = 8,
        pairs: Any = None,
        **config: Any,
    ) -> Any:
        one = pairs or open_set(str(pairs_file), "sentence", batch)
        usual = {
            "steps": 12,
            "learning_rate": 1e-3,
            "bf16": False,
            "seed": 5,
            "validate_every": 3,
            "checkpoint_every": 4,
        }
        chosen = TrainConfig(
            TrainerConfig(**{**usual, **(trainer or {})}), **{"sampled_terms": 50, "pressure": 0.0, **config}
        )
        return SpartaTraining(make_tiny_model(seed=seed), [one], chosen, tmp_path / name)

    return make


# ---------------------------------------------------------------- the data


def test_pairs(tmp_path, write_jsonl):
    from sparta.train import read_pairs

    texts = ["a", "b", "c", "b", "d", "e", "f"]
    lines = [
        {"question": f"q{i}", "positive": t, "context": f"<{t}>", "title": "T"} for i, t in enumerate(texts)
    ]
    path = write_jsonl(tmp_path / "p.jsonl", lines)
    found = list(read_pairs(path, window=2))
    assert [p.question for p in found] == [f"q{i}" for i in range(7)]
    assert [p.answer.text for p in found] == texts
    assert all(p.answer.title == "T" for p in found)
    near = [[n.text for n in p.nearby] for p in found]
    assert near == [
        ["b", "c"],
        ["a", "c"],  # the other b is no negative of b
        ["a", "b", "d"],
        ["c", "d", "e"],
        ["c", "b", "e", "f"],
        ["b", "d", "f"],
        ["d", "e"],
    ]
    whole = list(read_pairs(path, unit="passage", window=1, longest=2))
    assert [p.answer.text for p in whole] == [f"<{t}" for t in texts]
    assert [n.text for n in whole[1].nearby] == ["<a", "<c"]
    packed = tmp_path / "p.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [p.nearby for p in read_pairs(packed, window=2)] == [p.nearby for p in found]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "broken JSON"),
        (b"[1]", "not an object"),
        (b'{"question": "q"}', "missing positive"),
        (b'{"positive": "q"}', "missing question"),
        (b'{"question": 3, "positive": "p"}', "expected a string as question, found a number"),
        (b'{"question": "q", "positive": " "}', "expected a positive, found an empty one"),
        (b'{"question": "\xff", "positive": "p"}', "invalid UTF-8"),
    ],
)
def test_bad_pairs(tmp_path, line, message):
    from sparta.train import open_set

    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"question": "q", "positive": "p"}\n\n' + line)
    with pytest.raises(InputError, match=message) as caught:
        open_set(str(path), "sentence", 1)
    assert caught.value.where == f"{path}:3"


def test_bad_files(tmp_path, pairs_file):
    from sparta.train import open_set

    with pytest.raises(InputError, match="no such file"):
        open_set(str(tmp_path / "none.jsonl"), "sentence", 2)
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(pairs_file.read_bytes())[:-20])
    with pytest.raises(InputError, match="broken gzip"):
        open_set(str(broken), "sentence", 2)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match="at least 2 pairs, one batch, found 0"):
        open_set(str(tmp_path / "empty.jsonl"), "sentence", 2)
    with pytest.raises(InputError, match="at least 81 pairs, one batch, found 80"):
        open_set(str(pairs_file), "sentence", 81)
    with pytest.raises(InputError, match="expected FILE=WEIGHT with a number"):
        open_set(f"{pairs_file}=much", "sentence", 2)
    assert open_set(f"{pairs_file}=0.25", "sentence", 2).weight == 0.25


def test_whole_stretches_are_held_out(training, records):
    made = training(held_out=5)
    (held,), (rest,) = made.validation, made.sets
    assert [p.question for p in held.pairs] == [r["question"] for r in records[75:]]
    assert [p.question for p in rest.pairs] == [r["question"] for r in records[:75]]
    assert len(training(held_out=300).validation[0].pairs) == 8  # a tenth at most


def drawn(made: Any, step: int) -> tuple[list[str], list[str]]:
    """The questions and the documents that the loss of a step looks at."""
    seen: list[str] = []
    original = made._weights

    def look(documents: Any, columns: Any) -> Any:
        seen.extend(d.text for d in documents)
        return original(documents, columns)

    made._weights = look
    made.loss(step)
    made._weights = original
    return [p.question for p in made._draw(step)[0]], seen


def test_batches_are_a_function_of_seed_and_step(training):
    one, two = training(), training(seed=9)
    forward = [drawn(one, step) for step in range(6)]
    backward = [drawn(two, step) for step in reversed(range(6))]
    assert forward == backward[::-1]
    assert len({str(d) for d in forward}) == 6
    other = training(trainer={"seed": 6})
    assert [drawn(other, step) for step in range(6)] != forward


def test_nearby_negatives_are_neighbours(training, records):
    place = {r["positive"]: i for i, r in enumerate(records)}
    asked = {r["question"]: i for i, r in enumerate(records)}
    made = training()
    distances = Counter()
    for step in range(20):
        questions, documents = drawn(made, step)
        assert len(documents) == 16
        for question, answer, nearby in zip(questions, documents[:8], documents[8:], strict=True):
            assert place[answer] == asked[question]
            distances[abs(place[nearby] - place[answer])] += 1
    assert min(distances) == 1
    assert max(distances) == 12


# ---------------------------------------------------------------- the loss


def dense(model: Any, texts: list[str]) -> np.ndarray:
    return model.encode_document(texts, dtype="fp32").toarray().astype(np.float64)


def bags(model: Any, questions: list[str]) -> np.ndarray:
    return model.encode_query(questions).toarray().astype(np.float64)


def pair(question: str, answer: str, *nearby: str) -> Any:
    from sparta.train import Pair

    return Pair(question, Passage("", answer), tuple(Passage("", text) for text in nearby))


HAND_MADE = [
    ("who founded google", "larry page founded google", "google was sold"),
    ("moon moon earth", "the moon of the earth", "a house in the city"),
    ("the planet", "the moon of the earth", "jupiter"),  # the same answer once more
    ("capital of france", "paris", "larry page founded google"),  # near it stands another's answer
]


def test_the_loss_is_eq_7(training):
    """Minus the log of the share of the own answer among all answers and nearby texts."""
    from sparta.train import PairSet

    made = training(pairs=PairSet("hand", tuple(pair(*row) for row in HAND_MADE), 1.0, 4), held_out=0)
    made.model.eval()
    loss, logs = made.loss(0)
    drawn_pairs, _ = made._draw(0)
    assert sorted(p.question for p in drawn_pairs) == sorted(row[0] for row in HAND_MADE)
    documents = [p.answer.text for p in drawn_pairs] + [p.nearby[0].text for p in drawn_pairs]
    scores = bags(made.model, [p.question for p in drawn_pairs]) @ dense(made.model, documents).T
    losses = []
    for i, one in enumerate(drawn_pairs):
        others = [j for j, text in enumerate(documents) if j == i or text != one.answer.text]
        exponents = np.exp(scores[i, others])
        losses.append(-np.log(np.exp(scores[i, i]) / exponents.sum()))
    assert scores.std() > 0.1
    assert loss.item() == pytest.approx(np.mean(losses), rel=1e-4)
    assert logs["ranking"] == pytest.approx(loss.item())


def test_the_penalty_is_squared_mean_and_mean_weight(training):
    """Estimated on a sample; on many samples it comes near the sum over the vocabulary."""
    made = training(pressure=1.0, sampled_terms=20_000, trainer={"steps": 3})
    made.model.eval()
    without = made.loss(0)[1]["ranking"]
    assert made.loss(0)[0].item() == pytest.approx(without)  # it begins with none
    loss, logs = made.loss(3)
    _, documents = drawn(made, 3)
    weights = dense(made.model, documents)
    squared, mean = (weights.mean(0) ** 2).sum(), weights.mean(0).sum()
    assert logs["flops"] == pytest.approx(squared, rel=0.05)
    assert logs["terms"] == pytest.approx((weights > 0).sum(1).mean(), rel=0.05)
    assert loss.item() - logs["ranking"] == pytest.approx(squared + 0.05 * mean, rel=0.05)


def test_texts_without_tokens_leave_the_gradients_finite(training):
    from sparta.train import PairSet

    rows = [("moon", "\u200b\u200b", "earth"), ("earth", "earth moon", "\u200b")]
    made = training(pairs=PairSet("odd", tuple(pair(*row) for row in rows), 1.0, 2), held_out=0)
    loss, _ = made.loss(0)
    loss.backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in made.model.parameters())


def forget_the_words(model: Any) -> None:
    """Give the terms other embeddings than those of the words in the answers."""
    import torch

    with torch.no_grad():
        model.term_embeddings.normal_(generator=torch.Generator().manual_seed(4))


def test_validation_is_the_mean_reciprocal_rank(training, records):
    made = training(candidates=30)
    made.model.eval()
    forget_the_words(made.model)
    texts = [r["positive"] for r in records[72:]] + [r["positive"] for r in records[:30]]
    scores = bags(made.model, [r["question"] for r in records[72:]]) @ dense(made.model, texts).T
    ranks = [sum(score >= row[i] for score in row) for i, row in enumerate(scores)]  # of equals the last
    found = [row[i] > 0 for i, row in enumerate(scores)]  # a passage without a score is not found at all
    assert len(set(ranks)) > 3
    assert 0 < sum(found) < len(found)
    expected = np.mean([one / rank for one, rank in zip(found, ranks, strict=True)])
    assert made.mean_reciprocal_rank() == pytest.approx(expected)


def test_a_dead_or_indifferent_model_gains_nothing(training):
    made = training(candidates=30)
    made.model.bias.data.fill_(-1e4)
    assert made.mean_reciprocal_rank() == 0
    made.model.scale.data.fill_(0)
    made.model.bias.data.fill_(1)  # every passage has every term, with the same weight
    assert made.mean_reciprocal_rank() == pytest.approx(1 / 38)


# ---------------------------------------------------------------- training


def state_of(made: Any) -> dict[str, bytes]:
    return {name: t.detach().numpy().tobytes() for name, t in made.model.state_dict().items()}


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


@pytest.mark.parametrize("stop", [1, 4, 6, 11])
def test_stopped_and_resumed_is_as_if_never_stopped(training, stop):
    """Bit by bit, dropout included. A checkpoint is every four steps; the stop is in the middle of a step."""
    import torch

    whole = training("whole")
    state = whole.run()
    stopped = training("part")
    original, calls = stopped.loss, []

    def loss(step: int) -> Any:
        calls.append(step)
        result = original(step)
        if step == stop:
            raise KeyboardInterrupt
        return result

    stopped.loss = loss
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    assert calls == list(range(stop + 1))
    torch.manual_seed(12345)
    resumed = training("part", seed=7)  # other weights, which the checkpoint replaces
    if stop < 4:
        resumed = training("part")
    again = resumed.run(resume=True)
    assert again == state
    assert state_of(resumed) == state_of(whole)
    folders = [whole.folder, resumed.folder]
    assert files(folders[0] / "best") == files(folders[1] / "best")
    logs = [(folder / "log.jsonl").read_text().splitlines() for folder in folders]
    assert logs[0] == logs[1]
    assert [json.loads(line)["step"] for line in logs[0] if "loss" in line] == list(range(1, 13))


def test_a_finished_training_resumed_changes_nothing(training):
    made = training()
    state = made.run()
    before = files(made.folder / "best")
    again = training()
    assert again.run(resume=True) == state
    assert files(made.folder / "best") == before


def test_a_torn_log_does_not_hinder_resuming(training):
    made = training()
    made.run()
    with (made.folder / "log.jsonl").open("a") as log:
        log.write('{"step": 13, "lo')
    training().run(resume=True)
    lines = (made.folder / "log.jsonl").read_text().splitlines()
    assert all(json.loads(line)["step"] <= 12 for line in lines)
    (made.folder / "log.jsonl").unlink()
    training().run(resume=True)
    training().run(resume=True)


@pytest.mark.parametrize(
    "change",
    [{"pressure": 0.5}, {"trainer": {"learning_rate": 2e-3}}, {"trainer": {"steps": 13}}, {"batch": 4}],
)
def test_resuming_with_other_settings_is_refused(training, change):
    training().run()
    with pytest.raises(InputError, match="expected the same training settings") as caught:
        training(**change).run(resume=True)
    assert caught.value.where.endswith("state.pt")


def test_the_loss_falls_and_the_best_is_kept(training, tmp_path):
    """From random term embeddings to those of the words that are asked for."""
    from sparta.load import load_model

    made = training(
        trainer={"steps": 160, "learning_rate": 5e-3, "validate_every": 40}, batch=16, scale_rate=1.0
    )
    forget_the_words(made.model)
    before = made.mean_reciprocal_rank()
    state = made.run()
    lines = [json.loads(line) for line in (made.folder / "log.jsonl").read_text().splitlines()]
    losses = [line["ranking"] for line in lines if "ranking" in line]
    assert np.mean(losses[-20:]) < 0.6 * np.mean(losses[:20])
    figures = {line["step"]: line["validation"] for line in lines if "validation" in line}
    assert state.best == pytest.approx(max(figures.values()), abs=1e-6)
    assert figures[state.best_step] == max(figures.values())
    assert state.best > 2 * before
    best = load_model(made.folder / "best")
    assert best.config.quantizer.bits == 8
    largest = max(dense(best, [p.answer.text for p in made.validation[0].pairs]).max(), 0)
    assert largest <= best.config.quantizer.max_weight <= 1.2 * largest


def test_pressure_makes_fewer_terms(training):
    terms = []
    for pressure in (0.0, 0.03):
        made = training(
            f"p{pressure}",
            pressure=pressure,
            trainer={"steps": 60, "learning_rate": 2e-3, "validate_every": 60},
            sampled_terms=200,
            scale_rate=1.0,
        )
        made.run()
        made.model.eval()
        texts = [p.answer.text for p in made.sets[0].pairs[:40]]
        terms.append((dense(made.model, texts) > 0).sum(1).mean())
    assert terms[1] < 0.7 * terms[0]
    assert terms[1] > 0


# ---------------------------------------------------------------- the command's function


@pytest.fixture(scope="module")
def encoder_folder(make_tiny_model, tiny_tokenizer, tmp_path_factory) -> Path:
    """A pretrained encoder, as others publish them."""
    folder = tmp_path_factory.mktemp("encoder")
    make_tiny_model().encoder.save_pretrained(folder)
    tiny_tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def train(encoder_folder, pairs_file, tmp_path) -> Callable[..., Any]:
    from sparta.train import open_set, train_model

    def run(name: str, **change: Any) -> Any:
        usual = {
            "encoder": str(encoder_folder),
            "output": tmp_path / name,
            "steps": 6,
            "learning_rate": 1e-3,
            "pressure": 0.001,
            "validate_every": 3,
            "seed": 2,
            "device": "cpu",
        }
        return train_model([open_set(str(pairs_file), "sentence", 8)], **{**usual, **change})

    return run


def test_what_training_leaves(train, tmp_path):
    from safetensors import safe_open

    from sparta.load import load_model

    result = train("out")
    assert result.folder == tmp_path / "out" / "best"
    assert 0 < result.validation <= 1
    assert result.step in (3, 6)
    with safe_open(str(result.folder / "model.safetensors"), framework="pt") as stored:
        assert stored.get_tensor("term_embeddings").dtype.itemsize == 1
        assert "term_embeddings.row_scale" in stored.keys()  # noqa: SIM118 (not a mapping)
    model = load_model(result.folder)
    assert model.config.quantizer is not None
    assert not model.config.tied
    assert model.encode_document("the moon", dtype="fp32").nnz > 0
    again = train("again")
    assert files(again.folder) == files(result.folder)
    assert files(train("other", seed=3).folder) != files(result.folder)
    assert files(train("out", resume=True).folder) == files(result.folder)


def test_tied_and_in_full_precision(train):
    from safetensors import safe_open

    from sparta.load import load_model

    result = train("out", tied=True, full_precision=True)
    with safe_open(str(result.folder / "model.safetensors"), framework="pt") as stored:
        assert "term_embeddings" not in stored.keys()  # noqa: SIM118 (not a mapping)
        assert all(stored.get_tensor(name).dtype.itemsize == 4 for name in stored.keys())  # noqa: SIM118
    model = load_model(result.folder)
    assert model.config.tied
    assert model.term_matrix() is model.encoder.get_input_embeddings().weight


def test_what_is_there_is_not_overwritten(train, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").touch()
    with pytest.raises(IndexStateError, match="expected an empty or a new folder"):
        train("out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_no_encoder(train, tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ModelError):
        train("out", encoder=str(tmp_path / "nothing"))


def test_sets_are_drawn_by_their_weights(make_tiny_model, tmp_path, words):
    from sparta.neural.trainer import TrainerConfig
    from sparta.train import PairSet, SpartaTraining, TrainConfig

    sets = [
        PairSet(name, tuple(pair(f"{name} {w}", w) for w in words[:20]), weight, size)
        for name, weight, size in (("a", 3.0, 4), ("b", 1.0, 6))
    ]
    made = SpartaTraining(make_tiny_model(), sets, TrainConfig(TrainerConfig(10)), tmp_path)
    batches = [made._draw(step)[0] for step in range(400)]
    names = Counter(batch[0].question[0] for batch in batches)
    assert 260 < names["a"] < 340
    for batch in batches:
        assert len({p.question for p in batch}) == (4 if batch[0].question[0] == "a" else 6)
        assert len({p.question[0] for p in batch}) == 1
    assert replace(sets[0], pairs=()) == replace(made.sets[0], pairs=())
