"""Training SPARTA: the loss, validation, resuming, and the function behind the command."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta.base.errors import IndexStateError, InputError, ModelError

pytestmark = pytest.mark.usefixtures("one_thread")


# ---------------------------------------------------------------- the loss


def dense(model: Any, texts: list[Any]) -> np.ndarray:
    return model.encode_document(texts, dtype="fp32").toarray().astype(np.float64)


def bags(model: Any, questions: list[str]) -> np.ndarray:
    return model.encode_query(questions).toarray().astype(np.float64)


def hand_made() -> Any:
    from sparta.training.paragraphs import Paragraph, ParagraphSet

    def paragraph(text: str, *asked: tuple[str, int]) -> Any:
        spans, at = [], 0
        for part in text.split(". "):
            spans.append((at, at + len(part)))
            at += len(part) + 2
        return Paragraph(text, "", tuple(spans), asked)

    paragraphs = (
        paragraph("larry page founded google. google was sold", ("who founded google", 0), ("sold", 1)),
        paragraph("the moon of the earth. a house in the city", ("moon moon earth", 0)),
        paragraph("jupiter. the moon of the earth", ("the planet", 0)),  # an answer of another once more
        paragraph("paris", ("capital of france", 0)),
    )
    return ParagraphSet("hand", paragraphs, 1.0, 4)


def expected_loss(made: Any, batch: Any) -> float:
    """Eq. 7 in plain NumPy: minus the log of the own share among all sentences; the same among all texts."""
    scores = bags(made.model, batch.questions) @ dense(made.model, batch.candidates).T
    assert scores.std() > 0.1
    means = []
    for gold, part in (
        (batch.gold_sentence, range(batch.n_sentences)),
        (batch.gold_paragraph, range(batch.n_sentences, len(batch.candidates))),
    ):
        losses = []
        for row, own in enumerate(gold):
            text = batch.candidates[own].text
            others = [j for j in part if j == own or batch.candidates[j].text != text]
            exponents = np.exp(scores[row, others])
            losses.append(-np.log(np.exp(scores[row, own]) / exponents.sum()))
        means.append(np.mean(losses))
    return float(np.mean(means))


def test_the_loss_is_eq_7(training):
    from sparta.training.ranking import make_batch

    made = training(data=hand_made(), held_out=0)
    made.model.eval()
    loss, logs = made.loss(0)
    paragraphs, rng = made._draw(0)
    batch = make_batch(paragraphs, rng, 3)
    assert len(batch.questions) == 5
    assert loss.item() == pytest.approx(expected_loss(made, batch), rel=1e-4)
    assert logs["ranking"] == pytest.approx(loss.item())


def test_a_teacher_adds_the_divergence_from_its_scores(training):
    """A teacher who gives all the same score is met by a model that does."""
    import torch

    class Indifferent:
        name = "indifferent"

        def scores(self, questions: Any, candidates: Any) -> Any:
            return torch.full((len(questions), len(candidates)), 3.0)

    losses = {}
    for taught in (0.0, 0.25, 1.0):
        made = training(f"t{taught}", data=hand_made(), held_out=0, teacher=Indifferent(), taught=taught)
        made.model.eval()
        losses[taught] = made.loss(0)[0].item()
    plain = training("plain", data=hand_made(), held_out=0)
    plain.model.eval()
    assert losses[0.0] == pytest.approx(plain.loss(0)[0].item())
    assert losses[0.25] == pytest.approx(0.75 * losses[0.0] + 0.25 * losses[1.0])
    plain.model.scale.data.fill_(0)
    plain.model.bias.data.fill_(1)
    made.model.load_state_dict(plain.model.state_dict())
    assert made.loss(0)[0].item() == pytest.approx(0, abs=1e-6), "as indifferent as the teacher"
    assert losses[1.0] > 0.01


def test_the_penalty_is_squared_mean_and_mean_weight(training):
    """Estimated on a sample; on many samples it comes near the sum over the vocabulary."""
    from sparta.training.ranking import make_batch

    made = training(
        pressure=1.0,
        asked_share=None,
        sampled_terms=20_000,
        trainer={"steps": 3},
        data=hand_made(),
        held_out=0,
    )
    made.model.eval()
    without = made.loss(0)[1]["ranking"]
    assert made.loss(0)[0].item() == pytest.approx(without)  # it begins with none
    loss, logs = made.loss(3)
    paragraphs, rng = made._draw(3)
    batch = make_batch(paragraphs, rng, 3)
    weights = dense(made.model, batch.candidates)
    total = 0.0
    for part, share in ((weights[: batch.n_sentences], 1), (weights[batch.n_sentences :], 0.3)):
        total += share * ((part.mean(0) ** 2).sum() + 0.05 * part.mean(0).sum())
    terms = (weights > 0).sum(1)
    assert logs["terms"] == pytest.approx(terms[: batch.n_sentences].mean(), rel=0.05)
    assert logs["paragraph_terms"] == pytest.approx(terms[batch.n_sentences :].mean(), rel=0.05)
    assert loss.item() - logs["ranking"] == pytest.approx(total, rel=0.05)


def test_terms_that_questions_ask_for_are_penalised_less(training):
    """Half as much when the given share of the questions has them."""
    import torch

    data = hand_made()
    questions = [q for p in data.paragraphs for q, _ in p.questions]
    made = training(asked_share=0.5, data=data, held_out=0)
    alike = training("alike", asked_share=None, data=data, held_out=0)
    counts = Counter(term for q in questions for term in made.tokenizer.bag(q))
    for term, count in counts.items():
        assert made.penalty_weights[term].item() == pytest.approx(0.5 / (0.5 + count / len(questions)))
    little = training("little", asked_share=1e-9, data=data, held_out=0)
    assert little.penalty_weights[next(iter(counts))] == pytest.approx(0.05), "never quite free"
    with pytest.raises(InputError, match="above 0"):
        training("none", asked_share=0.0)
    unasked = next(t for t in made.allowed.tolist() if t not in counts)
    assert made.penalty_weights[unasked] == 1
    assert (alike.penalty_weights == 1).all()
    weights = torch.full((3, len(made.allowed)), 0.5)
    dear, _ = made._penalty(weights, alike.penalty_weights[made.allowed], 2)
    cheap, _ = made._penalty(weights, made.penalty_weights[made.allowed], 2)
    expected = float(dear) * made.penalty_weights[made.allowed].mean().item()
    assert float(cheap) == pytest.approx(expected, rel=1e-4)
    assert float(cheap) < float(dear)


def test_texts_without_tokens_leave_the_gradients_finite(training):
    from sparta.training.paragraphs import Paragraph, ParagraphSet

    texts = ["\u200b\u200b", "earth moon", "\u200b"]
    made = training(
        data=ParagraphSet(
            "odd", tuple(Paragraph(t, "", ((0, len(t)),), (("moon", 0),)) for t in texts), 1.0, 3
        ),
        held_out=0,
    )
    loss, _ = made.loss(0)
    loss.backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in made.model.parameters())


# ---------------------------------------------------------------- validation


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
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != "README.md"}


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


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C means what it means in a terminal, also where what started the tests ignores it (nohup, `&`)."""
    import signal

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("stop", [1, 5, 11])
def test_ctrl_c_in_a_step_keeps_the_step(ctrl_c, training, stop):
    """Also where a validation was due (steps 6 and 12), which the resumed training makes up for."""
    import signal

    whole = training("whole")
    state = whole.run()
    stopped = training("part")
    original = stopped.loss

    def loss(step: int) -> Any:
        if step == stop:
            signal.raise_signal(signal.SIGINT)
        return original(step)

    stopped.loss = loss
    with pytest.raises(KeyboardInterrupt, match=f"^{stop + 1} steps? kept$"):
        stopped.run()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = training("part", seed=7)
    assert resumed.run(resume=True) == state
    assert state_of(resumed) == state_of(whole)
    assert (whole.folder / "log.jsonl").read_text() == (resumed.folder / "log.jsonl").read_text()


