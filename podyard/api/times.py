"""Times and durations as text: RFC 3339 as Go reads and writes it, Go durations, ages.

Pure: nothing here knows what time it is. Seconds are counted from the Unix epoch.

Counterpart: meta/v1 Time, MicroTime, Duration; apimachinery `util/duration`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAYOUT = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_PATTERN = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:[.,](\d+))?(?:Z|([+-])(\d{2}):(\d{2}))", re.ASCII
)
_PIECES = (
    (r"\d{4}", "2006"),
    ("-", "-"),
    (r"\d{2}", "01"),
    ("-", "-"),
    (r"\d{2}", "02"),
    ("T", "T"),
    (r"\d{1,2}", "15"),
    (":", ":"),
    (r"\d{2}", "04"),
    (":", ":"),
    (r"\d{2}", "05"),
)
_ZONE = (r"(?:Z|[+-]\d{2}:\d{2})", "Z07:00")
_DURATION_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_DURATION_PART = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 24 * HOUR_S
YEAR_S = 365 * DAY_S


class TimeError(ValueError):
    """Text that is no time or duration; the message is Go's."""


@lru_cache(maxsize=4096)
def text(seconds: int) -> str:
    """`2026-01-02T03:04:05Z`."""
    try:
        return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19] + "Z"
    except OverflowError:
        return "0001-01-01T00:00:00Z"


def micro_text(seconds: int, nanos: int) -> str:
    """`2026-01-02T03:04:05.000006Z`: always six fraction digits."""
    return f"{text(seconds)[:-1]}.{nanos // 1000:06d}Z"


@lru_cache(maxsize=4096)
def parse(value: str) -> tuple[int, int]:
    """Seconds and nanoseconds of an RFC 3339 time.

    Raises:
        TimeError: with the text that Go gives.
    """
    return _parse(value, _LAYOUT)


def parse_micro(value: str) -> tuple[int, int]:
    """As `parse`, but exactly six fraction digits are asked for; nanos are whole microseconds."""
    seconds, nanos = _parse(value, _MICRO_LAYOUT)
    return seconds, nanos


def _parse(value: str, layout: str) -> tuple[int, int]:
    match = _PATTERN.fullmatch(value)
    if match is None or (layout is _MICRO_LAYOUT and len(match[7] or "") != 6):
        raise TimeError(_why(value, layout))
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    try:
        moment = datetime(year or 1, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise TimeError(_out_of_range(value, month, hour, minute, second)) from None
    offset_s = (int(match[9]) * HOUR_S + int(match[10]) * MINUTE_S) if match[8] else 0
    seconds = round((moment - _EPOCH).total_seconds()) - (-offset_s if match[8] == "-" else offset_s)
    nanos = int(((match[7] or "") + "000000000")[:9])
    return seconds, nanos


def _why(value: str, layout: str) -> str:
    """Go's message: the first piece of the layout that the rest of the text does not match."""
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    pieces = [*_PIECES]
    if layout is _MICRO_LAYOUT:
        pieces.append((r"\.\d{6}(?!\d)", ".000000"))
    pieces.append(_ZONE)
    rest = value
    for pattern, name in pieces:
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            left = rest.replace("\\", "\\\\").replace('"', '\\"')
            return f'parsing time "{quoted}" as "{layout}": cannot parse "{left}" as "{name}"'
        rest = rest[match.end() :]
        if name == "05" and layout is _LAYOUT:
            rest = re.sub(r"^[.,]\d+", "", rest)
    return f'parsing time "{quoted}": extra text: "{rest}"'


def _out_of_range(value: str, month: int, hour: int, minute: int, second: int) -> str:
    which = "day"
    if not 1 <= month <= 12:
        which = "month"
    elif hour > 23:
        which = "hour"
    elif minute > 59:
        which = "minute"
    elif second > 59:
        which = "second"
    return f'parsing time "{value}": {which} out of range'


def duration_text(nanos: int) -> str:
    """A Go duration: `1h2m3.5s`, `300ms`, `0s`."""
    if nanos == 0:
        return "0s"
    sign, left = ("-", -nanos) if nanos < 0 else ("", nanos)
    if left < 10**9:
        for unit, size in (("ms", 10**6), ("µs", 10**3)):
            if left >= size:
                return f"{sign}{_decimal(left, size)}{unit}"
        return f"{sign}{left}ns"
    hours, left = divmod(left, HOUR_S * 10**9)
    minutes, left = divmod(left, MINUTE_S * 10**9)
    shown = f"{_decimal(left, 10**9)}s"
    if hours or minutes:
        shown = f"{minutes}m{shown}"
    return f"{sign}{hours}h{shown}" if hours else f"{sign}{shown}"


def parse_duration(value: str) -> int:
    """Nanoseconds of a Go duration.

    Raises:
        TimeError: with Go's text.
    """
    sign = -1 if value.startswith("-") else 1
    rest = value[1:] if value[:1] in ("-", "+") else value
    if rest == "0":
        return 0
    if not rest:
        raise TimeError(f'time: invalid duration "{value}"')
    total = 0
    while rest:
        match = _DURATION_PART.match(rest)
        if match is None or not (match[1] or match[2]):
            missing = re.fullmatch(r"\d+\.?\d*", rest, re.ASCII)
            what = "missing unit in duration" if missing else "invalid duration"
            raise TimeError(f'time: {what} "{value}"')
        fraction = match[2] or ""
        size = _DURATION_UNITS[match[3]]
        total += int(match[1] or "0") * size
        total += int(fraction or "0") * size // 10 ** len(fraction)
        rest = rest[match.end() :]
    return sign * total


def _decimal(amount: int, size: int) -> str:
    whole, part = divmod(amount, size)
    if not part:
        return str(whole)
    digits = len(str(size)) - 1
    return f"{whole}.{str(part).rjust(digits, '0').rstrip('0')}"


def age_text(age_s: float) -> str:
    """An age for people: `5s`, `3m20s`, `4h`, `12d`.

    Source: apimachinery util/duration HumanDuration.
    """
    seconds = int(age_s)
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 2 * MINUTE_S:
        return f"{seconds}s"
    minutes = seconds // MINUTE_S
    if minutes < 10:
        return _two(minutes, "m", seconds % MINUTE_S, "s")
    if minutes < 3 * 60:
        return f"{minutes}m"
    hours = seconds // HOUR_S
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return _two(hours // 24, "d", hours % 24, "h")
    if hours < 24 * 365 * 2:
        return f"{hours // 24}d"
    if hours < 24 * 365 * 8:
        return _two(hours // 24 // 365, "y", hours // 24 % 365, "d")
    return f"{hours // 24 // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
