"""`dense train`, `dense mine`, `dense convert`: models, what they learn from, and those of other makers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli._args import counted, file_type, folder_type, index_option, options, typed
from cli._train import data_options, end_options, length_options, loop_options, named_sets, report
from sparta.base.errors import InputError
from sparta.base.files import unreadable

if TYPE_CHECKING:
    from dense.training.mining import Question

form_options = options(
    click.option(
        "--routing",
        type=click.Choice(["det", "seq", "tok"]),
        help="Experts chosen by side (Det-R), by a router for each text (Seq-R) or token (Tok-R)"
        " [default: none, one shared encoder].",
    ),
    click.option(
        "--experts", type=click.IntRange(2), default=2, show_default=True, help="With --routing: how many."
    ),
    click.option(
        "--period",
        type=click.IntRange(1),
        default=3,
        show_default=True,
        help="With --routing: one layer in every so many has experts; 3 leaves two shared ones between.",
    ),
    click.option("--two-encoders", is_flag=True, help="One encoder for questions, one for passages (DPR)."),
    click.option(
        "--codes",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Vectors of a passage (Poly-Encoder); 0: one, the mean of its tokens. An index takes 0 only.",
    ),
    click.option(
        "--pooling",
        type=click.Choice(["mean", "cls"]),
        default="mean",
        show_default=True,
        help="A text is the mean of its tokens' states, or the state of [CLS].",
    ),
    click.option("--dot", is_flag=True, help="Dot product of vectors as they are, instead of cosine."),
    click.option("--separate-title", is_flag=True, help="[SEP] between title and text, as DPR reads them."),
)
learning_options = options(
    click.option(
        "--layer-decay",
        type=click.FloatRange(0, 1, min_open=True),
        default=1.0,
        show_default=True,
        help="Factor of the learning rate for every layer further down; embeddings learn slowest.",
    ),
    click.option(
        "--entropy",
        type=click.FloatRange(0),
        default=0.01,
        show_default=True,
        help="With --routing seq or tok: β, the weight of the routers' entropy.",
    ),
    click.option(
        "--questions",
        type=click.IntRange(1),
        default=6,
        show_default=True,
        help="Questions a paragraph in one batch, at most.",
    ),
    click.option(
        "--validate-by",
        metavar="rr|average-rank|recall@K",
        default="rr",
        show_default=True,
        help="What tells which model is the best.",
    ),
    click.option(
        "--held-out",
        type=click.IntRange(0),
        default=120,
        show_default=True,
        help="Questions of each set that validate.",
    ),
    click.option(
        "--candidates",
        type=click.IntRange(0),
        default=80,
        show_default=True,
        help="Training texts of each set that are ranked too when validating.",
    ),
    click.option(
        "--two-stages",
        is_flag=True,
        help="Train, let that model find hard negatives, and train anew with them (TASER).",
    ),
    click.option("--checkpoint-every", type=click.IntRange(1), default=200, hidden=True),
)


@click.command()
@data_options
@form_options
@length_options(learning_rate=5e-5)
@learning_options
@loop_options
@end_options
def train(
    pairs: tuple[str, ...],
    articles: tuple[str, ...],
    passages: tuple[str, ...],
    batch_size: int,
    two_stages: bool,
    **given: Any,
) -> None:
    """Train a bi-encoder: TASER, DPR, or one shared encoder.

    TASER with --routing, DPR with --two-encoders, else one encoder for both sides. Files are those of
    sparta train, and what dense mine writes. Several files are several sets: a batch is of one set, drawn by
    the weights. The best model ends in OUTPUT/best. With --two-stages, --steps are those of each.

    \b
    dense train --encoder bert-base-uncased --routing det --pooling cls --dot --separate-title \\
                --passages nq-train.json --output taser --two-stages
    """  # noqa: D301 (click looks for the backspace)
    from sparta.training.metrics import figure_named, shown

    figure_named(given["validate_by"])
    recipe = _recipe(given)
    sets = named_sets(pairs, articles, passages, batch_size)
    from dense.training.stages import train_in_two_stages
    from dense.training.train import train_dense

    result = (train_in_two_stages if two_stages else train_dense)(sets, **recipe)
    report("dense", result, sets, given["encoder"], shown(given["validate_by"], result.validation))


def _recipe(given: dict[str, Any]) -> dict[str, Any]:
    """The options as the recipe's fields; what does not go together is refused before anything is read."""
    together = {
        "--routing and --two-encoders": given["routing"] and given["two_encoders"],
        "--pooling cls and --codes": given["pooling"] == "cls" and given["codes"],
        "--routing det and more than 2 --experts": given["routing"] == "det" and given["experts"] > 2,
    }
    for names, found in together.items():
        if found:
            raise InputError(f"expected one of {names}, found both", remedy="leave one out")
    alone = given["alone"] or given["pooling"] == "cls"
    needed = [(option, "--routing") for option in typed("experts", "period") if not given["routing"]]
    learned = given["routing"] in ("seq", "tok")
    needed += [(option, "--routing seq or tok") for option in typed("entropy") if not learned]
    needed += [(o, "--alone or --pooling cls") for o in typed("separate_title") if not alone]
    for option, wanted in needed:
        raise InputError(f"expected {wanted} with {option}, found neither", remedy=f"leave {option} out")
    recipe = {k: v for k, v in given.items() if k not in ("two_encoders", "dot", "routing")}
    return {
        **recipe,
        "shared": not given["two_encoders"],
        "cosine": not given["dot"],
        "routing": given["routing"] or "",
    }


