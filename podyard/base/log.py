"""Logging: key-values with fixed names, one line for each change of state.

Names: component, kind, namespace, name, uid, revision, reconcile_id, request_id, node,
duration_ms, error. Error = a person must act; warning = something unusual was retried; info = a
change of state; debug = each reconcile. Bodies and tokens are never logged.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import structlog

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(component: str, level: str = "info") -> None:
    """Sets up this process's logs on standard error; libraries' records join them."""
    number = _LEVELS[level]
    pretty = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    renderer: Any = (
        structlog.dev.ConsoleRenderer()
        if pretty
        else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], drop_missing=True)
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    for noisy in ("aiohttp.access", "urllib3", "docker", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    structlog.contextvars.bind_contextvars(component=component)


def get_logger(name: str) -> Any:
    """A logger for a module or class; cheap, bound at first use."""
    return structlog.get_logger(name)
