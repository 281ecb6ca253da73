"""Patterns against Python's own, where the two agree, and what RE2 refuses."""

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.regular_expressions import MAX_PATTERN, compile_pattern
from headrace.errors import ErrorCode, KafkaError

names = st.text("abAB01._-", min_size=1, max_size=8)
atoms = st.sampled_from(
    (
        *"abAB01_-",
        ".",
        r"\.",
        "[ab]",
        "[^a]",
        "[a-z]",
        "[^A-Z0]",
        "[]a]",
        "[a-]",
        r"[\d_]",
        r"\d",
        r"\w",
        r"\D",
        r"\x61",
        "(?:a|bA)",
        "(b|)",
        "(?P<n>A)",
        "(?i:aB)",
        r"\b",
        r"\B",
    )
)
signs = st.sampled_from(("", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*?", "{,", "{x}"))
pieces = st.tuples(atoms, signs).map("".join)
sequences = st.lists(pieces, max_size=5).map("".join)
patterns = st.lists(sequences, min_size=1, max_size=3).map("|".join)


@given(patterns, st.lists(names, min_size=5, max_size=10))
def test_a_pattern_matches_what_pythons_would(pattern: str, found: list[str]) -> None:
    if pattern.count("(?P<n>") > 1 or re.search(r"\{,|\{x|\\[bB][*+?{]", pattern):
        return
    expected = re.compile(pattern, re.ASCII)
    matches = compile_pattern(pattern)
    for name in found:
        assert matches(name) == bool(expected.fullmatch(name)), (pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name", "matched"),
    [
        ("orders-.*", "orders-eu", True),
        ("orders", "orders-eu", False),
        ("(?i)ORDERS", "orders", True),
        ("a(?i)b|C", "c", True),
        ("(a(?i)b)C", "aBc", False),
        ("[[:alpha:]]+", "abc", True),
        ("[^[:^digit:]]", "7", True),
        (r"\Qa.b\E.", "a.bc", True),
        (r"\Qa.b\E.", "axbc", False),
        (r"\pL\p{Lu}\PL\p{^Lu}", "aB1c", True),
        (r"^a$", "a", True),
        (r"\Aa\z", "a", True),
        ("(?s-m:a).", "ab", True),
        ("{a}", "{a}", True),
        (r"a\-b\_?", "a-b", True),
        ("", "a", False),
    ],
)
def test_a_pattern_means_what_it_means_to_re2(pattern: str, name: str, matched: bool) -> None:
    assert compile_pattern(pattern)(name) is matched


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a", "a)", "[a", "[b-a]", "*a", "a**", "a{2}{3}", "{2}", "a{1001}", "a{2,1}", "a\\"),
        *("(?=a)", "(?!a)", "(?<=a)", "(?>a)", r"(a)\1", r"\k<n>", r"\y", "[[:nope:]]", r"\p{No}"),
        *(
            "(?P<n>a)(?P<n>b)",
            "(?P<>a)",
            "(?",
            "(?i",
            r"\x{110000}",
            r"\xg",
            "((a{100}){100}){100}",
        ),
        *("(" * 200 + ")" * 200, "a" * (MAX_PATTERN + 1)),
    ],
)
def test_what_re2_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        compile_pattern(pattern)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@given(st.text("ab(){}[]|*+?.\\^$-,12idwx<>:P=!", max_size=12))
def test_any_text_is_a_pattern_or_is_refused(pattern: str) -> None:
    with suppress(KafkaError):
        compile_pattern(pattern)("ab-1")


def test_a_pattern_made_to_backtrack_takes_no_longer_than_another() -> None:
    began = time.process_time()
    assert not compile_pattern("(a|a)*(a*)*(a?){50}b")("a" * 249)
    assert not compile_pattern("(a|b)*a(a|b){200}c")("ab" * 124)
    assert time.process_time() - began < 2
