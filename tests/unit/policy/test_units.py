import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy import units


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1KiB", 1024),
        ("1KB", 1000),
        ("1.5GiB", 1610612736),
        ("0.1GiB", 107374182),
        ("512 MiB", 536870912),
        (7, 7),
        (7.0, 7),
        ("3B", 3),
        ("2TB", 2 * 10**12),
    ],
)
def test_sizes(text, value):
    assert units.size(text) == value


@pytest.mark.parametrize(("text", "value"), [("500ms", 500), ("60s", 60_000), ("1.5h", 5_400_000), ("4.35s", 4350)])
def test_times(text, value):
    assert units.duration(text) == value


@pytest.mark.parametrize("text", ["", "5", "m", "5 minutes", "-5s", "1e3s", "5M", "٣s"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="no number with a unit"):
        units.duration(text)


@given(st.integers(0, 10**15))
def test_what_is_shown_is_read_again(value):
    assert abs(units.size(units.show_size(value)) - value) <= value / 10
    assert units.size(f"{value}B") == value


@pytest.mark.parametrize(
    ("said", "meant"),
    [("512M", "512MiB"), ("1gb", "1GB"), ("2 Gi", "2GiB"), ("10k", "10KiB"), ("5 bytes", "5B"), ("5 parsecs", None)],
)
def test_a_size_in_other_units_is_understood_enough_to_correct_it(said, meant):
    assert units.meant_size(said) == meant
    assert meant is None or units.size(meant) > 0


@pytest.mark.parametrize(
    ("said", "meant"), [("5min", "5m"), ("2 hours", "2h"), ("30sec", "30s"), ("10msec", "10ms"), ("1 fortnight", None)]
)
def test_a_time_in_other_units_is_understood_enough_to_correct_it(said, meant):
    assert units.meant_duration(said) == meant
    assert meant is None or units.duration(meant) > 0
