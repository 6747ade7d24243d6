"""A Unix socket on this machine that leads to one inside a container, through the engine's exec."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_CHUNK_BYTES = 64 * 1024
# Runs in the container: standard input and output become one connection.
_SPLICE = """
import os, socket, sys, threading
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
def inwards():
    while data := os.read(0, 65536):
        link.sendall(data)
    link.shutdown(socket.SHUT_WR)
threading.Thread(target=inwards, daemon=True).start()
while data := link.recv(65536):
    while data:
        data = data[os.write(1, data):]
"""


@asynccontextmanager
async def relay(container: str, remote: str, local: Path) -> AsyncIterator[None]:
    """Serves `local`; each connection goes to `remote` in the container."""
    tasks: set[asyncio.Task[None]] = set()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        process = await asyncio.create_subprocess_exec(
            "docker",
            "exec",
            "-i",
            container,
            "python3",
            "-c",
            _SPLICE,
            remote,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, process.stdin))
                group.create_task(_copy(process.stdout, writer))
        except* (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_unix_server(connect, str(local))
    try:
        yield
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.close()
