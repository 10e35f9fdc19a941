"""What the commands print and write."""

import json
import re
from pathlib import Path

import pytest

from sparta.data.trec import read_run
from sparta.lucene import bridge
from sparta.models.resolve import default_model_folder
from sparta.search.explain import explain, top_terms
from sparta.search.searcher import Searcher
from tests.cli.commands import (
    QUESTION,
    RECORDS,
    ROOT,
    done,
    hits_of,
    refused,
    sparta_processes,
    top_rows,
    written,
)
from tests.programs import sparta

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("own_logger")]


@pytest.mark.parametrize("channel", ["sparta", "impact", "bm25"])
def test_search_prints_what_the_searcher_finds(channel, built):
    output = done(sparta("search", QUESTION, "--index", built, "--channel", channel)).stdout
    with Searcher(built, channel="bm25" if channel == "bm25" else "impact") as searcher:
        hits = searcher.search(QUESTION)
        shares = [[s for s in explain(searcher, QUESTION, h.passage_id).terms if s.impact] for h in hits]
    heads = re.findall(r"^ {0,2}(\d+)  (.*?)  (\S+)$", output, re.MULTILINE)
    assert [int(rank) for rank, _, _ in heads] == list(range(1, len(hits) + 1))
    titles = {str(r.get("id", r.get("_id"))): r.get("title", "") for r in RECORDS}
    assert [head for _, head, _ in heads] == [
        f"{titles[h.passage_id]}  [{h.passage_id}]" if titles[h.passage_id] else h.passage_id for h in hits
    ]
    assert [float(score) for _, _, score in heads] == pytest.approx([h.score for h in hits], rel=1e-3)
    if channel != "bm25":
        sums = re.findall(r"^ +(\S+ [\d.]+(?: \+ \S+ [\d.]+)*)$", output, re.MULTILINE)
        assert sums == [" + ".join(f"{s.term} {s.contribution}" for s in row) for row in shares]
    assert "*Google* was *founded* by" in output


@pytest.mark.parametrize("options", [["--channels", "bm25"], []])
def test_bm25_marks_the_words_that_it_matched(tmp_path, model, options):
    texts = ("Unforgettable kodak moments; Habsburgs.", "Unbelievable believers of moons.")
    path = written(tmp_path / "c.jsonl", *({"id": str(i), "text": text} for i, text in enumerate(texts)))
    done(sparta("index", "--corpus", path, *(options or model)))
    for query, expected in (
        ("kodak unforgiven microphones", "Unforgettable *kodak* moments; Habsburgs."),
        ("The believe", "Unbelievable *believers* of moons."),
    ):
        assert expected in done(sparta("search", query, "--channel", "bm25")).stdout
        [hit] = hits_of(query, "--channel", "bm25")
        assert hit["snippet"] == expected


def test_search_json_is_what_the_searcher_finds(built):
    for k in (1, 3, 1000):
        found = hits_of(QUESTION, "--index", built, "-k", k)
        with Searcher(built) as searcher:
            hits = searcher.search(QUESTION, k)
            assert [(f["rank"], f["id"], f["score"], f["text"]) for f in found] == [
                (rank, h.passage_id, h.score, h.text) for rank, h in enumerate(hits, 1)
            ]
        for hit in found:
            assert sum(t["count"] * t["impact"] for t in hit["terms"]) == hit["score"]


def test_search_json_by_bm25(built):
    found = hits_of("the moon", "--index", built, "--channel", "bm25")
    with Searcher(built, channel="bm25") as searcher:
        assert [(f["id"], f["score"]) for f in found] == [
            (h.passage_id, h.score) for h in searcher.search("the moon")
        ]
    assert found[0]["id"] == "moon"


@pytest.mark.parametrize("query", ["", "  ", "☃", "\N{GRINNING FACE} ☃"])
def test_a_question_without_known_words(query, built):
    result = done(sparta("search", query, "--index", built))
    assert result.stdout == "no passage found: no word of the query is in the vocabulary of the index\n"
    assert hits_of(query, "--index", built) == []


def test_a_question_that_no_text_answers(built):
    assert "no passage" in done(sparta("search", "☃", "--channel", "bm25", "--index", built)).stdout


def test_explain(built):
    table_, score = done(sparta("explain", QUESTION, "google", "--index", built)).stdout.rsplit("score ", 1)
    header, *rows = [re.split(r"  +", line.strip()) for line in table_.splitlines()]
    with Searcher(built) as searcher:
        why = explain(searcher, QUESTION, "google")
        assert why.rank == 1
        assert why.score == searcher.search(QUESTION, 1)[0].score
        step = why.terms[0].weight / why.terms[0].impact
    assert header == ["word", "count in query", "impact", "weight", "adds to score"]
    assert rows == [
        [s.term, str(s.count), str(s.impact), f"{s.impact * step:.3f}", str(s.contribution)]
        for s in why.terms
    ]
    assert score == f"{why.score}: rank 1 of 5\n"
    found = json.loads(done(sparta("explain", QUESTION, "google", "--index", built, "--json")).stdout)
    assert (found["id"], found["rank"], found["score"]) == ("google", 1, why.score)
    assert [(t["term"], t["impact"]) for t in found["terms"]] == [(s.term, s.impact) for s in why.terms]


