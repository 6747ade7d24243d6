"""Values in error texts, as Go prints them."""

from __future__ import annotations

import math
from typing import Any

import orjson

# A map or list of Go that is nil and not just empty.
NIL = object()


def shown(value: Any) -> str:
    """A bad value as upstream prints it: numbers and bools bare, strings quoted, all else JSON."""
    if value is None:
        return '"null"'
    if value is NIL:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)
    if isinstance(value, str):
        return go_quote(value)
    return orjson.dumps(value, default=list).decode()


_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def go_quote(text: str) -> str:
    """A string in double quotes with the escapes of Go's %q."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_quoted(char) for char in text) + '"'


def _quoted(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
