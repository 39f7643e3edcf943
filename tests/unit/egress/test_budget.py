"""Bytes in all and speed: nothing is lent twice, and what was not used comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remit.egress.budget import DOWN, UP, Budget, Pace
from remit.policy.model import NetworkLimits


def test_what_is_left_is_all_that_can_be_taken():
    budget = Budget(NetworkLimits(up=10))
    assert budget.take(UP, 10)
    assert not budget.take(UP, 1)
    assert budget.take(DOWN, 10**12)
    exhausted = budget.exhausted()
    assert exhausted is not None and exhausted.rule == "network.limits.up" and not exhausted.allowed


def test_without_caps_nothing_counts():
    budget = Budget(NetworkLimits())
    assert (budget.borrow(UP), budget.borrow(DOWN), budget.bounded(), budget.exhausted()) == (None, None, False, None)


@given(st.integers(0, 10**7), st.lists(st.tuples(st.booleans(), st.floats(0, 1)), max_size=30))
def test_never_more_is_lent_and_taken_than_there_is(cap, acts):
    budget = Budget(NetworkLimits(up=cap))
    used, lent = 0, []
    for borrows, part in acts:
        if borrows:
            share = budget.borrow(UP)
            assert share is not None
            lent.append(share)
        elif lent:
            share = lent.pop()
            used += int(share * part)
            budget.give_back(UP, share - int(share * part))
        elif budget.take(UP, int(cap * part)):
            used += int(cap * part)
    assert used + sum(lent) <= cap
    rest = cap - used - sum(lent)
    assert budget.take(UP, rest) and not budget.take(UP, 1)


def test_a_pace_admits_its_rate_and_as_many_at_once():
    pace = Pace(5, 0.0)
    assert [pace.admits(0.0) for _ in range(6)] == [True] * 5 + [False]
    assert pace.admits(0.2) and not pace.admits(0.2)
    assert [pace.admits(100.0) for _ in range(6)].count(True) == 5
    assert all(Pace(None, 0.0).admits(0.0) for _ in range(100))


def test_a_pace_says_how_long_what_came_must_wait():
    pace = Pace(1000, 0.0)
    assert pace.delay(1000, 0.0) == 0
    assert pace.delay(500, 0.0) == 0.5
    assert pace.delay(0, 0.5) == 0
    assert Pace(None, 0.0).delay(10**9, 0.0) == 0
