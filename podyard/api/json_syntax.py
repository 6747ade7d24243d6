"""Says what is wrong with broken JSON, in the words of Go's decoder.

Runs only after the fast parser refused a text; tools and tests upstream match on these messages.

Counterpart: Go's encoding/json scanner.
"""

from __future__ import annotations

_SPACE = b" \t\r\n"
_DIGITS = b"0123456789"
_HEX = b"0123456789abcdefABCDEF"
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_MAX_DEPTH = 10_000
END = "unexpected end of JSON input"


class _Fault(Exception):
    """The message about the first thing that is wrong."""


def explain(data: bytes) -> str:
    """Go's error about a text that is no JSON; empty when nothing is wrong by these rules."""
    scanner = _Scanner(data)
    try:
        scanner.document()
    except _Fault as fault:
        return str(fault)
    return ""


class _Scanner:
    """One pass; open brackets are kept on a stack, so depth costs no recursion."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.open: list[int] = []

    def document(self) -> None:
        self._values()
        self._skip()
        if self.at < len(self.data):
            raise self._bad("after top-level value")

    def _values(self) -> None:
        """A value with all that is nested in it."""
        while True:
            if not self._begin_value():
                continue
            # A value has ended: close brackets until one goes on.
            while self.open:
                self._skip()
                in_object = self.open[-1] == ord("{")
                byte = self._peek()
                if byte == ord(","):
                    self.at += 1
                    if in_object:
                        self._key(first=False)
                    break
                if byte != (ord("}") if in_object else ord("]")):
                    raise self._bad("after object key:value pair" if in_object else "after array element")
                self.at += 1
                self.open.pop()
            else:
                return

    def _begin_value(self) -> bool:
        """Reads a scalar, or the opening of a list or object; False when a nested value comes next."""
        self._skip()
        byte = self._peek()
        if byte in b"{[":
            self.at += 1
            if len(self.open) >= _MAX_DEPTH:
                raise _Fault("exceeded max depth")
            self._skip()
            if self._peek() == (ord("}") if byte == ord("{") else ord("]")):
                self.at += 1
                return True
            self.open.append(byte)
            if byte == ord("{"):
                self._key(first=True)
            return False
        if byte == ord('"'):
            self._string()
        elif byte in _LITERALS:
            self._literal(_LITERALS[byte])
        elif byte == ord("-") or byte in _DIGITS:
            self._number()
        else:
            raise self._bad("looking for beginning of value")
        return True

    def _key(self, *, first: bool) -> None:
        self._skip()
        if self._peek() != ord('"'):
            raise self._bad("looking for beginning of object key string")
        self._string()
        self._skip()
        if self._peek() != ord(":"):
            raise self._bad("after object key")
        self.at += 1

    def _string(self) -> None:
        self.at += 1
        while True:
            byte = self._peek()
            if byte == ord('"'):
                self.at += 1
                return
            if byte < 0x20:
                raise self._bad("in string literal")
            self.at += 1
            if byte == ord("\\"):
                self._escape()

    def _escape(self) -> None:
        byte = self._peek()
        if byte == ord("u"):
            self.at += 1
            for _ in range(4):
                if self._peek() not in _HEX:
                    raise self._bad("in \\u hexadecimal character escape")
                self.at += 1
        elif byte in b'bfnrt\\/"':
            self.at += 1
        else:
            raise self._bad("in string escape code")

    def _literal(self, word: bytes) -> None:
        for wanted in word:
            if self._peek() != wanted:
                raise self._bad(f"in literal {word.decode()} (expecting '{chr(wanted)}')")
            self.at += 1

    def _number(self) -> None:
        if self._peek() == ord("-"):
            self.at += 1
            if self._peek() not in _DIGITS:
                raise self._bad("in numeric literal")
        if self._peek() == ord("0"):
            self.at += 1
        else:
            self._digits()
        if self._is(b"."):
            self.at += 1
            if self._peek() not in _DIGITS:
                raise self._bad("after decimal point in numeric literal")
            self._digits()
        if self._is(b"eE"):
            self.at += 1
            if self._is(b"+-"):
                self.at += 1
            if self._peek() not in _DIGITS:
                raise self._bad("in exponent of numeric literal")
            self._digits()

    def _digits(self) -> None:
        while self._is(_DIGITS):
            self.at += 1

    def _is(self, allowed: bytes) -> bool:
        return self.at < len(self.data) and self.data[self.at] in allowed

    def _skip(self) -> None:
        while self.at < len(self.data) and self.data[self.at] in _SPACE:
            self.at += 1

    def _peek(self) -> int:
        if self.at >= len(self.data):
            raise _Fault(END)
        return self.data[self.at]

    def _bad(self, where: str) -> _Fault:
        return _Fault(f"invalid character {_shown(chr(self.data[self.at]))} {where}")


_ESCAPED = {"'": r"'\''", '"': "'\"'", "\\": r"'\\'", "\n": r"'\n'", "\t": r"'\t'", "\r": r"'\r'"}


def _shown(char: str) -> str:
    """A character in quotes, as Go prints it."""
    if char in _ESCAPED:
        return _ESCAPED[char]
    return f"'{char}'" if char.isprintable() else f"'\\x{ord(char):02x}'"
