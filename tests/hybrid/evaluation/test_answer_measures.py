"""How answers are measured: by hand, and fitted probabilities against those that made the data."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from hybrid.answering.answers import probability
from hybrid.evaluation.answering import (
    JUDGED,
    Answering,
    Readings,
    calibration_error,
    interval,
    measure_answers,
)
from hybrid.evaluation.measures import Evaluation
from hybrid.evaluation.rankings import Holds, Retrieved
from hybrid.evaluation.results import SetResults, per_query_lines, results_table
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evaluation.tune_reader import fit, tune_and_save, tune_on, tune_reader
from sparta.base.errors import InputError, SpartaError
from sparta.base.records import Hit, Query, ScoredPassage
from sparta.reader.config import Calibration, ReaderConfig
from sparta.reader.records import Span, Text
from sparta.search.retriever import hit_of

RECORDS = {
    "a": {"text": "Ada Lovelace wrote it", "title": "Ada"},
    "b": {"text": "in 1843", "title": ""},
    "c": {"text": "nobody", "title": ""},
}
QUERIES = (
    Query("1", "who", ("Ada Lovelace",)),
    Query("2", "when", ("1843", "1844")),
    Query("3", "?", ("x",)),
)


class FixedReader:
    """Of every text, all of it, with the score it is told; "Ada …" in its first two words."""

    config = ReaderConfig()

    def __init__(self, scores: dict[str, float]) -> None:
        self.scores = scores
        self.read_texts: list[str] = []

    def read_all(
        self, questions: Sequence[str], texts: Sequence[Sequence[Text]], n: int = 5
    ) -> list[list[list[Span]]]:
        self.read_texts += [text.text for own in texts for text in own]
        ends = {text: 12 if text.startswith("Ada") else len(text) for text in self.scores}
        return [[[Span(0, 0, ends[t.text], self.scores[t.text])] for t in own] for own in texts]


def retrieved(**more: Any) -> Retrieved:
    known = QuestionSet(
        "set", QUERIES, {"1": {"c": -1, "a": 1}, "2": {"b": 1, "c": 0}, "3": {"c": 1}}, **more
    )
    return Retrieved(known, {}, Holds({}, str), lambda _, i: hit_of(i, 0.0, RECORDS[i]))


def runs() -> dict[str, dict[str, list[ScoredPassage]]]:
    first = [ScoredPassage("c", 3.0), ScoredPassage("a", 2.0), ScoredPassage("b", 1.0)]
    return {"x": {"1": first, "2": first, "3": first}, "y": {"1": first[1:], "2": first[2:], "3": []}}


READER = FixedReader({"Ada Lovelace wrote it": 2.0, "in 1843": 1.0, "nobody": -2.0})


def test_em_and_f1_by_hand() -> None:
    answering = Answering(READER, (1, 3), 0.0)
    known = [Evaluation(name, {"RR": {"1": 0.5, "2": 0.5, "3": 0.5}}) for name in ("x", "y")]
    found, answers = measure_answers(retrieved(), runs(), known, answering, judged=True)
    x, y, judged = found
    assert [one.name for one in found] == ["x", "y", JUDGED]
    assert x.per_query["EM@1"] == {"1": 0.0, "2": 0.0, "3": 0.0}  # "nobody" is first
    assert x.per_query["EM@3"] == {"1": 1.0, "2": 0.0, "3": 0.0}  # "Ada Lovelace" has the best score
    assert y.per_query["EM@1"] == {"1": 1.0, "2": 0.0, "3": 0.0}
    assert y.per_query["F1@1"]["2"] == pytest.approx(2 / 3)  # "in 1843" for "1843"
    assert judged.per_query["EM@1"] == {"1": 1.0, "2": 0.0, "3": 0.0}
    assert (x.per_query["RR"], "RR" in judged.per_query) == ({"1": 0.5, "2": 0.5, "3": 0.5}, False)
    assert answers["y"]["3"] is None
    assert answers["x"]["1"].passage_id == "a"
    results = SetResults("set", found, fused=[JUDGED], answers=answers)
    assert results.main_measure == "EM@3"
    lines = list(results.answer_lines())
    assert (lines[0]["query_id"], lines[0]["answer"]) == ("1", "Ada Lovelace")
    assert {**lines[5], "answer": ""} == lines[5]
    table = results_table([results]).write("csv")
    columns = "EM@1,± EM@1,F1@1,± F1@1,EM@3,± EM@3,F1@3,± F1@3,p (EM@3)"
    assert table.splitlines()[0].startswith(f"set,channel,RR,{columns}")


def test_answers_of_a_reranked_ranking() -> None:
    """They are those of an Answerer: a tenth of the passages' scores counts, and more passages are read."""
    ids = ["a", *"cccccccccc", "b"]  # b is at the twelfth place
    run = {q.query_id: [ScoredPassage(one, 30.0 - i) for i, one in enumerate(ids)] for q in QUERIES}
    reader = FixedReader({"Ada Lovelace wrote it": 0.5, "in 1843": 1.5, "nobody": -2.0})
    rankings = {"plain": run, "far": run, "near": run}
    reranked = {"far": 12, "near": 5}

    def answers_to_2(weight: float) -> list[str]:
        _, answers = measure_answers(
            retrieved(), rankings, [], Answering(reader, weight=weight), reranked=reranked
        )
        return [answers[name]["2"].answer for name in rankings]

    assert answers_to_2(0.0) == ["Ada Lovelace"] * 3  # 1.5 − 0.1 · 11 is below 0.5
    reader.scores["in 1843"] = 1.7
    assert answers_to_2(0.0) == ["Ada Lovelace", "in 1843", "Ada Lovelace"]
    assert sorted(set(reader.read_texts)) == sorted(RECORDS[one]["text"] for one in RECORDS)


