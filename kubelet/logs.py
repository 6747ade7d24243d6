"""Container logs in the CRI format: `TIME STREAM TAG TEXT`, one record a line.

A line longer than the runtime's buffer comes in parts (tag P), the last one with tag F. Reading
gives the text as the container wrote it, chosen by upstream's options; following waits for more.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

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
    zone = rest.lstrip("0123456789")
    digits = rest[: len(rest) - len(zone)][:6]
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
    source = _Source(path, offset)
    carry = b""
    fresh_line = True
    try:
        while True:
            more = running()
            block = source.read()
            if block:
                *lines, carry = (carry + block).split(b"\n")
                out: list[bytes] = []
                for line in lines:
                    record = parse_record(line)
                    if record is None or (
                        options.since_s is not None and seconds_of(record.time) < options.since_s
                    ):
                        continue
                    stamp = record.time + b" " if options.timestamps and fresh_line else b""
                    out.append(stamp + record.text)
                    fresh_line = record.whole
                if out:
                    yield b"".join(out)
                continue
            if source.rotated():
                carry = b""
                continue
            if not options.follow or not more:
                return
            await clock.real_sleep(_POLL_S)
    finally:
        source.close()


class _Source:
    """A log file that may be rotated: renamed, and a new one begun under its name."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        self._offset = offset
        self._file: BinaryIO | None = None

    def read(self) -> bytes:
        """The next block; empty when there is none yet."""
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return b""
            self._file.seek(self._offset)
        return self._file.read(_BLOCK_BYTES)

    def rotated(self) -> bool:
        """Whether another file has the name now; what follows is read from its beginning.

        Asked once the present one is read to its end, so nothing of it is lost.
        """
        if self._file is None:
            return False
        try:
            now, mine = self._path.stat(), os.fstat(self._file.fileno())
        except FileNotFoundError:
            return False  # between the rename and the new file
        cut = now.st_size < self._file.tell()
        if (now.st_dev, now.st_ino) == (mine.st_dev, mine.st_ino) and not cut:
            return False
        self.close()
        self._offset = 0
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
