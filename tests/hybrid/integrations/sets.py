"""A set of BEIR's form whose rankings are full of ties, and the same as a task of MTEB's."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any


def write_set(folder: Path, records: list[dict[str, Any]], n: int = 12) -> Path:
    """Write corpus, queries and judgments: each passage three times, some queries with a passage's id."""
    rng = random.Random(8)
    corpus = [{**r, "id": f"{letter}-{r['id']}"} for letter in "zma" for r in records]
    rng.shuffle(corpus)
    queries = [
        {"_id": corpus[i]["id"] if i % 3 == 0 else f"q{i}", "text": " ".join(corpus[i]["text"].split()[:4])}
        for i in range(n)
    ]
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": r["id"], "title": r["title"], "text": r["text"]}) for r in corpus]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    rows = [f"{q['_id']}\t{r['id']}\t{rng.randint(1, 2)}\n" for q in queries for r in rng.sample(corpus, 2)]
    rows += [f"{q['_id']}\t{corpus[i]['id']}\t1\n" for i, q in enumerate(queries) if i % 3]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return folder


def local_task(folder: Path, *, top_ranked: dict[str, list[str]] | None = None) -> Any:
    """The set as a task of MTEB's, which asks no network."""
    from beir.datasets.data_loader import GenericDataLoader
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    corpus, queries, qrels = GenericDataLoader(str(folder)).load(split="test")

    class LocalTask(AbsTaskRetrieval):
        ignore_identical_ids = True
        metadata = TaskMetadata(
            name="LocalTask",
            description="A set of the tests",
            dataset={"path": "local/task", "revision": "1"},
            type="Reranking" if top_ranked else "Retrieval",
            category="t2t",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, *_: Any, **__: Any) -> None:
            self.corpus, self.queries = {"test": corpus}, {"test": queries}
            self.relevant_docs = {"test": qrels}
            if top_ranked:
                self.top_ranked = {"test": top_ranked}
            self.convert_v1_dataset_format_to_v2(None)
            self.data_loaded = True

    return LocalTask()
