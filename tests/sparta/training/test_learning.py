"""The loss falls, and the number of terms follows."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.sparta.training.made_trainings import dense, forget_the_words

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
def test_the_loss_falls_and_the_best_is_kept(training, tmp_path):
    """From random term embeddings to those of the words that are asked for."""
    from sparta.models.load import load_module

    made = training(
        trainer={"steps": 160, "learning_rate": 5e-3, "validate_every": 40}, batch=16, scale_rate=1.0
    )
    forget_the_words(made.model)
    before = made.validate()
    state = made.run()
    lines = [json.loads(line) for line in (made.folder / "log.jsonl").read_text().splitlines()]
    losses = [line["ranking"] for line in lines if "ranking" in line]
    assert np.mean(losses[-20:]) < 0.6 * np.mean(losses[:20])
    figures = {line["step"]: line["validation"] for line in lines if "validation" in line}
    assert state.best == pytest.approx(max(figures.values()), abs=1e-6)
    assert figures[state.best_step] == max(figures.values())
    assert state.best > 2 * before
    best = load_module(made.folder / "best")
    assert best.config.quantizer.bits == 8
    largest = max(dense(best, [p.text for p in made.validation[0].paragraphs]).max(), 0)
    assert largest <= best.config.quantizer.max_weight <= 1.2 * largest


@pytest.mark.slow
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


@pytest.mark.slow
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
