import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta.base.errors import IndexStateError, InputError, ModelError

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
    from sparta.inputs import InputLayout
    from sparta.model import SpartaConfig
    from sparta.neural.trainer import TrainerConfig
    from sparta.train import SpartaTraining, TrainConfig
    from sparta.traindata import open_set

    def make(
        name: str = "out",
        *,
        trainer: dict[str, Any] | None = None,
        seed: int = 0,
        batch: int = 8,
        data: Any = None,
        layout: str = "pairs",
        teacher: Any = None,
        **config: Any,
    ) -> Any:
        one = data or open_set(str(pairs_file), layout, batch)
        usual = {
            "steps": 12,
            "learning_rate": 1e-3,
            "bf16": False,
            "seed": 5,
            "validate_every": 3,
            "checkpoint_every": 4,
        }
        chosen = TrainConfig(
            trainer=TrainerConfig(**{**usual, **(trainer or {})}),
            **{"sampled_terms": 50, "pressure": 0.0, "dropout": 0.1, **config},
        )
        shared = InputLayout(answer_segment=0, use_context=True, share_context=True)
        model = make_tiny_model(SpartaConfig(layout=shared), seed=seed)
        return SpartaTraining(model, [one], chosen, tmp_path / name, teacher)

    return make


# ---------------------------------------------------------------- the data


def read(path: Path, *arguments: Any, **options: Any) -> list[Any]:
    from sparta.traindata import read_paragraphs

    return list(read_paragraphs(path, *arguments, **options))


def sentences(paragraph: Any) -> list[str]:
    return [paragraph.text[a:b] for a, b in paragraph.sentences]


CONTEXT = "Larry founded it. Sergey did too. They met at Stanford. It grew."


@pytest.fixture
def squad_like(write_jsonl, tmp_path) -> Path:
    lines = [
        {"question": "who founded it?", "positive": "Larry founded it.", "context": CONTEXT, "start": 0},
        {"question": "where did they meet?", "positive": "They met at Stanford.", "context": CONTEXT},
        {
            "question": "who too?",
            "positive": "Sergey did too.",
            "context": CONTEXT,
            "start": 18,
            "title": "G",
        },
        {"question": "what is red?", "positive": "A rose.", "title": "R"},
        {"question": "what smells?", "positive": "A rose.", "title": "R"},
        {"question": "what is blue?", "positive": "The sky.", "context": "nothing of the kind"},
    ]
    return write_jsonl(tmp_path / "squad.jsonl", lines)


def test_questions_come_together_in_their_context(squad_like):
    first, titled, rose, sky = read(squad_like)
    assert first.text == CONTEXT
    assert sentences(first) == ["Larry founded it.", "Sergey did too.", "They met at Stanford.", "It grew."]
    assert first.questions == (("who founded it?", 0), ("where did they meet?", 2))
    assert (titled.title, titled.questions) == ("G", (("who too?", 1),))
    assert (rose.text, rose.title) == ("A rose.", "R")
    assert rose.questions == (("what is red?", 0), ("what smells?", 0))
    assert (sky.text, sky.sentences) == ("The sky.", ((0, 8),)), "the context does not hold the positive"
    assert [c.text for c in first.answers()] == sentences(first)
    assert all(c.context == CONTEXT and CONTEXT[c.start : c.end] == c.text for c in first.answers())
    assert rose.answers() == [rose.whole()], "a text of one sentence is no context of it"


def test_an_answer_replaces_the_sentences_it_reaches_into(write_jsonl, tmp_path):
    lines = [
        {"question": "a", "positive": "founded it. Sergey", "context": CONTEXT, "start": 6},
        {"question": "b", "positive": "Sergey did", "context": CONTEXT, "start": 18},
        {"question": "c", "positive": "grew", "context": CONTEXT},
    ]
    [one] = read(write_jsonl(tmp_path / "p.jsonl", lines))
    assert sentences(one) == ["founded it. Sergey did", "They met at Stanford.", "grew"]
    assert one.questions == (("a", 0), ("b", 0), ("c", 2))


