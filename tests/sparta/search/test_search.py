import json
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparta.api import Index
from sparta.base.errors import IndexStateError, InputError
from sparta.data.languages import Language
from sparta.index.build import write_index
from sparta.index.folder import IndexFolder
from sparta.index.generation import Job
from sparta.index.inputs.impact_batches import quantized_batch
from sparta.index.inputs.options import IndexOptions
from sparta.index.inputs.sources import vectors_source
from sparta.index.jobs import Source, WriteOptions
from sparta.models.prune import SparseRows
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QuerySide
from sparta.search.retriever import Page
from sparta.search.searcher import Searcher
from sparta.shards.store import EncodedShard, ShardFolder

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[3]
N = 1000


@dataclass
class Collection:
    """Passages that went through the whole stack, and their impacts as a dense matrix."""

    index: Path
    ids: list[str]
    terms: list[str]
    matrix: np.ndarray

    def search(self, bag: dict[str, float], k: int) -> list[tuple[str, float]]:
        """Brute force: every passage's sum, best first, of equal ones the earlier."""
        columns = [self.terms.index(term) for term in bag if term in self.terms]
        counts = np.array([bag[self.terms[c]] for c in columns])
        scores = self.matrix[:, columns] @ counts
        order = np.lexsort((np.arange(len(self.ids)), -scores))
        return [(self.ids[i], float(scores[i])) for i in order[:k] if scores[i] > 0]


def few_words(make_records: Callable[..., list[dict[str, Any]]], words: list[str]) -> list[dict[str, Any]]:
    """A thousand short passages over a few words: most of them occur several times."""
    rng = random.Random(8)
    some = rng.sample(words, 25)
    texts = [" ".join(rng.choices(some, k=rng.randint(1, 4))) for _ in range(300)]
    return [{"id": f"p{i}", "text": rng.choice(texts)} for i in rng.sample(range(N), N)]


@pytest.fixture(scope="module")
def words(tiny_vocabulary) -> list[str]:
    return [t for t in tiny_vocabulary if t.isascii() and t.isalpha() and len(t) > 2]


@pytest.fixture(scope="module", params=["lucene", "fast"])
def collection(request, tiny_model_folder, make_records, write_jsonl, words, tmp_path_factory) -> Collection:
    """Encoded by the tiny model to few bits, so that ties are many; written in many segments."""
    import torch

    from sparta.models.load import load_model
    from sparta.shards.encode import EncodeOptions, encode_corpus

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("collection")
    corpus = write_jsonl(folder / "corpus.jsonl", few_words(make_records, words))
    model = load_model(tiny_model_folder, bits=3)
    encode_corpus(corpus, folder / "shards", model, EncodeOptions(shard_size=90, dtype="fp32"))
    options = WriteOptions(commit_seconds=0, threads=3, ram_buffer_mb=16, codec=request.param)
    write_index(IndexFolder(folder / "index"), vectors_source([folder / "shards"]), options)
    terms = [model.tokenizer.id_to_token(i) for i in range(model.tokenizer.get_vocab_size())]
    matrix = np.zeros((N, len(terms)), np.int64)
    ids: list[str] = []
    largest = model.config.quantizer.max_weight
    for shard in ShardFolder(folder / "shards"):
        row = np.repeat(np.arange(len(shard)), np.diff(shard.rows.indptr)) + len(ids)
        steps = np.rint(shard.rows.weights.astype(np.float64) * 7 / largest)
        matrix[row, shard.rows.term_ids] = np.clip(steps, 1, 7)
        ids += shard.passage_ids
    return Collection(folder / "index", ids, terms, matrix)


@pytest.fixture
def searcher(collection):
    with Searcher(collection.index) as opened:
        yield opened


def questions(words: list[str], n: int, seed: int) -> list[list[str]]:
    """Words of the vocabulary, some of them twice."""
    rng = random.Random(seed)
    return [rng.choices(words, k=rng.randint(1, 8)) for _ in range(n)]


