"""Every table of the papers, on small files of the published layouts, with the shipped models."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hybrid.replications.tables.catalog import TABLES
from hybrid.replications.tables.experiment import Experiment, state_of
from hybrid.replications.tables.table import Cut, Row

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_thread", "own_logger")]
NAMES = (
    "Ada",
    "Boris",
    "Clara",
    "Dmitri",
    "Elena",
    "Felix",
    "Greta",
    "Hugo",
    "Irene",
    "Jonas",
    "Karin",
    "Lukas",
)
TOWNS = (
    "Lyon",
    "Oslo",
    "Turin",
    "Basel",
    "Porto",
    "Ghent",
    "Malmo",
    "Graz",
    "Cork",
    "Bilbao",
    "Delft",
    "Vigo",
)
QUICK = ("sparta-7", "taser-a3")
"""The tables that `make test-all` measures too."""


def _write(path: Path, rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def _kilt(path: Path, rows: list[tuple[str, str, list[tuple[str, str]]]]) -> None:
    """Rows of KILT: input, answer, and evidence as titles and passage ids."""
    _write(
        path,
        [
            {
                "id": f"{path.name}-{n}",
                "input": text,
                "output": [
                    {
                        "answer": answer,
                        "provenance": [{"wikipedia_title": t, "passage_ids": [i]} for t, i in evidence],
                    }
                ],
                "meta": {"negatives": [["w0"], ["w1"]]},
            }
            for n, (text, answer, evidence) in enumerate(rows)
        ],
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People and their towns: two passages for each of twelve people, in the layouts of the papers' data."""
    folder = tmp_path_factory.mktemp("papers")
    pairs = list(zip(NAMES, TOWNS, strict=True))
    people = [f"{name} Smith was a painter. {name} Smith was born in {town}." for name, town in pairs]
    towns = [f"{town} is a town with {100 + n} bridges and a museum." for n, town in enumerate(TOWNS)]
    passages = [
        {"_id": f"p{n}", "title": f"{NAMES[n]} Smith", "text": text} for n, text in enumerate(people)
    ] + [{"_id": f"w{n}", "title": TOWNS[n], "text": text} for n, text in enumerate(towns)]
    _write(folder / "wiki" / "passages.jsonl.gz", passages)
    _write(folder / "kilt" / "passages.jsonl.gz", [{"_id": "x", "title": "X", "text": "Something else."}])
    squad = {
        "data": [
            {
                "title": f"{name} Smith",
                "paragraphs": [
                    {
                        "context": people[n],
                        "qas": [
                            {
                                "id": f"q{n}",
                                "question": f"Where was {name} Smith born?",
                                "answers": [{"text": town, "answer_start": people[n].index(town)}],
                            }
                        ],
                    }
                ],
            }
            for n, (name, town) in enumerate(pairs)
        ]
    }
    for name in ("dev-v1.1.json", "train-v1.1.json", "cmrc2018_dev.json", "DRCD_dev.json"):
        (folder / name).write_text(json.dumps(squad, ensure_ascii=False))
    _write(folder / "zhwiki.jsonl", passages)
    asked = [f"where was {name} smith born\t['{town}']" for name, town in pairs]
    for name in ("nq-dev.csv", "nq-test.csv", "trivia-test.csv", "webq-test.csv", "curatedtrec-test.csv"):
        (folder / name).write_text("\n".join(asked) + "\n")
    entities = folder / "entityquestions" / "dataset" / "test"
    entities.mkdir(parents=True)
    for relation, chosen in (("P19", pairs[:3]), ("P20", pairs[3:5])):
        questions = [
            {"question": f"Where was {name} Smith born?", "answers": [town]} for name, town in chosen
        ]
        (entities / f"{relation}.test.json").write_text(json.dumps(questions))
    beir = folder / "beir" / "hotpotqa"
    _write(beir / "corpus.jsonl", passages)
    _write(beir / "queries.jsonl", [{"_id": f"q{n}", "text": f"born in {t}"} for n, t in enumerate(TOWNS)])
    (beir / "qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore", *(f"q{n}\tp{n}\t1" for n in range(len(TOWNS)))]
    (beir / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    dpr = [
        {
            "question": f"where was {name} smith born",
            "answers": [town],
            "positive_ctxs": [{"title": f"{name} Smith", "text": people[n]}],
            "hard_negative_ctxs": [{"title": "Turin", "text": f"A town that has {n} towers."}],
        }
        for n, (name, town) in enumerate(pairs)
    ]
    (folder / "nq-train.json").write_text(json.dumps(dpr))
    kilt = folder / "kilt"
    single = [
        (f"Where was {name} Smith born?", town, [(f"{name} Smith", f"p{n}")])
        for n, (name, town) in enumerate(pairs)
    ]
    double = [
        (f"How many bridges has the town where {name} Smith was born?", str(100 + n), [e, (town, f"w{n}")])
        for n, (name, town) in enumerate(pairs)
        for e in [(f"{name} Smith", f"p{n}")]
    ]
    for task in ("fever", "trex", "zsre", "wow"):
        _kilt(kilt / f"{task}.dev.jsonl.gz", single)
    for task in ("fever", "trex"):
        _kilt(kilt / f"{task}.train.jsonl.gz", single)
    for part in ("dev", "train"):
        _kilt(kilt / f"multihop.{part}.jsonl.gz", double)
    links = [
        {
            "title": f"{name} Smith",
            "section": "",
            "paragraph": 0,
            "text": people[n],
            "links": [
                {
                    "start": people[n].index(town),
                    "end": people[n].index(town) + len(town),
                    "target_title": town,
                }
            ],
        }
        for n, (name, town) in enumerate(pairs)
    ]
    _write(kilt / "hyperlinks_wikitext_paragraphs.jsonl.gz", links)
    rows = [
        {
            "page_title": "Painters",
            "section_title": "List",
            "header": ["Name", "Town"],
            "cells": [name, town],
            "links": [{"anchor": town, "column": 1, "target_title": town}],
            "table_id": "Painters_1",
        }
        for name, town in pairs
    ]
    _write(kilt / "hyperlinks_ottqa_tables.jsonl.gz", rows)
    _kilt(
        kilt / "tabletext.dev.jsonl.gz",
        [
            (f"How many bridges has the town of the painter {name}?", str(100 + n), [(town, f"w{n}")])
            for n, (name, town) in enumerate(pairs)
        ],
    )
    return folder


def measured(name: str, data: Path, folder: Path, encoder: Path) -> list[Row]:
    """Measure a table on a cut; it must be measured, and keep its rows when it is repeated."""
    table = TABLES[name]
    cut = Cut(questions=4, passages=25, steps=4)
    experiment = Experiment(
        table=table, data=data, folder=folder / name, cut=cut, encoder=str(encoder), device="cpu"
    )
    rows = experiment.run()
    assert rows
    assert state_of(table, data, folder / name) == "measured"
    assert experiment.run() == rows
    assert all(row.cut == str(cut) and row.data and row.seconds >= 0 and row.megabytes > 0 for row in rows)
    return rows


@pytest.fixture(scope="module")
def shared_output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One output for all tables: they share the indexes of whole collections."""
    return tmp_path_factory.mktemp("output")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_two_tables(name: str, data: Path, encoder_folder: Path, tmp_path: Path) -> None:
    by_name = {row.name: row.figures for row in measured(name, data, tmp_path, encoder_folder)}
    if name == "sparta-7":
        assert by_name["50 terms"]["SQuAD terms"] == 50
        assert by_name["all terms"]["SQuAD MRR"] == 100, "each town is named once"
    else:  # the paper rounds to millions
        sizes = {row: round(float(str(f["million parameters"]))) for row, f in by_name.items()}
        assert (sizes["DPR"], sizes["TASER"], sizes["SPAR-Wiki; SPAR-PAQ"]) == (218, 128, 436)


@pytest.mark.release
@pytest.mark.parametrize("name", [name for name in TABLES if name not in QUICK])
def test_each_table(name: str, data: Path, encoder_folder: Path, bart: Path, shared_output: Path) -> None:
    encoder = bart if name == "multi-4" else encoder_folder
    by_name = {row.name: row.figures for row in measured(name, data, shared_output, encoder)}
    if name == "cos-4":
        assert by_name["hop, shipped chain"]["Passage EM"] == 100, "the chain follows the town's name"