@pytest.mark.parametrize(("stop", "kept"), [(2, "0 steps"), (3, "3 steps"), (7, "6 steps")])
def test_what_an_interrupted_training_says_is_kept(ctrl_c, training, stop, kept):
    """Here at each validation, every three steps; a second Ctrl-C does not wait for the step to end."""
    import signal

    made = training(trainer={"checkpoint_every": 200})
    original = made.loss

    def loss(step: int) -> Any:
        if step == stop:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return original(step)

    made.loss = loss
    with pytest.raises(KeyboardInterrupt, match=f"^{kept}"):
        made.run()


def rewrite_checkpoint(folder: Path, change: Any) -> None:
    import torch

    payload = torch.load(folder / "state.pt", weights_only=True)
    change(payload)
    torch.save(payload, folder / "state.pt")


def stopped(made: Any, at: int) -> Any:
    """Train until this step, in which Ctrl-C comes."""
    original = made.loss

    def loss(step: int) -> Any:
        if step == at:
            raise KeyboardInterrupt
        return original(step)

    made.loss = loss
    with pytest.raises(KeyboardInterrupt):
        made.run()
    return made


def test_a_random_state_that_is_missing_is_told(training, caplog):
    rewrite_checkpoint(stopped(training("part"), 7).folder, lambda payload: payload["random"].clear())
    training("part").run(resume=True)
    assert "process 0: the checkpoint lacks its random state" in caplog.text