def test_explain_where_nothing_matches(built):
    assert "not a hit" in done(sparta("explain", "☃", "moon", "--index", built)).stdout


def test_terms(built):
    with Searcher(built) as searcher:
        best = top_terms(searcher, "beijing")
    assert top_rows(done(sparta("terms", "beijing", "--index", built, "-n", 4)).stdout) == [
        b[:2] for b in best[:4]
    ]
    found = json.loads(done(sparta("terms", "beijing", "--index", built, "--json", "-n", 4)).stdout)
    assert found == {
        "version": 1,
        "id": "beijing",
        "terms": [dict(zip(("term", "impact", "weight"), b, strict=True)) for b in best[:4]],
        "of": len(best),
    }


def test_runs_of_tsv_and_of_beir_jsonl(built, tmp_path):
    texts = {"q1": QUESTION, "q2": "the moon", "q3": "☃"}
    (tmp_path / "q.tsv").write_text("".join(f"{i}\t{t}\n" for i, t in texts.items()), encoding="utf-8")
    written(tmp_path / "q.jsonl", *({"_id": i, "text": t, "metadata": {}} for i, t in texts.items()))
    with Searcher(built) as searcher:
        found = searcher.batch_search(list(texts.values()), list(texts), 4)
    runs = []
    for name in ("q.tsv", "q.jsonl"):
        options = "--index", built, "-k", 4, "--threads", 2
        result = done(sparta("search", "--queries", name, "--output", "run.trec", *options))
        lines = sum(map(len, found.values()))
        assert result.stdout == f"run.trec: {lines} lines for 3 queries, 1 without hits\n"
        runs.append(Path("run.trec").read_text())
        run = read_run("run.trec")
        assert {i: [p.passage_id for p in ps] for i, ps in run.items()} == {
            i: [h.passage_id for h in hits] for i, hits in found.items() if hits
        }
    assert runs[0] == runs[1]
    first = runs[0].splitlines()[0].split()
    assert first == ["q1", "Q0", found["q1"][0].passage_id, "1", str(found["q1"][0].score), "sparta-impact"]


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_what_goes_to_standard_output_is_alone_there(name, built):
    written(Path("q.jsonl"), {"_id": "q1", "text": QUESTION})
    result = done(sparta("search", "--queries", "q.jsonl", "--output", name, "--index", built))
    assert {line.split()[0] for line in result.stdout.splitlines()} == {"q1"}
    result = done(sparta("export", "--format", "pyserini-json", "--output", name, "--index", built))
    assert len([json.loads(line) for line in result.stdout.splitlines()]) == len(RECORDS)
    assert "5 passages" in result.stderr


def test_encode_then_index_is_index(corpus, model, built):
    assert (
        "shards: encoded 5 passages"
        in done(sparta("encode", "--corpus", corpus, "--output", "shards", *model)).stdout
    )
    refused(sparta("encode", "--corpus", corpus, "--output", "shards", *model), 2, "shards: ", "--resume")
    again = done(sparta("encode", "--corpus", corpus, "--output", "shards", *model, "--resume")).stdout
    assert "encoded 0 passages" in again
    assert "kept 5" in again
    assert "5 passages" in done(sparta("index", "--vectors", "shards")).stdout
    assert "nothing to do" in done(sparta("index", "--vectors", "shards")).stdout
    for passage in ("google", "3"):
        assert sparta("terms", passage).stdout == sparta("terms", passage, "--index", built).stdout


def test_shards_of_two_machines(corpus, model, built):
    for part in ("0/2", "1/2"):
        output = done(
            sparta(
                *("encode", "--corpus", corpus, "--output", f"s{part[0]}", *model),
                *("--shard", part, "--shard-size", 2),
            )
        ).stdout
        assert f"left {2 if part == '0/2' else 3} to other machines" in output
    assert "5 passages" in done(sparta("index", "--vectors", "s0", "s1")).stdout
    assert sparta("terms", "beijing").stdout == sparta("terms", "beijing", "--index", built).stdout
    given = ["--vectors", "s0", "s1", "--tokenizer", model[1]]
    refused(sparta("index", *given), 2, "a tokenizer is named for the shards", "omit the tokenizer")
    again = ["--vectors", "s0", "--vectors", "s1"]
    assert "nothing to do" in done(sparta("index", *again)).stdout
    refused(sparta("index", "--vectors", "s1", "--index", "half"), 2, "lack passages", "all machines")