def test_long_contexts_are_cut_between_sentences(squad_like):
    parts = read(squad_like, longest=7)
    assert [p.text for p in parts[:3]] == [
        "Larry founded it. Sergey did too.",
        "They met at Stanford. It grew.",
        "Larry founded it. Sergey did too.",
    ]
    assert [p.questions for p in parts[:3]] == [
        (("who founded it?", 0),),
        (("where did they meet?", 0),),
        (("who too?", 1),),
    ]
    assert [p.text for p in read(squad_like, longest=1)][:2] == ["Larry founded it.", "They met at Stanford."]


def test_articles_are_joined_from_neighbours(write_jsonl, tmp_path):
    texts = ["one two", "three", "one two", "four five six", "seven"]
    lines = [{"question": f"q{i}", "positive": t} for i, t in enumerate(texts)]
    path = write_jsonl(tmp_path / "p.jsonl", lines)
    first, second = read(path, "articles", longest=5)
    assert (first.text, sentences(first)) == ("one two three", ["one two", "three"])
    assert first.questions == (("q0", 0), ("q2", 0), ("q1", 1))
    assert sentences(second) == ["four five six", "seven"]
    assert second.questions == (("q3", 0), ("q4", 1))
    packed = tmp_path / "p.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read(packed, "articles", longest=5) == [first, second]


def test_passages_are_whole(squad_like):
    first, titled, rose, sky = read(squad_like, "passages")
    assert (first.text, first.sentences) == (CONTEXT, ())
    assert first.questions == (("who founded it?", -1), ("where did they meet?", -1))
    assert first.answers() == []
    assert (titled.title, rose.text, sky.text) == ("G", "A rose.", "nothing of the kind")


def test_negatives_stand_behind_their_positive(write_jsonl, tmp_path):
    lines = [
        {"question": "a", "positive": "p", "negative": ["n1", "n2", " "]},
        {"question": "b", "positive": "n2", "negative": "p"},
        {"question": "c", "positive": "p"},
    ]
    path = write_jsonl(tmp_path / "p.jsonl", lines)
    for layout, gold in (("pairs", 0), ("passages", -1)):
        found = read(path, layout)
        assert [p.text for p in found] == ["p", "n1", "n2"]
        assert [p.questions for p in found] == [(("a", gold), ("c", gold)), (), (("b", gold),)]


def test_squad_json(tmp_path):
    asked = [
        {"id": "1", "question": "who founded it?", "answers": [{"text": "Larry", "answer_start": 0}]},
        {"id": "2", "question": "where?", "answers": [{"text": "Stanford", "answer_start": 46}]},
        {"id": "3", "question": "impossible?", "answers": []},
    ]
    data = {"data": [{"title": "Google", "paragraphs": [{"context": CONTEXT, "qas": asked}]}]}
    (tmp_path / "train.json").write_text(json.dumps(data))
    [one] = read(tmp_path / "train.json")
    assert (one.title, one.questions) == ("Google", (("who founded it?", 0), ("where?", 2)))
    [whole] = read(tmp_path / "train.json", "passages")
    assert whole.questions == (("who founded it?", -1), ("where?", -1))


def test_mrqa_jsonl(write_jsonl, tmp_path):
    qas = [{"qid": "1", "question": "where?", "detected_answers": [{"char_spans": [[46, 53], [0, 4]]}]}]
    path = write_jsonl(tmp_path / "m.jsonl", [{"header": {"dataset": "x"}}, {"context": CONTEXT, "qas": qas}])
    [one] = read(path)
    assert one.questions == (("where?", 0),), "where an answer first begins"


