"""Requests and answers as JSON: the models of OpenAPI."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from sparta.base.errors import InputError

_GOOGLE: dict[str, JsonValue] = {
    "rank": 1,
    "id": "google",
    "score": 455,
    "title": "Google",
    "text": "Google is an American technology company …",
    "metadata": {},
}


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


_Name = Annotated[str, Field(max_length=200)]
_Filter = Annotated[
    dict[str, Any] | None,
    Field(
        description='Only passages with these values, as in {"lang": "en", "year": {"gte": 1990}}.'
        ' Also {"lang": {"not": "en"}}, {"author.name": {"exists": true}}, {"or": [{"lang": "en"}, …]}.'
    ),
]


_Rerank = Annotated[
    int | None,
    Field(
        ge=0,
        description="How many of the first hits the service's cross-encoder orders anew; 0 for none. Default:"
        " as the service was started, which `/info` tells.",
    ),
]


class SearchRequest(_Model):
    """One query, or a list of queries that are answered together."""

    query: str | list[str]
    k: Annotated[int, Field(ge=1, description="How many passages.")] = 10
    offset: Annotated[int, Field(ge=0, description="How many of the best passages to skip.")] = 0
    channels: Annotated[
        _Name | None,
        Field(description="impact, bm25 or dense, or several that are fused, as in bm25=1.2,impact."),
    ] = None
    filter: _Filter = None
    collapse: Annotated[
        _Name | None,
        Field(description="A metadata field: return only the best passage for each of its values."),
    ] = None
    facets: Annotated[
        list[_Name],
        Field(max_length=10, description="Metadata fields: count their values over all hits of a query."),
    ] = []
    hits: Annotated[
        Literal["documents", "chunks"],
        Field(description="In an index of chunks: each document once, with its best chunk, or the chunks."),
    ] = "documents"
    join: Annotated[
        bool, Field(description="With chunks: join hits of neighboring chunks of a document into one hit.")
    ] = False
    rerank: _Rerank = None
    explain: Annotated[
        bool,
        Field(
            description="Add to each hit a snippet, words to mark, and the terms' shares of its impact score."
        ),
    ] = False

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"query": "who founded google", "k": 3}, {"query": ["who founded google", "x"]}]
        },
    )

    @property
    def queries(self) -> list[str]:
        """The queries as a list, also for a single query."""
        return [self.query] if isinstance(self.query, str) else self.query


class ExplainRequest(_Model):
    """A query, and the passage whose score is to be explained."""

    query: str
    id: str

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"query": "who founded google", "id": "google"}]},
    )


class AnswerRequest(_Model):
    """A question to answer from retrieved passages."""

    query: str
    n: Annotated[int, Field(ge=1, le=100, description="How many answers.")] = 1
    depth: Annotated[
        int | None,
        Field(
            ge=1,
            le=100,
            description="How many passages are retrieved. Default: 10, or all reranked passages, if they are"
            " more.",
        ),
    ] = None
    channels: _Name | None = None
    filter: _Filter = None
    rerank: _Rerank = None
    threshold: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            strict=False,
            description="Lowest score of an answer. Default: the reader's, if it is calibrated for these"
            " channels and this depth, else 0.",
        ),
    ] = None

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"query": "who founded google"}]}
    )


class DeleteRequest(_Model):
    """The passages to delete: all that match a filter."""

    filter: Annotated[dict[str, Any], Field(description="Conditions as in a search; not empty.")]
    yes: Annotated[bool, Field(description="Allow to delete more than half of the index.")] = False

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"filter": {"lang": "en"}}]}
    )


class Version(BaseModel):
    """The searched version: each rebuild gives a new generation, each change a new commit."""

    generation: int
    commit: int


class Share(BaseModel):
    """The part of a score that one query term adds: count times impact."""

    term: str
    word: str = Field(description="The word of the query that the term is from, or a pair of words.")
    count: int
    impact: int
    weight: float
    share: int


class Place(BaseModel):
    """A fused hit's rank and score in one channel, and this channel's contribution to the fused score."""

    rank: int | None
    score: float | None
    contribution: float


class Hit(BaseModel):
    """A retrieved passage."""

    rank: int
    id: str
    score: float
    title: str
    text: str
    metadata: dict[str, Any]
    channels: dict[str, Place] | None = None
    document_id: Annotated[str | None, Field(description="The document of a chunk.")] = None
    start: Annotated[int | None, Field(description="The chunk's first character in the document.")] = None
    end: Annotated[int | None, Field(description="After the chunk's last character.")] = None
    terms: list[Share] | None = None
    snippet: str | None = None
    marks: Annotated[
        list[tuple[int, int, float | None]] | None,
        Field(
            description="Words of the snippet to mark: begin, end, share of the impact score. The share is"
            " null if the index is for BM25 alone, or if the impact score is 0."
        ),
    ] = None


_Reranked = Annotated[
    int,
    Field(
        description="How many of the first hits a cross-encoder ordered anew. Above 0, scores are those of"
        " the cross-encoder; each hit after the reranked ones scores one less than the hit before."
    ),
]
_Facets = Annotated[
    dict[str, dict[str, int]] | None,
    Field(description="For each field of `facets`, how many hits have each value (the 1,000 most frequent)."),
]


class SearchAnswer(BaseModel):
    """The hits of a query, best first."""

    query: str
    channels: str
    rerank: _Reranked = 0
    hits: list[Hit]
    facets: _Facets = None
    version: Version
    took_ms: float

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "query": "who founded google",
                    "channels": "impact",
                    "rerank": 0,
                    "hits": [_GOOGLE],
                    "version": {"generation": 1, "commit": 2},
                    "took_ms": 1.3,
                }
            ]
        }
    )


class Result(BaseModel):
    """The hits of one query of a list."""

    query: str
    hits: list[Hit]
    facets: _Facets = None


class SearchAnswers(BaseModel):
    """The hits of a list of queries, in the order of the request."""

    results: list[Result]
    channels: str
    rerank: _Reranked = 0
    version: Version
    took_ms: float


class Explanation(BaseModel):
    """The explanation of a passage's score; rank 0 means that no query term matches."""

    id: str
    rank: int
    score: int
    terms: list[Share]
    marks: Annotated[
        list[tuple[int, int, float]],
        Field(description="Words of the passage's text to mark: begin, end, share of the score."),
    ] = []


