"""Measure lexical terms: which words and pairs, and which gains, find more answers (decision 0043).

    sparta encode --corpus squad-passages-dev --output shards
    python research/lexical_terms.py trials squad-passages-dev=shards
    python research/lexical_terms.py pool --index BM25 --tasks kilt/trex.dev.jsonl.gz --output trex
    sparta encode --corpus trex/corpus.jsonl --output trex-shards
    python research/lexical_terms.py trials trex=trex-shards

`trials` scores every passage of a set by brute force, with 8 bits, and prints the MRR of BEIR folders, or the
R-precision of the pages of pools. Figures are of all questions, then of the even and the odd questions: the
gains are chosen on the even ones. `pool` writes the gold passages of a sample of questions, and BM25's first
five passages of each question.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, vstack

from sparta.base.records import Passage
from sparta.data.trec import read_qrels
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.lexical_terms import LexicalTerms, Occurrence, TermSettings, _Word, singular
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QueryTokenizer
from sparta.models.resolve import default_model_folder
from sparta.search.searcher import Searcher
from sparta.shards.folder import shard_files
from sparta.shards.store import read_shard

QUANTIZER = Quantizer(4.3)
NONE = TermSettings(word_gain=0, pair_gain=0)


class Variant(LexicalTerms):
    """Lexical terms with other pairs.

    :param pairs: `content` (the default), `adjacent`, `unordered`, `capitals`, `window` or `triples`
    """

    def __init__(self, settings: TermSettings, pairs: str, cache: dict[str, list[_Word]]) -> None:
        super().__init__(settings, TOKENIZER)
        self.pairs, self.cache = pairs, cache

    def _words(self, text: str) -> Iterator[_Word]:
        if text not in self.cache:
            self.cache[text] = list(super()._words(text))
        self.text = text
        return iter(self.cache[text])

    def _occurrences(self, words: Sequence[_Word]) -> Iterator[Occurrence]:  # noqa: C901
        if self.pairs == "content":
            yield from super()._occurrences(words)
            return
        recent: list[tuple[int, _Word]] = []
        for i, word in enumerate(words):
            if word.is_mark:
                attached = 0 < i < len(words) - 1 and words[i - 1].end == word.start == words[i + 1].start - 1
                recent = recent if attached or self.pairs == "window" else []
                continue
            if term := self._term(word):
                yield Occurrence(term, word.start, word.end)
            if word.form in self._stop_words:
                recent = [] if self.pairs == "adjacent" else recent
                continue
            before = (
                [w for at, w in recent if at >= i - 8]
                if self.pairs == "window"
                else [w for _, w in recent[-1:]]
            )
            if self.pairs == "triples":
                before = [recent[-2][1]] if len(recent) > 1 else []
            for other in before:
                forms = [singular(other.form), singular(word.form)]
                if self.pairs in {"unordered", "window"}:
                    forms.sort()
                if self.pairs == "triples":
                    forms.append(singular(recent[-1][1].form))
                capital = self.text[word.start].isupper() or self.text[other.start].isupper()
                if self.pairs != "capitals" or capital:
                    yield Occurrence(f"pair {zlib.crc32(' '.join(forms).encode()):x}", other.start, word.end)
            recent.append((i, word))


@dataclass
class Trial:
    """A variant of lexical terms; `drops` says whether a query drops the pieces of split words."""

    name: str
    settings: TermSettings = field(default_factory=TermSettings)
    pairs: str = "content"
    drops: bool = True
    has_words: bool = True


DEFAULT = TermSettings()
TRIALS = [
    Trial("wordpieces only", NONE, drops=False, has_words=False),
    Trial("words beside their pieces", replace(DEFAULT, pair_gain=0), drops=False),
    Trial("words in place of their pieces", replace(DEFAULT, pair_gain=0)),
    Trial("adjacent pairs, pieces kept", pairs="adjacent", drops=False),
    Trial("adjacent pairs", pairs="adjacent"),
    Trial("pairs over stop words, pieces kept", drops=False),
    Trial("pairs over stop words: the default"),
    Trial("pairs in either order", pairs="unordered"),
    Trial("pairs with a capital", pairs="capitals"),
    Trial("pairs within eight words, gain 1", replace(DEFAULT, pair_gain=1), pairs="window"),
    Trial("triples", pairs="triples"),
    *(Trial(f"pair gain {gain}", replace(DEFAULT, pair_gain=gain)) for gain in (1, 1.5, 2.5, 3)),
    *(Trial(f"word gain {gain}", replace(DEFAULT, word_gain=gain)) for gain in (0, 1, 3, 5)),
    *(Trial(f"context share {share}", replace(DEFAULT, context_share=share)) for share in (0.25, 1.0)),
    *(Trial(f"pairs hashed to {bits} bits", replace(DEFAULT, pair_bits=bits)) for bits in (16, 20)),
]


class QuestionSet:
    """The passages, network weights and judged questions of a BEIR folder or a pool."""

    def __init__(self, folder: Path, shards: Path) -> None:
        self.cache: dict[str, list[_Word]] = {}
        rows: dict[str, tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]] = {}
        for path in shard_files(shards).values():
            shard = read_shard(path)
            for i, passage_id in enumerate(shard.passage_ids):
                part = slice(shard.rows.indptr[i], shard.rows.indptr[i + 1])
                rows[passage_id] = shard.rows.term_ids[part], shard.rows.weights[part]
        records = [r for r in lines(folder / "corpus.jsonl") if str(r["_id"]) in rows]
        self.passages = [
            Passage(str(r["_id"]), r["text"], r.get("title") or "", r.get("context") or "") for r in records
        ]
        self.rows = [rows[p.passage_id] for p in self.passages]
        titles = [p.title or p.passage_id for p in self.passages]
        self.tasks: dict[str, list[tuple[str, list[set[int]]]]] = {}
        self.is_pool = (folder / "tasks.json").is_file()
        units = titles if self.is_pool else [p.passage_id for p in self.passages]
        number = {unit: i for i, unit in enumerate(dict.fromkeys(units))}
        self.unit = np.array([number[unit] for unit in units])
        unit_of = dict(zip((p.passage_id for p in self.passages), self.unit.tolist(), strict=True))
        if self.is_pool:
            for task, questions in json.loads((folder / "tasks.json").read_text("utf-8")).items():
                gold = [
                    [{unit_of[i] for i in ids if i in unit_of} for ids in sets] for _, _, sets in questions
                ]
                self.tasks[task] = [
                    (q[1], [s for s in sets if s]) for q, sets in zip(questions, gold, strict=True)
                ]
        else:
            qrels = read_qrels(folder / "qrels" / "test.tsv")
            judged = [
                (
                    str(q["text"]),
                    [
                        {unit_of[i]}
                        for i, grade in qrels.get(str(q["_id"]), {}).items()
                        if grade > 0 and i in unit_of
                    ],
                )
                for q in lines(folder / "queries.jsonl")
            ]
            self.tasks[folder.name] = [question for question in judged if question[1]]

    def measure(self, trial: Trial) -> Iterator[tuple[str, npt.NDArray[np.float64], float]]:
        """Yield each task, the measure of each question, and the lexical postings per passage."""
        lexical = Variant(trial.settings, trial.pairs, self.cache)
        number: dict[str, int] = {}
        indptr, ids, impacts = [0], [], []
        n_lexical = 0
        for passage, (term_ids, weights) in zip(self.passages, self.rows, strict=True):
            network = (term_ids, weights) if trial.drops else ()
            terms = lexical.passage_terms(passage, *network) if trial.has_words else {}
            terms = {term: weight for term, weight in terms.items() if weight > 0}
            n_lexical += len(terms)
            own = [VOCABULARY + number.setdefault(term, len(number)) for term in terms]
            ids.append(np.concatenate([term_ids.astype(np.int64), np.array(own, np.int64)]))
            values = np.concatenate([weights, np.array(list(terms.values()), np.float32)])
            impacts.append(QUANTIZER.quantize(values)[0])
            indptr.append(indptr[-1] + len(ids[-1]))
        width = VOCABULARY + len(number)
        passages = csr_matrix(
            (np.concatenate(impacts).astype(np.float32), np.concatenate(ids), indptr),
            (len(self.passages), width),
        )
        for task, questions in self.tasks.items():
            queries = vstack([_query(q, lexical, trial, number, width) for q, _ in questions])
            scores = (queries @ passages.T).toarray()
            measures = [self._measure(row, sets) for row, (_, sets) in zip(scores, questions, strict=True)]
            yield task, 100 * np.array(measures), n_lexical / len(self.passages)

    def _measure(self, scores: npt.NDArray[np.float32], gold: list[set[int]]) -> float:
        order = np.argsort(-scores, kind="stable")[:1000]
        ranking = list(dict.fromkeys(self.unit[order[scores[order] > 0]].tolist()))
        if self.is_pool:
            return max(len(units.intersection(ranking[: len(units)])) / len(units) for units in gold)
        relevant = set().union(*gold)
        return next((1 / rank for rank, unit in enumerate(ranking[:100], 1) if unit in relevant), 0.0)


TOKENIZER = load_tokenizer(default_model_folder())
VOCABULARY = TOKENIZER.get_vocab_size()
PIECES = QueryTokenizer(TOKENIZER)


def _query(text: str, lexical: Variant, trial: Trial, number: dict[str, int], width: int) -> csr_matrix:
    counts: dict[int, int] = {}
    if trial.has_words:
        for term, count in lexical.query_terms(text).items():
            if term in number:
                counts[VOCABULARY + number[term]] = count
    spans = lexical.ignored_spans(text) if trial.drops else []
    allowed = set(PIECES.tokens(text))
    encoded = TOKENIZER.encode(text, add_special_tokens=False)
    for i, (start, end) in zip(encoded.ids, encoded.offsets, strict=True):
        if i in allowed and not any(a <= start and end <= b for a, b in spans):
            counts[i] = counts.get(i, 0) + 1
    values, ids = list(counts.values()), list(counts)
    return csr_matrix(
        (np.array(values, np.float32), (np.zeros(len(ids), np.int64), np.array(ids, np.int64))), (1, width)
    )


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def write_pool(index: Path, tasks: Sequence[Path], sample: int, output: Path) -> None:
    """Write the passages and questions of a pool."""
    pool: dict[str, dict[str, Any]] = {}
    questions: dict[str, list[tuple[str, str, list[list[str]]]]] = {}
    with Searcher(index, channel="bm25") as searcher:
        for path in tasks:
            rows = list(lines(path))[:sample]
            gold = [
                [[i for p in o["provenance"] for i in p["passage_ids"]] for o in r["output"]] for r in rows
            ]
            questions[path.name.partition(".")[0]] = [
                (r["id"], r["input"], sets) for r, sets in zip(rows, gold, strict=True)
            ]
            hits = searcher.batch_search([r["input"] for r in rows], k=5)
            ids = [hit.passage_id for ranking in hits.values() for hit in ranking]
            for i in dict.fromkeys([*ids, *(i for sets in gold for ids in sets for i in ids)]):
                record = searcher.passage(i)
                pool[i] = {"_id": i, "title": record.get("title", ""), "text": record["text"]}
    output.mkdir(parents=True)
    (output / "tasks.json").write_text(json.dumps(questions), "utf-8")
    (output / "corpus.jsonl").write_text("".join(json.dumps(r) + "\n" for r in pool.values()), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    trials = commands.add_parser("trials")
    trials.add_argument("sets", nargs="+", metavar="FOLDER=SHARDS")
    trials.add_argument("--only", default="", help="only trials whose name has this pattern")
    pool = commands.add_parser("pool")
    pool.add_argument("--index", type=Path, required=True)
    pool.add_argument("--tasks", type=Path, nargs="+", required=True)
    pool.add_argument("--sample", type=int, default=100)
    pool.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "pool":
        write_pool(arguments.index, arguments.tasks, arguments.sample, arguments.output)
        return
    for pair in arguments.sets:
        folder, _, shards = pair.partition("=")
        questions = QuestionSet(Path(folder), Path(shards))
        for trial in TRIALS:
            if re.search(arguments.only, trial.name):
                for task, values, postings in questions.measure(trial):
                    halves = f"{values.mean():6.2f} {values[::2].mean():6.2f} {values[1::2].mean():6.2f}"
                    print(f"{task:20} {trial.name:36} {halves} {postings:6.1f} postings", flush=True)


if __name__ == "__main__":
    main()
