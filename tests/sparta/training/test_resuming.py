"""A training that was stopped goes on as if it had not been."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta.base.errors import InputError
from tests.sparta.training.made_trainings import bags, dense, files, forget_the_words

pytestmark = pytest.mark.usefixtures("one_thread")


def state_of(made: Any) -> dict[str, bytes]:
    return {name: t.detach().numpy().tobytes() for name, t in made.model.state_dict().items()}


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 6, 11])
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


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 5])
def test_ctrl_c_in_a_step_keeps_the_step(ctrl_c, training, stop):
    """Also where a validation was due (step 6), which the resumed training makes up for."""
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


def test_the_random_state_of_an_apple_gpu_is_restored(monkeypatch, caplog):
    import torch

    from sparta.neural.processes import random_states, restore_random_state

    state, restored = torch.tensor([7], dtype=torch.uint8), []
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: state)
    monkeypatch.setattr(torch.mps, "set_rng_state", restored.append)
    [states] = random_states(torch.device("mps"))
    restore_random_state([states], torch.device("mps"))
    assert (restored, caplog.text) == ([state], "")
    del states["mps"]
    restore_random_state([states], torch.device("mps"))
    assert "process 0: the checkpoint lacks its random state" in caplog.text


@pytest.mark.slow
def test_a_teacher_of_the_same_name_with_other_weights_is_another(training, make_tiny_model, tmp_path):
    from sparta.training.teachers import Mixture, SpartaTeacher

    for folder, seed in (("a", 1), ("b", 2)):
        make_tiny_model(seed=seed).save_pretrained(tmp_path / folder / "teacher")

    def teacher(folder: str) -> Any:
        path = tmp_path / folder / "teacher"
        return Mixture([(SpartaTeacher(str(path), path), 1.0)])

    stopped(training("part", teacher=teacher("a")), 7)
    with pytest.raises(InputError, match="started training: teacher_weights"):
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
    made.trained_before = True  # from the first step on
    made.run()
    assert len(asked) == 5
    assert made.memory["log_pressure"] == pytest.approx(math.log(0.001) - math.log(100) + 5 * 0.02)


TWO_PROCESSES = """
import os, sys
from pathlib import Path

import torch
from torch import nn

from sparta.neural.processes import mean_of_all, process_group, wait_for_all
from sparta.training.options import TrainerConfig
from sparta.training.run import TrainingRun

torch.set_num_threads(1)
child = os.fork()  # as torchrun does, but torch is imported once
os.environ |= {"RANK": "1" if child else "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[2]}
rank, _ = process_group()
assert mean_of_all(float(rank), torch.device("cpu")) == 0.5
drawn = {}

def run(folder, stop=None, resume=False):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    draws = drawn.setdefault(folder, [])

    class Noise(TrainingRun):
        def loss(self, batch):
            if batch // 2 == stop:
                raise RuntimeError("stopped")
            noise = torch.rand(3, 4)
            draws.append((batch, noise.sum().item()))
            return model(noise).square().mean(), {}

        def validate(self):
            return 0.0

        def save_best(self):
            pass

    config = TrainerConfig(8, bf16=False, validate_every=100, checkpoint_every=4)
    try:
        Noise(model, config, folder).run(resume=resume)
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
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.release
def test_each_of_two_processes_draws_on_where_it_stopped(tmp_path):
    import os
    import socket
    import subprocess
    import sys

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [sys.executable, "-c", TWO_PROCESSES, str(tmp_path), str(port)]
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.glob("done-*")) == ["done-0", "done-1"]


@pytest.mark.slow
def test_the_model_mines_its_own_negatives(training):
    """Every four steps: what it takes for the answers of other questions; a resumed one finds the same."""
    whole = training("whole", mine_every=4)
    forget_the_words(whole.model)
    start = {name: tensor.clone() for name, tensor in whole.model.state_dict().items()}
    before = whole.sets[0].hard_negatives
    whole.run()
    assert sorted(p.name for p in whole.folder.glob("mined-*")) == ["mined-0001.json", "mined-0002.json"]
    assert whole.sets[0].hard_negatives != before
    texts = [p.text for p in whole.sets[0].paragraphs]
    asked = [p.questions[0][0] for p in whole.sets[0].paragraphs]
    part = training("part", mine_every=4)
    part.model.load_state_dict(start)
    stopped(part, 10)
    resumed = training("part", mine_every=4)
    resumed.run(resume=True)
    assert state_of(resumed) == state_of(whole)
    assert resumed.sets[0].hard_negatives == whole.sets[0].hard_negatives
    scores = bags(whole.model, asked) @ dense(whole.model, texts).T
    found = training("other", mined=False).sets[0]
    from sparta.training.negatives import mine

    mined = mine(found, lambda questions: scores[[asked.index(q) for q in questions]].astype(np.float32), 5)
    best = [[j for j in np.argsort(-row) if j != i and row[j] > 0][:5] for i, row in enumerate(scores)]
    assert [set(own) for own in mined.hard_negatives] == [set(own) for own in best]


@pytest.mark.slow
def test_a_finished_training_resumed_changes_nothing(training):
    made = training()
    state = made.run()
    before = files(made.folder / "best")
    again = training()
    assert again.run(resume=True) == state
    assert files(made.folder / "best") == before


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [{"pressure": 0.5}, {"trainer": {"learning_rate": 2e-3}}, {"trainer": {"steps": 13}}, {"batch": 4}],
)
def test_resuming_with_other_settings_is_refused(training, change):
    training().run()
    with pytest.raises(InputError, match="the settings differ") as caught:
        training(**change).run(resume=True)
    assert caught.value.where.endswith("state.pt")


@pytest.mark.slow
def test_a_device_with_other_arithmetic_is_named(training):
    stopped(training("part"), 7)
    with pytest.raises(InputError, match="a device that computes in fp32") as caught:
        training("part", trainer={"bf16": True}).run(resume=True)
    assert caught.value.facts["differing"] == ["trainer.bf16"]


def test_another_encoder_is_refused(encoder_folder, pairs_file, tmp_path):
    """Also if an earlier training wrote it to the same folder; a checkpoint of before stored no encoder."""
    import torch

    from sparta.training.options import SpartaRecipe
    from sparta.training.paragraphs import open_set
    from sparta.training.train import train_model

    folder = shutil.copytree(encoder_folder, tmp_path / "start")
    sets = [open_set(str(pairs_file), "pairs", 8)]
    recipe = SpartaRecipe(
        encoder=str(folder), steps=2, validate_every=2, max_length=64, lexical=False, device="cpu"
    )
    train_model(sets, recipe, tmp_path / "out")
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    with pytest.raises(InputError) as caught:
        train_model(sets, recipe, tmp_path / "out", resume=True)
    assert caught.value.facts["differing"] == ["began_from"]
    path = tmp_path / "out" / "state.pt"
    stored = torch.load(path, weights_only=True)
    del stored["facts"]["began_from"]
    torch.save(stored, path)
    train_model(sets, recipe, tmp_path / "out", resume=True)