class Answer(BaseModel):
    """An answer, `text[start:end]` of a passage. The `score` (0 to 1) orders the answers to one question."""

    answer: str
    score: float
    passage_id: str
    start: int
    end: int
    title: str
    text: str
    text_start: Annotated[
        int, Field(description="In an index of chunks: the first character of `text` in the passage; else 0.")
    ] = 0
    reader: float
    ranker: float


class Answers(BaseModel):
    """The best answers to a question; empty if no passage was retrieved, or if the service abstained."""

    query: str
    answers: list[Answer]
    abstained: Annotated[bool, Field(description="Whether no answer reaches the threshold.")]
    threshold: float
    best_guess: Annotated[Answer | None, Field(description="The best answer below the threshold.")]
    version: Version


class Passage(BaseModel):
    """A passage as stored in the index."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class Term(BaseModel):
    """A term of a passage, with its impact."""

    term: str
    impact: int
    weight: float


class Terms(BaseModel):
    """A passage's terms with the highest impacts; `of` is the number of all its terms."""

    id: str
    terms: list[Term]
    of: int


class Info(BaseModel):
    """Facts of the searched index."""

    index: str
    passages: int
    channels: list[str]
    default_channels: str
    rerank: Annotated[
        int, Field(description="How many of the first hits are ordered anew by default; 0: no cross-encoder.")
    ] = 0
    fields: list[str]
    version: Version
    writable: bool
    answers: bool
    examples: Annotated[list[str], Field(description="Questions to begin with.")] = []


class Indexes(BaseModel):
    """The names of the indexes; the paths of an index begin with /indexes/NAME/."""

    indexes: list[str]


class LineError(BaseModel):
    """The error of one line of an upload; lines are numbered from 1."""

    line: int
    message: str


class Written(BaseModel):
    """Report of a committed write."""

    added: int | None = None
    updated: int | None = None
    deleted: int | None = None
    failed: Annotated[int, Field(description="Number of invalid lines.")] = 0
    errors: Annotated[list[LineError], Field(description="Errors of the first 1,000 invalid lines.")] = []
    behind: Annotated[
        list[str] | None, Field(description="Channels that failed to update; the log says why.")
    ] = None


class Problem(BaseModel):
    """An error and its remedy."""

    code: str
    message: str
    remedy: str = ""


class ErrorAnswer(BaseModel):
    """An error, and the id of its request in the log."""

    error: Problem
    request_id: str


def dumps(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return a value as JSON, also if it holds integers above 64 bits or lone surrogates (orjson refuses).

    :param default: returns a JSON value for an object that JSON lacks
    """
    try:
        return orjson.dumps(value, default)
    except TypeError:
        return json.dumps(value, default=default).encode()


def parsed[M: BaseModel](model: type[M], body: bytes) -> M:
    """Parse the body of a request.

    :raises InputError: the body is not JSON, or does not match the model
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise invalid(error) from None


def invalid(error: ValidationError) -> InputError:
    """Return the error for a request that does not match its model; the first problem counts."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    return InputError(
        f"{place + ': ' if place else ''}{first['msg']}", remedy="GET /openapi.json describes the request"
    )
