"""Build the lexical terms of the default model: the table of inverse document frequencies (decision 0043).

python research/lexical_terms.py --corpus wiki/passages.jsonl.gz --output MODEL_FOLDER
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparta.data.corpus import open_corpus
from sparta.models.lexical_terms import IdfTable, LexicalTerms, TermSettings, hashes_of, text_of
from sparta.models.query_encoder import load_tokenizer
from sparta.models.resolve import default_model_folder

LEAST = {"word": 2, "pair": 12}
"""The least document frequency of a term in the table; rarer terms count as unseen."""


def document_frequencies(corpus: Path, lexical: LexicalTerms) -> tuple[list[npt.NDArray[np.uint32]], int]:
    """Return the hashes of words and of pairs, once for each passage that has them, and the passages."""
    hashes: tuple[list[npt.NDArray[np.uint32]], list[npt.NDArray[np.uint32]]] = ([], [])
    n_passages = 0
    for passage in open_corpus(corpus):
        n_passages += 1
        terms = {occurrence.term for occurrence in lexical.occurrences(text_of(passage))}
        for kind, pairs in zip(hashes, (False, True), strict=True):
            kind.append(hashes_of([term for term in terms if (" " in term) == pairs]))
    return [np.concatenate(kind) for kind in hashes], n_passages


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=default_model_folder())
    arguments = parser.parse_args()
    tokenizer = load_tokenizer(default_model_folder())
    empty = IdfTable(np.zeros(0, np.uint32), np.zeros(0, np.uint8))
    lexical = LexicalTerms(TermSettings(), empty, tokenizer)
    kinds, n_passages = document_frequencies(arguments.corpus, lexical)
    known, counts = [], []
    for kind, least in zip(kinds, LEAST.values(), strict=True):
        hashes, df = np.unique(kind, return_counts=True)
        print(f"{len(hashes)} terms, {df.sum() / n_passages:.1f} per passage, {(df >= least).sum()} kept")
        known.append(hashes[df >= least])
        counts.append(df[df >= least])
    table = IdfTable.of(np.concatenate(known), np.concatenate(counts), n_passages)
    LexicalTerms(TermSettings(), table, tokenizer).save(arguments.output)


if __name__ == "__main__":
    main()