def test_a_teacher_of_the_same_name_with_other_weights_is_another(training, make_tiny_model, tmp_path):
    from sparta.training.teachers import Mixture, SpartaTeacher

    for folder, seed in (("a", 1), ("b", 2)):
        make_tiny_model(seed=seed).save_pretrained(tmp_path / folder / "teacher")

    def teacher(folder: str) -> Any:
        path = tmp_path / folder / "teacher"
        return Mixture([(SpartaTeacher(str(path), path), 1.0)])

    stopped(training("part", teacher=teacher("a")), 7)
    with pytest.raises(InputError, match="found another teacher_weights"):
        training("part", teacher=teacher("b")).run(resume=True)
    assert training("part", teacher=teacher("a")).run(resume=True).step == 12


def test_the_pressure_moves_once_a_step_by_what_all_processes_measure(training, monkeypatch):
    import math

    import sparta.training.sparta_training

    asked: list[float] = []

    def mean_of_all(figure: float, _: Any) -> float:
        asked.append(figure)
        return 1e9

    monkeypatch.setattr(sparta.training.sparta_training, "mean_of_all", mean_of_all)
    steps = {"steps": 5, "accumulate": 3, "validate_every": 5}
    made = training(terms=100, pressure=0.001, trainer=steps, held_out=0)
    made.further = True  # from the first step on
    made.run()
    assert len(asked) == 5
    assert made.memory["log_pressure"] == pytest.approx(math.log(0.001) - math.log(100) + 5 * 0.02)


TWO_PROCESSES = """
import sys
from pathlib import Path

import torch
from torch import nn

from sparta.neural.trainer import Trainer, TrainerConfig, mean_of_all, process_group, wait_for_all

rank, _ = process_group()
assert mean_of_all(float(rank), torch.device("cpu")) == 0.5
drawn = {}

def run(folder, stop=None, resume=False):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    draws = drawn.setdefault(folder, [])

    def loss(batch):
        if batch // 2 == stop:
            raise RuntimeError("stopped")
        noise = torch.rand(3, 4)
        draws.append((batch, noise.sum().item()))
        return model(noise).square().mean(), {}

    config = TrainerConfig(8, bf16=False, validate_every=100, checkpoint_every=4)
    made = Trainer(model, [{"params": model.parameters()}], loss, lambda: 0.0, lambda: None, config, folder)
    try:
        made.run(resume=resume)
    except RuntimeError:
        pass
    return [p.detach().clone() for p in model.parameters()]

out = Path(sys.argv[1])
whole = run(out / "whole")
run(out / "part", stop=4)
wait_for_all()
torch.manual_seed(99)
resumed = run(out / "part", resume=True)
assert drawn[out / "whole"] == drawn[out / "part"], (rank, drawn)
assert all(a.equal(b) for a, b in zip(whole, resumed))
(out / f"done-{rank}").touch()
"""


