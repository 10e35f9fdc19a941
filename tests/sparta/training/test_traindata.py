"""What a training reads, holds out, mines and draws."""

import gzip
import json
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError

pytestmark = pytest.mark.usefixtures("one_thread")


def read(path: Path, *arguments: Any, **options: Any) -> list[Any]:
    from sparta.training.paragraphs import read_paragraphs

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


def test_only_texts_of_one_title_are_joined(write_jsonl, tmp_path):
    titles = {"one": "A", "two": "A", "three": "B", "four": "", "five": "A"}
    lines = [{"question": f"q {text}", "positive": text, "title": title} for text, title in titles.items()]
    joined = read(write_jsonl(tmp_path / "p.jsonl", lines), "articles")
    assert [(p.title, p.text) for p in joined] == [
        ("A", "one two"),
        ("B", "three"),
        ("", "four"),
        ("A", "five"),
    ]


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
        assert [p.text for p in found] == ["p", "n1", "n2", "n2", "p"]
        assert [p.questions for p in found] == [(("a", gold), ("c", gold)), (), (), (("b", gold),), ()]


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


def test_a_list_that_is_not_there_is_told(write_jsonl, tmp_path):
    from sparta.data.qa_formats import read_mrqa

    for record, found in (({"question": "who"}, "none"), ({"context": "a", "qas": {"id": "1"}}, "dict")):
        path = write_jsonl(tmp_path / "x.jsonl", [record])
        with pytest.raises(InputError, match=rf"the field 'qas' must be a list, found {found}\b"):
            list(read_mrqa(path))


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
    assert [(p.title, p.text) for p in found] == [("P", "p"), ("H", "h"), ("N1", "n1"), ("H", "h")]
    assert [p.questions for p in found] == [(("q", -1),), (), (), (("r", -1),)]
    data[0]["positive_ctxs"] = [{"title": "no text"}]
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"expected DPR JSON.*no field 'text'") as caught:
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
    from sparta.training.paragraphs import Paragraph, ParagraphSet

    asked = Paragraph("moon", "", ((0, 4),), (("moon", 0),))
    others = tuple(Paragraph(text) for text in "abcdefgh")
    [one] = training(data=ParagraphSet("few", (asked, *others), 1.0, 6), held_out=0, mined=False).sets
    drawn_texts = {p.text for _ in range(10) for p in one.draw(random.Random(_))}
    assert drawn_texts == {"moon", *"abcdefgh"}
    assert all(len(one.draw(random.Random(i))) == 6 for i in range(10))


def test_answers_to_the_same_question_are_no_negatives(training):
    """A question asked of two texts: neither is wrong for it, in the loss, in mining, in validation."""
    import torch

    from sparta.training.paragraphs import Paragraph, ParagraphSet
    from sparta.training.ranking import make_batch
    from sparta.training.validation import reciprocal_rank

    texts = ["moon earth", "moon west", "sun king", "paris"]
    asked = ["moon", "moon", "sun", "paris"]
    paragraphs = tuple(Paragraph(t, "", ((0, len(t)),), ((q, 0),)) for t, q in zip(texts, asked, strict=True))
    made = training(data=ParagraphSet("two", paragraphs, 1.0, 4), held_out=0)
    assert made.sets[0].hard_negatives[0] == ()
    batch = make_batch(paragraphs, random.Random(0), 1)
    assert batch.masked[0] == {0, 1, 4, 5}
    scores = torch.tensor([[1.0, 9.0, 2.0, 3.0]] * 4).repeat(1, 2)
    losses = [torch.logsumexp(torch.tensor(part), 0) - part[0] for part in ([1.0, 2, 3], [9.0, 2, 3])]
    losses += [torch.logsumexp(scores[0, :4], 0) - own for own in (2.0, 3.0)]
    assert made.ranking_loss(scores, batch).item() == pytest.approx(float(sum(losses)) / 4, rel=1e-5)
    assert reciprocal_rank(scores[:1, :4], [0], [{0, 1, 4, 5}]) == pytest.approx(1 / 3)


def test_repeated_questions_are_asked_once_and_hold_out_leaves_some(write_jsonl, tmp_path):
    from sparta.training.paragraphs import open_set
    from sparta.training.validation import hold_out

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
        {"id": q, "question": q, "answers": [{"answer_start": at, "text": text}]}
        for q, at, text in (("far", 1500, "Paris"), ("near", 0, "word"))
    ]
    data = {"data": [{"title": "", "paragraphs": [{"context": context, "qas": asked}]}]}
    (tmp_path / "s.json").write_text(json.dumps(data))
    [one] = read(tmp_path / "s.json", "passages")
    assert [q for q, _ in one.questions] == ["near"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "broken JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"question": "q"}', "missing positive"),
        (b'{"positive": "q"}', "missing question"),
        (
            b'{"question": 3, "positive": "p"}',
            "question of the wrong type: expected a string, found a number",
        ),
        (b'{"question": "q", "positive": " "}', "the field positive is empty"),
        (
            b'{"question": "q", "positive": "p", "negative": 5}',
            "must be a string or a list .* found int",
        ),
        (b'{"question": "q", "positive": "p", "negative": ["n", {}]}', "or a list of strings, found dict"),
        (b'{"question": "\xff", "positive": "p"}', "invalid UTF-8"),
    ],
)
def test_bad_pairs(tmp_path, line, message):
    from sparta.training.paragraphs import open_set

    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"question": "q", "positive": "p"}\n\n' + line)
    with pytest.raises(InputError, match=message) as caught:
        open_set(str(path), "pairs", 1)
    assert caught.value.where == f"{path}:3"


