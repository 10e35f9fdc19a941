"""Checks that a server holds the pushed index: the number of passages, and all content of a sample."""

from __future__ import annotations

import json
import random
from typing import Any

from hybrid.opensearch.documents import HASH, RECORD, Source, document, hash_of
from hybrid.opensearch.queries import NEURAL_SPARSE, RANK_FEATURE, impacts_query, search_body, within
from hybrid.opensearch.server import Server, reason_of
from hybrid.opensearch.state import count
from sparta.base.errors import ServerError
from sparta.data.units import is_cut
from sparta.export.exporters import StoredPassage

_TERMS = 64  # most terms of a passage whose impacts are compared
_SEED = 7


def query_kind(server: Server, index: str) -> str:
    """Return the kind of impact query that the nodes support: `neural_sparse`, else `rank_feature`."""
    query, _ = impacts_query({"a": 1})
    answer = server.request("POST", f"/{index}/_search", {"size": 0, "query": query}, ignore=(400,))
    if "error" not in answer:
        return NEURAL_SPARSE
    if "unknown query" in reason_of(answer):
        return RANK_FEATURE
    raise ServerError(f"the server rejects the query (400): {reason_of(answer)}", where=server.where)


def verify(server: Server, index: str, source: Source, sample: int) -> None:
    """Compare the number of passages, and the record, hash and impacts of `sample` random passages.

    :raises ServerError: the server's index differs from the source
    """
    n_documents = count(server, index)
    if n_documents != len(source):
        raise _differs(server, index, f"{len(source):,} passages", f"{n_documents:,}")
    ranks = random.Random(_SEED).sample(range(len(source)), min(sample, len(source)))
    passages = [_passage(source, rank) for rank in sorted(ranks)]
    if passages:
        _compare_documents(server, index, source, passages)
        _compare_impacts(server, index, passages)


def _passage(source: Source, rank: int) -> StoredPassage:
    """Return the passage at a rank in corpus order, with its terms and impacts."""
    lucene, docid = source.contents.lucene, int(source.contents.docids[rank])
    vector = lucene.vector(docid)
    raw, passage_id = lucene.raws([docid])[0], lucene.ids([docid])[0]
    terms = [*map(source.contents.named, vector)]
    return StoredPassage(passage_id, int(source.positions[rank]), raw, terms, [*vector.values()])


def _compare_documents(server: Server, index: str, source: Source, passages: list[StoredPassage]) -> None:
    """Compare the hash and the record of passages with the server's documents."""
    body = {"ids": [passage.passage_id for passage in passages]}
    documents = server.request("POST", f"/{index}/_mget", body)["docs"]
    for passage, stored in zip(passages, documents, strict=True):
        expected = hash_of(document(passage, cut=is_cut(source.generation.unit)))
        fields = stored.get("_source") or {}
        if fields.get(HASH) != expected or fields.get(RECORD) != json.loads(passage.raw):
            raise _differs(
                server, index, f"passage {passage.passage_id!r} as in the index", "another, or none"
            )


def _compare_impacts(server: Server, index: str, passages: list[StoredPassage]) -> None:
    """Search some terms of each passage in this passage only; the score must be the sum of their impacts."""
    kind = query_kind(server, index)
    lines: list[Any] = []
    for passage in passages:
        query, _ = impacts_query(_some_terms(passage, kind), kind)
        query_of_passage = within(query, {"ids": {"values": [passage.passage_id]}})
        lines += [{"allow_partial_search_results": False}, search_body(query_of_passage, 1)]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    answers = server.request("POST", f"/{index}/_msearch", body, lines=True)["responses"]
    for passage, answer in zip(passages, answers, strict=True):
        if "error" in answer:
            raise ServerError(f"the check search failed: {reason_of(answer)}", where=server.where)
        impacts = dict(zip(passage.terms, passage.impacts, strict=True))
        expected = sum(impacts[term] for term in _some_terms(passage, kind))
        score = answer["hits"]["hits"][0]["_score"] if answer["hits"]["hits"] else 0
        if score != expected:
            raise _differs(
                server,
                index,
                f"passage {passage.passage_id!r} with impacts that sum to {expected}",
                str(score),
            )


def _some_terms(passage: StoredPassage, kind: str) -> dict[str, int]:
    """Return up to about 64 terms, spread evenly over a passage's terms, each with query weight 1."""
    searchable_terms = [term for term in passage.terms if kind == NEURAL_SPARSE or "." not in term]
    return dict.fromkeys(searchable_terms[:: max(1, len(searchable_terms) // _TERMS)][:_TERMS], 1)


def _differs(server: Server, index: str, expected: str, actual: str) -> ServerError:
    return ServerError(
        f"the index differs from its source: expected {expected}, found {actual}",
        where=f"{server.where}/{index}",
        remedy=f"stop other programs that write to the index, delete the index {index} and push again",
    )
