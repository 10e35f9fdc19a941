"""What a reader sees of a passage."""

import itertools

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from sparta.base.errors import InputError
from sparta.reader.config import ReaderLayout
from sparta.reader.records import Text
from sparta.reader.span_reader import padded
from sparta.reader.training import targets
from sparta.reader.windows import windows

LAYOUT = ReaderLayout(max_length=24, overlap=5, longest_question=6)


def shown(tokenizer, window):
    return [tokenizer.id_to_token(i) for i in window.ids]


def test_one_window(tiny_tokenizer, words):
    text = f"{words[0]} {words[1]}, {words[2]}"
    [window] = windows(words[3], [Text(text, words[4])], tiny_tokenizer, LAYOUT)
    assert shown(tiny_tokenizer, window) == [
        *("[CLS]", words[3], "[SEP]", words[4], "[SEP]"),
        *(words[0], words[1], ",", words[2], "[SEP]"),
    ]
    assert [text[a:b] for a, b in window.offsets] == [words[0], words[1], ",", words[2]]
    assert window.text_start == 5


def test_a_long_text_is_read_whole(tiny_tokenizer, words):
    many = [words[i % len(words)] for i in range(60)]
    text = " ".join(many)
    made = windows(words[0], [Text(text)], tiny_tokenizer, LAYOUT)
    assert all(len(w.ids) <= LAYOUT.max_length for w in made)
    seen = [offset for w in made for offset in w.offsets]
    assert sorted(set(seen)) == sorted(set(tiny_tokenizer.encode(text, add_special_tokens=False).offsets))
    for before, after in itertools.pairwise(made):
        assert before.offsets[-LAYOUT.overlap :] == after.offsets[: LAYOUT.overlap]
    assert made[-1].offsets[-1][1] == len(text)
    assert len(made) == -(-(60 - LAYOUT.overlap) // (20 - LAYOUT.overlap))  # 24 less [CLS], a word, two [SEP]


def test_the_beginning_of_a_long_question(tiny_tokenizer, words):
    [window] = windows(" ".join(words[:30]), [Text(words[0])], tiny_tokenizer, LAYOUT)
    assert shown(tiny_tokenizer, window)[1:7] == words[:6]
    assert len(window.ids) == 6 + 1 + 3


def test_an_empty_text_has_no_window(tiny_tokenizer, words):
    made = windows(words[0], [Text(""), Text(" "), Text(words[1])], tiny_tokenizer, LAYOUT)
    assert [w.passage for w in made] == [2]


def test_special_tokens_in_a_text_are_text(tiny_tokenizer):
    from sparta.models.folders.tokenizer import load_tokenizer  # noqa: F401 (as a reader's own is opened)

    tiny_tokenizer.encode_special_tokens = True
    try:
        [window] = windows("who", [Text("a [SEP] b")], tiny_tokenizer, LAYOUT)
    finally:
        tiny_tokenizer.encode_special_tokens = False
    assert shown(tiny_tokenizer, window).count("[SEP]") == 2


def test_padding(tiny_tokenizer, words):
    made = windows(words[0], [Text(words[1]), Text(" ".join(words[:4]), words[5])], tiny_tokenizer, LAYOUT)
    ids, mask, segments, readable = padded(made)
    assert ids.shape == (2, 10)
    assert mask.sum(1).tolist() == [5, 10]
    assert segments[1].tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]
    assert readable[0].nonzero().flatten().tolist() == [3]
    assert readable[1].nonzero().flatten().tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize("given", [{"max_length": 20}, {"overlap": 160}])
def test_lengths_that_do_not_go_together(given):
    with pytest.raises(InputError, match="windows need at least 128"):
        ReaderLayout(**given)


def test_a_special_token_in_a_question_moves_no_segment(tiny_tokenizer, words):
    [window] = windows(f"{words[0]} [SEP] {words[1]}", [Text(words[2])], tiny_tokenizer, LAYOUT)
    _, _, segments, readable = padded([window])
    question = window.segments.index(1)
    assert segments[0].tolist() == [0] * question + [1] * (len(window.ids) - question)
    assert question == len(window.ids) - 2
    assert readable[0].tolist() == [False] * question + [True, False]