def test_bad_files(tmp_path, pairs_file):
    from sparta.training.paragraphs import open_set

    with pytest.raises(InputError, match="no such file"):
        open_set(str(tmp_path / "none.jsonl"), "pairs", 2)
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(pairs_file.read_bytes())[:-20])
    with pytest.raises(InputError, match="damaged or incomplete"):
        open_set(str(broken), "pairs", 2)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match="at least 2 different texts, found 0"):
        open_set(str(tmp_path / "empty.jsonl"), "pairs", 2)
    with pytest.raises(InputError, match="at least 81 different texts, found 80"):
        open_set(str(pairs_file), "pairs", 81)
    with pytest.raises(InputError, match="expected FILE=WEIGHT with a number"):
        open_set(f"{pairs_file}=much", "pairs", 2)
    for weight in ("0", "-1", "nan", "inf", "1e999"):
        with pytest.raises(InputError, match=f"a number above 0, found '.*={weight}'") as caught:
            open_set(f"{pairs_file}={weight}", "pairs", 2)
        assert "=0.5" in str(caught.value.remedy)
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
    batch = made.batch(step)
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
        batch = made.batch(step)
        texts = [whole.text for whole in batch.candidates[batch.n_sentences :]]
        assert len(set(texts)) == 8
        at = [place[t] for t in texts]
        assert sum(b - a == 1 for a, b in pairwise(at)) >= 4
        assert max(at) - min(at) > 8


def test_mined_texts_are_those_that_bm25_confuses(training, words):
    from sparta.training.paragraphs import Paragraph, ParagraphSet

    texts = [f"{words[0]} {words[1]} {words[i + 10]}" for i in range(4)] + words[2:10]
    asked = [f"{words[0]} {words[i + 10]}" for i in range(4)] + words[2:10]
    made = tuple(Paragraph(t, "", ((0, len(t)),), ((q, 0),)) for t, q in zip(texts, asked, strict=True))
    [mined] = training(data=ParagraphSet("m", made, 1.0, 4), held_out=0).sets
    assert [set(near) for near in mined.hard_negatives[:4]] == [{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}]
    assert all(near == () for near in mined.hard_negatives[4:])
    rng, group = random.Random(1), replace(mined, batch_size=3)
    groups = [[texts.index(p.text) for p in group.draw(rng)] for _ in range(2400)]
    beside = Counter(tuple(sorted(others)) for first, *others in groups if first == 0)
    assert beside.total() > 100
    assert 0.5 < beside[1, 2] / beside.total() < 0.8, "half of the time the neighbours of the file"
    assert {n for pair in beside for n in pair} == {1, 2, 3}


def test_the_right_answers_of_a_batch(squad_like):
    from sparta.training.ranking import make_batch

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


def test_answers_that_are_not_read_are_left_out_and_counted(training, write_jsonl, tmp_path, caplog):
    """1,200 letters are more wordpieces than are read; the words of a short text are all read."""
    from sparta.training.paragraphs import open_set

    long = " ".join("abcdefghij"[i % 10] for i in range(400))
    lines = [
        {"question": "early", "positive": "sun", "context": f"sun {long}"},
        {"question": "late", "positive": "sea", "context": f"moon {long} sea", "negative": "the far sea"},
        {"question": "early too", "positive": "moon", "context": f"moon {long} sea"},
        {"question": "beyond", "positive": "king", "context": f"water {long} sea {long} king"},
        {"question": "never", "positive": "king", "context": f"earth {long} king", "negative": ["n", "m"]},
        {"question": "whole", "positive": "a river"},
    ]
    made = open_set(str(write_jsonl(tmp_path / "p.jsonl", lines)), "passages", 2)
    assert "p.jsonl: left out 1 of 6 questions" in caplog.text
    [one] = training(data=made, held_out=0, mined=False).sets
    assert "p.jsonl/passages: left out 2 of 5 questions" in caplog.text
    assert [[q for q, _ in p.questions] for p in one.paragraphs] == [["early"], ["early too"], [], ["whole"]]
    assert [p.text for p in one.paragraphs][2:] == ["the far sea", "a river"], "without what was negative"
    with pytest.raises(InputError, match="all answers lie beyond the part of the text"):
        replace(made, paragraphs=made.paragraphs[1:3]).answerable(lambda paragraph: 0)


def test_squad_passages_know_where_their_answers_begin(tmp_path):
    answers = [{"text": "sea", "answer_start": 1300}, {"text": "sea", "answer_start": 900}]
    asked = [
        {"id": "1", "question": "one", "answers": answers},
        {"id": "2", "question": "two", "answers": answers[:1]},
    ]
    data = {"data": [{"title": "T", "paragraphs": [{"context": "sea " * 400, "qas": asked}]}]}
    (tmp_path / "train.json").write_text(json.dumps(data))
    [one] = read(tmp_path / "train.json", "passages")
    assert (one.questions, one.places) == ((("one", -1),), (900,))
    assert one.answered_before(901) == one
    assert one.answered_before(900).questions == ()


def test_misplaced_answers_are_not_trained_on(tmp_path, caplog):
    context = "It rains. Paris is a city."
    places = {"right": context.index("Paris"), "wrong": 0}
    asked = [
        {"id": q, "question": q, "answers": [{"text": "Paris", "answer_start": at}]}
        for q, at in places.items()
    ]
    data = {"data": [{"title": "", "paragraphs": [{"context": context, "qas": asked}]}]}
    (tmp_path / "s.json").write_text(json.dumps(data))
    for layout in ("pairs", "passages"):
        caplog.clear()
        [one] = read(tmp_path / "s.json", layout)
        assert [q for q, _ in one.questions] == ["right"]
        assert "s.json: 1 answer is not" in caplog.text
