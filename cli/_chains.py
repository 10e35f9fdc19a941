"""Options of commands with --chain, and the printing of paths."""

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
"""Options for a chain's models, each with a shipped chain that uses the model."""


@arguments
class ChainModels:
    """The models of a chain."""

    SECTION = "Chain"
    model: str | None = option(
        "Model of several skills, for steps that need one; dense train-skills makes it.",
        metavar="FOLDER|ID",
    )
    entities: str | None = option(
        "Index of entity descriptions, for the chain hotpot, whose model links entities.", metavar="FOLDER"
    )
    path_reader: str | None = option(
        "Path reader, for chains that read their paths [default: the shipped path reader].",
        metavar="FOLDER",
    )

    def open(self, chain: str, index: Path | None, channel: str | None, device: str | None) -> ChainSearcher:
        """Return an open chain with these models."""
        from hybrid.multihop.searcher import ChainSearcher

        return ChainSearcher(chain, index, self.model, self.entities, channel, self.path_reader, device)

    def refuse_unread(self, chains: Sequence[str]) -> None:
        """Raise InputError if no step of the chains uses a typed model, entity index or path reader."""
        from hybrid.multihop.steps import LINK, READ, read_chain

        typed_options = [name for name in _READ_BY if getattr(self, name)]
        steps = [step for chain in chains for step in read_chain(chain)] if typed_options else []
        is_used = {
            "model": any(step.by_model for step in steps),
            "entities": any(step.by_model and step.skill == LINK for step in steps),
            "path_reader": any(step.skill == READ for step in steps),
        }
        for name in typed_options:
            if not is_used[name]:
                option = name.replace("_", "-")
                raise InputError(
                    f"--{option} has no effect on the chain {', '.join(chains)}",
                    remedy=f"omit --{option}, or use --chain {_READ_BY[name]}",
                )


@arguments
class ChainArguments:
    """An optional chain and its models."""

    SECTION = "Chain"
    chain: str | None = option(
        "Find paths of several passages, step by step: hop, hop-read, named, tabletext, hotpot, single, or a"
        " file of steps (docs/chains.md).",
        metavar="NAME|FILE",
    )
    models: ChainModels = group(ChainModels)
    RULES = tuple(
        Needs("--chain", (name,), remedy=f"add --chain {chain}, or omit the option")
        for name, chain in _READ_BY.items()
    )

    def open(
        self, index: Path | None, channel: str | None = None, device: str | None = None
    ) -> ChainSearcher | None:
        """Return the open chain; None if no chain is named.

        :raises InputError: an option has no effect with this chain
        """
        if self.chain is None:
            return None
        return open_chain(self.chain, self.models, index, channel, device)


def open_chains(
    chains: Sequence[str], models: ChainModels, index: Path | None, *, remote: bool
) -> list[ChainSearcher]:
    """Return the open chains, to be measured beside the channels of the index.

    :param remote: whether the channels lie in OpenSearch
    :raises InputError: two chains have one name, or the index lies in OpenSearch
    """
    from hybrid.evaluation.results import file_word

    names = [Path(name).stem for name in chains]
    if len(set(map(file_word, names))) < len(names) or (names and remote):
        conflict = "--opensearch" if remote else f"one name twice among {', '.join(names)}"
        raise InputError(
            f"--chain needs different names and an index folder, found {conflict}",
            remedy="rename a file of steps, or omit one of the options",
        )
    if names:
        _refuse_with_chain("k1", "b")
    else:
        for rule in ChainArguments.RULES:
            rule._replace(has=lambda _: False).check(models)
    models.refuse_unread(chains)
    with ExitStack() as stack:
        opened = [stack.enter_context(models.open(name, index, None, None)) for name in chains]
        stack.pop_all()  # from here on, the caller closes the chains
    return opened


def open_chain(
    chain: str, models: ChainModels, index: Path | None, channel: str | None = None, device: str | None = None
) -> ChainSearcher:
    """Return an open chain.

    :raises InputError: an option has no effect with this chain
    """
    _refuse_with_chain("k1", "b", "candidates", "facets", "filters", "collapse", "offset", "hits", "join")
    if chain_reads(chain) and (others := typed("threads")):
        raise InputError(
            f"{others[0]} has no effect on a chain that reads its paths",
            remedy=f"omit {others[0]}: the path reader uses all processors",
        )
    models.refuse_unread([chain])
    return models.open(chain, index, channel, device)


def chain_reads(name: str) -> bool:
    """Return whether a chain ends with a step that reads its paths."""
    from hybrid.multihop.steps import READ, read_chain

    return read_chain(name)[-1].skill == READ


def _refuse_with_chain(*names: str) -> None:
    """Raise InputError if an option is typed that chains do not use."""
    if others := typed(*names):
        raise InputError(
            f"--chain cannot be combined with {others[0]}", remedy=f"omit --chain or {others[0]}"
        )


def search_chain(chain: ChainSearcher, search: SearchArguments) -> None:
    """Find paths for a query and print them, or for a file of queries and write them."""
    from hybrid.multihop.searcher import ChainPassages
    from sparta.search.snippet import word_snippets

    with chain as searcher:
        if search.queries is not None:
            run_queries(ChainPassages(searcher), search, searcher.batch_find_paths)
            return
        paths = searcher.find_paths(search.query, search.k).paths
        marked = word_snippets(searcher.tools.words, search.query)
        for rank, path in enumerate(paths, 1):
            if search.as_json:
                click.echo(dumps({"rank": rank, **path.as_dict()}))
                continue
            echo_path(f"{rank:>3}", path)
            for passage in path.passages:
                snippet = shown_snippet(passage.hit, marked, as_json=False)
                click.echo(f"     {visible(passage.hit.passage_id)}: {snippet}")
        if not paths and not search.as_json:
            click.echo("no path found: a step of the chain found no passage")


def echo_path(head: str, path: EvidencePath) -> None:
    """Print a path: score, answer (if a path reader read the path), and a line per passage.

    A passage's line shows its score, the score of each step, and the entity that linked to it.
    """
    answer = f"  {bold(visible(path.answer.answer))}  {path.answer.score:.2f}" if path.answer else ""
    click.echo(f"{head}  {path.score:.4g}{answer}")
    for passage in path.passages:
        steps = ", ".join(f"{name} {score:.4g}" for name, score in passage.scores.items())
        entity = f', by "{visible(passage.span)}"' if passage.span else ""
        passage_id = visible(passage.hit.passage_id)
        name = bold(visible(passage.hit.title)) if passage.hit.title else bold(passage_id)
        click.echo(f"     → {name}  [{passage_id}]  {passage.score:.4g} ({steps}{entity})")


def explain_chain(chain: ChainSearcher, query: str, passage_id: str, *, as_json: bool) -> None:
    """Print the best path that contains a passage, and its rank among all paths."""
    with chain as searcher:
        rank, path, total = searcher.find(query, passage_id)
    if as_json:
        click.echo(dumps({"rank": rank, **(path.as_dict() if path else {"score": None, "passages": []})}))
        return
    if path is None:
        click.echo(f"{visible(passage_id)} is in none of {counted(total, 'path')}")
        return
    echo_path("score", path)
    click.echo(f"rank {rank:,} of {counted(total, 'path')}")
