"""Health and metrics endpoints of a daemon: /healthz, /livez, /readyz, /metrics.

Checks are functions that say what is wrong, or None. `?verbose` lists each of them in the form
that upstream's components answer.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from podyard.base import metrics

Check = Callable[[], str | None]


class HealthServer:
    """Serves on `host:port` between `start` and `stop`.

    Args:
        port: 0 takes a free one (`self.port` tells).
        live: checks for /healthz and /livez; a failing one means: restart me.
        ready: further checks for /readyz; a failing one means: send me no work.
        tls: None serves plain HTTP.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        live: Mapping[str, Check] | None = None,
        ready: Mapping[str, Check] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.host, self.port = host, port
        self._tls = tls
        live_checks = {"ping": lambda: None, **(live or {})}
        ready_checks = {**live_checks, **(ready or {})}
        application = web.Application()
        application.router.add_get("/metrics", _metrics)
        for path, checks in (("/healthz", live_checks), ("/livez", live_checks), ("/readyz", ready_checks)):
            application.router.add_get(path, _handler(path.strip("/"), checks))
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)

    async def start(self) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port, ssl_context=self._tls, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(body=metrics.exposition(), headers={"Content-Type": metrics.CONTENT_TYPE})


def _handler(
    name: str, checks: Mapping[str, Check]
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.Response:
        code, text = report(name, checks, verbose="verbose" in request.query)
        return web.Response(text=text, status=code)

    return answer


def report(name: str, checks: Mapping[str, Check], *, verbose: bool = False) -> tuple[int, str]:
    """HTTP code and body of a health endpoint, as upstream words them."""
    lines, failed = [], False
    for check_name, check in checks.items():
        problem = check()
        failed = failed or problem is not None
        lines.append(f"[+]{check_name} ok" if problem is None else f"[-]{check_name} failed: {problem}")
    if failed:
        return 500, "\n".join([*lines, f"{name} check failed"]) + "\n"
    return 200, "\n".join([*lines, f"{name} check passed"]) + "\n" if verbose else "ok"