def test_dpr_json(tmp_path):
    def ctx(text: str) -> dict[str, str]:
        return {"title": text.upper(), "text": text}

    data = [
        {
            "question": "q",
            "answers": ["x"],
            "positive_ctxs": [ctx("p"), ctx("p2")],
            "hard_negative_ctxs": [ctx("h")],
            "negative_ctxs": [ctx("n1"), ctx("n2")],
        },
        {"question": "none", "positive_ctxs": []},
        {"question": "r", "positive_ctxs": [ctx("h")]},
    ]
    (tmp_path / "dpr.json").write_text(json.dumps(data))
    found = read(tmp_path / "dpr.json")
    assert [(p.title, p.text) for p in found] == [("P", "p"), ("N1", "n1"), ("H", "h")]
    assert [p.questions for p in found] == [(("q", -1),), (), (("r", -1),)]
    data[0]["positive_ctxs"] = [{"title": "no text"}]
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"expected DPR JSON.*KeyError: 'text'") as caught:
        read(tmp_path / "bad.json")
    assert caught.value.where.endswith("bad.json: question 1")


def test_triples(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("q\tp\tn\nr\tp\tm\n")
    found = read(path)
    assert [p.text for p in found] == ["p", "n", "m"]
    assert found[0].questions == (("q", 0), ("r", 0))
    path.write_text("q\tp\n")
    with pytest.raises(InputError, match=r"expected 3 columns .* found 2") as caught:
        read(path)
    assert caught.value.where == f"{path}:1"


def test_a_set_with_few_questions_still_draws(training):
    from sparta.traindata import Paragraph, ParagraphSet

    asked = Paragraph("moon", "", ((0, 4),), (("moon", 0),))
    others = tuple(Paragraph(text) for text in "abcdefgh")
    [one] = training(data=ParagraphSet("few", (asked, *others), 1.0, 6), held_out=0, mined=False).sets
    drawn_texts = {p.text for _ in range(10) for p in one.draw(random.Random(_))}
    assert drawn_texts == {"moon", *"abcdefgh"}
    assert all(len(one.draw(random.Random(i))) == 6 for i in range(10))


def test_answers_to_the_same_question_are_no_negatives(training):
    """A question asked of two texts: neither is wrong for it, in the loss, in mining, in validation."""
    import torch

    from sparta.ranking import make_batch, reciprocal_rank
    from sparta.traindata import Paragraph, ParagraphSet

    texts = ["moon earth", "moon west", "sun king", "paris"]
    asked = ["moon", "moon", "sun", "paris"]
    paragraphs = tuple(Paragraph(t, "", ((0, len(t)),), ((q, 0),)) for t, q in zip(texts, asked, strict=True))
    made = training(data=ParagraphSet("two", paragraphs, 1.0, 4), held_out=0)
    assert made.sets[0].near[0] == ()
    batch = make_batch(paragraphs, random.Random(0), 1)
    assert batch.also_right(0) == {0, 1, 4, 5}
    scores = torch.tensor([[1.0, 9.0, 2.0, 3.0]] * 4).repeat(1, 2)
    losses = [torch.logsumexp(torch.tensor(part), 0) - part[0] for part in ([1.0, 2, 3], [9.0, 2, 3])]
    losses += [torch.logsumexp(scores[0, :4], 0) - own for own in (2.0, 3.0)]
    assert made.ranking(scores, batch).item() == pytest.approx(float(sum(losses)) / 4, rel=1e-5)
    assert reciprocal_rank(scores[:1, :4], [0], [{0, 1, 4, 5}]) == pytest.approx(1 / 3)


def test_repeated_questions_are_asked_once_and_hold_out_leaves_some(write_jsonl, tmp_path):
    from sparta.traindata import hold_out, open_set

    lines = [{"question": "q", "positive": "p", "negative": f"n{i}"} for i in range(40)]
    path = write_jsonl(tmp_path / "p.jsonl", lines)
    one = open_set(str(path), "pairs", 4)
    assert one.n_questions == 1
    assert len(one.paragraphs) == 41
    [training], validation = hold_out([one], 100)
    assert (training, validation) == (one, [])


def test_negatives_of_texts_in_contexts(write_jsonl, tmp_path):
    lines = [{"question": "a", "positive": "Larry founded it.", "context": CONTEXT, "negative": "n"}]
    found = read(write_jsonl(tmp_path / "p.jsonl", lines))
    assert [(p.text, len(p.questions)) for p in found] == [(CONTEXT, 1), ("n", 0)]
    joined = [{"question": f"q{i}", "positive": f"p{i}", "negative": f"n{i}"} for i in range(2)]
    found = read(write_jsonl(tmp_path / "a.jsonl", joined), "articles")
    assert [p.text for p in found] == ["p0 p1", "n0", "n1"]


def test_answers_beyond_what_is_read_are_left_out(write_jsonl, tmp_path):
    context = "word " * 300 + "Paris is a city."
    lines = [
        {"question": "far", "positive": "Paris is a city.", "context": context},
        {"question": "near", "positive": "word", "context": context},
    ]
    [one] = read(write_jsonl(tmp_path / "p.jsonl", lines), "passages")
    assert [q for q, _ in one.questions] == ["near"]
    asked = [
        {"id": q, "question": q, "answers": [{"answer_start": at}]} for q, at in (("far", 1500), ("near", 0))
    ]
    data = {"data": [{"title": "", "paragraphs": [{"context": context, "qas": asked}]}]}
    (tmp_path / "s.json").write_text(json.dumps(data))
    [one] = read(tmp_path / "s.json", "passages")
    assert [q for q, _ in one.questions] == ["near"]


def test_texts_longer_than_the_encoder_are_refused(train):
    with pytest.raises(ModelError, match="expected at most 512 wordpieces"):
        train("out", max_length=600)


def test_resuming_another_model_or_other_data_is_refused(train, pairs_file):
    train("out")
    for change in ({"alone": True}, {"max_length": 64}, {"tied": True}):
        with pytest.raises(InputError, match="expected the same training settings"):
            train("out", resume=True, **change)
    lines = pairs_file.read_text().splitlines()
    pairs_file.write_text("\n".join([lines[1], lines[0], *lines[2:]]))
    with pytest.raises(InputError, match="expected the same training settings"):
        train("out", resume=True)


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
    from sparta.traindata import open_set

    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"question": "q", "positive": "p"}\n\n' + line)
    with pytest.raises(InputError, match=message) as caught:
        open_set(str(path), "pairs", 1)
    assert caught.value.where == f"{path}:3"


