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


_OTHER_SIZES = {"b": "B", "byte": "B", "bytes": "B", "k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB"}
_OTHER_SIZES |= {unit.lower(): unit for unit in _SIZES} | {
    f"{unit[0].lower()}i": unit for unit in ("KiB", "MiB", "GiB")
}
_OTHER_TIMES = {"sec": "s", "secs": "s", "second": "s", "seconds": "s", "min": "m", "mins": "m", "minute": "m"}
_OTHER_TIMES |= {"minutes": "m", "hr": "h", "hrs": "h", "hour": "h", "hours": "h", "msec": "ms", "h": "h", "m": "m"}


def meant_size(value: str) -> str | None:
    """What was meant by `512M` or `1gb`, in units that are read; None if it can't be told."""
    return _meant(value, _OTHER_SIZES)


def meant_duration(value: str) -> str | None:
    """What was meant by `5min` or `2 hours`, in units that are read; None if it can't be told."""
    return _meant(value, _OTHER_TIMES)


def _meant(value: str, units: dict[str, str]) -> str | None:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]+)", value.strip())
    unit = units.get(match[2].lower()) if match else None
    return f"{match[1]}{unit}" if match and unit else None


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