def pairs(hits: list[Any]) -> list[tuple[str, float]]:
    return [(hit.passage_id, hit.score) for hit in hits]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 3])
def test_top_100_of_200_questions_equal_brute_force(collection, searcher, words, threads):
    asked = questions(words, 200, seed=3)
    found = searcher.batch_search([" ".join(q) for q in asked], [str(i) for i in range(200)], 100, threads)
    ties = cut = 0
    for i, question in enumerate(asked):
        expected = collection.search(Counter(question), 101)
        assert pairs(found[str(i)]) == expected[:100]
        scores = [score for _, score in expected]
        ties += len(scores) - len(set(scores))
        cut += len(scores) == 101 and scores[99] == scores[100]
    assert ties > 10_000  # what makes this a test of the order
    assert cut > 100


def test_batch_search_is_search(searcher, words):
    asked = [" ".join(q) for q in questions(words, 20, seed=4)]
    found = searcher.batch_search(asked, [f"q{i}" for i in range(20)], 30, 2)
    assert list(found) == [f"q{i}" for i in range(20)]
    for i, question in enumerate(asked):
        assert found[f"q{i}"] == searcher.search(question, 30)
    assert searcher.batch_search([], [], 10) == {}
    with pytest.raises(InputError, match="found 1 ids and 2 queries"):
        searcher.batch_search(["a", "b"], ["1"])


def test_k(collection, searcher, words):
    question = words[0]
    everything = collection.search({question: 1}, 10 * N)
    assert pairs(searcher.search(question, 10**9)) == everything
    assert pairs(searcher.search(question, 1)) == everything[:1]
    assert len(searcher.search(question)) == 10
    for k in (0, -3):
        with pytest.raises(InputError, match=f"k must be at least 1, found {k}"):
            searcher.search(question, k)
    for other in ("3", 1.5, True, None):
        with pytest.raises(InputError, match=f"k must be a whole number, found {other!r}"):
            searcher.search(question, other)
    assert pairs(searcher.search(question, np.int64(1))) == everything[:1]


def test_repeated_words_count_repeatedly(collection, searcher, words):
    a, b = words[3], words[7]
    assert searcher.tokenizer.terms(f"{a} {b} {a.upper()}, {a}!") == {a: 3, b: 1}
    bag = {a: 3, b: 1}
    assert pairs(searcher.search(f"{a} {b} {a} {a}", 100)) == collection.search(bag, 100)


@pytest.mark.parametrize("question", ["", "   ", "☃", "☃☃ 🦄", "\x00", "\u200b", "?! .. '…'"])
@pytest.mark.parametrize("channel", ["sparta", "bm25"])
def test_questions_without_a_known_word_find_nothing(collection, question, channel):
    with Searcher(collection.index, channel=channel) as searcher:
        if "[" not in question:
            assert searcher.search(question) == []
            assert searcher.batch_search([question, question], ["a", "b"]) == {"a": [], "b": []}
        assert searcher.tokenizer.terms(question) == {}


def test_unknown_words_are_spelt(searcher):
    assert searcher.tokenizer.terms("qmoons ☃") == {"q": 1, "##m": 1, "##o": 2, "##n": 1, "##s": 1}


def test_hits(collection, searcher, words):
    hits = searcher.search(words[0], 5)
    for hit in hits:
        record = searcher.passage(hit.passage_id)
        assert (record["id"], record["title"], record["text"]) == (hit.passage_id, hit.title, hit.text)
        assert json.loads(json.dumps(hit.as_dict()))["metadata"] == hit.metadata
        assert searcher.records(searcher.docids([hit.passage_id])) == [record]
        assert isinstance(hit.score, int)
    assert searcher.num_docs == N
    with pytest.raises(InputError, match="no passage with the id 'nobody'"):
        searcher.passage("nobody")


