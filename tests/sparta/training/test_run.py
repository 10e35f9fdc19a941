"""`TrainingRun`: settings that must be the same, the card, and checkpoints of earlier releases."""

from __future__ import annotations

import json
import logging
import math
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from sparta.base.errors import IndexStateError, InputError, ModelError, StorageError
from sparta.base.files import temporary_name
from sparta.base.remedies import Option
from sparta.training.model_card import ModelKind
from sparta.training.options import SpartaRecipe, TrainerConfig, TrainSettings, check_same, fields_of
from sparta.training.run import TrainingRun, check_output, layer_factors, rate_groups, trainer_config

CHECKPOINT = Path(__file__).parent / "checkpoint"
"""Four of eight steps, written at commit d1e9018."""


class Noise(TrainingRun[torch.nn.Linear]):
    """Fits a line to noise."""

    kind, measured_on = ModelKind("A line.", "lines", "line {}"), ", on nothing"

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        return self.model(torch.rand(3, 4)).square().mean(), {}

    def validate(self) -> float:
        return 0.25

    def save_best(self) -> None:
        (self.folder / "best").mkdir(exist_ok=True)
        save_file(self.model.state_dict(), self.folder / "best" / "model.safetensors")


def noise(folder: Path, kind: type[Noise] = Noise, **changes: Any) -> Noise:
    torch.manual_seed(0)
    config = TrainerConfig(
        **{"steps": 8, "bf16": False, "checkpoint_every": 4, "validate_every": 100, **changes}
    )
    return kind(torch.nn.Linear(4, 1), config, folder, facts={"learned": "noise", "device_free": 1})


def test_a_checkpoint_of_an_earlier_release_is_resumed(tmp_path: Path) -> None:
    shutil.copytree(CHECKPOINT, tmp_path / "out")
    resumed = noise(tmp_path / "out")
    with torch.no_grad():
        resumed.model.weight.zero_()  # the checkpoint replaces them
    assert resumed.run(resume=True).step == 8
    assert resumed.memory == {"pressure": 0.5}
    expected = [-0.003599692601710558, 0.26836904883384705, -0.41137412190437317, -0.3678213059902191]
    assert resumed.model.weight.tolist()[0] == pytest.approx(expected, rel=1e-6)
    assert resumed.model.bias.tolist() == pytest.approx([-0.1924281120300293], rel=1e-6)
    steps = [json.loads(line)["step"] for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8, 8]


def test_a_checkpoint_with_other_groups_of_learning_rates_is_refused(tmp_path: Path) -> None:
    class Grouped(Noise):
        def parameter_groups(self) -> list[dict[str, Any]]:
            return rate_groups(self.model.named_parameters(), lambda name: 2.0 if name == "bias" else 1.0)

    shutil.copytree(CHECKPOINT, tmp_path / "out")
    resumed = noise(tmp_path / "out", Grouped)
    with pytest.raises(ModelError, match="other groups of learning rates") as refused:
        resumed.run(resume=True)
    assert refused.value.remedy.options == [Option("output")]


def test_a_second_training_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    """Also one that resumes; the first training goes on, and its log stays whole."""
    refused: list[IndexStateError] = []

    class Disturbed(Noise):
        def validate(self) -> float:
            for resume in (False, True):
                with pytest.raises(IndexStateError, match="another training is writing to this") as caught:
                    noise(tmp_path / "out").run(resume=resume)
                refused.append(caught.value)
            return 0.5

    noise(tmp_path / "out", Disturbed, validate_every=4).run()
    assert len(refused) == 4
    assert (refused[0].where, refused[0].remedy.options) == (str(tmp_path / "out"), [Option("output")])
    steps = [json.loads(line)["step"] for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8]
    assert noise(tmp_path / "out", validate_every=4).run(resume=True).step == 8


