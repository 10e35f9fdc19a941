"""Answers the questions of KILT tasks from passages, and measures the answers (Maillard et al., Table 4)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hybrid.answering.answers import as_read
from hybrid.evaluation.measures import Evaluation
from hybrid.evaluation.questions import judged
from hybrid.evaluation.results import SetResults
from hybrid.evaluation.testsets import QuestionSet
from hybrid.evidence.gold import page_of
from hybrid.evidence.measures import Gold, r_precision
from hybrid.multihop.searcher import ChainPassages
from hybrid.replications.files import state_of
from hybrid.replications.solvers import Solver
from sparta.base.errors import InputError, Interrupted
from sparta.base.files import atomic_write, is_standard_output, short_hash
from sparta.base.records import Advance, Query
from sparta.base.remedies import Option, remedy
from sparta.data.answers import exact_match, token_f1
from sparta.data.parsing import decoded, parse_object
from sparta.models.resolve import hash_folder
from sparta.search.retriever import Retriever
from sparta.training.options import REPEAT, check_same

ACCURACY, KILT_ACCURACY, PRECISION = "accuracy", "kilt_accuracy", "page_Rprec"
DEPTH = 3
"""Number of passages that a solver reads before the input (Maillard et al., §4.1)."""
_AT_ONCE = 16
_RANKED = 100


class Solved(NamedTuple):
    """A solver's answer, and the pages of the retrieved passages by rank."""

    answer: str
    pages: list[str]


def solve_task(
    query_set: QuestionSet,
    index: Path,
    retriever: Retriever,
    solver: Solver,
    output: Path,
    *,
    depth: int = DEPTH,
    model: str = "",
    resume: bool = False,
    advance: Advance | None = None,
) -> SetResults:
    """Answer the questions of a task from their `depth` best passages, and measure the answers.

    `accuracy` is the share of answers that equal a gold answer exactly, without white space at the ends. `EM`
    and `F1` are SQuAD's, for the language of the index. `kilt_accuracy` counts an answer only if page
    R-precision is 1, like KILT's `eval_downstream.py`. Answers are written to `output` as they are computed;
    with `resume`, answers that are already in the file are not computed again.

    :param model: name or folder of the solver's model; answers of another model are refused
    :raises InputError: the task has no answers, or `output` has answers of another task, solver, model,
        ranking or index
    """
    queries = [query for query in query_set.queries if query.answers]
    if not queries:
        raise InputError(
            "the task has no answers",
            where=query_set.name,
            remedy="name a file with output[].answer, such as KILT's training and development files",
        )
    judged_set = judged(query_set, index) if query_set.evidence else query_set
    settings = {"task": query_set.name, "solver": solver.name, "depth": depth, "channel": retriever.channel}
    settings |= {"model": model, "index": str(index.resolve()), "state": state_of(index)}
    settings["ranking"] = retriever.ranking_name
    if model and Path(model).is_dir():
        settings["model_sha256"] = hash_folder(Path(model))
    if isinstance(retriever, ChainPassages):
        settings["steps"] = short_hash(retriever.chain.chain.steps)
    solved = _begun(output, settings, {q.query_id: q.text for q in queries}, resume=resume)
    with output.open("a", encoding="utf-8") as lines:
        try:
            for block in itertools.batched([q for q in queries if q.query_id not in solved], _AT_ONCE):
                for query, solution in zip(block, _answered(block, retriever, solver, depth), strict=True):
                    solved[query.query_id] = solution
                    line = {"id": query.query_id, "input": query.text, **solution._asdict()}
                    lines.write(json.dumps(line, ensure_ascii=False) + "\n")
                lines.flush()
                if advance:
                    advance(len(block))
        except KeyboardInterrupt:
            raise Interrupted(len(solved), "answer") from None
    name = f"{solver.name}, {retriever.channel}"
    return SetResults(query_set.name, [measure(name, queries, solved, judged_set.gold, retriever.language)])


