"""Container logs in the CRI format: `TIME STREAM TAG TEXT`, one record a line.

A line longer than the runtime's buffer comes in parts (tag P), the last one with tag F. Reading
gives the text as the container wrote it, chosen by upstream's options; following waits for more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from podyard.base import clock

_BLOCK_BYTES = 64 * 1024
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What to read.

    Attributes:
        tail_lines: only so many of the last lines; None for all.
        since_s: only what was written at or after this time; None for all.
        limit_bytes: stop after so many bytes; None for no limit.
    """

    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_s: float | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a log."""

    time: bytes
    text: bytes
    whole: bool


def parse_record(line: bytes) -> Record | None:
    """One line of a log file; None for what is no record (a torn write)."""
    parts = line.rstrip(b"\n").split(b" ", 3)
    if len(parts) < 4 or parts[1] not in (b"stdout", b"stderr"):
        return None
    whole = parts[2].split(b":")[0] != b"P"
    return Record(parts[0], parts[3] + (b"\n" if whole else b""), whole)


def seconds_of(stamp: bytes) -> float:
    """The time of a record, seconds since the epoch; 0 when it is not a time."""
    from datetime import datetime

    text = stamp.decode(errors="replace")
    head, _, rest = text.partition(".")
    digits = "".join(char for char in rest if char.isdigit())[:6] if rest else ""
    zone = rest.lstrip("0123456789") if rest else ""
    try:
        return datetime.fromisoformat(
            f"{head}{'.' + digits.ljust(6, '0') if digits else ''}{zone or ''}"
        ).timestamp()
    except ValueError:
        return 0.0


def tail_start(path: Path, lines: int) -> int:
    """Offset in a log file where its last `lines` whole lines begin."""
    if not path.exists():
        return 0
    size = path.stat().st_size
    if lines <= 0:
        return size
    with path.open("rb") as file:
        end, found = size, 0
        carry = b""
        while end > 0:
            begin = max(0, end - _BLOCK_BYTES)
            file.seek(begin)
            block = file.read(end - begin) + carry
            records = block.split(b"\n")
            # The first piece may be the end of a line that began in an earlier block.
            carry = records[0] if begin else b""
            position = begin + len(block)
            for index in range(len(records) - 1, 0 if begin else -1, -1):
                position -= len(records[index]) + (1 if index < len(records) - 1 else 0)
                record = parse_record(records[index])
                if record is not None and record.whole:
                    found += 1
                    if found > lines:
                        return position + len(records[index]) + 1
            end = begin
    return 0


async def read_log(path: Path, options: LogOptions, running: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The text of a log.

    Args:
        path: the present file of the container.
        running: whether more may come; following ends when it says no and all has been read.
    """
    left = options.limit_bytes
    offset = 0
    if options.tail_lines is not None:
        offset = tail_start(path, options.tail_lines)
    async for data in _lines(path, offset, options, running):
        if left is None:
            yield data
            continue
        yield data[:left]
        left -= len(data)
        if left <= 0:
            return


async def _lines(
    path: Path, offset: int, options: LogOptions, running: Callable[[], bool]
) -> AsyncIterator[bytes]:
    carry = b""
    fresh_line = True
    while True:
        more = running()
        block = _read(path, offset)
        if block is None:
            offset, carry = 0, b""  # rotated: a new file begins
        elif block:
            offset += len(block)
            carry += block
            *lines, carry = carry.split(b"\n")
            out: list[bytes] = []
            for line in lines:
                record = parse_record(line)
                if record is None or (
                    options.since_s is not None and seconds_of(record.time) < options.since_s
                ):
                    continue
                out.append(
                    record.time + b" " + record.text if options.timestamps and fresh_line else record.text
                )
                fresh_line = record.whole
            if out:
                yield b"".join(out)
            continue
        if not options.follow or not more:
            return
        await clock.real_sleep(_POLL_S)


def _read(path: Path, offset: int) -> bytes | None:
    """A block from an offset; None when the file is now shorter than that."""
    try:
        size = path.stat().st_size
        if size < offset:
            return None
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(_BLOCK_BYTES)
    except FileNotFoundError:
        return b""
