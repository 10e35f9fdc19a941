"""`sparta`: index, search, answer, serve; models, measurements, maintenance."""

from __future__ import annotations

import click

from cli._group import Place, SpartaGroup

_COMMANDS = {
    "Index, search, answer, serve": {
        "index": Place("cli.sparta_commands.index:index", "Build an index from your passages."),
        "search": Place("cli.sparta_commands.search:search", "Find the best passages for a query."),
        "answer": Place(
            "cli.sparta_commands.answer:answer", "Answer a question from the passages of an index."
        ),
        "serve": Place("cli.service_commands.serve:serve", "Serve an index over HTTP, with a web page."),
        "mcp": Place("cli.service_commands.mcp:mcp", "Serve an index to a language model (MCP)."),
        "demo": Place(
            "cli.start_commands.demo:demo",
            "Build the example index and ask it a question.",
        ),
    },
    "Change an index": {
        "update": Place("cli.sparta_commands.update:update", "Replace passages by id, and add new ones."),
        "sync": Place("cli.sparta_commands.sync:sync", "Make an index follow a folder."),
        "delete": Place("cli.sparta_commands.delete:delete", "Delete passages by id or by a filter."),
    },
    "Keep and share": {
        "backup": Place(
            "cli.share_commands.backup:backup", "Copy one commit of an index, even while it is written."
        ),
        "upload": Place("cli.share_commands.hub:upload", "Publish an index or a model on a hub."),
        "pull": Place("cli.share_commands.hub:pull", "Fetch an index or a model from a hub."),
    },
    "Understand and check": {
        "explain": Place(
            "cli.sparta_commands.explain:explain", "Show why a passage has its score for a query."
        ),
        "terms": Place(
            "cli.sparta_commands.explain:terms", "List the terms with the highest impacts of a passage."
        ),
        "info": Place(
            "cli.sparta_commands.info:info", "Show passages, model, size and channels of an index."
        ),
        "verify": Place("cli.sparta_commands.verify:verify", "Check every file of an index for damage."),
        "doctor": Place("cli.start_commands.doctor:doctor", "Check what this machine lacks."),
    },
    "Measure": {
        "eval": Place(
            "cli.model_commands.eval:eval_command",
            "Measure models on test sets. For your own index: hybrid eval.",
        ),
    },
    "Train": {
        "train": Place("cli.model_commands.train:train", "Train a SPARTA model on questions and passages."),
        "mine-answers": Place(
            "cli.model_commands.reader:mine_answers", "Find passages with answers, to train a reader."
        ),
        "train-reader": Place(
            "cli.model_commands.reader:train_reader", "Train a reader that extracts answers from passages."
        ),
        "tune-reader": Place(
            "cli.model_commands.reader:tune_reader", "Calibrate a reader's scores on your questions."
        ),
        "mine-paths": Place(
            "cli.model_commands.reader:mine_paths", "Find paths of passages, to train a path reader."
        ),
        "train-paths": Place(
            "cli.model_commands.reader:train_paths", "Train a path reader (Chain-of-Skills)."
        ),
    },
    "More": {
        "encode": Place(
            "cli.model_commands.encode:encode", "Encode a corpus on several machines, to index it later."
        ),
        "export": Place(
            "cli.sparta_commands.export:export", "Write an index for PISA, Pyserini or OpenSearch."
        ),
        "push": Place(
            "cli.service_commands.push:push", "Copy an index into OpenSearch, or only its changes."
        ),
        "export-model": Place(
            "cli.sparta_commands.export:export_model", "Write a SPARTA model for sentence-transformers."
        ),
        "dense": Place("cli._dense:main", "Dense retrieval: all commands of the program dense."),
        "hybrid": Place("cli._hybrid:main", "Fusion and evaluation: all commands of the program hybrid."),
    },
}


@click.group(cls=SpartaGroup, sections=_COMMANDS)
@click.version_option(package_name="sparta-search", prog_name="sparta")
def main() -> None:
    """Search and answer questions, without a neural network at query time.

    \b
    sparta index --corpus wiki.jsonl
    sparta search "who founded google"
    sparta answer "who founded google"
    """  # noqa: D301 (click looks for the backspace)


if __name__ == "__main__":
    main()
