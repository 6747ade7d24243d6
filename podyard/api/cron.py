"""Schedules of CronJobs: five fields, or a word such as `@hourly`, or `@every 1h30m`.

Counterpart: github.com/robfig/cron/v3 ParseStandard, with its texts.
"""

from __future__ import annotations

from dataclasses import dataclass

from podyard.api import times
from podyard.api.quoting import go_quote

_MONTHS = {
    name: number
    for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), start=1)  # noqa: SIM905
}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "


@dataclass(frozen=True, slots=True)
class _Bounds:
    low: int
    high: int
    names: dict[str, int]


_FIELDS = (
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, _MONTHS),
    _Bounds(0, 6, _DAYS),
)


class ScheduleError(ValueError):
    """A schedule that can't be read; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When to run: the numbers that each field allows, or a period.

    Attributes:
        fields: minutes, hours, days of the month, months, days of the week (Sunday is 0).
        starred: whether days of the month and of the week are `*`: else either may match.
        every_s: the period of `@every`; then there are no fields.
    """

    fields: tuple[frozenset[int], ...] = ()
    starred: tuple[bool, bool] = (False, False)
    every_s: int = 0


def parse(text: str) -> Schedule:
    """Reads a schedule without a time zone.

    Raises:
        ScheduleError: it is none.
    """
    if not text:
        raise ScheduleError("empty spec string")
    if text.startswith(_EVERY):
        try:
            nanos = times.parse_duration(text.removeprefix(_EVERY))
        except ValueError as error:
            raise ScheduleError(f"failed to parse duration {text}: {error}") from None
        # Whole seconds, one at least.
        return Schedule(every_s=max(nanos // 1_000_000_000, 1))
    if text.startswith("@"):
        if text not in _WORDS:
            raise ScheduleError(f"unrecognized descriptor: {text}")
        text = _WORDS[text]
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ScheduleError(
            f"expected exactly {len(_FIELDS)} fields, found {len(parts)}: [{' '.join(parts)}]"
        )
    fields = tuple(_field(part, bounds) for part, bounds in zip(parts, _FIELDS, strict=True))
    return Schedule(fields, (_is_star(parts[2]), _is_star(parts[4])))


def _is_star(part: str) -> bool:
    return any(item.partition("/")[0] in ("*", "?") for item in part.split(","))


def _field(part: str, bounds: _Bounds) -> frozenset[int]:
    found: set[int] = set()
    for item in part.split(","):
        if item:
            found.update(_range(item, bounds))
    return frozenset(found)


def _range(item: str, bounds: _Bounds) -> range:
    span, *steps = item.split("/")
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {item}")
    ends = span.split("-")
    if len(ends) > 2:
        raise ScheduleError(f"too many hyphens: {item}")
    if ends[0] in ("*", "?"):
        low, high = bounds.low, bounds.high
    else:
        low = _number(ends[0], bounds.names)
        high = _number(ends[1], bounds.names) if len(ends) == 2 else low
        if steps and len(ends) == 1:
            high = bounds.high  # "5/15" means from 5 on
    step = _number(steps[0], {}) if steps else 1
    if low < bounds.low:
        raise ScheduleError(f"beginning of range ({low}) below minimum ({bounds.low}): {item}")
    if high > bounds.high:
        raise ScheduleError(f"end of range ({high}) above maximum ({bounds.high}): {item}")
    if low > high:
        raise ScheduleError(f"beginning of range ({low}) beyond end of range ({high}): {item}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {item}")
    return range(low, high + 1, step)


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if not (unsigned.isascii() and unsigned.isdigit()):
        why = f"strconv.Atoi: parsing {go_quote(text)}: invalid syntax"
        raise ScheduleError(f"failed to parse int from {text}: {why}")
    value = int(text)
    if value < 0:
        raise ScheduleError(f"negative number ({value}) not allowed: {text}")
    return value