def test_bad_files(tmp_path, pairs_file):
    from sparta.traindata import open_set

    with pytest.raises(InputError, match="no such file"):
        open_set(str(tmp_path / "none.jsonl"), "pairs", 2)
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(pairs_file.read_bytes())[:-20])
    with pytest.raises(InputError, match="broken gzip"):
        open_set(str(broken), "pairs", 2)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match="at least 2 different texts, one batch, found 0"):
        open_set(str(tmp_path / "empty.jsonl"), "pairs", 2)
    with pytest.raises(InputError, match="at least 81 different texts, one batch, found 80"):
        open_set(str(pairs_file), "pairs", 81)
    with pytest.raises(InputError, match="expected FILE=WEIGHT with a number"):
        open_set(f"{pairs_file}=much", "pairs", 2)
    assert open_set(f"{pairs_file}=0.25", "pairs", 2).weight == 0.25


def test_whole_stretches_are_held_out(training, records):
    made = training(held_out=5)
    (held,), (rest,) = made.validation, made.sets
    assert [p.questions[0][0] for p in held.paragraphs] == [r["question"] for r in records[75:]]
    assert [p.questions[0][0] for p in rest.paragraphs] == [r["question"] for r in records[:75]]
    assert len(training(held_out=300).validation[0].paragraphs) == 8  # a tenth at most


# ---------------------------------------------------------------- batches


def drawn(made: Any, step: int) -> tuple[list[str], list[str]]:
    """The questions and the documents that the loss of a step looks at."""
    from sparta.ranking import make_batch

    paragraphs, rng = made._draw(step)
    batch = make_batch(paragraphs, rng, made.config.questions)
    return batch.questions, [c.text for c in batch.candidates]