def test_a_wrong_channel_and_no_index(collection, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="unknown channel 'dense'"):
        Searcher(collection.index, channel="dense")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPARTA_INDEX", raising=False)
    with pytest.raises(IndexStateError, match="there is no index here") as caught:
        Searcher()
    assert caught.value.where == "sparta-index"
    assert "sparta index --corpus" in caught.value.remedy.for_command_line()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("SPARTA_INDEX", str(collection.index))
    with Searcher() as searcher:
        assert searcher.num_docs == N


# ---------------------------------------------------------------- small indexes of chosen vectors


@pytest.fixture
def index_of(tmp_path, tiny_tokenizer) -> Callable[..., Path]:
    """Write JSON vectors into a new index."""

    def make(*lines: dict[str, Any], weights: np.ndarray | None = None) -> Path:
        folder = tmp_path / f"made{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        tiny_tokenizer.save(str(folder / "tokenizer.json"))
        path = folder / "vectors.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        source = vectors_source([path], folder)
        source = replace(source, side=replace(source.side, weights=weights))
        write_index(IndexFolder(folder / "index"), source, WriteOptions(ram_buffer_mb=16))
        return folder / "index"

    return make


def test_an_index_of_one_passage(index_of):
    index = index_of({"id": "only", "contents": "the moon", "vector": {"moon": 3}})
    with Searcher(index) as searcher:
        assert pairs(searcher.search("moon moon earth", 10)) == [("only", 6.0)]
        assert searcher.search("earth") == []
    with Searcher(index, channel="bm25") as searcher:
        ((docid, score),) = pairs(searcher.search("moons"))  # stemmed
        assert docid == "only"
        assert score == pytest.approx(math.log(1 + 0.5 / 1.5) / (1 + 0.9))


def test_weighted_questions(index_of, tiny_tokenizer):
    """Each distinct term counts its weight once; one without weight does not count."""
    weights = np.zeros(tiny_tokenizer.get_vocab_size(), np.int32)
    for term, weight in {"moon": 1, "earth": 25, "sun": 0}.items():
        weights[tiny_tokenizer.token_to_id(term)] = weight
    lines = [
        {"id": "a", "contents": "", "vector": {"moon": 255, "sun": 200}},
        {"id": "b", "contents": "", "vector": {"earth": 3, "moon": 7}},
        {"id": "c", "contents": "", "vector": {"earth": 10}},
        {"id": "d", "contents": "", "vector": {"sun": 255}},
    ]
    with Searcher(index_of(*lines, weights=weights)) as searcher:
        asked = "sun moon moon earth moon"
        assert searcher.tokenizer.terms(asked) == {"moon": 1, "earth": 25}
        found = pairs(searcher.search(asked))
        assert found == [("a", 255), ("c", 250), ("b", 82)]
        assert searcher.search("sun") == []


PLAIN = ["moon", "earth", "sun", "river", "road", "town", "queen", "brain", "park"]  # their own stems


def idf(texts: list[str], word: str) -> float:
    df = sum(word in text.split() for text in texts)
    return math.log(1 + (len(texts) - df + 0.5) / (df + 0.5))


def bm25(texts: list[str], question: list[str]) -> np.ndarray:
    """Robertson's formula as Lucene has it, k1 0.9, b 0.4."""
    bags = [Counter(text.split()) for text in texts]
    lengths = np.array([sum(bag.values()) for bag in bags])
    scores = np.zeros(len(texts))
    for word in question:
        tf = np.array([bag[word] for bag in bags])
        scores += idf(texts, word) * tf / (tf + 0.9 * (1 - 0.4 + 0.4 * lengths / lengths.mean()))
    return scores


