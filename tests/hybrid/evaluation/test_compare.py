"""`hybrid` on an index: channels, their fusions, tuning."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import dense.models.resolve
from hybrid.retrieval.channels import open_channel
from hybrid.retrieval.fusion import Fusion
from sparta.base.records import ScoredPassage
from sparta.data.trec import read_run, write_run
from tests.programs import hybrid, sparta

pytestmark = pytest.mark.jvm

PASSAGES = {
    "google": "larry page and sergey brin founded google in a small house",
    "moon": "the moon of the earth",
    "king": "the king of germany was west of the sun",
    "city": "paris is a large city",
    "house": "a small house in the city of the king",
}
QUESTIONS = [
    {"_id": "1", "text": "who founded google", "answers": ["Larry Page"]},
    {"_id": "2", "text": "the earth and the moon", "answers": ["of the earth"]},
    {"_id": "3", "text": "king of the city", "answers": ["nowhere"]},
    {"_id": "4", "text": "not asked"},
]
QRELS = "query-id\tcorpus-id\tscore\n1\tgoogle\t1\n2\tmoon\t1\n3\thouse\t1\n"


@pytest.fixture
def folder(tmp_path: Path, write_jsonl: Callable[..., Path], tiny_model_folder: Path) -> Path:
    """A corpus with questions beside it, and its index."""
    write_jsonl(tmp_path / "wiki.jsonl", [{"id": i, "text": t} for i, t in PASSAGES.items()])
    write_jsonl(tmp_path / "questions.jsonl", QUESTIONS)
    (tmp_path / "qrels.tsv").write_text(QRELS)
    arguments = ["index", "--corpus", tmp_path / "wiki.jsonl", "--index", tmp_path / "index", "--quiet"]
    arguments += ["--model", tiny_model_folder]
    result = sparta(*arguments)
    assert result.exit_code == 0, result.output
    return tmp_path


@pytest.fixture(scope="session")
def dense_folder(make_tiny_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny dense model."""
    from dense.models.bi_encoder import DenseConfig, DenseModel

    tiny = make_tiny_model(seed=3)
    folder = tmp_path_factory.mktemp("dense") / "tiny"
    DenseModel(tiny.encoder, tiny.tokenizer, DenseConfig()).eval().save_pretrained(folder)
    return folder


@pytest.fixture
def with_dense(folder: Path, dense_folder: Path) -> Path:
    """The same with a dense channel in its index."""
    from dense.channel.sync import build_dense

    build_dense(folder / "index", str(dense_folder))
    return folder


def rankings(folder: Path, question: str, names: Sequence[str] = ("impact", "bm25")) -> dict[str, list[Any]]:
    found = {}
    for channel in names:
        with open_channel(folder / "index", channel) as searcher:
            found[channel] = [ScoredPassage(h.passage_id, h.score) for h in searcher.search(question, 100)]
    return found


RIGHT = {"1": "google", "2": "moon", "3": "house"}


def reciprocal_rank(found: dict[str, list[Any]], query_id: str, fusion: Fusion) -> float:
    order = [p.passage_id for p in fusion.fuse(found)]
    return 1 / (1 + order.index(RIGHT[query_id])) if RIGHT[query_id] in order else 0.0


def mean_rank(folder: Path, fusion: Fusion) -> float:
    """RR in percent, one question and one channel after the other."""
    ranks = [
        reciprocal_rank(rankings(folder, q["text"], list(fusion.weights)), q["_id"], fusion)
        for q in QUESTIONS[:3]
    ]
    return 100 * sum(ranks) / 3