def test_batches_are_a_function_of_seed_and_step(training):
    one, two = training(), training(seed=9)
    forward = [drawn(one, step) for step in range(6)]
    backward = [drawn(two, step) for step in reversed(range(6))]
    assert forward == backward[::-1]
    assert len({str(d) for d in forward}) == 6
    other = training(trainer={"seed": 6})
    assert [drawn(other, step) for step in range(6)] != forward


def test_near_texts_stand_beside_each_other(training, records):
    """Without mined ones, three neighbours of the file from each of the random places (§3.3's two halves)."""
    place = {r["positive"]: i for i, r in enumerate(records)}
    made = training(mined=False)
    for step in range(20):
        texts = [p.text for p in made._draw(step)[0]]
        assert len(set(texts)) == 8
        at = [place[t] for t in texts]
        assert sum(b - a == 1 for a, b in pairwise(at)) >= 4
        assert max(at) - min(at) > 8


def test_mined_texts_are_those_that_bm25_confuses(training, words):
    from sparta.traindata import Paragraph, ParagraphSet

    texts = [f"{words[0]} {words[1]} {words[i + 10]}" for i in range(4)] + words[2:10]
    asked = [f"{words[0]} {words[i + 10]}" for i in range(4)] + words[2:10]
    made = tuple(Paragraph(t, "", ((0, len(t)),), ((q, 0),)) for t, q in zip(texts, asked, strict=True))
    [mined] = training(data=ParagraphSet("m", made, 1.0, 4), held_out=0).sets
    assert [set(near) for near in mined.near[:4]] == [{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}]
    assert all(near == () for near in mined.near[4:])
    rng = random.Random(1)
    beside = Counter(tuple(sorted(mined._beside(0, rng))) for _ in range(200))
    assert 60 < beside[(1, 2)] < 190, "half of the time the neighbours of the file"
    assert {n for pair in beside for n in pair} == {1, 2, 3}


def test_the_right_answers_of_a_batch(squad_like):
    from sparta.ranking import make_batch

    paragraphs = read(squad_like)
    batch = make_batch([*paragraphs, *read(squad_like, "passages")], random.Random(2), 1)
    texts = [c.text for c in batch.candidates]
    assert texts[: batch.n_sentences] == [t for p in paragraphs for t in sentences(p)]
    assert texts[batch.n_sentences :] == [p.text for p in [*paragraphs, *read(squad_like, "passages")]]
    right = {"who founded it?": "Larry founded it.", "where did they meet?": "They met at Stanford."}
    assert len(batch.questions) == 8
    gold = zip(batch.questions, batch.gold_sentence, batch.gold_paragraph, strict=True)
    for number, (question, sentence, paragraph) in enumerate(gold):
        assert question in [q for q, _ in [*paragraphs, *paragraphs][number].questions]
        if number >= 4:
            assert sentence == -1
        elif question in right:
            assert texts[sentence] == right[question]
        assert paragraph == batch.n_sentences + number
    assert len(make_batch(paragraphs, random.Random(2), 9).questions) == 6


# ---------------------------------------------------------------- the loss


def dense(model: Any, texts: list[Any]) -> np.ndarray:
    return model.encode_document(texts, dtype="fp32").toarray().astype(np.float64)


def bags(model: Any, questions: list[str]) -> np.ndarray:
    return model.encode_query(questions).toarray().astype(np.float64)


def hand_made() -> Any:
    from sparta.traindata import Paragraph, ParagraphSet

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
    from sparta.ranking import make_batch

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
    from sparta.ranking import make_batch

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
    from sparta.traindata import Paragraph, ParagraphSet

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
    original = part.loss

    def loss(step: int) -> Any:
        if step == 10:
            raise KeyboardInterrupt
        return original(step)

    part.loss = loss
    with pytest.raises(KeyboardInterrupt):
        part.run()
    resumed = training("part", mine_every=4)
    resumed.run(resume=True)
    assert state_of(resumed) == state_of(whole)
    assert resumed.sets[0].near == whole.sets[0].near
    scores = bags(whole.model, asked) @ dense(whole.model, texts).T
    found = training("other", mined=False).sets[0]
    from sparta.traindata import mine

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
    assert terms[1] < 0.7 * terms[0]
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