@pytest.mark.slow
def test_each_of_two_processes_draws_on_where_it_stopped(tmp_path):
    import subprocess
    import sys

    (tmp_path / "script.py").write_text(TWO_PROCESSES)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
        *("--nproc-per-node", "2", tmp_path / "script.py", tmp_path),
    ]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.glob("done-*")) == ["done-0", "done-1"]


def test_the_model_mines_its_own_negatives(training):
    """Every four steps: what it takes for the answers of other questions; a resumed one finds the same."""
    whole = training("whole", mine_every=4)
    forget_the_words(whole.model)
    start = {name: tensor.clone() for name, tensor in whole.model.state_dict().items()}
    before = whole.sets[0].near
    whole.run()
    assert sorted(p.name for p in whole.folder.glob("mined-*")) == ["mined-0001.json", "mined-0002.json"]
    assert whole.sets[0].near != before
    texts = [p.text for p in whole.sets[0].paragraphs]
    asked = [p.questions[0][0] for p in whole.sets[0].paragraphs]
    part = training("part", mine_every=4)
    part.model.load_state_dict(start)
    stopped(part, 10)
    resumed = training("part", mine_every=4)
    resumed.run(resume=True)
    assert state_of(resumed) == state_of(whole)
    assert resumed.sets[0].near == whole.sets[0].near
    scores = bags(whole.model, asked) @ dense(whole.model, texts).T
    found = training("other", mined=False).sets[0]
    from sparta.training.negatives import mine

    mined = mine(found, lambda questions: scores[[asked.index(q) for q in questions]].astype(np.float32), 5)
    best = [[j for j in np.argsort(-row) if j != i and row[j] > 0][:5] for i, row in enumerate(scores)]
    assert [set(own) for own in mined.near] == [set(own) for own in best]


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
    from sparta.models.load import load_model

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
    largest = max(dense(best, [p.text for p in made.validation[0].paragraphs]).max(), 0)
    assert largest <= best.config.quantizer.max_weight <= 1.2 * largest


def test_pressure_makes_fewer_terms(training):
    terms = []
    for pressure in (0.0, 0.03):
        made = training(
            f"p{pressure}",
            asked_share=None,
            pressure=pressure,
            trainer={"steps": 60, "learning_rate": 2e-3, "validate_every": 60},
            sampled_terms=200,
            scale_rate=1.0,
        )
        made.run()
        made.model.eval()
        texts = [p.text for p in made.sets[0].paragraphs[:40]]
        terms.append((dense(made.model, texts) > 0).sum(1).mean())
    assert terms[1] < 0.8 * terms[0]
    assert terms[1] > 0


def test_a_number_of_terms_can_be_asked_for(training):
    """The pressure moves until it is reached; where the model has fewer by itself, it is all but lifted."""
    counts, pressure = {}, {}
    for wanted in (20, 150):
        made = training(
            f"n{wanted}",
            terms=wanted,
            pressure=0.001,
            trainer={"steps": 240, "learning_rate": 2e-3, "validate_every": 240, "checkpoint_every": 120},
            sampled_terms=200,
            scale_rate=1.0,
            dropout=0.0,
        )
        made.run()
        lines = [json.loads(line) for line in (made.folder / "log.jsonl").read_text().splitlines()]
        counts[wanted] = np.mean([line["paragraph_terms"] for line in lines[-31:] if "loss" in line])
        pressure[wanted] = made.memory["log_pressure"]
    assert 10 < counts[20] < 40
    assert counts[20] < 0.6 * counts[150]
    assert pressure[150] < np.log(0.001) - 1 < pressure[20] - 0.5


# ---------------------------------------------------------------- the command's function


def test_what_training_leaves(train, tmp_path):
    from safetensors import safe_open

    from sparta.models.load import load_model

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

    from sparta.models.load import load_model

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


def test_texts_longer_than_the_encoder_are_refused(train):
    with pytest.raises(ModelError, match="expected at most 512 wordpieces"):
        train("out", max_length=600)


