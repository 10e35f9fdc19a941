"""Explanations and snippets show words of the query, not their pieces."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordPiece
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, WhitespaceSplit
from tokenizers.trainers import BpeTrainer

from sparta.data.languages import language_of
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.lexical_terms import LexicalTerms, TermSettings
from sparta.models.query_encoder import QueryTokenizer
from sparta.models.resolve import default_model_folder
from sparta.search.explain import (
    Explanation,
    TermContribution,
    by_word,
    explain,
    term_contributions,
)
from sparta.search.searcher import Searcher
from sparta.search.snippet import marked_snippet


@pytest.fixture(scope="module")
def tokenizer() -> QueryTokenizer:
    """The default model's tokenizer with lexical terms."""
    pieces = load_tokenizer(default_model_folder())
    return QueryTokenizer(pieces, lexical=LexicalTerms(TermSettings(pair_bits=0), pieces))


def test_the_word_of_each_term(tokenizer: QueryTokenizer) -> None:
    words = tokenizer.words_of_terms("The OpenSearch\nkubernetes, node.js? opens")
    assert words == {
        "the": "The",
        "opensearch": "OpenSearch",
        "kubernete": "kubernetes",
        "node": "node",
        "js": "js",
        "opens": "opens",
        "opensearch kubernete": "OpenSearch kubernetes",
        "node js": "node.js",
    }
    assert set(words) == set(tokenizer.terms("The OpenSearch\nkubernetes, node.js? opens"))


def test_without_lexical_terms_pieces_have_their_words(tokenizer: QueryTokenizer) -> None:
    plain = QueryTokenizer(tokenizer.tokenizer)
    assert plain.words_of_terms("Kerensky $5") == {
        "ke": "Kerensky",
        "##ren": "Kerensky",
        "##sky": "Kerensky",
        "$": "$",
        "5": "5",
    }


@pytest.mark.parametrize("splitter", [ByteLevel(add_prefix_space=False), Metaspace()])
def test_terms_that_include_the_space_before_a_word(splitter: ByteLevel | Metaspace) -> None:
    pieces = Tokenizer(BPE())
    pieces.pre_tokenizer = splitter
    pieces.train_from_iterator(["who founded Google"] * 2, BpeTrainer(show_progress=False))
    tokenizer = QueryTokenizer(pieces)
    terms = tokenizer.terms("who founded Google")
    words = tokenizer.words_of_terms("who founded Google")
    assert list(words.values()) == ["who", "founded", "Google"]
    assert set(words) == set(terms) != set(words.values())
    shown = marked_snippet(tokenizer, "Here Larry founded  Google. ", terms).shown("*{}*".format)
    assert shown == "Here Larry *founded* *Google*."


def test_whole_words_are_marked_and_stop_words_only_alone(tokenizer: QueryTokenizer) -> None:
    def marked(query: str, text: str) -> str:
        return marked_snippet(tokenizer, text, tokenizer.terms(query)).shown("*{}*".format)

    text = "The operator of Node.js runs on the Kubernetes."
    assert marked("the Kubernetes", text) == "The operator of Node.js runs on the *Kubernetes*."
    assert marked("who is the", text) == "*The* operator of Node.js runs on *the* Kubernetes."
    assert marked("the zzzxqw", text) == "*The* operator of Node.js runs on *the* Kubernetes."


@pytest.mark.parametrize("joiner", ["\u00ad", "\u200c", "\u200d"])
def test_a_word_with_soft_hyphens_or_joiners_is_marked(tokenizer: QueryTokenizer, joiner: str) -> None:
    text = f"An ency{joiner}clo{joiner}pedia"
    shown = marked_snippet(tokenizer, text, tokenizer.terms("encyclopedia")).shown("*{}*".format)
    assert shown == f"An *ency{joiner}clo{joiner}pedia*"


def test_words_of_thai_are_marked_inside_a_phrase() -> None:
    vocabulary = ["[UNK]", "กรุงเทพมหานคร", "##เป็น", "##เมืองหลวง", "เมืองหลวง", "##ของประเทศไทย"]
    pieces = Tokenizer(WordPiece({term: i for i, term in enumerate(vocabulary)}, unk_token="[UNK]"))
    pieces.pre_tokenizer = WhitespaceSplit()
    tokenizer = QueryTokenizer(pieces, language=language_of("th"))
    text = "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย เมืองหลวง"
    shown = marked_snippet(tokenizer, text, ["##เมืองหลวง", "เมืองหลวง"]).shown("*{}*".format)
    assert shown == "กรุงเทพมหานครเป็น*เมืองหลวง*ของประเทศไทย *เมืองหลวง*"


@pytest.mark.slow
@pytest.mark.jvm
def test_a_printed_explanation_names_the_words_of_a_pair() -> None:
    terms = (
        TermContribution("##soft", 1, 3, 0.1, "microsoft"),
        TermContribution("pair 349cc", 2, 5, 0.2, "a b"),
    )
    assert str(Explanation("p", 1, 13, terms)) == "p: score 13, rank 1\n##soft: 1 x 3 = 3\na b: 2 x 5 = 10"
    assert TermContribution("pair 3", 1, 1, 0.1).name == "pair 3"


def test_a_query_is_explained_by_its_words(tmp_path, tokenizer: QueryTokenizer) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in default_model_folder().iterdir():
        (model / file.name).symlink_to(file)
    if not (model / "lexical_terms.json").exists():
        tokenizer.lexical.save(model)
    texts = ["OpenSearch runs on Kubernetes clusters.", "The moon goes around the earth."]
    build_index(tmp_path / "ix", texts, options=IndexOptions(model=str(model)))
    query = "OpenSearch kubernetes"
    with Searcher(tmp_path / "ix") as searcher:
        best = searcher.search(query)[0]
        why = explain(searcher, query, best.passage_id)
        assert [word.word for word in why.words] == ["OpenSearch", "kubernetes"]
        assert sum(word.contribution for word in why.words) == why.score == best.score
        [terms] = term_contributions(searcher, query, [(best.passage_id, best.start)])
        assert by_word(terms) == why.words
        assert {term["word"] for term in why.as_dict()["terms"]} == {"OpenSearch", "kubernetes"}