@click.command()
@index_option
@click.option(
    "--questions",
    "paths",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="Questions with answers (DPR's TSV, JSON lines), DPR training JSON, or a BEIR folder.",
)
@click.option("--output", required=True, type=file_type, help="Training file to write: .json or .json.gz.")
@click.option(
    "--channel",
    type=click.Choice(["bm25", "dense", "sparta"]),
    default="bm25",
    show_default=True,
    help="What ranks the passages: bm25 for a first training, dense for the second.",
)
@click.option(
    "--depth", type=click.IntRange(1), default=100, show_default=True, help="Passages that are looked at."
)
@click.option(
    "--negatives",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="How many are kept for each question.",
)
@click.option(
    "--match",
    type=click.Choice(["string", "regex"]),
    default="string",
    show_default=True,
    help="What answers are: texts, or regular expressions (CuratedTREC).",
)
@click.option(
    "--keep", is_flag=True, help="Keep the hard negatives that the file has, before the mined ones."
)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True, help="Threads.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def mine(index: Path | None, paths: tuple[Path, ...], output: Path, quiet: bool, **given: Any) -> None:
    """Find hard negatives in an index.

    These are passages that rank high for a question and do not answer it. Writes DPR training JSON. A
    positive is what the file gives or judges; of a question with answers only, the best passage of BM25 that
    holds one; without any, the question is left out.

    \b
    dense mine --questions nq-train.tsv --negatives 1 --output first.json
    dense mine --questions first.json --channel dense --keep --output second.json
    """  # noqa: D301 (click looks for the backspace)
    from tqdm import tqdm

    from dense.training.mining import mine_index

    for path in paths:
        if not path.exists():
            raise unreadable(path, FileNotFoundError())
    asked = (one for path in paths for one in _asked(path))  # training data need not fit into the memory
    with tqdm(unit="question", disable=True if quiet else None) as bar:
        found = mine_index(index, asked, output, advance=bar.update, **given)
    without = f", {found.left_out:,} without a positive left out" if found.left_out else ""
    click.echo(
        f"{output}: {counted(found.written, 'question')} with {found.negatives / found.written:.1f}"
        f" negatives on average{without}"
    )


def _asked(path: Path) -> Iterable[Question]:
    """Questions in any form: training data with positives, judged ones, or those with answers only."""
    from dense.training.mining import asked_of_beir, asked_of_dpr, asked_of_queries
    from hybrid.evaluation.questions import questions_of
    from sparta.data.jsonlist import begins_list, json_list
    from sparta.training.formats import DPR_FORM

    if (path / "qrels" / "train.tsv").is_file():
        return asked_of_beir(path)
    if path.name.removesuffix(".gz").endswith(".json") and begins_list(path):
        first = next(json_list(path, DPR_FORM), None)
        if isinstance(first, dict) and "positive_ctxs" in first:
            return asked_of_dpr(path)
    known = questions_of(path)
    return asked_of_queries(known.queries, known.qrels)


@click.command()
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    metavar="FILE|FOLDER|ID",
    help="A dict file of DPR or TASER, or transformers' DPR: both its folders, by --from twice.",
)
@click.option("--output", required=True, type=folder_type, help="Folder for the model.")
@click.option("--tokenizer", metavar="FOLDER|ID", help="Tokenizer of a checkpoint that brings none.")
@click.option("--int8", is_flag=True, help="Store the weights in 8 bits with row scales.")
def convert(sources: tuple[str, ...], output: Path, tokenizer: str | None, int8: bool) -> None:
    """Make a model folder from a checkpoint of DPR or TASER.

    Of a folder of ours, --int8 makes a smaller one.

    \b
    dense convert --from hf_bert_base.cp --tokenizer bert-base-uncased --output dpr
    dense convert --from facebook/dpr-question_encoder-single-nq-base \\
                  --from facebook/dpr-ctx_encoder-single-nq-base --output dpr
    """  # noqa: D301 (click looks for the backspace)
    from dense.models.checkpoints import form_of
    from dense.models.convert import convert as converted
    from sparta.training.ranking import check_output

    check_output(output, resume=False)
    model = converted(sources, tokenizer)
    model.save_pretrained(output, int8=int8)
    parameters = sum(p.numel() for p in model.parameters()) / 1e6
    click.echo(f"{output}: {form_of(model.config)}, {parameters:.1f}M parameters")
