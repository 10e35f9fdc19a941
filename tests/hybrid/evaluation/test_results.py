"""Tables fit a terminal, and the result of a fusion is said in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hybrid.evaluation.compare import compare
from hybrid.evaluation.evaluate import evaluate_set
from hybrid.evaluation.measures import Evaluation
from hybrid.evaluation.results import SetResults, results_table, verdict
from hybrid.evaluation.tables import Table
from hybrid.evaluation.testsets import QuestionSet
from sparta.base.errors import InputError
from sparta.base.records import Query
from sparta.shards.encode import EncodeOptions
from tests.programs import hybrid, sparta


def test_a_wide_table_is_split_and_its_rows_keep_their_names() -> None:
    measures = [f"answer_recall@{10**i}" for i in range(6)]
    header = ["set", "channel", *(name for measure in measures for name in (measure, "±"))]
    rows = [[name, channel, *[12.5, 1.0] * 6] for name in ("a", "b") for channel in ("bm25", "impact")]
    table = Table(header, rows, n_names=2)
    first, second = (part.splitlines() for part in table.write("text").split("\n\n"))
    assert max(map(len, [*first, *second])) <= 100
    assert [line.split()[:2] for line in first] == [line.split()[:2] for line in second]
    assert [*first[0].split(), *second[0].split()[2:]] == header, "an interval follows its measure"
    assert first[0].endswith("±")
    assert second[0].endswith("±")
    assert len(table.write("csv").splitlines()) == 5
    same = Table(header, rows[:2], n_names=2).write("text").splitlines()
    assert (same[0], same[1].split()[0]) == ("set: a", "channel"), "the only set is named once"


def test_long_names_and_notes_take_several_lines() -> None:
    runs = [f"/home/somebody/{'runs/' * 20}{name}.trec" for name in "ab"]
    table = Table(
        ["set", "run", "RR", "note"], [["s", run, 1.0, "many words " * 9] for run in runs], n_names=2
    )
    lines = table.write("text").splitlines()
    assert max(map(len, lines)) <= 100
    assert "a.trec" in "".join(lines)
    assert sum(line.count("many") for line in lines) == 18
    assert Table(["set", "RR"], []).write("text") == "set  RR"


def test_whether_a_fusion_is_better_in_words() -> None:
    def ranking(name: str, first: float, others: float = 0.5) -> Evaluation:
        return Evaluation(name, {"RR": {str(i): others + i / 1000 if i else first for i in range(50)}})

    single, bad, lucky, good, great = (
        ranking("impact", 0.5),
        ranking("dense + bm25", 0.5, 0.4),
        ranking("dense + impact", 0.9),
        ranking("impact + bm25", 0.5, 0.6),
        ranking("dense + impact + bm25", 0.5, 0.7),
    )

    def words(*fusions: Evaluation) -> str:
        names = [fusion.name for fusion in fusions]
        return verdict(SetResults("s", [single, *fusions], fused=[*names, "chain"]), names)

    assert words(bad) == (
        "The fusion is not better than the best channel: RR 42.65 (dense + bm25) against 52.45 (impact)"
    )
    assert words(bad, ranking("dense + impact", 0.5)).startswith(
        "No fusion is better than the best channel: RR"
    )
    assert words(bad, lucky) == (
        "No fusion is significantly better than the best channel: RR 53.25 (dense + impact)"
        " against 52.45 (impact)"
    )
    assert words(lucky, good, bad).startswith(
        "A fusion is significantly better than the best channel: RR 62.25 (impact + bm25) against"
    )
    assert words(good, great).startswith("2 fusions are significantly better than the best channel: RR 72.05")
    assert words() == ""


def test_means_are_over_the_sets_that_have_the_ranking() -> None:
    """A ranking that a set lacks has a mean over the other sets, which the row names."""

    def results(name: str, **means: float) -> SetResults:
        return SetResults(name, [Evaluation(model, {"RR": {"q": value}}) for model, value in means.items()])

    sets = [results("a", bm25=0.5, few=0.2), results("b", bm25=0.7, few=0.6), results("zsre", bm25=0.9)]
    rows = [row[:3] for row in results_table(sets, ["RR"]).rows[-2:]]
    assert rows == [["mean", "bm25", pytest.approx(70.0)], ["mean of a, b", "few", pytest.approx(40.0)]]


@pytest.mark.parametrize("names", [("a/b/x.jsonl", "a-b/x.jsonl"), ("dev 1.jsonl", "dev-1.jsonl")])
def test_sets_whose_runs_would_be_one_file_are_refused(
    names: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text('{"question": "who", "answers": ["Larry"]}\n')
    sets = [word for name in names for word in ("--dataset", name)]
    for result in (
        hybrid("eval", "--index", "none", *sets, "--output-runs", "runs"),
        sparta("eval", *names, "--output-runs", "runs"),
    ):
        assert (result.exit_code, "would be the same file" in result.stderr) == (2, True), result.output
    assert not Path("runs").exists()


def test_models_whose_runs_would_be_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the TREC runs of m/a and m-a would be the same file"):
        evaluate_set(tmp_path, None, EncodeOptions(), dense=("m/a", "m-a"), output_runs=tmp_path / "runs")


def test_a_query_id_that_a_run_cannot_hold_is_refused_before_the_search(tmp_path: Path) -> None:
    """JSONL with such an id is refused when it is read; SQuAD's and MRQA's ids may be any text."""
    questions = QuestionSet("made", (Query("1", "who", ("Larry",)), Query("q 2", "where", ("Paris",))))
    channels: Any = None
    with pytest.raises(InputError, match="cannot hold the query id 'q 2'") as refused:
        compare(channels, questions, [], output_runs=tmp_path / "runs")
    assert (refused.value.where, (tmp_path / "runs").exists()) == ("made", False)
    answers = '"detected_answers": [{"text": "Paris", "char_spans": [[0, 4]]}]'
    context = f'{{"context": "Paris.", "qas": [{{"qid": "q 1", "question": "where", {answers}}}]}}'
    (tmp_path / "dev.jsonl").write_text(context)
    with pytest.raises(InputError, match="cannot hold the query id 'q 1'"):
        evaluate_set(tmp_path / "dev.jsonl", None, EncodeOptions(), output_runs=tmp_path / "runs")
