"""Texts and vocabulary of the Chinese model: simplified characters, words counted, a Unigram tokenizer.

    python research/chinese_text.py --wiki wiki.jsonl.gz --train cmrc2018_train.json.gz --output WORK

WORK gets `wiki.jsonl`, `fit.json` and `held.json` (240 paragraphs of the training set to choose by),
`tokenizer.json`, and `ids.npz`: all texts as token ids. Words are those that jieba finds; at run time nothing
needs it: the tokenizer takes the likeliest way through characters and the words of its vocabulary.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import opencc
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from sparta.base.normal_form import normal_form

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
HAN = "\u3400-\u9fff\uf900-\ufaff"
LEAST_OF_A_CHARACTER = 3
LONGEST_WORD, LONGEST_OTHER = 4, 12
HELD_OUT = 240
_RUN = re.compile(f"[{HAN}]+")
_OTHER = re.compile(rf"[^\W\d_{HAN}]+|\d+|[^\w\s]|_")
_convert = opencc.OpenCC("t2s").convert


def simplified(text: str) -> str:
    """Simplified characters, each in its place."""
    whole = _convert(text)
    if len(whole) == len(text):
        return whole
    return "".join(one if len(one := _convert(c)) == 1 else c for c in text)


def folded_squad(path: Path) -> list[dict[str, Any]]:
    """The articles of a SQuAD file, all texts in simplified characters."""

    def fold(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: fold(v) for k, v in value.items()}
        return [fold(v) for v in value] if isinstance(value, list) else _folded_string(value)

    with gzip.open(path, "rt", encoding="utf-8") as file:
        articles: list[dict[str, Any]] = fold(json.load(file)["data"])
    return articles


def _folded_string(value: Any) -> Any:
    return simplified(value) if isinstance(value, str) else value


def folded_wiki(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            yield {name: simplified(record[name]) for name in ("_id", "title", "text")}


class Counts:
    """How often words of Han characters, other words and marks, and characters occur."""

    def __init__(self) -> None:
        self.words: Counter[str] = Counter()
        self.other: Counter[str] = Counter()
        self.characters: Counter[str] = Counter()

    def add(self, texts: Iterable[str], weight: int = 1) -> None:
        """Count what jieba finds in some texts."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jieba's regular expressions
            import jieba
        for text in texts:
            plain = normal_form("NFKC", text).lower()
            for run in _RUN.findall(plain):
                self.characters.update(run)
                for word in jieba.cut(run, HMM=True):
                    self.words[word] += weight
            self.other.update(_OTHER.findall(_RUN.sub(" ", plain)))


def tokenizer_of(counts: Counts, size: int) -> Tokenizer:
    """A Unigram model over all characters that occur thrice, and the words that occur most often."""
    total = counts.words.total() + counts.other.total()
    base = {c: max(counts.words[c], 1) for c, n in counts.characters.items() if n >= LEAST_OF_A_CHARACTER}
    base |= {c: max(counts.other[c], 1) for c in "abcdefghijklmnopqrstuvwxyz0123456789"}
    base |= {c: n for c, n in counts.other.items() if len(c) == 1 and n >= LEAST_OF_A_CHARACTER}
    words = [(n, w) for w, n in counts.words.items() if 1 < len(w) <= LONGEST_WORD and w not in base]
    words += [(n, w) for w, n in counts.other.items() if 1 < len(w) <= LONGEST_OTHER]
    words.sort(key=lambda found: (-found[0], found[1]))
    known = base | {w: n for n, w in words[: size - len(SPECIAL) - len(base)]}
    entries = sorted(known.items(), key=lambda found: (-found[1], found[0]))
    vocabulary = [(t, 0.0) for t in SPECIAL] + [(t, math.log(n / total)) for t, n in entries]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=1))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    parts = Regex(rf"[{HAN}]+|\d+|[^\W\d_{HAN}]+|[^\w]|_")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(parts, "isolated")]
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wiki", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--size", type=int, default=20_000)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)

    wiki = list(folded_wiki(given.wiki))
    with (given.output / "wiki.jsonl").open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in wiki)
    articles = folded_squad(given.train)
    paragraphs = [p for a in articles for p in a["paragraphs"]]
    passages = [f"{r['title']}。{r['text']}" for r in wiki]
    contexts = [p["context"] for p in paragraphs]
    counts = Counts()
    counts.add(passages)
    counts.add(contexts)
    counts.add((q["question"] for p in paragraphs for q in p["qas"]), weight=2)
    tokenizer = tokenizer_of(counts, given.size)
    tokenizer.save(str(given.output / "tokenizer.json"))
    ids = [e.ids for e in tokenizer.encode_batch([*passages, *contexts])]
    np.savez(
        given.output / "ids.npz",
        flat=np.concatenate([np.array(one, dtype=np.int32) for one in ids]),
        lengths=np.array([len(one) for one in ids]),
    )
    random.Random(3).shuffle(articles)
    for name, part in (("held", articles[:HELD_OUT]), ("fit", articles[HELD_OUT:])):
        text = json.dumps({"version": "folded", "data": part}, ensure_ascii=False)
        (given.output / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