@pytest.mark.slow
def test_eval_with_the_questions_beside_the_corpus(with_dense: Path) -> None:
    result = hybrid("eval", "--alpha", "1.2", "--index", with_dense / "index", "--format", "json")
    assert result.exit_code == 0, result.output
    rows = {row["channel"]: row for row in json.loads(result.stdout)}
    expected = {
        "bm25": Fusion({"bm25": 1.0}),
        "impact": Fusion({"impact": 1.0}),
        "dense": Fusion({"dense": 1.0}),
        "dense + 1.2·bm25": Fusion({"dense": 1.0, "bm25": 1.2}),
        "impact + 1.2·bm25": Fusion({"impact": 1.0, "bm25": 1.2}),
        "dense + impact": Fusion({"dense": 1.0, "impact": 1.0}),
        "dense + impact + 1.2·bm25": Fusion({"dense": 1.0, "impact": 1.0, "bm25": 1.2}),
    }
    assert list(rows) == list(expected)
    for name, row in rows.items():
        assert row["RR"] == pytest.approx(mean_rank(with_dense, expected[name])), name
        assert row["answer_recall@20"] == pytest.approx(200 / 3)
        assert row["answer_recall@100"] == pytest.approx(200 / 3)
        assert 0 < row["nDCG@10"] <= 100
        assert row["ms/query"] > 0
    best = max(("bm25", "impact", "dense"), key=lambda name: rows[name]["RR"])
    assert [name for name, row in rows.items() if row["p (RR)"] == ""] == [best]
    assert "score = dense + 1.2·bm25, or impact + 1.2·bm25, or dense + impact, or" in result.stderr
    text = hybrid("eval", "--alpha", "1.2", "--index", with_dense / "index").stdout.splitlines()
    assert max(map(len, text)) <= 100
    [verdict] = [line for line in text if "than the best channel" in line]
    assert verdict in result.stderr
    last = max(text.index(line) for line in text if line.startswith("dense + impact + 1.2·bm25  "))
    assert text.index(verdict) == last + 1
    formula = " ".join(map(str.strip, text[last + 2 :]))
    assert "or dense + impact + 1.2·bm25; scores min-max normalized and centered" in formula


@pytest.mark.slow
def test_one_fusion_is_chosen(with_dense: Path) -> None:
    given = ["eval", "--index", with_dense / "index", "--format", "json"]
    weights = {"bm25": 0.7, "impact": 1.0, "dense": 2.0}
    for options, fusion in (
        (["--weights", "bm25=0.7,impact=1,dense=2"], Fusion(weights)),
        (["--weights", "bm25=0.7,impact=1,dense=2", "--method", "rrf"], Fusion(weights, "rrf")),
        (["--base", "dense", "--alpha", "0.5"], Fusion({"dense": 1.0, "bm25": 0.5})),
    ):
        rows = json.loads(hybrid(*given, *options).stdout)
        assert [row["channel"] for row in rows] == ["bm25", "impact", "dense", fusion.label]
        assert rows[-1]["RR"] == pytest.approx(mean_rank(with_dense, fusion))
    rows = json.loads(hybrid(*given, "--no-dense").stdout)
    assert [row["channel"] for row in rows] == ["bm25", "impact", "impact + bm25"]
    alone = json.loads(hybrid(*given, "--weights", "bm25=1").stdout)
    assert [row["channel"] for row in alone] == ["bm25", "impact", "dense"], "bm25 is there already"
    for wrong in (
        ["--weights", "bm25=one"],
        ["--weights", "splade=1"],
        ["--alpha", "nan"],
        ["--alpha", "much"],
        ["--base", "splade"],
        ["--method", "sum"],
        ["--no-dense", "--base", "dense"],
        ["--no-dense", "--build-dense"],
        ["--weights", "bm25=1,dense=1", "--alpha", "1"],
        ["--weights", "bm25=1,dense=1", "--base", "impact"],
        ["--method", "rrf", "--normalization", "zscore"],
        ["--match", "fuzzy"],
        ["--match", "other=regex"],
    ):
        result = hybrid(*given, *wrong)
        assert (result.exit_code, result.stdout) == (2, ""), wrong