def test_resuming_another_model_or_other_data_is_refused(train, pairs_file):
    train("out")
    for change in ({"context": False}, {"max_length": 64}, {"tied": True}):
        with pytest.raises(InputError, match="expected the same training settings"):
            train("out", resume=True, **change)
    lines = pairs_file.read_text().splitlines()
    pairs_file.write_text("\n".join([lines[1], lines[0], *lines[2:]]))
    with pytest.raises(InputError, match="expected the same training settings"):
        train("out", resume=True)


def test_sets_are_drawn_by_their_weights(make_tiny_model, tmp_path, words):
    from sparta.neural.trainer import TrainerConfig
    from sparta.training.paragraphs import Paragraph, ParagraphSet
    from sparta.training.sparta_training import SpartaTraining, TrainConfig

    sets = [
        ParagraphSet(
            name,
            tuple(Paragraph(w, "", ((0, len(w)),), ((f"{name} {w}", 0),)) for w in words[:20]),
            weight,
            size,
        )
        for name, weight, size in (("a", 3.0, 4), ("b", 1.0, 6))
    ]
    made = SpartaTraining(make_tiny_model(), sets, TrainConfig(trainer=TrainerConfig(10)), tmp_path)
    batches = [made._draw(step)[0] for step in range(400)]
    names = Counter(batch[0].questions[0][0][0] for batch in batches)
    assert 260 < names["a"] < 340
    for batch in batches:
        asked = [p.questions[0][0] for p in batch]
        assert len(set(asked)) == (4 if asked[0][0] == "a" else 6)
        assert len({question[0] for question in asked}) == 1


def test_the_layouts_of_a_model(train):
    """In a shared context by default, marked by segments as in the paper, or alone."""
    from sparta.models.load import load_model

    layouts = [
        load_model(train(name, **options).folder).config.layout
        for name, options in (("a", {}), ("b", {"segments": True}), ("c", {"context": False}))
    ]
    assert [(one.use_context, one.share_context, one.answer_segment) for one in layouts] == [
        (True, True, 0),
        (True, False, 1),
        (False, False, 0),
    ]


@pytest.mark.slow
def test_two_processes_are_two_batches_a_step(train, pairs_file, encoder_folder, tmp_path):
    """Gradients of two processes are averaged as those of two accumulated batches are."""
    import subprocess
    import sys

    from safetensors.torch import load_file

    single = train("single", accumulate=2, validate_every=6, full_precision=True)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
        *("--nproc-per-node", "2"),
        *("-m", "cli._sparta", "train", "--encoder", encoder_folder, "--pairs", pairs_file, "--seed", "2"),
        *("--output", tmp_path / "both", "--steps", "6", "--learning-rate", "1e-3", "--validate-every", "6"),
        *("--batch-size", "8", "--device", "cpu", "--full-precision"),
    ]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("validation MRR") == 1, "one process speaks"
    card = (tmp_path / "both" / "best" / "README.md").read_text()
    assert f" train --encoder {encoder_folder} --pairs {pairs_file} --steps 6 " in card
    assert "base_model" not in card, "the encoder is a folder"
    two = load_file(tmp_path / "both" / "best" / "model.safetensors")
    for name, one in load_file(single.folder / "model.safetensors").items():
        np.testing.assert_allclose(two[name], one, atol=2e-4, err_msg=name)
    alone = load_file(train("alone", validate_every=6, full_precision=True).folder / "model.safetensors")
    assert max(float((two[n] - alone[n]).abs().max()) for n in two) > 1e-3


def test_a_trained_model_is_pressed_gently_at_first(training):
    """With a number of terms to follow, the penalty counts from the first step, but begins a hundredth."""
    import math

    for further, begins in ((False, 0.01), (True, 0.0001)):
        made = training(f"{further}", terms=100, pressure=0.01, trainer={"steps": 1, "validate_every": 1})
        made.further = further
        made.run()
        assert made.memory["log_pressure"] == pytest.approx(math.log(begins), abs=0.021)


