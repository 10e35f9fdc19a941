"""Evaluation: measures are those of ir_measures, significance is scipy's, test sets are what files say."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from pathlib import Path
from typing import Any

import ir_measures
import pytest

from hybrid.evaluation.evaluate import evaluate_runs, named_runs
from hybrid.evaluation.measures import Evaluation, evaluate, holm, p_values, parse_measures
from hybrid.evaluation.plots import add_legend, figure
from hybrid.evaluation.questions import questions_of
from hybrid.evaluation.results import SetResults, results_table
from hybrid.evaluation.tables import Table
from hybrid.evaluation.testsets import check_test_set, open_test_set
from hybrid.retrieval.fusion import Fusion
from sparta.base.errors import InputError
from sparta.base.records import ScoredPassage
from sparta.data.trec import read_run, write_run
from tests.programs import sparta

TEXT = "Google was founded by Larry Page and Sergey Brin in 1998. They were students. The moon is far."
SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Google",
            "paragraphs": [
                {
                    "context": TEXT,
                    "qas": [
                        {
                            "id": "q1",
                            "question": " who founded google ",
                            "answers": [{"answer_start": 22, "text": "Larry"}],
                        },
                        {
                            "id": "q2",
                            "question": "what were they",
                            "answers": [{"answer_start": 68, "text": "students"}],
                        },
                        {"id": "q3", "question": "unanswerable", "answers": []},
                    ],
                }
            ],
        }
    ],
}
MRQA = [
    {"header": {"dataset": "x", "split": "dev"}},
    {
        "context": TEXT,
        "qas": [
            {
                "qid": "q1",
                "question": "who?",
                "detected_answers": [
                    {"text": "Larry", "char_spans": [[22, 26]]},
                    {"text": TEXT[78:80], "char_spans": [[78, 79]]},
                ],
            }
        ],
    },
]


def a_run(rng: random.Random, queries: list[str], passages: list[str]) -> dict[str, list[ScoredPassage]]:
    found = {}
    for query in queries:
        ranked = rng.sample(passages, rng.randint(0, len(passages)))
        if ranked:
            found[query] = [ScoredPassage(p, float(len(ranked) - i)) for i, p in enumerate(ranked)]
    return found


def test_measures_are_those_of_ir_measures():
    rng = random.Random(1)
    queries, passages = [f"q{i}" for i in range(30)], [f"p{i}" for i in range(12)]
    qrels = {q: {p: rng.randint(0, 2) for p in rng.sample(passages, 4)} for q in queries}
    run = a_run(rng, queries, passages)
    names = parse_measures(
        ["MRR", "Success@1", "R@5", " nDCG@10", "AP", "P@3", "RR@10", "Compat(p=0.9)", "MAP"]
    )
    assert (names[0], names.count("AP")) == ("RR", 1)
    ours = evaluate("x", run, qrels, names)
    assert max(ours.per_query["Compat(p=0.9)"].values()) <= 1
    scored = [ir_measures.ScoredDoc(q, p.passage_id, p.score) for q, ranking in run.items() for p in ranking]
    theirs = ir_measures.calc_aggregate([ir_measures.parse_measure(n) for n in names], qrels, scored)
    for name in names:
        assert ours.mean(name) == pytest.approx(theirs[ir_measures.parse_measure(name)])
        assert set(ours.per_query[name]) == set(qrels)


def test_ids_may_be_any_text_whatever_a_tool_takes():
    """gdeval, which knows ERR, reads numbers alone."""
    found = evaluate("x", {"who?": [ScoredPassage("p", 1.0)]}, {"who?": {"p": 1}, "b": {"p": 1}}, ["ERR@20"])
    assert found.per_query["ERR@20"]["who?"] > found.per_query["ERR@20"]["b"] == 0


def test_the_order_of_ties_is_kept():
    """Tools break ties by id, some upwards, some downwards; what was ranked first is first."""
    for order in (["a", "b"], ["b", "a"]):
        run = {"q": [ScoredPassage(p, 7.0) for p in order]}
        for measure in ("RR", "RR@10", "Success@1", "nDCG@10"):
            found = evaluate("x", run, {"q": {"a": 1}}, [measure]).mean(measure)
            assert (found == 1.0) == (order[0] == "a"), (measure, order)


def test_a_repeated_question_id_is_refused(tmp_path):
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [*MRQA, MRQA[1]]))
    with pytest.raises(InputError, match="two questions have the id 'q1'"):
        open_test_set(path, tmp_path / "..")


def test_a_question_without_an_answer_counts_nought():
    found = evaluate("x", {"a": [ScoredPassage("p", 1.0)]}, {"a": {"p": 1}, "b": {"p": 1}}, ["RR"])
    assert found.per_query["RR"] == {"a": 1.0, "b": 0.0}
    assert found.mean("RR") == 0.5
    for run in ({}, {"a": []}, {"a": [], "b": []}, {"another": [ScoredPassage("p", 1.0)]}):
        found = evaluate("x", run, {"a": {"p": 1}, "b": {"p": 1}}, ["RR", "P@5", "Judged@3"])
        assert all(values == {"a": 0.0, "b": 0.0} for values in found.per_query.values())


@pytest.mark.parametrize(
    "bad", ["", "nonsense", "RR@", "nDCG@x", "__import__('os')", "R", "P", "Accuracy", "RR@0"]
)
def test_unknown_measures_are_refused(bad):
    with pytest.raises(InputError, match="unknown or unsupported measure"):
        parse_measures([bad])


def evaluation(name: str, values: list[float]) -> Evaluation:
    return Evaluation(name, {"RR": {f"q{i}": v for i, v in enumerate(values)}})


def test_significance_is_scipys_with_holms_correction():
    from scipy.stats import ttest_rel

    rng = random.Random(2)
    base = [rng.random() for _ in range(40)]
    others = [[v + shift * rng.random() for v in base] for shift in (-0.02, -0.5, 0.3)]
    raw = [float(ttest_rel(base, other).pvalue) for other in others]
    found = p_values(evaluation("b", base), [evaluation("o", o) for o in others], "RR")
    assert found == pytest.approx(holm(raw))
    same, moved = evaluation("s", base), evaluation("m", [v + 1 for v in base])
    assert p_values(evaluation("b", base), [same, moved], "RR") == [1.0, 2 * 2**-39]
    few = evaluation("b", [0.5, 0.5]), [evaluation("o", [1.0, 1.0])]
    assert p_values(*few, "RR") == [0.5], "two questions out of two are no proof"
    assert p_values(evaluation("b", [0.5]), [evaluation("o", [0.7])], "RR") == [1.0]


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_tables():
    table = Table(["set", "n", "RR"], [["a", 1, 81.25], ["b, c", None, 7.0]])
    assert table.write("text") == "set   n    RR\na     1  81.2\nb, c      7.0"
    assert table.write("markdown").splitlines()[:3] == [
        "| set | n | RR |",
        "| --- | --- | --- |",
        "| a | 1 | 81.2 |",
    ]
    assert Table(["set"], [["a|b"]]).write("markdown").splitlines()[2] == r"| a\|b |"
    assert list(csv.reader(io.StringIO(table.write("csv")))) == [
        ["set", "n", "RR"],
        ["a", "1", "81.25"],
        ["b, c", "", "7.0"],
    ]
    assert json.loads(table.write("json"))[0] == {"set": "a", "n": 1, "RR": 81.25}


@pytest.mark.slow
def test_a_legend_is_outside_of_the_axes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with figure(tmp_path / "plot.png", 2) as axes:
        for axis in axes:
            axis.plot([1, 2], [3, 4], label="dense + impact")
        add_legend(*axes)
        drawn = axes[0].figure
    [legend] = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == ["dense + impact"]
    drawn.canvas.draw()
    assert legend.get_window_extent().x0 >= max(axis.get_window_extent().x1 for axis in axes)


def corpus_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("packed", [False, True])
def test_squad_becomes_reqa(tmp_path, packed):
    path = tmp_path / ("dev.json.gz" if packed else "dev.json")
    data = json.dumps(SQUAD).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    found = open_test_set(path, tmp_path)
    assert (found.name, [q.text for q in found.queries]) == ("dev", ["who founded google", "what were they"])
    assert found.qrels == {"q1": {"0-0": 1}, "q2": {"0-1": 1}}
    records = corpus_of(found.corpus)
    assert [r["text"] for r in records] == [
        "Google was founded by Larry Page and Sergey Brin in 1998.",
        "They were students.",
        "The moon is far.",
    ]
    assert all(r["context"][r["start"] : r["end"]] == r["text"] and r["title"] == "Google" for r in records)


def test_mrqa_becomes_reqa(tmp_path):
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in MRQA))
    found = open_test_set(path, tmp_path / "..")
    assert found.qrels == {"q1": {"0-0": 1, "0-2": 1}}


def test_a_context_that_comes_again_is_one(tmp_path):
    """MRQA's files often have a line for each question; a copy of a sentence would be wrong for no reason."""
    path = tmp_path / "dev.jsonl"
    again = json.loads(json.dumps(MRQA[1]).replace('"q1"', '"q2"'))
    path.write_text("".join(json.dumps(line) + "\n" for line in [*MRQA, again]))
    found = open_test_set(path, tmp_path)
    assert found.qrels == {q: {"0-0": 1, "0-2": 1} for q in ("q1", "q2")}
    assert [record["id"] for record in corpus_of(found.corpus)] == ["0-0", "0-1", "0-2"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("dev.json", "{", "broken JSON"),
        (
            "dev.json",
            '{"data": [{"paragraphs": [{"context": 3, "qas": []}]}]}',
            "context of the wrong type: expected a string, found a number",
        ),
        ("dev.json", '{"data": []}', "answer_start"),
        ("dev.json", "{}", "the field 'data' must be a list"),
        ("dev.jsonl", '{"context": "x"}', "the field 'qas' must be a list"),
        ("dev.json", '{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": 1}]}]}]}', "no field"),
        ("dev.json", '{"data": [{"paragraphs": [{"context": "a", "qas": [7]}]}]}', "invalid format"),
        (
            "dev.jsonl",
            '{"context": "x", "qas": [{"qid": 1, "question": "?", "detected_answers": [{}]}]}',
            "no field",
        ),
        ("dev.txt", "", "found dev.txt"),
    ],
)
def test_files_that_are_no_test_set(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as caught:
        open_test_set(tmp_path / name, tmp_path)
    assert words in str(caught.value)
    assert caught.value.remedy


@pytest.fixture
def beir(tmp_path) -> Path:
    folder = tmp_path / "small"
    (folder / "qrels").mkdir(parents=True)
    records = [
        {"_id": "google", "title": "Google", "text": "Google was founded by Larry Page and Sergey Brin."},
        {"_id": "moon", "title": "Moon", "text": "The moon of the earth has no water."},
        {"_id": "paris", "title": "", "text": "Paris is the capital city of France."},
    ]
    asked = [
        {"_id": "1", "text": "who founded google"},
        {"_id": "2", "text": "water on the moon"},
        {"_id": "3", "text": "?"},
    ]
    for name, lines in (("corpus", records), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tgoogle\t1\n2\tmoon\t1\n")
    return folder


def test_a_run_keeps_what_is_no_suffix():
    assert list(named_runs([Path("a.run.gz"), Path("k1-0.9"), Path("c.v2.txt")])) == ["a", "k1-0.9", "c.v2"]


def test_incomplete_beir_folders(beir, tmp_path):
    assert [q.query_id for q in open_test_set(beir, tmp_path).queries] == ["1", "2"]
    (beir / "qrels" / "test.tsv").rename(beir / "qrels" / "dev.tsv")
    assert open_test_set(beir, tmp_path).qrels["1"] == {"google": 1}
    (beir / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n1\tgoogle\t1\n")
    for read in (lambda: open_test_set(beir, tmp_path), lambda: questions_of(beir)):
        with pytest.raises(InputError, match=r"2 files in qrels/ \(dev\.tsv, train\.tsv\), but no test\.tsv"):
            read()
    (beir / "queries.jsonl").unlink()
    with pytest.raises(InputError, match=r"no queries\.jsonl"):
        open_test_set(beir, tmp_path)


def test_judgments_of_questions_that_are_not_asked(beir, tmp_path, caplog):
    """They would count as questions that nothing was found for."""
    with (beir / "qrels" / "test.tsv").open("a") as lines:
        lines.write("9\tmoon\t1\n")
    check_test_set(beir)
    assert open_test_set(beir, tmp_path).qrels.keys() == {"1", "2"}
    assert [record.message for record in caplog.records] == [
        "small: 1 of 3 judged questions have no text and are not measured, for example 9"
    ]


def test_a_plot_that_cannot_be_drawn_is_refused_before_the_work(beir, tmp_path):
    for place, words in (("none/x.png", "none: no such folder"), ("x.docx", "PNG, SVG or PDF")):
        result = sparta("eval", beir, "--model", tmp_path / "no-model", "--plot", tmp_path / place)
        assert result.exit_code == 2
        assert words in result.stderr


def test_runs_are_measured_as_they_are(beir, tmp_path):
    """What says how a test set is searched would be ignored."""
    given = ["eval", "--run", tmp_path / "a.trec", "--qrels", beir / "qrels" / "test.tsv"]
    cut = (["--top-k", "3"], ["--chunk", "20"], ["--overlap", "5"])
    for option in (
        *cut,
        ["--output-runs", tmp_path / "runs"],
        ["--channel", "bm25"],
        ["--query-encoder", "none"],
    ):
        result = sparta(*given, *option)
        assert result.exit_code == 2
        assert f"{option[0]} needs test sets, found runs" in result.output
    result = sparta("eval", beir, "--per-query", tmp_path / "none" / "q.jsonl")
    assert result.exit_code == 2
    assert "no such folder: the file" in result.output


def test_runs_against_qrels(beir, tmp_path, caplog):
    paths = []
    for name, order in (("good", ["google", "moon"]), ("bad", ["moon", "google"])):
        paths.append(tmp_path / f"{name}.trec")
        write_run(paths[-1], [("1", [ScoredPassage(p, 2.0 - i) for i, p in enumerate(order)])])
    qrels = beir / "qrels" / "test.tsv"
    found = evaluate_runs(paths, qrels, ["RR"])
    assert [e.mean("RR") for e in found.evaluations] == [0.5, 0.25]
    fused = evaluate_runs(paths, qrels, ["RR", "R@200"], fusion=Fusion({"good": 1.0}))
    assert ([e.name for e in fused.evaluations], fused.fused) == (["good", "bad"], ())
    assert not caplog.records
    evaluate_runs(paths, qrels, ["RR", "R@200"], fusion=Fusion({"good": 1.0, "bad": 1.0}))
    assert "R@200 needs more passages than the 100 candidates" in caplog.text
    given = [x for path in paths for x in ("--run", path)]
    measures = "MRR,P(rel=1,judged_only=True)@1"
    result = sparta("eval", *given, "--qrels", qrels, "--measures", measures, "--format", "json")
    assert result.exit_code == 0, result.output
    assert [(row["ranking"], row["RR"]) for row in json.loads(result.output)] == [
        ("good", 50.0),
        ("bad", 25.0),
    ]
    write_run(tmp_path / "other.trec", [("x", [ScoredPassage("google", 1.0)])])
    result = sparta("eval", "--run", tmp_path / "other.trec", "--qrels", qrels)
    assert (result.exit_code, "other.trec" in result.stderr) == (2, True)


def test_runs_with_ties_fuse_as_their_channels(beir, tmp_path):
    """The steps between tied scores in a file would become differences between passages."""
    rankings = {
        "tied": [ScoredPassage(p, 0.1) for p in ("moon", "paris", "google")],
        "other": [ScoredPassage(p, 3.0 - i) for i, p in enumerate(("google", "paris", "moon"))],
    }
    for name, ranking in rankings.items():
        write_run(tmp_path / f"{name}.trec", [("1", ranking)])
    paths, fusion = [tmp_path / f"{name}.trec" for name in rankings], Fusion({"tied": 1.0, "other": 1.0})
    evaluate_runs(paths, beir / "qrels" / "test.tsv", ["RR"], fusion=fusion, output_runs=tmp_path / "runs")
    fused = read_run(tmp_path / "runs" / "test-tied+other.trec")["1"]
    assert fused == list(fusion.fuse(rankings))


@pytest.mark.jvm
def test_sparta_eval_as_typed(beir, tmp_path, tiny_model_folder):
    (tmp_path / "dev.json").write_text(json.dumps(SQUAD))
    out, runs = tmp_path / "per-query.jsonl", tmp_path / "runs"
    sets = [beir, tmp_path / "dev.json"]
    result = sparta(
        "eval",
        *sets,
        "--model",
        tiny_model_folder,
        "--per-query",
        out,
        "--output-runs",
        runs,
        "--format",
        "csv",
        "--plot",
        tmp_path / "plot.svg",
    )
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(r["set"], r["ranking"]) for r in rows] == [
        (s, c) for s in ("small", "dev", "mean") for c in ("impact", "bm25")
    ]
    for channel in ("impact", "bm25"):
        figures = [float(r["RR"]) for r in rows if r["ranking"] == channel]
        assert figures[2] == pytest.approx((figures[0] + figures[1]) / 2)
    rows = rows[:4]
    assert (tmp_path / "plot.svg").read_text().count("<svg") == 1
    assert all(float(r["RR"]) == 100 for r in rows if r["set"] == "small")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 2 * 2 + 2 * 2
    assert sorted(p.name for p in runs.iterdir()) == [
        f"{s}-{c}.trec" for s in ("dev", "small") for c in ("bm25", "impact")
    ]
    for row in rows:
        own = [v["RR"] for v in lines if (v["set"], v["ranking"]) == (row["set"], row["ranking"])]
        assert float(row["RR"]) == pytest.approx(100 * sum(own) / len(own))


@pytest.mark.parametrize(
    "arguments", [[], ["--qrels", "q.tsv"], ["x", "--run", "r", "--qrels", "q"], ["nowhere"], ["--run", "r"]]
)
def test_wrong_arguments(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = sparta("eval", *arguments)
    assert result.exit_code == 2
    assert "→" in result.stderr


@pytest.mark.slow
@pytest.mark.jvm
def test_judged_passages_that_the_corpus_lacks_are_not_read(beir):
    asked = {"_id": "1", "text": "who founded google", "answers": ["Larry Page"]}
    (beir / "queries.jsonl").write_text(json.dumps(asked) + "\n")
    with (beir / "qrels" / "test.tsv").open("a") as lines:
        lines.write("1\telsewhere\t1\n")
    result = sparta("eval", beir, "--channel", "bm25", "--answers", "--measures", "R@20", "--format", "json")
    assert result.exit_code == 0, result.output
    ranked, judged = json.loads(result.stdout)
    assert (ranked["R@20"], judged["ranking"]) == (50.0, "judged passages")


@pytest.mark.jvm
def test_sets_of_one_name_are_told_apart(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dev.json").write_text(json.dumps(SQUAD))
    sets = [tmp_path / folder / "dev.json" for folder in ("a", "b")]
    result = sparta(
        "eval", *sets, "--channel", "bm25", "--output-runs", tmp_path / "runs", "--format", "json"
    )
    assert result.exit_code == 0, result.output
    assert [row["set"] for row in json.loads(result.stdout)] == [*map(str, sets), "mean"]
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_domains_have_means_of_their_own():
    def one(name: str, value: float, domain: str) -> SetResults:
        figures = {"RR": {"q1": value, "q2": value}}
        return SetResults(name, [Evaluation("impact", figures)], domain=domain)

    sets = [one("a", 0.2, "in-domain"), one("x", 0.8, "out-of-domain"), one("b", 0.4, "in-domain")]
    rows = results_table(sets, ["RR"]).rows
    assert [(r[0], r[2]) for r in rows] == [
        ("a", pytest.approx(20)),
        ("b", pytest.approx(40)),
        ("mean, in-domain", pytest.approx(30)),
        ("x", pytest.approx(80)),
    ]


@pytest.mark.slow
def test_out_of_domain_as_typed_and_what_is_left_out(beir, tmp_path):
    squad = json.loads(json.dumps(SQUAD))
    asked = squad["data"][0]["paragraphs"][0]["qas"]
    asked.append({"id": "nowhere", "question": "what is not here", "answers": []})
    (tmp_path / "dev.json").write_text(json.dumps(squad))
    typed = ["eval", beir, "--out-of-domain", tmp_path / "dev.json", "--channel", "bm25", "--format", "csv"]
    result = sparta(*typed)
    assert result.exit_code == 0, result.output
    assert "dev: 2 questions left out, because the set names no relevant passage for them" in result.stderr
    assert [r["set"] for r in csv.DictReader(io.StringIO(result.stdout))] == ["small", "dev"]


def test_a_small_p_is_no_zero_and_marks_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    from cli._output import print_table

    good = Evaluation("x", {"RR": {str(i): 1 - i / 1000 for i in range(50)}})
    bad = Evaluation("y", {"RR": {str(i): 0.1 + i / 2000 for i in range(50)}})
    table = results_table([SetResults("set", [good, bad])])
    assert [row[-1] for row in table.rows] == ["", "<0.001*↓"]
    print_table(table, "text")
    assert capsys.readouterr().out.splitlines()[-1].startswith("p: paired t-test against the best single r")
    print_table(results_table([SetResults("set", [good])]), "text")
    assert "t-test" not in capsys.readouterr().out


def test_a_ranking_with_a_passage_twice_is_refused() -> None:
    run = {"q": [ScoredPassage("a", 3.0), ScoredPassage("b", 2.0), ScoredPassage("a", 1.0)]}
    with pytest.raises(InputError, match="twice") as caught:
        evaluate("mine", run, {"q": {"a": 1}}, ["RR"])
    assert caught.value.where == "mine, query q"