@pytest.fixture(scope="module")
def encoder_folder(make_tiny_model, tiny_tokenizer, tmp_path_factory) -> Path:
    """A pretrained encoder, as others publish them."""
    folder = tmp_path_factory.mktemp("encoder")
    make_tiny_model().encoder.save_pretrained(folder)
    tiny_tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def train(encoder_folder, pairs_file, records, tmp_path) -> Callable[..., Any]:
    from sparta.train import train_model
    from sparta.traindata import open_set

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
        return train_model([open_set(str(pairs_file), "pairs", 8)], **{**usual, **change})

    run.texts = [f"{r['title']} {r['positive']}" for r in records]  # type: ignore[attr-defined]
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
    from sparta.train import SpartaTraining, TrainConfig
    from sparta.traindata import Paragraph, ParagraphSet

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
    from sparta.load import load_model

    layouts = [
        load_model(train(name, **options).folder).config.layout
        for name, options in (("a", {}), ("b", {"segments": True}), ("c", {"alone": True}))
    ]
    assert [(one.use_context, one.share_context, one.answer_segment) for one in layouts] == [
        (True, True, 0),
        (True, False, 1),
        (False, False, 0),
    ]


def test_distillation_from_bm25_and_a_bi_encoder(train, encoder_folder, tmp_path):
    result = train("out", teachers=["bm25=0.5", f"{encoder_folder}=20"])
    assert 0 < result.validation <= 1
    plain = train("plain")
    assert files(plain.folder) != files(result.folder)
    again = train("again", teachers=["bm25=0.5", f"{encoder_folder}=20"])
    assert files(again.folder) == files(result.folder)
    with pytest.raises(InputError, match="expected the same training settings"):
        train("out", resume=True)
    with pytest.raises(InputError, match="expected TEACHER=WEIGHT with a number"):
        train("bad", teachers=["bm25=much"])


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
    two = load_file(tmp_path / "both" / "best" / "model.safetensors")
    for name, one in load_file(single.folder / "model.safetensors").items():
        np.testing.assert_allclose(two[name], one, atol=2e-4, err_msg=name)
    alone = load_file(train("alone", validate_every=6, full_precision=True).folder / "model.safetensors")
    assert max(float((two[n] - alone[n]).abs().max()) for n in two) > 1e-3


def test_teachers_score_as_they_say(encoder_folder, pairs_file, tiny_tokenizer):
    """BM25 against its formula, the bi-encoder against a forward pass of one text."""
    import torch

    from sparta.base.records import Passage
    from sparta.teachers import DenseTeacher, LexicalTeacher, Mixture
    from sparta.tokenize import QueryTokenizer
    from sparta.traindata import Paragraph, ParagraphSet

    texts = ["the moon of the earth", "the moon", "larry page founded google", "a house"]
    asked = ["moon moon", "google house"]
    one = ParagraphSet("s", tuple(Paragraph(t) for t in texts))
    lexical = LexicalTeacher([one], QueryTokenizer(tiny_tokenizer))
    candidates = [Passage("", t) for t in texts]
    scores = lexical.scores(asked, candidates)
    mean = np.mean([5, 2, 4, 2])

    def weight(n: int, holding: int, length: int) -> float:
        idf = np.log(1 + (4 - holding + 0.5) / (holding + 0.5))
        return float(idf * n / (n + 0.9 * (0.6 + 0.4 * length / mean)))

    expected = [[2 * weight(1, 2, 5), 2 * weight(1, 2, 2), 0, 0], [0, 0, weight(1, 1, 4), weight(1, 1, 2)]]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    teacher = DenseTeacher(str(encoder_folder))
    teacher.mean, teacher.prefix = True, "the "
    cosines = teacher.scores(asked, candidates)
    encoder = teacher.encoder

    def vector(text: str) -> Any:
        ids = torch.tensor([tiny_tokenizer.encode(text).ids])
        with torch.no_grad():
            state = encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].mean(0)
        return state / state.norm()

    by_hand = [[20 * float(vector("the " + q) @ vector(t)) for t in texts] for q in asked]
    assert np.std(by_hand) > 1
    np.testing.assert_allclose(cosines, by_hand, atol=0.4)
    mixture = Mixture([(lexical, 0.5), (teacher, 20.0)], temperature=2)
    np.testing.assert_allclose(mixture.scores(asked, candidates), 0.25 * scores + 10 * cosines, rtol=1e-5)
    assert mixture.name == f"0.5 bm25 + 20 {encoder_folder.name}"
    inside = [
        Passage("", "the moon", "", texts[0], 0, 8),
        candidates[2],
        Passage("", "of", "", texts[0], 9, 11),
    ]
    alone = mixture.scores(asked, [candidates[1], candidates[2], Passage("", "of")])
    whole = mixture.scores(asked, [candidates[0]])
    expected = alone + whole * torch.tensor([1.0, 0.0, 1.0])
    np.testing.assert_allclose(
        mixture.scores(asked, inside), expected, rtol=1e-4, err_msg="context counts too"
    )


