"""What the commands on chains share: options, and how a path looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._options import counted, dumps, options, typed, visible
from cli._page import page_of
from cli._search import bold, run_queries, shown_snippet
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from hybrid.multihop.paths import EvidencePath
    from hybrid.multihop.searcher import ChainSearcher

_READ_BY = {"model": "hotpot", "entities": "hotpot", "path_reader": "hop-read"}
"""Options of chains, and for each a chain that ships and reads it."""
model_options = options(
    click.option(
        "--model",
        metavar="FOLDER|ID",
        help="With --chain: a model with skills, if steps need one: what dense train-skills made.",
    ),
    click.option(
        "--entities", metavar="FOLDER", help="With --chain: index of descriptions, for links by the model."
    ),
    click.option(
        "--path-reader",
        metavar="FOLDER",
        help="With --chain: reader of paths, for a step read [default: the one that ships].",
    ),
)
chain_options = options(
    click.option(
        "--chain",
        metavar="NAME|FILE",
        help="Find paths of passages step by step: hop, hop-read, named, tabletext, hotpot, single, or a"
        " file of steps (docs/chains.md).",
    ),
    model_options,
)


def open_chains(given: Mapping[str, Any]) -> list[ChainSearcher]:
    """Open the chains to be measured, side by side.

    :raises InputError: one is given twice, or an index elsewhere.
    """
    from hybrid.evaluation.results import file_word

    names = [Path(name).stem for name in given["chains"]]
    if len(set(map(file_word, names))) < len(names) or (names and given["opensearch"]):
        found = "--opensearch" if given["opensearch"] else f"one name twice among {', '.join(names)}"
        raise InputError(
            f"expected chains of different names over an index folder, found {found}",
            remedy="rename a file, or leave one of them out",
        )
    if names:
        _refuse_beside_chain("k1", "b")
    else:
        refuse_without_chain()
    _refuse_unread(given["chains"], given)
    with ExitStack() as stack:
        opened = [stack.enter_context(_opened(name, given)) for name in given["chains"]]
        stack.pop_all()  # all are open: the caller closes them
    return opened


def optional_chain(given: Mapping[str, Any], channel: str | None = None) -> ChainSearcher | None:
    """Open the chain that the options name, None where they name none.

    :raises InputError: options of a chain without one, or of what chains do not know.
    """
    if given["chain"] is None:
        refuse_without_chain()
        return None
    return open_chain(given, channel)


def open_chain(given: Mapping[str, Any], channel: str | None = None) -> ChainSearcher:
    """Open the chain that the options name.

    :raises InputError: options that no chain reads, or not this one.
    """
    _refuse_beside_chain("k1", "b", "candidates")
    if chain_reads(given["chain"]) and (others := typed("threads")):
        raise InputError(
            f"expected a chain that reads its paths without {others[0]}, found both",
            remedy="leave it out: a path is read by all processors",
        )
    _refuse_unread([given["chain"]], given)
    return _opened(given["chain"], given, channel)


def _opened(name: str, given: Mapping[str, Any], channel: str | None = None) -> ChainSearcher:
    from hybrid.multihop.searcher import ChainSearcher

    own = given["index"], given["model"], given["entities"]
    return ChainSearcher(name, *own, channel, given["path_reader"], given.get("device"))


def chain_reads(name: str) -> bool:
    """Whether a chain ends with a step that reads its paths."""
    from hybrid.multihop.steps import READ, read_chain

    return read_chain(name)[-1].skill == READ


def refuse_without_chain() -> None:
    """Refuse the options of chains where there is none."""
    for name, chain in _READ_BY.items():
        if others := typed(name):
            raise InputError(
                f"expected --chain with {others[0]}, found none", remedy=f"--chain {chain}, or leave it out"
            )


def _refuse_beside_chain(*names: str) -> None:
    """Refuse options that chains do not read."""
    if others := typed(*names):
        raise InputError(f"expected --chain without {others[0]}, found both", remedy="leave one of them out")


def _refuse_unread(chains: Sequence[str], given: Mapping[str, Any]) -> None:
    """Refuse a model, an index of entities or a reader of paths that no step of the chains reads."""
    from hybrid.multihop.steps import LINK, READ, read_chain

    named = [name for name in _READ_BY if given[name]]
    steps = [step for chain in chains for step in read_chain(chain)] if named else []
    read = {
        "model": any(step.by_model for step in steps),
        "entities": any(step.by_model and step.skill == LINK for step in steps),
        "path_reader": any(step.skill == READ for step in steps),
    }
    for name in named:
        if not read[name]:
            option = name.replace("_", "-")
            raise InputError(
                f"expected a chain with a step that reads --{option}, found none in {', '.join(chains)}",
                remedy=f"leave it out, or name another chain: --chain {_READ_BY[name]}",
            )


def search_chain(chain: ChainSearcher, given: dict[str, Any]) -> None:
    """Find paths for a question and print them, or for many and write them."""
    from sparta.search.explain import word_snippets

    with chain as searcher:
        if given["queries"] is not None:
            run_queries(searcher, given)
            return
        found = searcher.batch_search([given["query"]], ["0"], given["k"], **page_of(given))["0"]
        marked = word_snippets(searcher.tools.words, given["query"])
        for rank, path in enumerate(found, 1):
            if given["as_json"]:
                click.echo(dumps({"rank": rank, **path.as_dict()}))
                continue
            echo_path(f"{rank:>3}", path)
            for one in path.passages:
                snippet = shown_snippet(one.hit, marked, as_json=False)
                click.echo(f"     {visible(one.hit.passage_id)}: {snippet}")
        if not found and not given["as_json"]:
            click.echo("no path: a step found no passage")


def echo_path(head: str, path: EvidencePath) -> None:
    """Print a path: its score, its answer if it was read, and a line for each passage with what each step
    scored it.
    """
    answer = f"  {bold(visible(path.answer.answer))}  {path.answer.score:.2f}" if path.answer else ""
    click.echo(f"{head}  {path.score:.4g}{answer}")
    for one in path.passages:
        steps = "  ".join(f"{name} {score:.4g}" for name, score in one.scores.items())
        entity = f'  "{visible(one.span)}"' if one.span else ""
        name = visible(one.hit.title or one.hit.passage_id)
        click.echo(f"     → {bold(name)}  [{visible(one.hit.passage_id)}]  {one.score:.4g} ({steps}{entity})")


def explain_chain(chain: ChainSearcher, query: str, passage_id: str, *, as_json: bool) -> None:
    """Print the best path that holds a passage."""
    with chain as searcher:
        rank, path, total = searcher.find(query, passage_id)
    if as_json:
        click.echo(dumps({"rank": rank, **(path.as_dict() if path else {"score": None, "passages": []})}))
        return
    if path is None:
        click.echo(f"{visible(passage_id)}: in none of {counted(total, 'path')}")
        return
    echo_path("score", path)
    click.echo(f"rank {rank:,} of {counted(total, 'path')}")