def measure(
    name: str,
    queries: list[Query],
    solved: Mapping[str, Solved],
    gold: Gold | None = None,
    language: str = "en",
) -> Evaluation:
    """Measure answers, and with gold pages also page R-precision and KILT's accuracy.

    :param solved: answer and pages by query id
    :param language: language of the rules for EM and F1
    """
    exact_match_of, token_f1_of = (
        partial(exact_match, language=language),
        partial(token_f1, language=language),
    )
    per_query: dict[str, dict[str, float]] = {
        ACCURACY: {
            q.query_id: float(solved[q.query_id].answer.strip() in map(str.strip, q.answers)) for q in queries
        },
        "EM": {q.query_id: float(exact_match_of(solved[q.query_id].answer, q.answers)) for q in queries},
        "F1": {q.query_id: token_f1_of(solved[q.query_id].answer, q.answers) for q in queries},
    }
    if gold is not None:
        precisions = {
            q: r_precision(solved[q].pages, gold_pages) for q, gold_pages in gold.pages.items() if q in solved
        }
        accurate = per_query[ACCURACY]
        per_query[PRECISION] = {q: precisions[q] for q in accurate if q in precisions}
        per_query[KILT_ACCURACY] = {
            q: accuracy * (precisions.get(q) == 1) for q, accuracy in accurate.items()
        }
    return Evaluation(name, per_query)


def _answered(
    queries: tuple[Query, ...], retriever: Retriever, solver: Solver, depth: int
) -> Iterator[Solved]:
    """Yield the answer to each query from its `depth` best passages, and the pages of its 100 best."""
    texts, ids = [q.text for q in queries], [q.query_id for q in queries]
    hits_by_query = retriever.batch_search(texts, ids, max(depth, _RANKED), 1)
    hits = [hits_by_query[i] for i in ids]
    answers = solver.solve(texts, [as_read(retriever, query_hits[:depth]) for query_hits in hits])
    for answer, query_hits in zip(answers, hits, strict=True):
        yield Solved(
            answer, [page_of(hit.passage_id, {**hit.metadata, "title": hit.title}) for hit in query_hits]
        )


def _begun(
    output: Path, facts: dict[str, Any], texts: Mapping[str, str], *, resume: bool
) -> dict[str, Solved]:
    """Return the answers in the output file by query id; an incomplete last line is cut off.

    The first line of the file holds the settings of its answers. A missing file is made with this line.

    :param facts: the settings of this call; they must equal the settings in the file
    :param texts: query texts by query id; the queries in the file must have the same texts
    """
    if is_standard_output(output):
        raise InputError(
            "answers cannot be written to standard output, because a later run continues their file",
            remedy=remedy("name a file: {}", Option("output", "answers.jsonl")),
        )
    if not resume and output.exists():
        raise InputError(
            "the file of answers already exists",
            where=str(output),
            remedy=remedy(
                "continue the file with {}, or name another file with {}", Option("resume"), Option("output")
            ),
        )
    if not output.exists():
        atomic_write(output, (json.dumps(facts) + "\n").encode())
        return {}
    raw = output.read_bytes()
    complete_lines = raw[: raw.rfind(b"\n") + 1]
    try:
        settings_of_file, *lines = (parse_object(decoded(line)) for line in complete_lines.split(b"\n")[:-1])
        solutions = {line["id"]: Solved(line["answer"], line["pages"]) for line in lines}
        other_ids = [line["id"] for line in lines if line["input"] != texts.get(line["id"], line["input"])]
    except (InputError, ValueError, KeyError):  # not a file of answers: it is left unchanged
        settings_of_file, solutions, other_ids = {}, {}, []
    if not settings_of_file:
        raise InputError("the file exists, but does not contain answers", where=str(output), remedy=REPEAT)
    check_same(settings_of_file, {name: facts.get(name) for name in settings_of_file}, output)
    if other_ids:
        raise InputError(
            f"the file contains an answer to another question: {other_ids[0]}",
            where=str(output),
            remedy=REPEAT,
        )
    if complete_lines != raw:
        atomic_write(output, complete_lines)
    return solutions