def test_a_trained_model_is_pressed_gently_at_first(training):
    """With a number of terms to follow, the penalty counts from the first step, but begins a hundredth."""
    import math

    for further, begins in ((False, 0.01), (True, 0.0001)):
        made = training(f"{further}", terms=100, pressure=0.01, trainer={"steps": 1, "validate_every": 1})
        made.further = further
        made.run()
        assert made.memory["log_pressure"] == pytest.approx(math.log(begins), abs=0.021)


def test_a_sparta_model_is_trained_further(train, tmp_path):
    """It begins where the first training ended, scale and bias included."""
    import torch

    from sparta.locate import DEFAULT_MODEL, default_model_folder, sparta_folder
    from sparta.model import SpartaModel

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
    worse = train("worse", encoder=str(tmp_path / "first"), learning_rate=3.0, full_precision=True)
    assert (worse.step, worse.validation) == (0, first.validation), "what it began with stays the best"
    assert sparta_folder(DEFAULT_MODEL) == default_model_folder()
    assert sparta_folder(tmp_path / "none") is None


def test_occurrences_count_in_training_as_in_encoding(training, train):
    """Scores are those of an index, the gains learn, and a training adds them unless it is told not to."""
    import torch

    from sparta.load import load_model
    from sparta.model import Lexical, SpartaModel

    made = training(data=hand_made(), held_out=0, dropout=0.0)
    made.model.add_lexical(Lexical(5.0), torch.rand(len(made.model.term_matrix())))
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
    further = train("further", encoder=str(result.folder), lexical=False)
    assert load_model(further.folder).lexical_gains() is not None, "what a model has, it keeps"


def test_a_sparta_model_teaches(tiny_model_folder):
    """Its scores are those of its own vectors, sentences in their contexts, the second time too."""
    from sparta.base.records import Passage
    from sparta.load import load_model
    from sparta.teachers import Mixture, open_teacher
    from sparta.tokenize import QueryTokenizer, load_tokenizer

    text = "the moon of the earth. larry page founded google."
    sentences = [Passage("", text[:22], "t", text, 0, 22), Passage("", text[23:], "t", text, 23, len(text))]
    candidates = [*sentences, Passage("", text, "t")]
    asked = ["moon moon", "google house"]
    mixture = open_teacher([f"{tiny_model_folder}=3"], [], QueryTokenizer(load_tokenizer(tiny_model_folder)))
    assert isinstance(mixture, Mixture)
    model = load_model(tiny_model_folder)
    expected = (model.encode_query(asked) @ model.encode_document(candidates).T).toarray() * 3 / 2
    assert expected.std() > 0
    np.testing.assert_allclose(mixture.scores(asked, candidates), expected, rtol=1e-4)
    np.testing.assert_allclose(mixture.scores(asked, candidates[:1]), expected[:, :1], rtol=1e-4)
    assert mixture.name == f"3 {tiny_model_folder.name}"
