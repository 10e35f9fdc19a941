"""Finds the data of the papers in a folder: in the published layout, or sets that stand for them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy


class Source(NamedTuple):
    """Data of a paper: its title, its published paths below the folder, and paths that stand for them."""

    title: str
    published: tuple[str, ...]
    substitutes: tuple[str, ...] = ()


class Located(NamedTuple):
    """Data on disk. `label` names the file; it says which data the file stands for."""

    path: Path
    label: str


def _multireqa(name: str, *other: str, substitutes: tuple[str, ...] = ()) -> Source:
    return Source(f"MultiReQA {name}", (f"MultiReQA/{name}", *other), substitutes)


def _kilt(name: str, *substitutes: str, part: str = "dev") -> Source:
    title, file = f"KILT {name}" if part == "dev" else f"KILT {name} {part}", f"{name}-{part}-kilt.jsonl"
    return Source(title, (f"kilt/{file}", file), substitutes)


SOURCES = {
    "reqa-squad": _multireqa("SQuAD", "dev-v1.1.json", substitutes=("reqa-squad-dev",)),
    "reqa-news": _multireqa("NewsQA"),
    "reqa-trivia": _multireqa("TriviaQA"),
    "reqa-nq": _multireqa("NaturalQuestions"),
    "reqa-hotpot": _multireqa("HotpotQA", substitutes=("hotpotqa-100",)),
    "reqa-bioasq": _multireqa("BioASQ"),
    "reqa-drop": _multireqa("DROP"),
    "reqa-duorc": _multireqa("DuoRC"),
    "reqa-race": _multireqa("RACE"),
    "reqa-re": _multireqa("RelationExtraction"),
    "reqa-text": _multireqa("TextbookQA", substitutes=("selqa-dev",)),
    "squad-train": Source("SQuAD's training set", ("train-v1.1.json",), ("train/squad_train_reqa.jsonl.gz",)),
    "nq-train": Source(
        "DPR's NQ training set",
        ("biencoder-nq-train.json", "nq-train.json"),
        ("train/clapnq.jsonl.gz",),
    ),
    "squad-texts": Source("SQuAD's paragraphs", (), ("squad-passages-dev/corpus.jsonl",)),
    "wikipedia": Source(
        "DPR's Wikipedia passages", ("psgs_w100.tsv.gz", "psgs_w100.tsv"), ("wiki/passages.jsonl.gz",)
    ),
    "squad": Source("SQuAD dev", ("dev-v1.1.json",), ("squad-passages-dev",)),
    "nq-dev": Source("NQ dev", ("nq-dev.csv", "nq-dev.qa.csv", "qa/nq.dev.tsv")),
    "nq-test": Source("NQ test", ("nq-test.csv", "nq-test.qa.csv", "qa/nq.test.tsv")),
    "trivia": Source("TriviaQA test", ("trivia-test.csv", "trivia-test.qa.csv"), ("qa/trivia.dev.tsv",)),
    "webquestions": Source("WebQuestions test", ("webq-test.csv", "wq-test.qa.csv", "qa/wq.test.tsv")),
    "trec": Source("CuratedTREC test", ("curatedtrec-test.csv", "qa/curated.test.tsv")),
    "entities": Source("EntityQuestions", ("entityquestions/dataset/test", "EntityQuestions/dataset/test")),
    "beir-arguana": Source("BEIR ArguAna", ("beir/arguana", "arguana")),
    "beir-dbpedia": Source("BEIR DBPedia", ("beir/dbpedia-entity", "dbpedia-entity")),
    "beir-fever": Source("BEIR FEVER", ("beir/fever", "fever")),
    "beir-hotpotqa": Source("BEIR HotpotQA", ("beir/hotpotqa", "hotpotqa"), ("hotpotqa-100",)),
    "cmrc": Source("CMRC 2018 dev", ("cmrc2018_dev.json", "zh/cmrc2018_dev.json.gz")),
    "drcd": Source("DRCD dev", ("DRCD_dev.json", "drcd-dev.json")),
    "wikipedia-zh": Source("Chinese Wikipedia", ("zhwiki.jsonl.gz", "zhwiki.jsonl"), ("zh/wiki.jsonl.gz",)),
    "kilt-passages": Source("KILT's passages", ("kilt/passages-w100.jsonl.gz",), ("wiki/passages.jsonl.gz",)),
    "kilt-more": Source("further passages of KILT's tasks", (), ("kilt/passages.jsonl.gz",)),
    "kilt-fever": _kilt("fever", "kilt/fever.dev.jsonl.gz"),
    "kilt-linking": _kilt("aidayago2", "kilt/linking.dev.jsonl.gz"),
    "kilt-trex": _kilt("trex", "kilt/trex.dev.jsonl.gz"),
    "kilt-zsre": _kilt("structured_zeroshot", "kilt/zsre.dev.jsonl.gz"),
    "kilt-nq": _kilt("nq"),
    "kilt-hotpot": _kilt("hotpotqa", "kilt/multihop.dev.jsonl.gz"),
    "kilt-trivia": _kilt("triviaqa"),
    "kilt-wow": _kilt("wow", "kilt/wow.dev.jsonl.gz"),
    "kilt-hotpot-train": _kilt("hotpotqa", "kilt/multihop.train.jsonl.gz", part="train"),
    "hotpot-facts": Source("HotpotQA dev with supporting facts", ("hotpot_dev_fullwiki_v1.json",)),
    "hyperlinks": Source(
        "paragraphs with hyperlinks",
        ("hyperlinks.jsonl.gz",),
        ("kilt/hyperlinks_wikitext_paragraphs.jsonl.gz",),
    ),
    "ott": Source("OTT-QA dev", ("OTT-QA/dev.json",), ("kilt/tabletext.dev.jsonl.gz",)),
    "ott-tables": Source(
        "OTT-QA's tables", ("OTT-QA/tables.jsonl",), ("kilt/hyperlinks_ottqa_tables.jsonl.gz",)
    ),
}
"""The data of all tables, by the name that a table uses."""


def locate(folder: Path | None, name: str) -> Located | None:
    """Return where data of a paper lie in a folder; None if the folder does not have them."""
    source = SOURCES[name]
    if folder is None:
        return None
    for path in source.published:
        if (folder / path).exists():
            return Located(folder / path, source.title)
    for path in source.substitutes:
        if (folder / path).exists():
            return Located(folder / path, f"{path} for {source.title}")
    return None


def required(folder: Path, name: str) -> Located:
    """Return where data of a paper lie in a folder.

    :raises InputError: the folder does not have the data
    """
    located = locate(folder, name)
    if located is None:
        raise InputError(
            f"the folder has no data of {SOURCES[name].title}",
            where=str(folder),
            remedy=remedy(
                f"put the data into {folder / SOURCES[name].published[0]}, or choose another {{}}",
                Option("data"),
            ),
        )
    return located
