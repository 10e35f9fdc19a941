"""What the commands on chains share: options, and how a path looks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli._arguments import Needs, arguments, group, option, typed
from cli._output import counted, dumps, visible
from cli._search import SearchArguments, bold, run_queries, shown_snippet
from sparta.base.errors import InputError

if TYPE_CHECKING:
    from hybrid.multihop.paths import EvidencePath
    from hybrid.multihop.searcher import ChainSearcher

_READ_BY = {"model": "hotpot", "entities": "hotpot", "path_reader": "hop-read"}
"""Options of chains, and for each a chain that ships and reads it."""


@arguments
class ChainModels:
    """The models of a chain."""

    model: str | None = option(
        "With --chain: a model with skills, if steps need one: what dense train-skills made.",
        metavar="FOLDER|ID",
    )
    entities: str | None = option(
        "With --chain: index of descriptions, for links by the model.", metavar="FOLDER"
    )
    path_reader: str | None = option(
        "With --chain: reader of paths, for a step read [default: the one that ships].", metavar="FOLDER"
    )

    def open(self, chain: str, index: Path | None, channel: str | None, device: str | None) -> ChainSearcher:
        """Open a chain with these models."""
        from hybrid.multihop.searcher import ChainSearcher

        return ChainSearcher(chain, index, self.model, self.entities, channel, self.path_reader, device)

    def refuse_unread(self, chains: Sequence[str]) -> None:
        """Refuse a model, an index of entities or a reader of paths that no step of the chains reads."""
        from hybrid.multihop.steps import LINK, READ, read_chain

        named = [name for name in _READ_BY if getattr(self, name)]
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


@arguments
class ChainArguments:
    """A chain, if any."""

    chain: str | None = option(
        "Find paths of passages step by step: hop, hop-read, named, tabletext, hotpot, single, or"
        " a file of steps (docs/chains.md).",
        metavar="NAME|FILE",
    )
    models: ChainModels = group(ChainModels)
    RULES = tuple(
        Needs("--chain", (name,), remedy=f"--chain {chain}, or leave it out")
        for name, chain in _READ_BY.items()
    )

    def open(
        self, index: Path | None, channel: str | None = None, device: str | None = None
    ) -> ChainSearcher | None:
        """Open the chain; None if no chain is named.

        :raises InputError: options that no chain reads, or not this one.
        """
        if self.chain is None:
            return None
        return open_chain(self.chain, self.models, index, channel, device)


def open_chains(
    chains: Sequence[str], models: ChainModels, index: Path | None, *, remote: bool
) -> list[ChainSearcher]:
    """Open the chains to be measured, side by side.

    :param remote: whether the channels that they are measured beside lie elsewhere
    :raises InputError: one is named twice, or an index elsewhere.
    """
    from hybrid.evaluation.results import file_word

    names = [Path(name).stem for name in chains]
    if len(set(map(file_word, names))) < len(names) or (names and remote):
        found = "--opensearch" if remote else f"one name twice among {', '.join(names)}"
        raise InputError(
            f"expected chains of different names over an index folder, found {found}",
            remedy="rename a file, or leave one of them out",
        )
    if names:
        _refuse_with_chain("k1", "b")
    else:
        for rule in ChainArguments.RULES:
            rule._replace(has=lambda _: False).check(models)
    models.refuse_unread(chains)
    with ExitStack() as stack:
        opened = [stack.enter_context(models.open(name, index, None, None)) for name in chains]
        stack.pop_all()  # all are open: the caller closes them
    return opened


def open_chain(
    chain: str, models: ChainModels, index: Path | None, channel: str | None = None, device: str | None = None
) -> ChainSearcher:
    """Open a chain.

    :raises InputError: options that no chain reads, or not this one.
    """
    _refuse_with_chain("k1", "b", "candidates")
    if chain_reads(chain) and (others := typed("threads")):
        raise InputError(
            f"expected a chain that reads its paths without {others[0]}, found both",
            remedy="leave it out: a path is read by all processors",
        )
    models.refuse_unread([chain])
    return models.open(chain, index, channel, device)


def chain_reads(name: str) -> bool:
    """Whether a chain ends with a step that reads its paths."""
    from hybrid.multihop.steps import READ, read_chain

    return read_chain(name)[-1].skill == READ


def _refuse_with_chain(*names: str) -> None:
    """Refuse options that chains do not read."""
    if others := typed(*names):
        raise InputError(f"expected --chain without {others[0]}, found both", remedy="leave one of them out")


def search_chain(chain: ChainSearcher, search: SearchArguments) -> None:
    """Find paths for a question and print them, or for many and write them."""
    from sparta.search.explain import word_snippets

    with chain as searcher:
        if search.queries is not None:
            run_queries(searcher, search)
            return
        page = search.page.for_retriever()
        found = searcher.batch_search([search.query], ["0"], search.k, **page)["0"]
        marked = word_snippets(searcher.tools.words, search.query)
        for rank, path in enumerate(found, 1):
            if search.as_json:
                click.echo(dumps({"rank": rank, **path.as_dict()}))
                continue
            echo_path(f"{rank:>3}", path)
            for one in path.passages:
                snippet = shown_snippet(one.hit, marked, as_json=False)
                click.echo(f"     {visible(one.hit.passage_id)}: {snippet}")
        if not found and not search.as_json:
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