@pytest.mark.slow
def test_bm25_over_title_and_text(index_of, tmp_path, tiny_tokenizer):
    rng = random.Random(6)
    records = [
        {
            "id": f"p{i}",
            "title": rng.choice(["", *PLAIN]),
            "contents": " ".join(rng.choices(PLAIN, k=rng.randint(1, 9))),
        }
        for i in range(200)
    ]
    nothing = SparseRows(np.zeros(201, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    ids = tuple(r["id"] for r in records)
    shard = EncodedShard(0, 0, ids, tuple(map(json.dumps, records)), nothing)
    side = QuerySide(tiny_tokenizer, None, "m", "h", Quantizer(1.0))
    batch = quantized_batch(shard, side, Language())
    source = Source(Job(source="x", sha256="y"), side, lambda *_: iter([batch]))
    write_index(IndexFolder(tmp_path / "bm25"), source, WriteOptions(ram_buffer_mb=16))
    texts = [f"{r['title']} {r['contents']}" for r in records]
    with Searcher(tmp_path / "bm25", channel="bm25") as searcher:
        for question in questions(PLAIN, 40, seed=5):
            distinct = sorted(set(question))
            scores = bm25(texts, distinct)
            hits = searcher.search(" ".join(distinct), 1000)
            assert len(hits) == (scores > 0).sum()
            assert [h.score for h in hits] == pytest.approx(
                [scores[int(h.passage_id[1:])] for h in hits], rel=1e-5
            )
            order = [(-h.score, int(h.passage_id[1:])) for h in hits]
            assert order == sorted(order)


def test_lucene_is_opened_once_and_asked_in_one_call(collection: Collection, words: list[str]) -> None:
    """Both channels find together what each finds alone, one question and many, in any number of threads."""
    from hybrid.retrieval.channels import Channels

    questions = [" ".join(words[i : i + 4]) for i in range(0, 60, 4)] + ["zzz"]
    with Channels(collection.index, ["bm25", "impact"]) as channels:
        pair = channels.searchers
        assert pair["impact"].reader is pair["bm25"].reader  # type: ignore[attr-defined]
        for threads in (1, 3):
            found = channels.batch_search(questions, 5, threads)
            assert list(found) == ["bm25", "impact"]
            for name, own in found.items():
                with Searcher(collection.index, channel=name) as alone:
                    assert own == alone.rank(questions, Page(5))
                    assert [hit.passage_id for hit in alone.search(questions[0], 5)] == own[0].passage_ids
        assert channels.search(questions[0], 5) == {name: own[0] for name, own in found.items()}
        with pytest.raises(InputError, match="k must be at least 1"):
            channels.search(questions[0], 0)
    assert any(own.passage_ids for own in found["impact"])
    assert any(own.passage_ids for own in found["bm25"])


@pytest.mark.parametrize(
    "wrong", [{"top_k": 0}, {"top_k": -1}, {"min_weight": -1.0}, {"min_weight": math.nan}, {"bits": 0}]
)
def test_options_that_no_index_can_have(
    tiny_model_folder: Path, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    def make() -> Index:
        options = IndexOptions(model=str(tiny_model_folder), **wrong)
        return Index.create(tmp_path / "ix", ["the moon"], options=options)

    with pytest.raises(InputError, match=f"{next(iter(wrong))}.*found"):
        make()
    assert not (tmp_path / "ix").exists()


def test_ids_may_be_given_as_the_integers_that_they_are(tiny_model_folder: Path, tmp_path: Path) -> None:
    options = IndexOptions(model=str(tiny_model_folder))
    with Index.create(tmp_path / "ix", [{"id": 7, "text": "the moon"}], options=options) as index:
        assert index.passage(7) == index.passage("7")
        assert index.explain("moon", 7) == index.explain("moon", "7")
        assert index.terms(7) == index.terms("7")
        assert index.delete([7]) == 1


def test_a_closed_index_is_not_changed(tiny_model_folder: Path, tmp_path: Path) -> None:
    options = IndexOptions(model=str(tiny_model_folder))
    index = Index.create(tmp_path / "ix", [{"id": "a", "text": "the moon"}], options=options)
    index.close()
    with pytest.raises(IndexStateError, match="the index is closed"):
        index.append([{"id": "b", "text": "the earth"}])
    with pytest.raises(IndexStateError, match="the index is closed"):
        index.delete(["a"])
    with Index(tmp_path / "ix") as again:
        assert (len(again), again.passage("a")["text"]) == (1, "the moon")
