"""BM25 on Chinese: analyzers beside each other and beside Pyserini's `zh` index, and across its two scripts.

    python benchmarks/chinese.py [--smartcn JAR] [--index-of MODEL] SET…

SETs are SQuAD JSON, as CMRC 2018 and DRCD are published; candidates are their sentences and their paragraphs.
Prints two Markdown tables. The first has a row for each analyzer, for Pyserini 2.2's own index of the same
texts, and for the impacts of MODEL (a SPARTA model, named as for `sparta index --model`): MRR, half its 95 %
interval (bootstrap over questions), and p of a paired t-test against Pyserini (Holm). The second asks in the
script that the passages are not written in, by the shipped analysis, with folding and without.

JAR is Lucene's SmartChinese (org.apache.lucene:lucene-analysis-smartcn), of the version of lucene-core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hybrid.evaluation.answering import half_width
from hybrid.evaluation.evaluate import corpus_of
from hybrid.evaluation.measures import Evaluation, evaluate, p_values, shown_p
from hybrid.evaluation.rankings import search_all
from hybrid.evaluation.tables import Cell, Table
from hybrid.evaluation.testsets import QuestionSet, open_test_set
from hybrid.retrieval.channels import Channels
from sparta.base.records import Query, Run, ScoredPassage
from sparta.data.corpus import open_corpus
from sparta.data.languages import LANGUAGES, Language
from sparta.data.qa_formats import read_squad
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.lucene.bridge import ImpactSearcher, ImpactWriter

DEPTH = 100
MRR = "RR"
ZH = LANGUAGES["zh"]
ANALYZERS = {
    "bigrams": "cjk.CJKAnalyzer",
    "bigrams and unigrams": "cjk-bigrams-and-unigrams",
    "unigrams": "standard.StandardAnalyzer",
}
SMART = {"SmartChinese": "cn.smart.SmartChineseAnalyzer"}
PYSERINI = "Pyserini, zh"
SEARCH = """
import json, sys
from pyserini.search.lucene import LuceneSearcher
searcher = LuceneSearcher(sys.argv[1])
searcher.set_language("zh")
for line in sys.stdin:
    hits = searcher.search(json.loads(line), int(sys.argv[2]))
    print(json.dumps([[hit.docid, hit.score] for hit in hits]))
