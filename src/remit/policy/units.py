"""Sizes and times as people write them. The schema has checked the form; these only compute, in whole numbers, so that
`0.1GiB` is the same number everywhere."""

from __future__ import annotations

import re

_SIZES = {
    "B": 1,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
}
_TIMES = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_FORM = re.compile(r"([0-9]+)(?:\.([0-9]+))? ?([A-Za-z]+)")


def size(value: float | str) -> int:
    """Bytes, from `512MiB` or a whole number. Raises ValueError on another form."""
    return _amount(value, _SIZES) if isinstance(value, str) else int(value)


def duration(value: str) -> int:
    """Milliseconds, from `60s`. Raises ValueError on another form."""
    return _amount(value, _TIMES)


def _amount(value: str, units: dict[str, int]) -> int:
    match = _FORM.fullmatch(value)
    if match is None or match[3] not in units:
        raise ValueError(f"{value!r} is no number with a unit ({', '.join(units)})")
    whole, fraction, unit = match[1], match[2] or "", units[match[3]]
    return int(whole) * unit + int(fraction or "0") * unit // int("1" + "0" * len(fraction))


def show_size(value: int) -> str:
    """`512 MiB`, from bytes: the largest unit that leaves a whole number, or one decimal."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        step = _SIZES[unit]
        if value >= step:
            return f"{value // step} {unit}" if value % step == 0 else f"{value / step:.1f} {unit}"
    return f"{value} B"


def show_duration(value: int) -> str:
    """`5 m`, from milliseconds."""
    for unit, step in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if value >= step:
            return f"{value // step} {unit}" if value % step == 0 else f"{value / step:.1f} {unit}"
    return f"{value} ms"