@pytest.mark.slow
def test_the_dense_channel_is_built_when_told_to(
    folder: Path, dense_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["eval", "--index", folder / "index", "--format", "json"]
    without = ["bm25", "impact", "impact + bm25"]
    result = hybrid(*given)
    assert result.exit_code == 0, result.output
    assert "has no dense channel: only the other channels are measured" in result.stderr
    assert f"add --build-dense, or run: dense index --index {folder / 'index'}" in result.stderr
    assert [row["channel"] for row in json.loads(result.stdout)] == without
    result = hybrid(*given, "--no-dense")
    assert ("no dense channel" in result.stderr, json.loads(result.stdout)[0]["channel"]) == (False, "bm25")
    assert "no dense channel" not in hybrid(*given, "--base", "impact").stderr
    result = hybrid(*given, "--base", "dense")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "add --build-dense" in result.stderr
    result = hybrid("search", "moon", "--index", folder / "index", "--base", "dense")
    assert result.exit_code == 2
    assert "no dense channel" in result.stderr
    assert "dense index" in result.stderr

    monkeypatch.setattr(dense.models.resolve, "DEFAULT_DENSE_MODEL", "no-such-model")
    result = hybrid(*given, "--build-dense")
    assert result.exit_code == 2
    assert "pip install ./models/no-such-model" in result.stderr
    monkeypatch.setattr(dense.models.resolve, "DEFAULT_DENSE_MODEL", str(dense_folder))
    result = hybrid(*given, "--build-dense")
    assert result.exit_code == 0, result.output
    assert "dense channel built: " in result.stderr
    names = [row["channel"] for row in json.loads(result.stdout)]
    assert names[:5] == ["bm25", "impact", "dense", "dense + bm25", "impact + bm25"]
    assert names[5:] == ["dense + impact", "dense + impact + bm25"]
    assert "built" not in hybrid(*given, "--build-dense").stderr, "once"
    assert [row["channel"] for row in json.loads(hybrid(*given).stdout)] == names


def test_an_index_without_questions(folder: Path) -> None:
    (folder / "questions.jsonl").unlink()
    (folder / "asked.tsv").write_text("who founded google\t['Larry Page']\n")
    result = hybrid("eval", "--alpha", "1.2", "--index", folder / "index")
    assert result.exit_code == 2
    assert "--dataset" in result.stderr
    assert "building" not in result.stderr
    for options in ([], ["--dataset", folder / "asked.tsv"]):
        result = hybrid("eval", "--index", folder / "none", *options)
        assert (result.exit_code, result.stderr.count("there is no index here")) == (2, 1)
        assert "left out" not in result.stderr


@pytest.mark.slow
def test_datasets_are_named(folder: Path, tmp_path: Path, write_jsonl: Callable[..., Path]) -> None:
    other = tmp_path / "beir"
    (other / "qrels").mkdir(parents=True)
    (other / "qrels" / "test.tsv").write_text(QRELS)
    write_jsonl(other / "queries.jsonl", [{"_id": q["_id"], "text": q["text"]} for q in QUESTIONS])
    given = ["eval", "--no-dense", "--index", folder / "index"]
    result = hybrid(*given, "--dataset", other, "--format", "csv", "--method", "rrf")
    assert result.exit_code == 0, result.output
    header, *rows = result.stdout.splitlines()
    assert header == "set,channel,RR,nDCG@10,p (RR),ms/query"
    assert [row.split(",")[1] for row in rows] == ["bm25", "impact", "RRF impact + bm25"]
    (tmp_path / "trec.tsv").write_text("who founded google\t['larry p[a-z]+', 'nobody']\nthe moon\t['x']\n")
    mixed = ["--dataset", other, "--dataset", tmp_path / "trec.tsv", "--match", "trec=regex"]
    result = hybrid(*given, *mixed, "--format", "json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert list(rows[0]) == [
        "set",
        "channel",
        "RR",
        "nDCG@10",
        "answer_recall@20",
        "answer_recall@100",
        "p",
        "ms/query",
    ]
    assert [(row["set"], row["RR"] is None, row["answer_recall@20"]) for row in rows[3:]] == [
        ("trec", True, 50.0)
    ] * 3
    few = hybrid(*given, "--dataset", tmp_path / "trec.tsv", "--sample", "1")
    assert "trec: a sample of 1 of 2 questions (seed 1)" in few.stdout.splitlines()
    twice = hybrid(*given, "--dataset", other, "--dataset", other)
    assert (twice.exit_code, "a set of questions is named twice" in twice.stderr) == (2, True)
    (other / "queries.jsonl").unlink()
    incomplete = hybrid(*given, "--dataset", other)
    assert (incomplete.exit_code, str(other) in incomplete.stderr) == (2, True)


def test_entity_questions_by_question_and_by_relation(folder: Path, tmp_path: Path) -> None:
    questions = tmp_path / "entities"
    questions.mkdir()
    first = [{"question": "who founded google", "answers": ["Sergey Brin"]}]
    second = [
        {"question": "the moon", "answers": ["the moon of the earth"]},
        {"question": "a king", "answers": ["nobody"]},
        {"question": "paris", "answers": ["nowhere"]},
    ]
    (questions / "P112.test.json").write_text(json.dumps(first))
    (questions / "P17.test.json").write_text(json.dumps(second))
    result = hybrid(
        "eval", "--no-dense", "--dataset", questions, "--index", folder / "index", "--format", "json"
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["set"] for row in rows] == ["entities (micro)"] * 3 + ["entities (macro)"] * 3
    assert {row["answer_recall@20"] for row in rows[:3]} == {50.0}, "two of four"
    assert [row["answer_recall@20"] for row in rows[3:]] == pytest.approx([100 * (1 + 1 / 3) / 2] * 3)


def test_rankings_are_left_as_runs(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    result = hybrid("eval", "--no-dense", "--index", folder / "index", "--alpha", "1.2", "--output-runs", out)
    assert result.exit_code == 0, result.output
    name = folder.name
    assert sorted(p.name for p in out.iterdir()) == [
        f"{name}-bm25.trec",
        f"{name}-impact+1.2xbm25.trec",
        f"{name}-impact.trec",
    ]
    fused = read_run(out / f"{name}-impact+1.2xbm25.trec")
    expected = Fusion({"impact": 1.0, "bm25": 1.2}).fuse(rankings(folder, "king of the city"))
    assert [p.passage_id for p in fused["3"]] == [p.passage_id for p in expected]


def test_runs_are_fused(folder: Path, tmp_path: Path) -> None:
    paths = []
    for channel in ("impact", "bm25"):
        paths.append(tmp_path / f"{channel}.trec")
        found = [(q["_id"], rankings(folder, q["text"])[channel]) for q in QUESTIONS[:3]]
        write_run(paths[-1], found)
    given = ["--run", paths[0], "--run", paths[1], "--qrels", folder / "qrels.tsv"]
    result = hybrid("eval", *given, "--alpha", "0.7", "--format", "json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["channel"] for row in rows] == ["impact", "bm25", "impact + 0.7·bm25"]
    runs = {p.stem: read_run(p) for p in paths}
    fused = Fusion({"impact": 1.0, "bm25": 0.7}).fuse_runs(runs)
    ranks = [1 / (1 + [p.passage_id for p in fused[q]].index(gold)) for q, gold in RIGHT.items()]
    assert rows[2]["RR"] == pytest.approx(100 * sum(ranks) / 3)
    out = tmp_path / "runs"
    several = ["--runs", *paths, "--qrels", folder / "qrels.tsv", "--output-runs", out, "--format", "json"]
    each = tmp_path / "each.jsonl"
    assert json.loads(hybrid("eval", *several, "--alpha", "0.7", "--per-query", each).stdout) == rows
    lines = [json.loads(line) for line in each.read_text().splitlines()]
    assert {one["query_id"]: one["RR"] for one in lines if "0.7" in one["ranking"]} == {
        query: pytest.approx(value) for query, value in zip(RIGHT, ranks, strict=True)
    }
    assert list(read_run(out / "qrels-impact+0.7xbm25.trec")) == list(runs["impact"])
    measures = "RR,P(rel=1,judged_only=True)@1"
    weighed = hybrid("eval", *several, "--weights", "bm25=0.7,impact=1", "--measures", measures)
    assert json.loads(weighed.stdout)[2]["channel"] == "0.7·bm25 + impact"
    assert json.loads(weighed.stdout)[2]["RR"] == rows[2]["RR"]
    foreign = tmp_path / "foreign.trec"
    write_run(foreign, [("x", [ScoredPassage("moon", 1.0)])])
    named = paths[0]
    for wrong in (
        ["--run", paths[1], "--qrels", folder / "qrels.tsv"],
        ["--run", named, "--run", paths[1]],
        ["--qrels", folder / "qrels.tsv"],
        [named, paths[1], "--qrels", folder / "qrels.tsv"],
        [named],
        ["--run", named, paths[1], "--qrels", folder / "qrels.tsv", "--dataset", folder],
        ["--run", named, paths[1], "--qrels", folder / "qrels.tsv", "--weights", "dense=1"],
        ["--run", named, paths[1], "--qrels", folder / "qrels.tsv", "--sample", "1"],
        ["--run", named, paths[1], "--qrels", folder / "qrels.tsv", "--no-dense"],
        ["--run", named, paths[1], "--qrels", folder / "qrels.tsv", "--threads", "1"],
        ["--run", paths[1], "--run", paths[1], "--qrels", folder / "qrels.tsv"],
        ["--run", paths[1], "--run", foreign, "--qrels", folder / "qrels.tsv"],
    ):
        result = hybrid("eval", *wrong)
        assert (result.exit_code, "→" in result.stderr) == (2, True)


@pytest.mark.slow
def test_runs_of_two_normalizations_have_names_of_their_own(folder: Path, tmp_path: Path) -> None:
    for name in ("minmax", "zscore"):
        given = [
            "--no-dense",
            "--index",
            folder / "index",
            "--normalization",
            name,
            "--output-runs",
            tmp_path,
        ]
        assert hybrid("eval", *given).exit_code == 0
    fused = {path.name for path in tmp_path.glob("*impact+bm25*.trec")}
    assert len(fused) == 2
    assert sum("zscore" in name for name in fused) == 1


def test_search(with_dense: Path) -> None:
    given = ["search", "who founded google", "--index", with_dense / "index", "-k", "2"]
    found = rankings(with_dense, "who founded google", ("impact", "bm25", "dense"))
    for options, fusion in (
        ([], Fusion({"dense": 1.0, "impact": 1.0})),
        (["--alpha", "1"], Fusion({"impact": 1.0, "bm25": 1.0})),
        (["--base", "impact"], Fusion({"impact": 1.0, "bm25": 1.0})),
        (["--base", "dense", "--alpha", "0.5"], Fusion({"dense": 1.0, "bm25": 0.5})),
        (["--weights", "dense=1,sparta=2,bm25=0.3"], Fusion({"dense": 1, "impact": 2, "bm25": 0.3})),
        (["--weights", "dense=1"], Fusion({"dense": 1.0})),
        (
            ["--base", "dense", "--normalization", "zscore"],
            Fusion({"dense": 1.0, "bm25": 1.0}, normalization="zscore"),
        ),
    ):
        result = hybrid(*given, *options, "--json")
        assert result.exit_code == 0, result.output
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        fused = fusion.fuse(found, 2)
        assert [(r["id"], r["score"]) for r in rows] == [
            (p.passage_id, pytest.approx(p.score)) for p in fused
        ]
        for row in rows:
            for name in fusion.weights:
                places = [p.passage_id for p in found[name]]
                wanted = 1 + places.index(row["id"]) if row["id"] in places else None
                assert row["channels"].get(name, {}).get("rank") == wanted
            assert row["text"] == PASSAGES[row["id"]]
            assert row["snippet"].replace("*", "").split(" …")[0] in PASSAGES[row["id"]]
        shown = hybrid(*given, *options).stdout.splitlines()
        assert len(shown) == 4, "two hits, and nothing below them"
        assert f"[{rows[0]['id']}]" in shown[0] or rows[0]["id"] in shown[0]
        first = next(iter(fusion.weights))
        assert f"{first} #{rows[0]['channels'][first]['rank']}" in shown[0]


def test_without_vectors_a_search_is_by_impacts(folder: Path) -> None:
    """BM25 adds nothing to them on the held-out sets."""
    given = ["search", "who founded google", "--index", folder / "index", "--json"]
    result = hybrid(*given)
    assert result.stderr == (
        f"{folder / 'index'} has no dense channel: only impact is searched\n"
        f"  → dense index --index {folder / 'index'}\n"
    )
    asked = hybrid(*given, "--weights", "impact=1")
    assert (asked.stdout, asked.stderr) == (result.stdout, "")


def test_search_many_questions(with_dense: Path, tmp_path: Path) -> None:
    """A run holds what a search of each question finds; how deep it is changes no score."""
    asked, output = tmp_path / "q.tsv", tmp_path / "run.trec"
    asked.write_text("a\twho founded google\nb\tmoon\n")
    given = ["--index", with_dense / "index", "--base", "dense", "-k", "2", "--candidates", "2"]
    result = hybrid("search", "--queries", asked, "--output", output, *given)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in output.read_text().splitlines()]
    for query, text in (("a", "who founded google"), ("b", "moon")):
        found = rankings(with_dense, text, ("dense", "bm25"))
        expected = Fusion({"dense": 1.0, "bm25": 1.0}, candidates=2).fuse(found, 2)
        own = [line for line in lines if line[0] == query]
        assert [line[2] for line in own] == [p.passage_id for p in expected]
        assert [float(line[4]) for line in own] == pytest.approx([p.score for p in expected])
    assert {line[5] for line in lines} == {"sparta-dense+bm25"}
    nothing = hybrid("search", "☃", "--index", with_dense / "index", "--weights", "bm25=1")
    assert "no passage matches the query" in nothing.stdout
    refused = hybrid("search", "moon", "--index", with_dense / "index", "-k", "101")
    assert (refused.exit_code, "--candidates 101" in refused.stderr) == (2, True)
    refused = hybrid("search", "moon", "--queries", asked, "--output", output)
    assert (refused.exit_code, "--queries" in refused.stderr) == (2, True)


def test_tune(folder: Path) -> None:
    result = hybrid("tune", "--index", folder / "index", "--format", "json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["weight of bm25"] for row in rows[:16]] == [round(0.5 + 0.1 * i, 1) for i in range(16)]
    for row in rows[:16]:
        alpha = row["weight of bm25"]
        assert row["RR"] == pytest.approx(mean_rank(folder, Fusion({"impact": 1.0, "bm25": alpha})))
    best = [row for row in rows if row["note"].startswith("best")]
    assert len(best) == 1
    assert best[0]["RR"] == max(row["RR"] for row in rows[:16])
    assert f"score = impact + {best[0]['weight of bm25']:g}·bm25" in result.stderr.replace(
        "+ bm25", "+ 1·bm25"
    )
    both = hybrid(
        *("tune", "--index", folder / "index", "--format", "json"),
        *("--alphas", "0.2,1", "--candidates", "1,100"),
    )
    for row in json.loads(both.stdout)[:2]:
        fusion = Fusion({"impact": 1.0, "bm25": row["weight of bm25"]}, candidates=row["candidates"])
        assert row["RR"] == pytest.approx(mean_rank(folder, fusion))
    [chosen] = [row for row in json.loads(both.stdout) if row["note"].startswith("best")]
    assert f"over each channel's {chosen['candidates']} best" in both.stderr
    (folder / "qrels.tsv").unlink()
    by_answer = hybrid("tune", "--index", folder / "index", "--format", "csv")
    assert by_answer.stdout.splitlines()[0] == "weight of bm25,answer_recall@20,note"
    result = hybrid("tune", "--index", folder / "index", "--measure", "RR")
    assert (result.exit_code, "RR needs judged passages" in result.stderr) == (2, True)
    for wrong in (
        ["--weights", "impact=1"],
        ["--channels", "impact"],
        ["--channels", "bm25,bm25"],
        ["--channels", "bm25,splade"],
        ["--channels", "bm25", "--weights", "impact=1,bm25=1"],
        ["--measure", "answer_recall@0"],
        ["--measure", "quality"],
        ["--alphas", "0.5:2"],
        ["--candidates", "0"],
    ):
        result = hybrid("tune", "--index", folder / "index", *wrong)
        assert (result.exit_code, "→" in result.stderr) == (2, True), wrong
