"""Finding answers in texts (as DPR does) and comparing answers (as SQuAD does)."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain

import regex

from sparta.base.errors import InputError
from sparta.base.normal_form import normal_form
from sparta.data.languages import Language, language_of

_FLAGS = regex.IGNORECASE | regex.UNICODE | regex.MULTILINE
LABELS = frozenset(
    ("yes", "no", "supports", "refutes", "supported", "not_supported", "not supported", "not enough info")
)
"""Answers of questions with fixed choices.

A text contains these words by chance, so a match is no evidence.
"""
LONGEST_MATCHING = 10.0
"""The time limit for matching a regular expression in one text, in seconds."""


def without_labels(answers: Iterable[str]) -> list[str]:
    """Return the answers that a text can hold: all but the `LABELS`, in any case."""
    return [answer for answer in answers if answer.strip().lower() not in LABELS]


def _tokens_of(language: Language) -> regex.Pattern[str]:
    return _token(language.single_characters + language.unspaced)


@lru_cache
def _token(single_characters: str) -> regex.Pattern[str]:
    return regex.compile(
        rf"(?V1)[{single_characters}]\p{{M}}*|[\p{{L}}\p{{N}}\p{{M}}--[{single_characters}]]+|[^\p{{Z}}\p{{C}}]"
    )


def tokens(text: str, language: str = "en") -> list[str]:
    """Split a text into lower-case tokens, after decomposing characters (NFD).

    A token is a run of letters, digits and marks, or a single other visible character. Characters that are
    words by themselves, as in Chinese, are single tokens. Some languages fold scripts first, such as
    traditional Chinese into simplified Chinese.
    """
    rules = language_of(language)
    folded = rules.fold(text)
    return [token.lower() for token in _tokens_of(rules).findall(normal_form("NFD", folded))]


def _tokens_in_place(text: str, language: Language) -> tuple[list[str], list[tuple[int, int]]]:
    """Return a text's tokens, and the character span `(start, end)` of each token in the original text."""
    decomposed, origins = _decomposed(language.fold(text))
    matches = list(_tokens_of(language).finditer(decomposed))
    spans = [(origins[match.start()][0], origins[match.end() - 1][1]) for match in matches]
    return [match[0].lower() for match in matches], spans


