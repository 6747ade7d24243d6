"""Container logs: the CRI format, and every way of choosing from it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet.logs import LogOptions, parse_record, read_log, seconds_of, tail_start
from podyard.base import clock
from podyard.base.run import Background


def line(number: int, text: str = "", tag: str = "F", stream: str = "stdout") -> bytes:
    return f"2026-01-02T03:04:{number:02d}.5Z {stream} {tag} {text or f'line {number}'}\n".encode()


def stopped() -> bool:
    return False


async def text_of(path: Path, running=stopped, **options) -> str:
    return b"".join([data async for data in read_log(path, LogOptions(**options), running)]).decode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(line(number) for number in range(10)))
    return path


async def test_the_text_comes_as_the_container_wrote_it(log):
    assert await text_of(log) == "".join(f"line {number}\n" for number in range(10))


async def test_no_file_is_no_text(tmp_path):
    assert await text_of(tmp_path / "none") == ""
    assert await text_of(tmp_path / "none", tail_lines=5) == ""


async def test_parts_of_a_long_line_are_one_line_with_one_time(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(line(1, "begin ", "P") + line(2, "middle ", "P") + line(3, "end") + line(4, "next"))
    assert await text_of(path) == "begin middle end\nnext\n"
    stamped = await text_of(path, timestamps=True)
    assert stamped == "2026-01-02T03:04:01.5Z begin middle end\n2026-01-02T03:04:04.5Z next\n"
    assert await text_of(path, tail_lines=2) == "begin middle end\nnext\n"
    assert await text_of(path, tail_lines=1) == "next\n"


async def test_both_streams_and_empty_lines(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(line(1, "out") + line(2, "err", stream="stderr") + b"2026-01-02T03:04:05Z stdout F \n")
    assert await text_of(path) == "out\nerr\n\n"


async def test_torn_writes_are_left_out(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(line(1) + b"\x00\x00\x00\n" + line(2) + b"2026-01-02T03:04:09Z stdo")
    assert await text_of(path) == "line 1\nline 2\n"


@pytest.mark.parametrize("count", [0, 1, 3, 10, 99])
async def test_the_tail(log, count):
    wanted = range(max(10 - count, 0), 10)
    assert await text_of(log, tail_lines=count) == "".join(f"line {number}\n" for number in wanted)


@given(texts=st.lists(st.text("ab ", min_size=0, max_size=40), max_size=60), count=st.integers(0, 70))
def test_the_tail_is_found_over_block_boundaries(tmp_path_factory, texts, count):
    path = tmp_path_factory.mktemp("log") / "0.log"
    lines = [f"2026-01-02T03:04:05Z stdout F {text}\n".encode() for text in texts]
    path.write_bytes(b"".join(lines))
    kept = lines[len(lines) - count :] if count < len(lines) else lines
    assert path.read_bytes()[tail_start(path, count) :] == b"".join(kept if count else [])


async def test_the_tail_of_a_file_of_many_blocks(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(line(number % 60, f"{number} " + "x" * 300) for number in range(2000)))
    text = await text_of(path, tail_lines=700)
    assert [entry.split()[0] for entry in text.splitlines()] == [str(number) for number in range(1300, 2000)]


async def test_since(log):
    since_s = seconds_of(b"2026-01-02T03:04:07.5Z")
    assert await text_of(log, since_s=since_s) == "line 7\nline 8\nline 9\n"
    assert await text_of(log, since_s=since_s, tail_lines=2) == "line 8\nline 9\n"


async def test_the_limit_counts_what_is_sent(log):
    assert await text_of(log, limit_bytes=10) == "line 0\nlin"
    assert await text_of(log, limit_bytes=5, timestamps=True) == "2026-"


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        (b"1970-01-01T00:00:10Z", 10.0),
        (b"1970-01-01T00:00:10.25Z", 10.25),
        (b"1970-01-01T00:00:10.123456789Z", 10.123456),
        (b"1970-01-01T01:00:10.5+01:00", 10.5),
        (b"yesterday", 0.0),
    ],
)
def test_times_of_records(stamp, seconds):
    assert seconds_of(stamp) == pytest.approx(seconds)


def test_what_is_no_record():
    assert parse_record(b"2026-01-02T03:04:05Z stdout") is None
    assert parse_record(b"2026-01-02T03:04:05Z other F x") is None


class Reader:
    """Follows a log in the background."""

    def __init__(self, path: Path) -> None:
        self.text = ""
        self.runs = True
        self._path = path

    async def run(self) -> None:
        async for data in read_log(self._path, LogOptions(follow=True), lambda: self.runs):
            self.text += data.decode()

    async def until(self, text: str) -> None:
        async with clock.timeout(10):
            while self.text != text:
                await clock.sleep(0.1)


@pytest.mark.virtual
async def test_following_waits_for_more_and_ends_with_the_container(tmp_path):
    path = tmp_path / "0.log"
    reader = Reader(path)
    async with Background() as background:
        task = background.start(reader.run())
        await clock.sleep(1)
        with path.open("ab", buffering=0) as file:
            file.write(line(1))
            await reader.until("line 1\n")
            file.write(line(2)[:20])
            await clock.sleep(1)
            file.write(line(2)[20:])
            await reader.until("line 1\nline 2\n")
            file.write(line(3))
            reader.runs = False
        await asyncio.wait({task})
    assert reader.text == "line 1\nline 2\nline 3\n"


@pytest.mark.virtual
@pytest.mark.parametrize("later", [1, 30])
async def test_following_goes_on_over_a_rotation_and_loses_nothing(tmp_path, later):
    """Also when the new file has outgrown the old one before it is looked at."""
    path = tmp_path / "0.log"
    path.write_bytes(line(1) + line(2))
    reader = Reader(path)
    async with Background() as background:
        background.start(reader.run())
        await reader.until("line 1\nline 2\n")
        with path.open("ab") as file:
            file.write(line(3))
        path.rename(tmp_path / "0.log.20260102")
        path.write_bytes(b"".join(line(number) for number in range(4, 4 + later)))
        await reader.until("".join(f"line {number}\n" for number in range(1, 4 + later)))
