"""JSON vectors: what Java reads of a line is what Python's own decoder finds in it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import InputError
from sparta.index.inputs.impact_batches import JsonVectors, searched_text

pytestmark = pytest.mark.jvm

TERMS = [
    "moon",
    '"',
    "\\",
    "/",
    "##ing",
    "東京",
    "é",
    "😀",
    "a b",
    "\u0001",
    "vector",
    "\t",
    "x" * 255,
    "ü" * 255,
]


def read(path: Path, **sizes: int) -> list[tuple[str, dict[str, Any], dict[str, int]]]:
    """Id, record and impacts of every passage of a file."""
    names: list[str] = []
    found = []
    for batch in JsonVectors(path, **sizes):
        names += batch.new_terms
        for i in range(len(batch)):
            part = slice(batch.indptr[i], batch.indptr[i + 1])
            terms = [names[t] for t in batch.term_ids[part]]
            vector = dict(zip(terms, batch.impacts[part].tolist(), strict=True))
            found.append((batch.passage_ids[i], json.loads(batch.records[i]), vector))
    assert len(set(names)) == len(names)
    return found


def spelled(rng: random.Random, text: str) -> str:
    """A JSON string, its characters spelled in one of the possible ways each."""
    out = []
    for c in text:
        plain = json.dumps(c, ensure_ascii=False)[1:-1]
        out.append(rng.choice([plain, plain, json.dumps(c)[1:-1], "".join(f"\\u{u:04X}" for u in utf16(c))]))
    return f'"{"".join(out)}"'


def utf16(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [int.from_bytes(data[i : i + 2]) for i in range(0, len(data), 2)]


def a_line(rng: random.Random, number: int) -> str:
    """One record in an unusual but valid spelling: blanks, escapes, a repeated key, any order."""

    def blank() -> str:
        return rng.choice(["", "", " ", "\t ", "  "])

    terms = rng.sample(TERMS, rng.randrange(6))
    pairs = [
        f"{blank()}{spelled(rng, t)}{blank()}:{blank()}{rng.randrange(65536) * rng.randrange(2)}"
        for t in terms
    ]
    key = rng.choice(['"vector"', '"vector"', '"vector"', '"\\u0076ector"'])
    fields = [
        f'"id":{blank()}"d{number}"',
        f'{blank()}"contents":{spelled(rng, 'say "vector": {} [\\] ' + rng.choice(TERMS))}',
        f"{key}{blank()}:{blank()}{{{(blank() + ',').join(pairs)}{blank()}}}",
        rng.choice(
            ['"extra": {"vector": {"no": [1, "}"]}}', '"extra": 1.5', '"extra": "\\\\"', '"extra": null']
        ),
    ]
    if rng.random() < 0.1:
        fields.append('"extra": {"repeated": 1}')
    rng.shuffle(fields)
    return f"{blank()}{{{(blank() + ',').join(fields)}{blank()}}}{blank()}"


@pytest.mark.parametrize("seed", range(5))
def test_any_spelling_is_read_as_json_says(tmp_path, seed):
    rng = random.Random(seed)
    lines = [a_line(rng, i) for i in range(200)]
    path = tmp_path / "vectors.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    expected = []
    for line in lines:
        record = json.loads(line)
        vector = {t: v for t, v in record.pop("vector").items() if v}
        expected.append((record["id"], record, vector))
    assert read(path, batch_lines=7) == expected


@pytest.mark.parametrize(
    "vector",
    [
        '{"moon": 01}',
        '{"moon": 1,}',
        '{"moon": 1 "sun": 2}',
        '{"moon" 1}',
        '{"moon": }',
        '{"moon": +1}',
        '{"moon": 1e1}',
        '{"moon": 1.0}',
        '{"moon": 99999999999999999999}',
        '{"moon": 1',
        '{"moon": 1}}',
        '{"mo\u0001on": 1}',
        '{"\\x": 1}',
        '{"\\ud800": 1}',
        '{"\\udc00\\ud800": 1}',
        '{"\\u12": 1}',
        '{"' + "ü" * 256 + '": 1}',
        "{moon: 1}",
        "null",
        '"moon"',
    ],
)
def test_what_is_no_vector_is_refused_with_its_line(tmp_path, vector):
    path = tmp_path / "vectors.jsonl"
    good = '{"id": "a", "contents": "", "vector": {"moon": 1}}'
    path.write_text(f'{good}\n{{"id": "b", "contents": "", "vector": {vector}}}\n', encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read(path)
    assert caught.value.where == f"{path}:2"
    assert caught.value.remedy


def test_minus_nought(tmp_path):
    path = tmp_path / "vectors.jsonl"
    path.write_text('{"id": "a", "contents": "", "vector": {"moon": -0, "sun": 3}}')
    assert read(path)[0][2] == {"sun": 3}


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ('{"moon": 1, "sun": 3, "star": 1, "sun": 2}', "repeats the term 'sun'"),
        ('{"sun": 3, "s\\u0075n": 3}', "repeats the term 'sun'"),
        ('{"sun": 0, "sun": 3}', "repeats the term 'sun'"),
        ('{"sun": 1}, "vector": {"sun": 1}', "several vectors"),
        ('{"sun": 1}, "id": "c", "vector": {"sun": 1}', "several vectors"),
    ],
)
def test_a_repeated_term_is_refused_with_its_line(tmp_path, vector, message):
    """Decoders of JSON keep the last one; nothing is dropped in silence."""
    path = tmp_path / "vectors.jsonl"
    path.write_text(
        f'{{"id": "a", "contents": "", "vector": {{}}}}\n{{"id": "b", "text": "", "vector": {vector}}}'
    )
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert caught.value.where == f"{path}:2"


def test_bm25_reads_a_title_that_is_a_text(tmp_path):
    """As of a passage from a corpus, and as an export writes it."""
    path = tmp_path / "vectors.jsonl"
    lines = [
        {"id": "a", "contents": "the sun", "vector": {"moon": 1}, "title": "Sun"},
        {"id": "b", "text": "the moon", "vector": {"moon": 1}, "title": None},
        {"id": "c", "contents": "the sea", "vector": {"moon": 1}, "title": 5},
        {"id": "d", "contents": "", "vector": {"moon": 1}},
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    [batch] = JsonVectors(path)
    assert batch.texts == ["Sun the sun", "the moon", "the sea", ""]
    assert batch.texts == [searched_text(json.loads(record)) for record in batch.records]


def test_a_batch_ends_by_bytes_too(tmp_path):
    path = tmp_path / "vectors.jsonl"
    line = '{{"id": "{}", "contents": "", "vector": {{"moon": 1}}}}'
    path.write_text("\n".join(line.format(i) for i in range(5)))
    assert [len(batch) for batch in JsonVectors(path, batch_bytes=100)] == [2, 2, 1]
