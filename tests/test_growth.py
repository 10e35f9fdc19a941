"""No text parser takes more than three times as long for input that is twice as long."""

from __future__ import annotations

import pytest

from tests import growth

CASES = list(growth.rows())


def test_every_case_has_a_name_that_no_other_case_has() -> None:
    assert len({case.name for case in CASES}) == len(CASES) > 200


@pytest.mark.slow
@pytest.mark.parametrize("parser", growth.PARSERS)
def test_a_doubling_costs_at_most_three_times(parser: str) -> None:
    factors = {}
    for case in (each for each in CASES if each.parser == parser):
        # short inputs are noisy: what looks slow is measured with longer ones
        for seconds in (0.002, 0.02, 0.2):
            factors[case.name] = growth.worst_doubling(case, seconds)
            if factors[case.name] <= growth.MOST_OF_A_DOUBLING:
                break
    assert {name: f for name, f in factors.items() if f > growth.MOST_OF_A_DOUBLING} == {}


@pytest.mark.slow
def test_the_measure_knows_a_quadratic_parser() -> None:
    def parse(text: str) -> object:
        return sum(text[i:].count("a") for i in range(len(text)))

    assert growth.worst_doubling(growth.Case("quadratic", parse, "a"), 0.002) > growth.MOST_OF_A_DOUBLING