@pytest.mark.slow
def test_an_index_that_is_up_to_date_can_be_merged(corpus, model, tmp_path):
    index = ["--index", tmp_path / "ix"]
    more = written(tmp_path / "more.jsonl", {"id": "sea", "text": "The sea is blue."})
    done(sparta("index", "--corpus", corpus, *index, *model))
    append = ["index", "--append", "--corpus", more, *index, *model]
    done(sparta(*append))

    def segments() -> int:
        return len(list((tmp_path / "ix" / "sparta-000001").glob("*.si")))

    assert segments() == 2
    said = done(sparta(*append, "--optimize")).stdout
    assert "merged into one segment" in said
    assert "up to date, 6 passages" in said
    assert segments() == 1
    assert "up to date" in done(sparta(*append)).stdout, "it still knows what it holds"


@pytest.mark.parametrize("form", ["pyserini-json", "ciff"])
def test_export(form, built):
    result = done(sparta("export", "--format", form, "--output", "out", "--index", built))
    with Searcher(built) as searcher:
        postings = sum(len(top_terms(searcher, str(r.get("id", r.get("_id"))))) for r in RECORDS)
    assert result.stdout.startswith(f"out: 5 passages, {postings:,} postings; an impact of 1 is a weight of ")
    assert result.stdout.endswith(", a query weight of 1 is 1\n")
    assert Path("out").stat().st_size > postings


def test_an_exported_index_is_indexed_again(built, tiny_model_folder):
    done(sparta("export", "--format", "pyserini-json", "--output", "v.jsonl", "--index", built))
    done(sparta("index", "--vectors", "v.jsonl", "--tokenizer", tiny_model_folder))
    before, after = hits_of(QUESTION, "--index", built), hits_of(QUESTION)
    assert [(h["id"], h["score"]) for h in before] == [(h["id"], h["score"]) for h in after]


LOCALES = {
    "C": {"LC_ALL": "C", "PYTHONIOENCODING": None},
    "ascii": {"LC_ALL": "C", "PYTHONIOENCODING": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.slow
@pytest.mark.parametrize("variables", LOCALES.values(), ids=LOCALES.keys())
def test_a_terminal_that_knows_no_unicode(variables, built):
    search = ["search", "北京 moon", "--index", built]
    results = sparta_processes([*search, "--json", "-k", 5], search, **variables)
    assert [(result.returncode, result.stderr) for result in results] == [(0, "")] * 2
    objects, text = [result.stdout for result in results]
    hits = [json.loads(line) for line in objects.splitlines()]
    assert {("beijing", "北京"), ("moon", "Moon")} <= {(hit["id"], hit["title"]) for hit in hits}
    assert "beijing" in text


def test_an_index_of_ready_vectors_takes_their_language(tmp_path, tiny_model_folder):
    source = written(tmp_path / "one.jsonl", {"id": "a", "text": "Der Mond. Das war am 3. Mai 1998."})
    shards, index = tmp_path / "shards", tmp_path / "index"
    given = ["--unit", "sentence", "--language", "de", "--model", tiny_model_folder]
    encoded = done(sparta("encode", "--corpus", source, "--output", shards, *given)).stdout
    assert re.search(r"encoded 2 sentences \([\d,]+ terms per sentence\)", encoded)
    done(sparta("index", "--vectors", shards, "--index", index))
    assert json.loads((index / "manifest.json").read_text())["live"]["language"] == "de"


@pytest.mark.slow
def test_the_first_five_minutes(tmp_path):
    """In a folder with a corpus, with no option at all: the example's question finds who founded Google."""
    if not default_model_folder().is_dir():
        pytest.skip("no model ships with this checkout")
    lines = (ROOT / "examples" / "wiki.jsonl").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "wiki.jsonl").write_text("".join(lines[:30] + lines[150:160]), "utf-8")
    assert "40 passages" in done(sparta("index", "--corpus", "wiki.jsonl")).stdout
    first, text, terms = done(sparta("search", "who founded google")).stdout.splitlines()[:3]
    assert first.startswith("  1  Google  [google]  ")
    assert "Larry Page and Sergey Brin" in text
    assert {word.split()[0] for word in terms.split(" + ")} >= {"google", "founded"}
    assert "rank 1 of 40" in done(sparta("explain", "who founded google", "google")).stdout
    assert "google" in dict(top_rows(done(sparta("terms", "google", "-n", 10)).stdout))
    assert hits_of("who founded google", "--channel", "bm25", "-k", 1)[0]["id"] == "google"
    asked = "In which town is the author of Frankenstein buried?"
    path = [
        line.split()[1]
        for line in done(sparta("search", asked, "--chain", "hop", "-k", 1)).stdout.splitlines()
    ]
    assert path[1:3] == ["Frankenstein", "Mary"]


@pytest.mark.parametrize("channel", ["impact", "bm25", "bm25=1,impact=1"])
def test_a_search_ranks_once(channel, built, calls):
    """Terms and snippets of the hits are read from the hits; no passage is ranked again for them."""
    recorded = calls(bridge.unpack_hits, bridge.ImpactSearcher.rank)
    assert done(sparta("search", "the moon", "--channel", channel, "--index", built)).stdout.count("[") >= 1
    assert [name for name, _ in recorded] == ["unpack_hits"]