def test_regular_expressions_have_no_f1() -> None:
    one = retrieved(match="regex")
    found, _ = measure_answers(one, runs(), [], Answering(READER))
    assert set(found[0].per_query) == {"EM"}


def test_a_text_of_several_rankings_is_read_once_for_a_question() -> None:
    reader = FixedReader(READER.scores)
    Readings(retrieved(), runs(), Answering(reader, (2,)))
    # the first two of x are c and a; y adds b to questions 1 and 2
    assert sorted(reader.read_texts) == sorted(["nobody", "Ada Lovelace wrote it"] * 3 + ["in 1843"] * 2)


def test_with_global_tokens_each_ranking_is_read_for_itself() -> None:
    reader = FixedReader(READER.scores)
    reader.config = ReaderConfig(global_tokens=2)
    together: list[list[str]] = []
    usual = reader.read_all

    def read_all(questions: Any, texts: Any, n: int = 5) -> Any:
        together.extend([text.text for text in own] for own in texts)
        return usual(questions, texts, n)

    reader.read_all = read_all
    Readings(retrieved(), runs(), Answering(reader, (1, 2)))
    assert together[:4] == [
        *(["nobody"], ["nobody", "Ada Lovelace wrote it"]),
        *(["Ada Lovelace wrote it"], ["Ada Lovelace wrote it", "in 1843"]),
    ]


def test_no_answer_is_never_right() -> None:
    """Also where the answer that is expected is an article alone, which normalizes to nothing."""
    known = QuestionSet("set", (Query("1", "?", ("The",)),), {})
    rankings = Retrieved(known, {}, Holds({}, str), lambda _, i: hit_of(i, 0.0, RECORDS[i]))
    [found], _ = measure_answers(rankings, {"x": {"1": []}}, [], Answering(READER))
    assert (found.mean("EM"), found.mean("F1")) == (0.0, 0.0)


def test_means_over_sets_with_answers_and_lines_of_what_was_measured() -> None:
    answering = Answering(READER, (3,), 0.0)
    known = [Evaluation(name, {"RR": {"1": 0.5, "2": 0.5, "3": 0.5, "4": 1.0}}) for name in ("x", "y")]
    found, answers = measure_answers(retrieved(), runs(), known, answering, judged=True)
    sets = [SetResults(name, found, fused=[JUDGED], answers=answers) for name in ("a", "b")]
    table = results_table(sets, ["RR"]).write("csv").splitlines()
    assert table[0].startswith("set,channel,RR,EM,± EM,F1,± F1,p (EM)")
    assert table[-3].startswith("mean,x,62.5,33.3")
    assert table[-1].startswith(f"mean,{JUDGED},,33.3")
    lines = list(per_query_lines(sets[:1]))
    assert [line for line in lines if line["query_id"] == "4"] == [
        {"set": "a", "ranking": name, "query_id": "4", "RR": 1.0} for name in ("x", "y")
    ]


def test_expected_calibration_error_by_hand() -> None:
    # below 0.5: 2 of 0.2 with 1 right; above: 3 of 0.9 with 2 right
    shown, right = [0.2, 0.2, 0.9, 0.9, 0.9], [True, False, True, True, False]
    expected = (abs(0.4 - 1) + abs(2.7 - 2)) / 5
    assert calibration_error(shown, right, bins=2) == pytest.approx(expected)
    assert calibration_error([1.0], [True]) == 0.0
    assert calibration_error([], []) == 0.0


def test_intervals_of_the_bootstrap() -> None:
    draw = np.random.default_rng(2)
    values = draw.normal(5, 2, 400)
    low, high = interval(values.tolist())
    expected = 1.96 * values.std() / math.sqrt(400)
    assert high - low == pytest.approx(2 * expected, rel=0.15)
    assert low < values.mean() < high


def test_platt_scaling_finds_what_made_the_data() -> None:
    draw = random.Random(4)
    scores = [draw.uniform(-3, 3) for _ in range(20_000)]
    right = [draw.random() < 1 / (1 + math.exp(-(1.5 * s - 0.5))) for s in scores]
    found = fit(scores, right)
    assert (found.a, found.b) == (pytest.approx(1.5, abs=0.08), pytest.approx(-0.5, abs=0.08))
    with pytest.raises(InputError, match=r"found 3 .* 0 "):
        fit([1.0, 2.0, 3.0], [True, True, True])