def test_a_folder_whose_training_made_no_step_takes_a_new_training(tmp_path: Path) -> None:
    class Failing(Noise):
        def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
            raise ModelError("no loss")

    with pytest.raises(ModelError, match="no loss"):
        noise(tmp_path, Failing).run()
    assert check_output(tmp_path, resume=False) == tmp_path
    noise(tmp_path).run()
    with pytest.raises(IndexStateError, match="already contains files"):
        check_output(tmp_path, resume=False)


def test_a_resumed_training_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    noise(tmp_path).run()
    for folder in (tmp_path, tmp_path / "best"):
        (folder / temporary_name()).write_bytes(b"half a model")
    files_of_others = tmp_path / "best" / "notes.tmp"
    files_of_others.touch()
    noise(tmp_path).run(resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "lock", "log.jsonl", "state.pt"]
    assert sorted(path.name for path in (tmp_path / "best").iterdir()) == ["model.safetensors", "notes.tmp"]


def test_the_quota_of_a_container_limits_the_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        for quota, expected in ((2, 2), (64, 2)):  # it is never raised
            monkeypatch.setattr("sparta.training.run.threads", lambda quota=quota: quota)
            noise(tmp_path / "out")
            assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


def test_a_diverged_training_stops_and_its_last_checkpoint_stays(tmp_path: Path) -> None:
    class Exploding(Noise):
        factor = 1.0

        def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
            loss, logs = super().loss(step)
            return loss * (self.factor if step == 5 else 1.0), logs

    for number, factor in enumerate((math.inf, math.nan)):
        training = Exploding(
            torch.nn.Linear(4, 1), TrainerConfig(8, bf16=False, checkpoint_every=4), tmp_path / str(number)
        )
        training.factor = factor
        with pytest.raises(ModelError, match="of step 6 are not finite") as diverged:
            training.run()
        assert diverged.value.remedy.options == [Option("learning_rate"), Option("output")]
        assert training.kept == 4
        lines = (tmp_path / str(number) / "log.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5]


def test_the_time_of_a_step_is_that_of_the_median_step(tmp_path: Path) -> None:
    """A pause of the machine within a step, and the validation between steps, do not count."""
    now = [0.0]

    class Slow(Noise):
        clock = staticmethod(lambda: now[0])

        def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
            now[0] += 600.0 if step == 3 else 2.0
            return super().loss(step)

        def validate(self) -> float:
            now[0] += 50.0
            return super().validate()

    config = TrainerConfig(steps=8, bf16=False, validate_every=2)
    recipe, table = TrainSettings(encoder="org/encoder", steps=8), [("data", "n")]
    trained = Slow(torch.nn.Linear(4, 1), config, tmp_path / "line").train(recipe, table)
    assert trained.seconds_per_step == 2.0
    finished = Slow(torch.nn.Linear(4, 1), config, tmp_path / "line").train(recipe, table, resume=True)
    assert finished.seconds_per_step == 0.0


def test_other_settings_are_data_of_the_error(tmp_path: Path) -> None:
    shutil.copytree(CHECKPOINT, tmp_path / "out")
    with pytest.raises(InputError) as caught:
        noise(tmp_path / "out", seed=5, steps=9).run(resume=True)
    assert caught.value.facts["differing"] == ["trainer.seed", "trainer.steps"]
    assert caught.value.remedy.options == [Option("resume"), Option("output")]
    with pytest.raises(InputError, match=r"started training: a\.b \(2, was 1\), long\n"):
        check_same({"a": {"b": 1}, "long": "x" * 80}, {"a": {"b": 2}, "long": "y"}, tmp_path)


def test_the_card_of_a_training(tmp_path: Path) -> None:
    recipe = TrainSettings(encoder="org/encoder", steps=8)
    result = noise(tmp_path / "line").train(recipe, [("data", "n"), ("noise", 3)])
    assert (result.step, result.reached) == (8, "25.0% at step 8")
    card = (result.folder / "README.md").read_text()
    for part in (
        "base_model: org/encoder\ntags: [lines, sparta]",
        "# line\n\nA line. It began as `org/encoder`.\n\n    line line\n",
        "| data | n |\n| --- | --- |\n| noise | 3 |\n",
        "    TrainSettings(encoder='org/encoder', steps=8)\n",
        "Validation: 25.0% at step 8, on nothing.",
    ):
        assert part in card
    (result.folder / "README.md").write_text(f"{card}Licence: MIT\n")
    noise(tmp_path / "line").train(recipe, [("data", "n")], resume=True, command="another")
    assert (result.folder / "README.md").read_text().endswith("Licence: MIT\n"), "the weights are the same"


@pytest.mark.parametrize(("most_bytes", "name"), [(0, "log.jsonl"), (500, "state.pt")])
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path, most_bytes: int, name: str) -> None:
    class Unsaved(Noise):
        def save_best(self) -> None:
            pass

    config = TrainerConfig(steps=1, bf16=False)
    training = Unsaved(torch.nn.Linear(4, 1), config, tmp_path)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, usual[1]))
    try:
        with pytest.raises(StorageError, match="the file cannot be ") as refused:
            training.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert refused.value.where == str(tmp_path / name)
    assert not (tmp_path / "state.pt").exists()


