"""Questions made of sentences: a date, number, name or noun gives way to a question word.

    python research/chinese_questions.py WORK --most 9000 --output WORK/made.jsonl

reads `wiki.jsonl` in WORK (chinese_text.py). Of each passage one sentence becomes a question: one of its
clauses, maybe with the next, without some of its words, behind the passage's title. They are no good Chinese,
but say which words of a text a question may have, and what "when", "who", "where" and "how many" ask for.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from sparta.data.sentences import sentence_splitter

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # jieba's regular expressions
    from jieba import posseg

_DATE = re.compile(r"(?:公元前?)?\d{1,4}年(?:\d{1,2}月)?(?:\d{1,2}日)?|\d{1,2}月\d{1,2}日")
_UNIT = "[人名个座部米次场岁集张首种家位元所届枚分条辆架层间天]|公里|平方公里|公斤|美元|小时|分钟"
_NUMBER = re.compile(rf"\d[\d,]*(?:\.\d+)?(?:余|多)?(?:万|亿|千|百)?({_UNIT})")
_CLAUSE = re.compile(r"[^，；：。！？、,;]+")
_BRACKETS = re.compile(r"[（(].*?[)）]")
_PRONOUN = re.compile(r"^(他|她|它|其|该\w|此|这)")
WHEN = ("什么时候", "何时", "哪一年", "哪年", "是什么时候", "几年")
ASK = {
    "nr": ("谁", "什么人", "哪位"),
    "nrt": ("谁", "哪位"),
    "ns": ("哪里", "什么地方", "哪个地方", "哪个国家", "何处"),
    "nt": ("什么机构", "哪个机构", "哪里"),
    "nz": ("什么", "哪个"),
    "n": ("什么", "哪些", "哪种", "什么"),
    "l": ("什么",),
}
"""Question words by jieba's part of speech: persons, places, organizations, other names, nouns, phrases."""
ASKED = "asked"
LIGHT = frozenset(("uj", "ul", "p", "d", "c", "f", "r", "x"))

Words = list[tuple[str, str]]


def question(rng: random.Random, title: str, sentence: str) -> tuple[str, str] | None:
    """A question and its answer, which gave way to the question word; None where none can be made."""
    clauses = [m[0] for m in _CLAUSE.finditer(sentence) if len(m[0]) > 3]
    if not clauses:
        return None
    chosen = rng.randrange(len(clauses))
    clause = clauses[chosen]
    if rng.random() < 0.3 and chosen + 1 < len(clauses):
        clause += f"，{clauses[chosen + 1]}"
    words, answer = _asked_by_form(rng, clause)
    answer = answer or _ask_for_noun(rng, words, title)
    if not answer:
        return None
    if sum(kind != ASKED for _, kind in words) < 2:
        return None
    text = "".join(
        word for word, kind in words if kind == ASKED or rng.random() > (0.2 if kind in LIGHT else 0.08)
    )
    topic = _BRACKETS.sub("", title).strip()
    if topic and topic not in text:
        text = _PRONOUN.sub("", text)
        if rng.random() < 0.85:
            text = topic + rng.choice(("", "", "的")) + text
    return text + rng.choice(("？", "？", "？", "？", "")), answer


def _asked_by_form(rng: random.Random, clause: str) -> tuple[Words, str]:
    """The words of a clause; a date or a number that is replaced by what asks for it, or nothing."""
    dates, numbers = list(_DATE.finditer(clause)), list(_NUMBER.finditer(clause))
    if dates and rng.random() < 0.6:
        found, asks, unit = rng.choice(dates), rng.choice(WHEN), ""
    elif numbers and rng.random() < 0.7:
        found, asks = rng.choice(numbers), rng.choice(("多少", "几"))
        unit = found[1]
    else:
        return _words(clause), ""
    after = unit + clause[found.end() :]
    return [*_words(clause[: found.start()]), (asks, ASKED), *_words(after)], found[0]


def _words(text: str) -> Words:
    return [(word.word, word.flag) for word in posseg.cut(text)]


def _ask_for_noun(rng: random.Random, words: Words, title: str) -> str:
    """Replace a name, or a noun, that is not in the title, and return it; empty where there is none."""
    new = [(i, kind) for i, (word, kind) in enumerate(words) if kind in ASK and word not in title]
    found = [i for i, kind in new if kind not in ("n", "l")]
    if not found or rng.random() < 0.3:
        found += [i for i, kind in new if kind in ("n", "l") and len(words[i][0]) > 1]
    if not found:
        return ""
    place = rng.choice(found)
    noun, kind = words[place]
    words[place] = (rng.choice(ASK[kind]), ASKED)
    return noun


def pairs(path: Path, most: int, seed: int) -> Iterator[dict[str, str | int | list[str]]]:
    """Training pairs with answers, of at most one sentence of each passage."""
    rng, split, n = random.Random(seed), sentence_splitter("zh"), 0
    for line in path.open(encoding="utf-8"):
        record = json.loads(line)
        spans = [(a, b) for a, b in split(record["text"]) if 8 <= b - a <= 150]
        if len(spans) < 2:
            continue
        start, end = rng.choice(spans)
        positive = record["text"][start:end]
        made = question(rng, record["title"], positive)
        if made and 6 <= len(made[0]) <= 50:
            yield {
                "question": made[0],
                "answers": [made[1]],
                "positive": positive,
                "context": record["text"],
                "start": start,
                "end": end,
                "title": record["title"],
            }
            n += 1
        if n == most:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--most", type=int, default=9000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    with given.output.open("w", encoding="utf-8") as out:
        for pair in pairs(given.work / "wiki.jsonl", given.most, given.seed):
            out.write(json.dumps(pair, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