def test_a_sparta_model_is_trained_further(train, tmp_path, monkeypatch):
    """It begins where the first training ended, scale and bias included."""
    import torch

    from sparta.models.resolve import DEFAULT_MODEL, default_model_folder, sparta_folder
    from sparta.models.sparta import SpartaModel
    from sparta.training.sparta_training import SpartaTraining

    first = train("first", full_precision=True)
    second = train("second", encoder=str(tmp_path / "first"), learning_rate=1e-12, full_precision=True)
    log = [json.loads(line) for line in (tmp_path / "second" / "log.jsonl").read_text().splitlines()]
    assert log[0]["step"] == 0, "what it began with is validated too"
    assert log[0]["validation"] == pytest.approx(first.validation, abs=1e-6)
    begun, ended = SpartaModel.load(first.folder), SpartaModel.load(second.folder)
    for name, tensor in begun.state_dict().items():
        torch.testing.assert_close(ended.state_dict()[name], tensor, msg=name)
    assert begun.scale != 1
    assert ended.config.quantizer
    for change, word in ((({"tied": True}), "tied False"), ({"max_length": 32}, "max_length 256 and not 32")):
        with pytest.raises(ModelError, match=word):
            train("third", encoder=str(tmp_path / "first"), **change)
    figures = iter([0.9, 0.8, 0.7])
    monkeypatch.setattr(SpartaTraining, "validate", lambda training: next(figures))
    worse = train("worse", encoder=str(tmp_path / "first"), full_precision=True)
    assert (worse.step, worse.validation) == (0, 0.9), "what it began with stays the best"
    assert sparta_folder(DEFAULT_MODEL) == default_model_folder()
    assert sparta_folder(tmp_path / "none") is None


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_occurrences_count_in_training_as_in_encoding(training, train, share):
    """Scores are those of an index, the gains learn, and a training adds them unless it is told not to."""
    from dataclasses import replace

    import torch

    from sparta.models.config import Lexical
    from sparta.models.load import load_model
    from sparta.models.sparta import SpartaModel

    made = training(data=hand_made(), held_out=0, dropout=0.0)
    made.model.add_lexical(Lexical(5.0), torch.rand(len(made.model.term_matrix())))
    made.model.config = replace(made.model.config, context_share=share)
    made.model.eval()
    batch = made.batch(0)
    with torch.no_grad():
        scores = made.score(made.ask(batch.questions), batch.candidates)
    rows = made.model.encode_document(batch.candidates, dtype="fp32")
    expected = (made.model.encode_query(batch.questions) @ rows.T).toarray()
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    assert made.score(made.ask(["\u200b"]), batch.candidates).abs().sum() == 0, "nothing is asked"
    made.loss(0)[0].backward()
    assert made.model.gains.grad.abs().sum() > 0
    assert any(made.model.gains is p for g in made.parameter_groups()[1:2] for p in g["params"])

    result = train("with", learning_rate=1e-12, full_precision=True)
    model = SpartaModel.load(result.folder)
    assert model.config.lexical.mean_length > 1
    seen = model.tokenizer.encode(train.texts[0], add_special_tokens=False).ids
    gains = model.gains.detach().numpy()
    assert gains.max() == pytest.approx(0.2 * np.log1p((len(train.texts) + 0.5) / 0.5), rel=0.01)
    assert 0 < gains[seen].min() < gains.max()
    assert load_model(train("without", lexical=False).folder).lexical_gains() is None
    further = train("further", encoder=str(result.folder))
    assert load_model(further.folder).lexical_gains() is not None
    with pytest.raises(InputError, match="expected a model without gains"):
        train("none", encoder=str(result.folder), lexical=False)


def test_a_new_model_gives_contexts_a_share_and_an_old_one_keeps_its_own(train):
    from sparta.base.errors import InputError
    from sparta.models.sparta import SpartaModel

    def share(name: str, **options: Any) -> float:
        result = train(name, full_precision=True, **options)
        return SpartaModel.load(result.folder).config.context_share

    assert share("new") == 0.4
    assert (
        share("alone", context=False)
        == share("marked", segments=True)
        == share("none", context_share=0.0)
        == 0
    )
    first = str(train("other", context_share=0.2, full_precision=True).folder)
    assert share("further", encoder=first) == 0.2
    assert share("changed", encoder=first, context_share=0.1) == 0.1
    for how in ({"context": False}, {"segments": True}):
        with pytest.raises(InputError, match="only where answers share one"):
            train("refused", context_share=0.3, **how)