def test_without_validation_no_score_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Unvalidated(Noise):
        figure = None

    with caplog.at_level(logging.INFO):
        Unvalidated(torch.nn.Linear(4, 1), TrainerConfig(steps=2, bf16=False), tmp_path / "none").run()
        assert "validation" not in caplog.text.replace("without validation", "")
        assert '"validation"' not in (tmp_path / "none" / "log.jsonl").read_text("utf-8")
        Noise(torch.nn.Linear(4, 1), TrainerConfig(steps=2, bf16=False), tmp_path / "some").run()
    assert "step 2 of 2: validation score 0.2500" in caplog.text


def test_a_schedule_is_that_of_the_recipe() -> None:
    recipe = SpartaRecipe(encoder="e", steps=7, seed=3, accumulate=2, validate_every=5, learning_rate=1e-4)
    made = trainer_config(recipe, torch.device("cpu"), checkpoint_every=9)
    expected = TrainerConfig(7, 1e-4, clip=2.0, accumulate=2, bf16=made.bf16, seed=3, validate_every=5)
    assert made == TrainerConfig(**{**fields_of_config(expected), "checkpoint_every": 9})
    assert fields_of(recipe, TrainSettings)["encoder"] == "e"


def fields_of_config(config: TrainerConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in TrainerConfig.__dataclass_fields__}


def test_groups_are_in_order_of_appearance() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    groups = rate_groups(model.named_parameters(), lambda name: 10.0 if name.startswith("1.") else 1.0)
    assert [group["factor"] for group in groups] == [1.0, 10.0]
    assert [len(group["params"]) for group in groups] == [2, 2]


@pytest.mark.parametrize(
    ("names", "factors"),
    [
        (("e.embeddings.word.weight", "e.encoder.layer.0.w", "e.encoder.layer.1.w"), [0.25, 0.5, 1.0]),
        (
            ("e.embeddings.word.weight", "e.layers.0.w", "e.layers.1.w", "e.final_norm.w"),
            [0.25, 0.5, 1.0, 1.0],
        ),
        (("e.embeddings.word.weight", "e.encoder.albert_layer_groups.0.albert_layers.0.w"), [1.0, 1.0]),
        (("e.encoder.relative_attention_bias.weight", "e.encoder.layer.0.w"), [0.5, 1.0]),
        (("e.encoder.rel_embeddings.weight", "e.encoder.layer.0.w"), [0.5, 1.0]),
        (("e.embeddings_project.weight", "e.encoder.layer.0.w", "codes.weight"), [0.5, 1.0, 1.0]),
    ],
    ids=["BERT", "ModernBERT", "ALBERT", "MPNet", "DeBERTa", "ELECTRA"],
)
def test_lower_layers_have_lower_rates_in_each_architecture(
    names: tuple[str, ...], factors: list[float]
) -> None:
    factor = layer_factors(names, 0.5)
    assert [factor(name) for name in names] == factors