def _decomposed(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text in NFD, and for each NFD character the span of its source characters in the text.

    A base character and its marks are decomposed together, because NFD reorders the marks.
    """
    if text.isascii():
        return text, [(position, position + 1) for position in range(len(text))]
    pieces, origins, start = [], [], 0
    for end in range(1, len(text) + 1):
        if end < len(text) and unicodedata.combining(text[end]):
            continue
        piece = normal_form("NFD", text[start:end])
        pieces.append(piece)
        origins += [(start, end)] * len(piece)
        start = end
    return "".join(pieces), origins


def answer_spans(
    text: str, answers: Sequence[str], *, match: str = "string", language: str = "en"
) -> list[tuple[int, int]]:
    """Return the distinct spans `(start, end)` of all answers in a text, in characters and in order.

    An answer matches consecutive tokens of the text (DPR). An answer without any match is searched again
    without articles and punctuation, as the language's F1 measure ignores them. For `match`, see
    `has_answer`.
    """
    if match == "regex":
        decomposed, origins = _decomposed(text)
        matches = (m for answer in answers for m in _matches(answer, decomposed) if m[0].strip())
        return sorted({(origins[m.start()][0], origins[m.end() - 1][1]) for m in matches})
    rules = language_of(language)
    text_tokens, token_spans = _tokens_in_place(text, rules)
    content_positions = [i for i, word in enumerate(text_tokens) if _counts(word, rules)]
    spans: set[tuple[int, int]] = set()
    for answer in answers:
        answer_tokens = tokens(answer, language)
        token_ranges = _runs(text_tokens, answer_tokens)
        if not token_ranges:
            answer_tokens = [word for word in answer_tokens if _counts(word, rules)]
            token_ranges = [
                (content_positions[a], content_positions[b])
                for a, b in _runs([text_tokens[i] for i in content_positions], answer_tokens)
            ]
        spans.update((token_spans[a][0], token_spans[b][1]) for a, b in token_ranges)
    return sorted(spans)


def _runs(words: list[str], pattern: list[str]) -> list[tuple[int, int]]:
    """Return the first and last position of each occurrence of `pattern` in `words`.

    Takes linear time (Knuth, Morris and Pratt, 1977).
    """
    length = len(pattern)
    if not length or pattern[0] not in words:
        return []
    restarts, matched = [0] * length, 0  # after a mismatch at a position, this many first words still match
    for i in range(1, length):
        while matched and pattern[i] != pattern[matched]:
            matched = restarts[matched - 1]
        matched += pattern[i] == pattern[matched]
        restarts[i] = matched
    ends, matched = [], 0
    for i, word in enumerate(words):
        while matched and (matched == length or word != pattern[matched]):
            matched = restarts[matched - 1]
        matched += word == pattern[matched]
        if matched == length:
            ends.append(i)
    return [(end - length + 1, end) for end in ends]


def _counts(word: str, language: Language) -> bool:
    """Return whether F1 counts a word: articles and punctuation do not count."""
    return word not in language.articles and not all(map(language.punctuation, word))


def normalized(answer: str, language: str = "en") -> str:
    """Normalize an answer as SQuAD does: lower case, without punctuation, articles and extra space.

    Characters are composed (NFC), so that different encodings of an accent agree, and scripts are folded.
    Chinese answers keep their spaces (CMRC 2018).
    """
    rules = language_of(language)
    composed = normal_form("NFC", rules.fold(answer)).lower()
    bare = "".join(c for c in composed.strip() if not rules.punctuation(c))
    if rules.in_order:
        return bare  # CMRC's script compares the space in an answer too
    return " ".join((_article(rules.articles).sub(" ", bare) if rules.articles else bare).split())


@lru_cache
def _article(articles: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(sorted(articles))})\b")


def exact_match(answer: str, expected: Sequence[str], *, match: str = "string", language: str = "en") -> bool:
    """Return whether an answer equals an expected answer after normalization (SQuAD's EM).

    With `match="regex"`, expected answers are patterns, and the answer must begin with a match. DrQA's
    evaluation does the same (Chen et al., 2017), since many patterns of CuratedTREC are prefixes of words.
    """
    if match == "regex":
        return any(_searched(pattern, answer.strip(), regex.match) for pattern in expected)
    normalized_answer = normalized(answer, language)
    return any(normalized_answer == normalized(expected_answer, language) for expected_answer in expected)


def token_f1(answer: str, expected: Sequence[str], *, language: str = "en") -> float:
    """Return the best F1 between an answer and any expected answer, over their common words (SQuAD's F1).

    In Chinese, F1 counts the longest common substring of characters and words instead (CMRC 2018).
    """
    overlap = longest_stretch if language_of(language).in_order else _common_words
    answer_parts = _parts(answer, language)
    expected_parts = (_parts(expected_answer, language) for expected_answer in expected)
    return max((_f1(overlap, answer_parts, parts) for parts in expected_parts), default=0.0)


def _parts(answer: str, language: str) -> list[str]:
    """Return the units that F1 counts: an answer's words, or CMRC's segments in languages like Chinese."""
    bare = normalized(answer, language)
    return segments(bare) if language_of(language).in_order else bare.split()


def _f1(
    overlap: Callable[[Sequence[str], Sequence[str]], int], answer: Sequence[str], expected: Sequence[str]
) -> float:
    if not answer or not expected:
        return float(answer == expected)
    return 2 * overlap(answer, expected) / (len(answer) + len(expected))


def _common_words(first: Sequence[str], second: Sequence[str]) -> int:
    return (Counter(first) & Counter(second)).total()


def longest_stretch(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common stretch of two word sequences.

    Takes linear time: a suffix automaton of `first` reads `second` (Blumer et al., 1985).
    """
    transitions, links, lengths, end_state = [dict[str, int]()], [-1], [0], 0
    for word in first:
        state, new_state = end_state, len(transitions)
        transitions.append({})
        lengths.append(lengths[end_state] + 1)
        links.append(0)
        end_state = new_state
        while state >= 0 and word not in transitions[state]:
            transitions[state][word] = new_state
            state = links[state]
        if state < 0:
            continue
        target = transitions[state][word]
        # If longer stretches share the target state, a copy of the state takes the shorter ones.
        if lengths[target] > lengths[state] + 1:
            copy = len(transitions)
            transitions.append(dict(transitions[target]))
            lengths.append(lengths[state] + 1)
            links.append(links[target])
            links[target] = copy
            while state >= 0 and transitions[state].get(word) == target:
                transitions[state][word] = copy
                state = links[state]
            target = copy
        links[new_state] = target
    return _longest_accepted(transitions, links, lengths, second)


def _longest_accepted(
    transitions: list[dict[str, int]], links: list[int], lengths: list[int], words: Sequence[str]
) -> int:
    """Return the length of the longest stretch of `words` that the suffix automaton accepts."""
    state = matched = longest = 0
    for word in words:
        while state and word not in transitions[state]:
            state = links[state]
            matched = lengths[state]
        if word in transitions[state]:
            state, matched = transitions[state][word], matched + 1
        longest = max(longest, matched)
    return longest


def has_answer(text: str, answers: Sequence[str], *, match: str = "string", language: str = "en") -> bool:
    """Return whether a text contains one of the answers.

    :param match: `string`: the tokens of an answer must be consecutive in the text; `regex`: an answer is a
        regular expression (CuratedTREC), which ignores case; a broken expression matches nothing.
    """
    if match == "regex":
        return any(_searched(answer, text) for answer in answers)
    return holds(token_line(text, language), answers, language)


def holds(line: str, answers: Iterable[str], language: str = "en") -> bool:
    """Return whether a text contains one of the answers; `line` is the text's `token_line`."""
    lines = (_answer_line(answer, language) for answer in answers)
    return any(answer.strip() and answer in line for answer in lines)


def token_line(text: str, language: str = "en") -> str:
    """Join a text's tokens with spaces, so that many answers can be searched in the text quickly."""
    return f" {' '.join(tokens(text, language))} "


@lru_cache(maxsize=1 << 14)
def _answer_line(answer: str, language: str) -> str:
    """Return an answer's `token_line` (cached, since one answer is searched in many texts)."""
    return token_line(answer, language)


def _matches(pattern: str, decomposed: str) -> list[regex.Match[str]]:
    with _time_limit(pattern):
        decomposed_pattern = normal_form("NFD", pattern)
        return list(regex.finditer(decomposed_pattern, decomposed, _FLAGS, timeout=LONGEST_MATCHING))
    return []


def _searched(pattern: str, text: str, search: Callable[..., object] = regex.search) -> bool:
    decomposed = normal_form("NFD", pattern), normal_form("NFD", text)
    with _time_limit(pattern):
        return search(*decomposed, _FLAGS, timeout=LONGEST_MATCHING) is not None
    return False


@contextmanager
def _time_limit(pattern: str) -> Iterator[None]:
    """Ignore a broken regular expression, and refuse one that exceeds the time limit."""
    try:
        yield
    except regex.error:
        return
    except TimeoutError:
        raise InputError(
            f"matching a regular expression took longer than {LONGEST_MATCHING:g} s: {pattern!r}",
            remedy="remove repetitions inside repetitions from the expression, or remove the question",
        ) from None


_HAN = re.compile("([\u4e00-\u9fa5])")
_QUOTE = re.compile(r"\"|''")
_OPENING_QUOTES = re.compile(r"(?:^\"|(?<=[ (\[{<«“‘„])(?:\"|''))(?:\"|'')*")
_FULL_STOP = re.compile(r"(?<=[^.])\.(?=[\])}>\"'»”’\s]*$)")
_SINGLE_QUOTE = re.compile(r"(?<!\w)'(?!(?:re|ve|ll|[mtsdn])\b)(?=\w)|(?<=[^'\s])'(?!\S)")
_SHORTENED = re.compile(r"(?<=[^'\s])(?:'(?:ll|re|ve|[msd])|n't)(?!\S)")
_CONTRACTED = re.compile(
    r"\b(can(?=not\b)|d(?='ye\b)|gim(?=me\b)|gon(?=na\b)|got(?=ta\b)|lem(?=me\b)|wan(?=na\s))"
    r"(not|'ye|me|na|ta)"
)
_MARK = re.compile(r"\.{2,}|``|''|[;@#$%&?!*()\[\]{}<>«»“”‘’„\u2012-\u2015]|[,:](?!\d)")


def segments(text: str) -> list[str]:
    """Split an answer into Chinese characters and the words and marks between them, as CMRC 2018 does.

    Words follow NLTK's tokenizer, which CMRC's script uses: `364.6` and `6,300` are one word each. The text
    must be in lower case, without the punctuation that the script ignores.
    """
    pieces = _HAN.split(text)
    segments_by_piece = (piece if index % 2 else _words(piece) for index, piece in enumerate(pieces))
    return list(chain.from_iterable(segments_by_piece))


def _words(text: str) -> list[str]:
    """Split a text without Chinese characters into words. Punctuation marks are single words.

    Opening and closing quotation marks become different words.
    """
    text = _OPENING_QUOTES.sub(lambda quotes: " `` " * len(_QUOTE.findall(quotes[0])), text)
    text = _QUOTE.sub(" '' ", text)
    for pattern in (_FULL_STOP, _MARK, _SINGLE_QUOTE, _SHORTENED):
        text = pattern.sub(r" \g<0> ", text)
    return _CONTRACTED.sub(r" \1 \2 ", text).split()