def test_the_space_before_a_word_is_not_part_of_its_wordpiece():
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    text = "won by  Pelé\nin"
    specials = ["[CLS]", "[SEP]"]
    pieces.train_from_iterator([text] * 2, trainers.BpeTrainer(special_tokens=specials, show_progress=False))
    encoded = pieces.encode(text, add_special_tokens=False)
    assert any(text[a].isspace() and text[a:b].strip() for a, b in encoded.offsets)
    [window] = windows("who", [Text(text)], pieces, LAYOUT)
    words = [window.offsets[i - window.text_start] for i in window.answer_positions()]
    assert [text[a:b] for a, b in words] == text.split(), "white space is no answer"
    assert len(words) < len(window.offsets)
    assert targets(window, [(6, 12)]) == targets(window, [(8, 12)])


def test_accents_that_follow_a_letter_belong_to_its_wordpiece(tiny_tokenizer):
    text = "won by Pele\u0301 in"
    [window] = windows("who", [Text(text)], tiny_tokenizer, LAYOUT)
    [last] = [b for a, b in window.offsets if text[a:b].endswith("e\u0301")]
    assert text[:last].endswith("Pele\u0301")


@pytest.mark.parametrize("title", ["", "a long title of many words that takes a quarter"])
def test_every_wordpiece_is_read_in_the_narrowest_layout(tiny_tokenizer, words, title):
    layout = ReaderLayout(max_length=24, overlap=11, longest_question=12)
    text = " ".join(words[i % len(words)] for i in range(50))
    made = windows(" ".join(words[:12]), [Text(text, title)], tiny_tokenizer, layout)
    seen = {offset for window in made for offset in window.offsets}
    assert seen == set(tiny_tokenizer.encode(text, add_special_tokens=False).offsets)


def test_what_question_and_text_share(tiny_tokenizer, words):
    text = f"{words[1].upper()} {words[2]} {words[4]} {words[1]} {words[3]}"
    asked = f"{words[1]} {words[2]} {words[3]}"
    [window] = windows(asked, [Text(text, words[1])], tiny_tokenizer, LAYOUT, mark_shared=True)
    assert window.segments == [0, 0, 0, 0, 0, 1, 1, 3, 3, 1, 2, 2, 1]
    [plain] = windows(asked, [Text(text, words[1])], tiny_tokenizer, LAYOUT)
    assert plain == window._replace(segments=[0] * 5 + [1] * 8)


def test_what_is_shared_in_each_window_of_a_long_text(tiny_tokenizer, words):
    text = " ".join(words[i % 7] for i in range(40))
    made = windows(words[3], [Text(text)], tiny_tokenizer, LAYOUT, mark_shared=True)
    assert len(made) > 1
    for window in made:
        of_text = window.segments[window.text_start : -1]
        assert [s == 2 for s in of_text] == [text[a:b] == words[3] for a, b in window.offsets]


def test_marks_that_a_tokenizer_drops_belong_to_the_wordpiece_before(tiny_tokenizer):
    """Also those that are drawn beside or below a letter, as a vowel of Hindi or what makes a heart red."""
    for text in ("हिन्दु in", "\u2764\ufe0f in"):
        [window] = windows("who", [Text(text)], tiny_tokenizer, LAYOUT)
        assert next(text[a:b] for a, b in window.offsets) == text.split()[0]


@pytest.mark.parametrize(
    "character",
    ["क\u0940", "1\ufe0f\u20e3", "\U0001f3f4" + "".join(chr(0xE0000 + ord(c)) for c in "gbeng\x7f")],
    ids=["vowel", "keycap", "flag"],
)
def test_a_wordpiece_ends_where_its_character_ends(character):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    [window] = windows("who", [Text(f"{character}a")], tokenizer, LAYOUT)
    end = len(character)
    assert window.offsets == [*((start, end) for start in range(end)), (end, end + 1)]
