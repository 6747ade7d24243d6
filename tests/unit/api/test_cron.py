"""Schedules of CronJobs."""

from __future__ import annotations

import pytest

from podyard.api import cron


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("@often", "unrecognized descriptor: @often"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
    ],
)
def test_schedules_that_are_none(text: str, why: str) -> None:
    with pytest.raises(cron.ScheduleError) as error:
        cron.parse(text)
    assert str(error.value) == why


def test_schedules() -> None:
    found_ = cron.parse("*/20,5 1-3 ? jan,MAR mon-wed")
    assert [sorted(part) for part in found_.fields] == [
        [0, 5, 20, 40],
        [1, 2, 3],
        list(range(1, 32)),
        [1, 3],
        [1, 2, 3],
    ]
    assert found_.starred == (True, False)
    assert cron.parse("@hourly") == cron.parse("0 * * * *")
    assert cron.parse("@every 1h30m").every_s == 5400
    assert sorted(cron.parse("50/5 * * * *").fields[0]) == [50, 55]