def test_tuning_compares_answers_in_the_language_of_the_index() -> None:
    """In German "die" is an article: half of the answers are right; by English rules all are wrong."""
    asked = tuple(Query(str(i), "?", ("Alpen" if i % 2 else "Elbe",)) for i in range(8))
    hits = [Hit("a", 2.0, "", "die Alpen"), Hit("b", 1.0, "", "Rhein")]
    retriever = Mock(language="de", in_context=list)
    retriever.batch_search = lambda texts, ids, depth, threads: dict.fromkeys(ids, hits)
    reader = FixedReader({"die Alpen": 1.0, "Rhein": 0.2})
    tuned = tune_on(reader, QuestionSet("set", asked), retriever)
    assert set(tuned.by_setting.values()) == {0.5}


def test_progress_counts_the_questions_that_are_read() -> None:
    known, read = retrieved(), list[int]()
    measure_answers(known, runs(), [], Answering(FixedReader(READER.scores)), advance=read.append)
    assert sum(read) == len(known.query_set.answers) > 0


def test_tuning_chooses_the_weight_that_answers_best() -> None:
    """The reader prefers a wrong passage, which is the ranker's first only now and then."""
    queries = tuple(Query(str(i), "?", ("right",)) for i in range(40))
    records = {"r": {"text": "right"}, "w": {"text": "wrong"}}
    run = {q.query_id: [ScoredPassage("r", 2.0), ScoredPassage("w", 1.0)] for q in queries}
    run |= {str(i): [ScoredPassage("w", 2.0), ScoredPassage("r", 1.0)] for i in range(0, 40, 3)}
    known = Retrieved(
        QuestionSet("set", queries), {"": run}, Holds({}, str), lambda _, i: hit_of(i, 0.0, records[i])
    )
    reader = FixedReader({"right": 0.0, "wrong": 0.2})
    tuned = tune_reader(known, run, reader, 2)
    assert tuned.by_setting[False, 0.0] == 0.0
    assert tuned.by_setting[False, tuned.config.weight] == max(tuned.by_setting.values()) == 26 / 40
    assert not tuned.config.sum_mentions  # where it brings nothing, the best mention counts
    assert tuned.config.answer is not None
    assert tuned.calibration_error is not None
    assert 0 <= tuned.calibration_error < 0.2


def test_tuning_lets_mentions_add_up_where_that_answers_best(caplog: pytest.LogCaptureFixture) -> None:
    """What is wrong stands in one passage, where the reader prefers it; what is right, in three."""
    queries = tuple(Query(str(i), "?", ("right",) if i % 4 else ("strange",)) for i in range(40))
    texts = ["strange", "right", "Right.", "the right"]
    records = {str(i): {"text": text} for i, text in enumerate(texts)}
    run = {q.query_id: [ScoredPassage(str(i), 4.0 - i) for i in range(4)] for q in queries}
    known = Retrieved(
        QuestionSet("set", queries), {"": run}, Holds({}, str), lambda _, i: hit_of(i, 0.0, records[i])
    )
    reader = FixedReader({text: 0.5 if text == "strange" else 0.2 for text in texts})
    tuned = tune_reader(known, run, reader, 4, coverage=0.5)
    assert tuned.coverage == 1.0  # all questions have the same score
    assert "100 % of the questions be answered instead of 50 %" in caplog.text
    assert tuned.config.sum_mentions
    assert tuned.by_setting[True, tuned.config.weight] == 30 / 40
    assert max(em for (sums, _), em in tuned.by_setting.items() if not sums) == 10 / 40


def test_with_another_weight_scores_are_no_probabilities() -> None:
    """As in `Answerer`."""
    reader = FixedReader(READER.scores)
    reader.config = ReaderConfig(answer=Calibration(9.0, -9.0), weight=0.2)
    _, tuned = measure_answers(retrieved(), runs(), [], Answering(reader, (3,), 0.2))
    _, other = measure_answers(retrieved(), runs(), [], Answering(reader, (3,), 0.3))
    one, two = tuned["x"]["1"], other["x"]["1"]
    assert one
    assert two
    assert one.score == pytest.approx(
        probability(Calibration(9.0, -9.0), 0.8 * one.reader + 0.2 * one.ranker)
    )
    assert two.score == pytest.approx(0.7 * two.reader + 0.3 * two.ranker)


def test_a_place_where_no_folder_can_be_is_told_before_the_reading(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "config.json").touch()
    retriever = Mock(language="en", in_context=list)
    with pytest.raises(SpartaError, match="file"):
        tune_and_save(tmp_path, QuestionSet("set", QUERIES), retriever, tmp_path / "file")
    retriever.batch_search.assert_not_called()