"""


@dataclass(frozen=True, slots=True)
class Candidates:
    """A test set, and the text of each of its candidates as BM25 reads it: `(id, title and text)`."""

    tested: QuestionSet
    texts: tuple[tuple[str, str], ...]

    def asked(self, change: Callable[[str], str]) -> Candidates:
        """The same with other questions."""
        queries = tuple(Query(q.query_id, change(q.text)) for q in self.tested.queries)
        return replace(self, tested=replace(self.tested, queries=queries))


def sentences(path: Path, work: Path) -> Candidates:
    """The sentences of a set, as `sparta eval` ranks them."""
    return _read(open_test_set(path, work, "zh"))


def paragraphs(path: Path, work: Path) -> Candidates:
    """Its paragraphs; those that hold the answer are right."""
    numbers: dict[tuple[str, str], str] = {}
    queries, qrels = [], {}
    corpus = work / f"{path.name}.paragraphs.jsonl"
    with corpus.open("w", encoding="utf-8") as out:
        for one in read_squad(path):
            known = len(numbers)
            number = numbers.setdefault((one.title, one.text), str(known))
            if len(numbers) > known:
                out.write(json.dumps({"id": number, "title": one.title, "text": one.text}) + "\n")
            queries += [Query(query_id, question) for query_id, question, _ in one.questions]
            qrels.update({query_id: {number: 1} for query_id, _, _ in one.questions})
    return _read(QuestionSet(path.name, tuple(queries), qrels, corpus=corpus))


def _read(tested: QuestionSet) -> Candidates:
    return Candidates(
        tested, tuple((p.passage_id, f"{p.title} {p.text}".strip()) for p in open_corpus(corpus_of(tested)))
    )


def bm25(given: Candidates, language: Language, work: Path) -> Run:
    """Index and search as this language has it."""
    code = f"measured {len(LANGUAGES)}"
    LANGUAGES[code] = language
    ids, texts = [i for i, _ in given.texts], [language.fold(text) for _, text in given.texts]
    folder = work / code
    with ImpactWriter(folder, language=code) as writer:
        none = [0] * (len(ids) + 1)
        writer.add(ids, ["{}"] * len(ids), texts, range(len(ids)), none, [], [])
        writer.commit("")
    queries = given.tested.queries
    with ImpactSearcher(folder, language=code) as searcher:
        hits = searcher.search_text([language.fold(q.text) for q in queries], DEPTH, 2)
        found = [ScoredPassage(*hit) for hit in zip(searcher.ids(hits.docids), hits.scores, strict=True)]
    return {q.query_id: found[hits.indptr[n] : hits.indptr[n + 1]] for n, q in enumerate(queries)}


def pyserini(given: Candidates, work: Path) -> Run:
    """Index and search with Pyserini alone, in processes of its own."""
    corpus, index = work / "corpus", work / "index"
    corpus.mkdir(parents=True)
    lines = (json.dumps({"id": i, "contents": text}) + "\n" for i, text in given.texts)
    (corpus / "corpus.jsonl").write_text("".join(lines))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    start = "from sparta.lucene.jvm import start_jvm; start_jvm()\n"  # Java 21, wherever sparta finds it
    indexing = (
        "import runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_module(sys.argv[0], run_name='__main__')"
    )
    command = [
        *("pyserini.index.lucene", "--collection", "JsonCollection", "--language", "zh", "--threads", "1"),
        *("--generator", "DefaultLuceneDocumentGenerator", "--input", str(corpus), "--index", str(index)),
    ]
    done = [sys.executable, "-c", start + indexing, *command]
    subprocess.run(done, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    asked = "".join(json.dumps(q.text) + "\n" for q in given.tested.queries)
    command = [sys.executable, "-c", start + SEARCH, str(index), str(DEPTH)]
    told = subprocess.run(command, input=asked, check=True, env=environment, capture_output=True, text=True)
    answers = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("[")]
    return {
        q.query_id: [ScoredPassage(*hit) for hit in hits]
        for q, hits in zip(given.tested.queries, answers, strict=True)
    }


def impacts(given: Candidates, model: str, work: Path) -> Run:
    """Encode, index and search with a SPARTA model."""
    build_index(work / "impacts", str(given.tested.corpus), options=IndexOptions(model=model, language="zh"))
    with Channels(work / "impacts", ["impact"]) as channels:
        return search_all(channels, given.tested, DEPTH).runs["impact"]


def rankings(given: Candidates, chosen: argparse.Namespace, work: Path) -> Iterator[Evaluation]:
    """Measure each row of the first table."""

    def measured(name: str, run: Run) -> Evaluation:
        return evaluate(name, run, given.tested.qrels, [MRR])

    yield measured(PYSERINI, pyserini(given, work / "pyserini"))
    for name, analyzer in (ANALYZERS | (SMART if chosen.smartcn else {})).items():
        yield measured(name, bm25(given, replace(ZH, analyzer=analyzer), work))
    if chosen.index_of:
        yield measured(f"impacts of {chosen.index_of}", impacts(given, chosen.index_of, work))


def compared(name: str, unit: str, rows: Sequence[Evaluation]) -> Iterator[list[Cell]]:
    """Rows of the first table."""
    first, *others = rows
    p = ["", *map(shown_p, p_values(first, others, MRR))]
    for row, differs in zip(rows, p, strict=True):
        yield [name, unit, row.name, 100 * row.mean(MRR), 100 * half_width(row, MRR), differs]


def in_other_script(given: Candidates, work: Path) -> list[Cell]:
    """MRR of the questions as they stand and in the other script, then the same without folding."""
    from opencc import OpenCC

    text = "".join(text for _, text in given.texts)
    change = OpenCC("s2t" if ZH.fold(text) == text else _other(text)).convert
    means: list[float] = []
    for language in (ZH, replace(ZH, fold=str)):
        for asked in (given, given.asked(change)):
            run = bm25(asked, language, work)
            means.append(100 * evaluate("", run, given.tested.qrels, [MRR]).mean(MRR))
    return [*means[:2], means[1] - means[0], *means[2:]]


def _other(text: str) -> str:
    """How a text becomes one of the other script: most of it is in one."""
    changed = sum(a != b for a, b in zip(text, ZH.fold(text), strict=True))
    return "t2s" if changed > len(text) / 20 else "s2t"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--smartcn", type=Path, help="the jar of Lucene's SmartChinese")
    parser.add_argument("--index-of", metavar="MODEL", help="measure this model's impacts too")
    chosen = parser.parse_args()
    if chosen.smartcn:
        import jnius_config

        jnius_config.add_classpath(str(chosen.smartcn))
    analyzers: list[list[Cell]] = []
    scripts: list[list[Cell]] = []
    for path in chosen.sets:
        for unit, candidates in (("sentences", sentences), ("paragraphs", paragraphs)):
            with tempfile.TemporaryDirectory() as folder:
                work = Path(folder)
                given = candidates(path, work)
                analyzers += compared(path.name, unit, list(rankings(given, chosen, work)))
                scripts.append([path.name, unit, *in_other_script(given, work)])
    print(Table(["set", "candidates", "analysis", "MRR", "±", "p"], analyzers, digits=2).write("markdown"))
    header = ["set", "candidates", "MRR", "other script", "change", "unfolded", "unfolded, other script"]
    print("\n" + Table(header, scripts, digits=2).write("markdown"))


if __name__ == "__main__":
    main()
