"""Picks what skill_ablations.sh and zero_shot.sh read: a pool of passages, texts that are named, crops."""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

TRAINED = ("fever", "trex", "linking", "wow", "hover", "tabletext", "multihop")
CROPS = 60_000


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a gzipped JSONL file."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def named(record: dict[str, Any]) -> set[str]:
    """Return the passages that a row of KILT names, as evidence or as negatives."""
    places = [place for output in record["output"] for place in output.get("provenance") or ()]
    negatives = (record.get("meta") or {}).get("negatives") or ()
    return {i for place in places for i in place["passage_ids"]} | {i for own in negatives for i in own}


def write(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write JSONL; the file is there when it is whole."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in records)
    temporary.replace(path)


def main() -> None:
    """Write data/*.jsonl, pool.jsonl, texts.jsonl, crops.jsonl, links.jsonl, paragraphs.jsonl into WORK."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--pool", type=int, default=8_000, help="passages of the pool")
    given = parser.parse_args()
    draw, kilt = random.Random(13), given.data / "kilt"
    wanted: set[str] = set()
    for task in TRAINED:
        read = list(rows(kilt / f"{task}.train.jsonl.gz"))
        own = draw.sample(read, len(read))  # in any order
        write(given.work / "data" / f"{task}.jsonl", own)
        wanted.update(*map(named, own))
    links = list(rows(kilt / "hyperlinks_ottqa_tables.jsonl.gz"))
    paragraphs = list(rows(kilt / "hyperlinks_wikitext_paragraphs.jsonl.gz"))
    write(given.work / "links.jsonl", links)
    write(given.work / "paragraphs.jsonl", paragraphs)
    titles = {link["target_title"] for one in (*links, *paragraphs) for link in one["links"]}
    titles |= {one["title"] for one in paragraphs}
    gold: list[str] = []
    for path in sorted(kilt.glob("*.dev.jsonl.gz")):
        asked = list(rows(path))
        write(given.work / "data" / path.name.removesuffix(".gz"), asked)
        gold += (i for one in asked for i in sorted(named(one)))
    corpus = list(rows(given.work / "corpus.jsonl.gz"))
    others = draw.sample(corpus, max(0, given.pool - len(set(gold))))
    inside = {*gold, *(one["_id"] for one in others)}
    texts = (one for one in corpus if one["_id"] in wanted or one["title"] in titles)
    write(given.work / "pool.jsonl", (one for one in corpus if one["_id"] in inside))
    write(given.work / "texts.jsonl", texts)
    write(given.work / "crops.jsonl", draw.sample(corpus, CROPS))
    (given.work / "data" / "selected").touch()


if __name__ == "__main__":
    main()
