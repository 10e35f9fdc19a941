"""The recipe of the paper, element by element (SPARTA, §3.2 and §3.3)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from sparta.base.errors import InputError
from sparta.training.batches import SampledNegatives
from sparta.training.options import SpartaRecipe
from sparta.training.paragraphs import Paragraph, ParagraphSet
from tests.programs import sparta


def many(paragraphs: int = 50, each: int = 4) -> ParagraphSet:
    """Paragraphs of several sentences, `s<number>`, with a question for each."""
    made = []
    for p in range(paragraphs):
        sentences = [f"s{p * each + n}." for n in range(each)]
        text, spans, at = " ".join(sentences), [], 0
        for sentence in sentences:
            spans.append((at, at + len(sentence)))
            at += len(sentence) + 1
        questions = tuple((f"q{p * each + n}", n) for n in range(each))
        made.append(Paragraph(text, "title", tuple(spans), questions))
    return ParagraphSet("many", tuple(made))


def own_negatives(batch: Any, row: int) -> list[str]:
    """The candidates that count against a question."""
    counted = set(range(len(batch.candidates))) - batch.masked[row] - {batch.gold_sentence[row]}
    return [batch.candidates[i].text for i in sorted(counted)]


def test_half_of_the_negatives_are_nearby_and_half_are_random() -> None:
    sampler = SampledNegatives(many(), 8)
    distances: Counter[int] = Counter()
    rng = random.Random(1)
    for _ in range(60):
        batch = sampler.draw(rng, 5)
        assert batch.n_sentences == len(batch.candidates)
        for row, question in enumerate(batch.questions):
            place = int(question[1:])
            assert batch.candidates[batch.gold_sentence[row]].text == f"s{place}."
            negatives = own_negatives(batch, row)
            assert len(negatives) == 8
            distances.update(abs(int(text[1:-1]) - place) for text in negatives)
    total = distances.total()
    near = sum(n for distance, n in distances.items() if distance <= 4)
    assert 0.5 <= near / total < 0.56, "the four nearest, and what chance adds"
    far = [d for d in distances.elements() if d > 4]
    assert 55 < sum(far) / len(far) < 80, "a third of 200 sentences: the others are drawn from all"


def test_what_answers_is_no_negative() -> None:
    twice = Paragraph("yes. no. perhaps.", "", ((0, 4), (5, 8), (9, 17)), (("q", 0),))
    again = Paragraph("yes. never. yes.", "", ((0, 4), (5, 11), (12, 16)), (("q", 1),))
    sampler = SampledNegatives(ParagraphSet("few", (twice, again)), 4)
    for seed in range(20):
        batch = sampler.draw(random.Random(seed), 2)
        for row in range(2):
            assert set(own_negatives(batch, row)) == {"no.", "perhaps."}


def test_whole_texts_are_candidates_where_they_answer() -> None:
    texts = tuple(Paragraph(f"text {i}", "", (), ((f"q{i}", -1),)) for i in range(6))
    batch = SampledNegatives(ParagraphSet("whole", texts), 2).draw(random.Random(0), 6)
    assert sorted(c.text for c in batch.candidates) == [p.text for p in texts]
    assert [batch.candidates[g].text[5:] for g in batch.gold_sentence] == [q[1:] for q in batch.questions]


def test_the_loss_is_eq_7_of_eq_4_to_6(make_tiny_model: Any, tmp_path: Any) -> None:
    import torch

    from sparta.models.config import SpartaConfig
    from sparta.neural.inputs import InputLayout
    from sparta.training.options import TrainerConfig
    from sparta.training.sparta_training import SpartaTraining, TrainConfig
    from sparta.training.train import PAPER_FORM, PAPER_LOSS

    spans = ((0, 17), (18, 31))
    texts = (
        "moon earth city. king founded.",
        "google river sun. planet house.",
        "paris city map .. moon larry..",
    )
    words = [text.replace(".", "").split() for text in texts]
    made = [
        Paragraph(text, "", spans, ((f"{own[0]} {own[4]}", 0),))
        for text, own in zip(texts, words, strict=True)
    ]
    layout = InputLayout(use_context=True, answer_segment=1)
    model = make_tiny_model(SpartaConfig(layout, tied=PAPER_FORM["tied"]))
    trainer = TrainerConfig(steps=3, learning_rate=1e-3, bf16=False, seed=1, validate_every=3)
    config = TrainConfig(trainer=trainer, pressure=0.0, mined=False, held_out=0, **PAPER_LOSS)
    with torch.no_grad():
        model.scale.fill_(1.0)
        model.bias.fill_(-0.5)
    training = SpartaTraining(model, [ParagraphSet("s", tuple(made), 1.0, 3)], config, tmp_path / "t")
    model.eval()
    loss, _ = training.loss(0)

    batch = training.batch(0)
    assert model.term_embeddings is None
    assert model.gains is None
    assert not model.scale.requires_grad
    table = model.encoder.get_input_embeddings().weight
    tokenizer = model.tokenizer
    expected = []
    for row, question in enumerate(batch.questions):
        scores = []
        counted = set(range(len(batch.candidates))) - batch.masked[row] | {batch.gold_sentence[row]}
        for i in sorted(counted):
            passage = batch.candidates[i]
            encoded = tokenizer.encode(passage.context)
            inside = [passage.start <= a < passage.end and b > a for a, b in encoded.offsets]
            states = model.encoder(
                input_ids=torch.tensor([encoded.ids]), token_type_ids=torch.tensor([[int(x) for x in inside]])
            ).last_hidden_state[0, 1:-1]
            terms = tokenizer.encode(question, add_special_tokens=False).ids
            y = (table[terms] @ states.T).amax(1)  # eq. 4, over all of the context
            score = torch.log(torch.relu(y - 0.5) + 1).sum()  # eq. 5 and 6
            scores.append((i == batch.gold_sentence[row], score))
        stacked = torch.stack([score for _, score in scores])
        expected.append(torch.logsumexp(stacked, 0) - next(score for gold, score in scores if gold))  # eq. 7
    assert float(loss.detach()) == pytest.approx(float(torch.stack(expected).mean().detach()), rel=1e-5)


def test_a_training_as_printed(train: Any) -> None:
    from sparta.models.load import load_module

    done = train("paper", paper=True, pressure=0.001)
    model: Any = load_module(done.folder)
    layout = model.config.layout
    assert (layout.use_title, layout.use_context, layout.share_context, layout.answer_segment) == (
        False,
        True,
        False,
        1,
    )
    assert (model.config.tied, model.config.lexical, model.config.context_share) == (True, None, 0.0)
    assert model.scale.item() == 1.0
    assert "paper=True" in (done.folder / "README.md").read_text()


@pytest.mark.parametrize(
    "other",
    [
        *({"terms": 100}, {"lexical": False}, {"teachers": ("bm25",)}, {"context": False}, {"tied": True}),
        *({"term_rate": 3.0}, {"gain_rate": 3.0}),
    ],
)
def test_what_the_paper_decides_is_not_given(other: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(other))):
        SpartaRecipe(encoder="e", paper=True, **other)


def test_the_command(pairs_file: Any, encoder_folder: Any, tmp_path: Any) -> None:
    given = [
        "train",
        "--encoder",
        encoder_folder,
        "--pairs",
        pairs_file,
        "--output",
        tmp_path / "m",
        "--steps",
        2,
    ]
    result = sparta(*given, "--paper", "--teacher", "bm25")
    assert (result.exit_code, "omit --paper, or omit --teacher" in result.stderr) == (2, True)
    for option in ("--term-rate", "--gain-rate", "--pressure"):  # also with its default
        result = sparta(*given, "--paper", option, "5")
        assert (result.exit_code, f"omit --paper, or omit {option}" in result.stderr) == (2, True)
    assert sparta(*given, "--paper", "--validate-every", "2").exit_code == 0
    assert (tmp_path / "m" / "best" / "model.safetensors").exists()
