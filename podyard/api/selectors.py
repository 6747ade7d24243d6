"""Label and field selectors: parsing with upstream's texts, and matching.

Pure values: a parsed selector is a tuple of requirements that must all hold.

Counterpart: apimachinery `labels` and `fields`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from podyard.api import names
from podyard.api.types import LabelSelector as LabelSelectorMessage

_INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)
_TOKEN = re.compile(r"\s*(?:(==|!=|=|!|<|>|\(|\)|,)|([^\s=!<>(),]+))", re.ASCII)


class SelectorError(ValueError):
    """Text that is no selector; the message is upstream's."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term: `operator` is one of `=`, `!=`, `in`, `notin`, `exists`, `!`, `>`, `<`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy this term; a missing key satisfies only the negative operators."""
        present = self.key in labels
        if self.operator == "exists":
            return present
        if self.operator == "!":
            return not present
        if self.operator in ("!=", "notin"):
            return not present or labels[self.key] not in self.values
        if not present:
            return False
        if self.operator in ("=", "in"):
            return labels[self.key] in self.values
        value = labels[self.key]
        if not _INTEGER.fullmatch(value):
            return False
        limit = int(self.values[0])
        return int(value) > limit if self.operator == ">" else int(value) < limit


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Terms that must all hold; without any, everything matches."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return not self.nothing and all(term.matches(labels) for term in self.requirements)

    @property
    def empty(self) -> bool:
        """Whether everything matches."""
        return not self.requirements and not self.nothing


EVERYTHING = LabelSelector()
NOTHING = LabelSelector(nothing=True)


@lru_cache(maxsize=1024)
def parse_labels(text: str) -> LabelSelector:
    """Reads `a=b,c in (d,e),!f`.

    Raises:
        SelectorError: with upstream's text.
    """
    return LabelSelector(tuple(sorted(_Parser(text).terms(), key=lambda term: term.key)))


class _Parser:
    """Recursive descent over the tokens of a label selector."""

    def __init__(self, text: str) -> None:
        self._tokens = [match[1] or match[2] for match in _TOKEN.finditer(text)]
        self._at = 0

    def terms(self) -> list[Requirement]:
        found: list[Requirement] = []
        while self._peek():
            found.append(self._term())
            following = self._next()
            if not following:
                break
            if following != ",":
                raise SelectorError(f"found '{following}', expected: ',' or 'end of string'")
            if not self._peek() or self._peek() == ",":
                raise SelectorError(f"found '{self._peek()}', expected: identifier after ','")
        return found

    def _term(self) -> Requirement:
        token = self._next()
        negated = token == "!"
        key = self._next() if negated else token
        if not key or _TOKEN.fullmatch(key)[1]:  # type: ignore[index]
            raise SelectorError(f"unable to parse requirement: found '{key}', expected: identifier")
        problems = names.qualified_name_problems(key)
        if problems:
            raise SelectorError(f"unable to parse requirement: {_bad_value('key', key, problems)}")
        if negated:
            return Requirement(key, "!")
        if self._peek() in ("", ","):
            return Requirement(key, "exists")
        return self._comparison(key)

    def _comparison(self, key: str) -> Requirement:
        operator = self._next()
        if operator in ("in", "notin"):
            values = self._set()
        elif operator in ("=", "==", "!=", ">", "<"):
            operator = "=" if operator == "==" else operator
            follows = self._peek()
            values = ("",) if follows in ("", ",") else (self._next(),)
        else:
            expected = "in, notin, =, ==, !=, gt, lt"
            raise SelectorError(f"unable to parse requirement: found '{operator}', expected: {expected}")
        if operator in (">", "<"):
            if not _INTEGER.fullmatch(values[0]):
                raise SelectorError(
                    f"values[0]: Invalid value: \"{values[0]}\": for 'Gt', 'Lt' operators, "
                    "the value must be an integer"
                )
            return Requirement(key, operator, values)
        for value in values:
            problems = names.label_value_problems(value)
            if problems:
                raise SelectorError(
                    f"unable to parse requirement: {_bad_value(f'values[0][{key}]', value, problems)}"
                )
        return Requirement(key, operator, values)

    def _set(self) -> tuple[str, ...]:
        opening = self._next()
        if opening != "(":
            raise SelectorError(f"unable to parse requirement: found '{opening}' expected: '('")
        values: list[str] = []
        while True:
            token = self._next()
            if token == ")":
                if not values:
                    values.append("")
                return tuple(sorted(set(values)))
            if token == ",":
                if not values or self._peek() in (",", ")"):
                    values.append("")
                continue
            if not token:
                raise SelectorError("unable to parse requirement: found '', expected: ',', ')' or identifier")
            values.append(token)

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token


def _bad_value(path: str, value: str, problems: list[str]) -> str:
    return f'{path}: Invalid value: "{value}": {"; ".join(problems)}'


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def from_message(selector: LabelSelectorMessage | None) -> LabelSelector:
    """A selector message: None selects nothing, an empty one everything.

    Raises:
        SelectorError: an unknown operator.
    """
    if selector is None:
        return NOTHING
    terms = [Requirement(key, "=", (value,)) for key, value in sorted(selector.matchLabels.items())]
    for expression in selector.matchExpressions:
        operator = _OPERATORS.get(expression.operator)
        if operator is None:
            raise SelectorError(f'"{expression.operator}" is not a valid label selector operator')
        terms.append(Requirement(expression.key, operator, tuple(sorted(expression.values))))
    return LabelSelector(tuple(terms))


def from_labels(labels: Mapping[str, str]) -> LabelSelector:
    """A selector that asks for exactly these labels (a Service's, a node selector)."""
    return LabelSelector(tuple(Requirement(key, "=", (value,)) for key, value in sorted(labels.items())))


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """`label=value`, or `label!=value` when not `equal`."""

    label: str
    value: str
    equal: bool = True


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Terms over an object's selectable fields; all must hold."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether an object with these fields is selected; an unknown field counts as empty."""
        return all((fields.get(term.label, "") == term.value) == term.equal for term in self.terms)

    def exact(self, label: str) -> str | None:
        """The value that the selector asks for under this label; None when it does not."""
        return next((term.value for term in self.terms if term.equal and term.label == label), None)

    def renamed(self, rename: Callable[[str], str]) -> FieldSelector:
        """The same terms with labels mapped (a row's aliases); `rename` raises on unknown ones."""
        return FieldSelector(tuple(FieldTerm(rename(t.label), t.value, t.equal) for t in self.terms))

    @property
    def empty(self) -> bool:
        """Whether everything matches."""
        return not self.terms


@lru_cache(maxsize=1024)
def parse_fields(text: str) -> FieldSelector:
    r"""Reads `a=b,c!=d`; `\,`, `\=` and `\\` are escapes in values.

    Raises:
        SelectorError: with upstream's text.
    """
    terms = []
    for part in re.findall(r"(?:[^,\\]|\\.|\\$)+", text):
        match = re.match(r"((?:[^=!\\]|\\.|!(?!=))*)(!=|==|=)(.*)", part, re.DOTALL)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        terms.append(FieldTerm(match[1], _unescaped(match[3]), match[2] != "!="))
    return FieldSelector(tuple(sorted(terms, key=lambda term: term.label)))


def _unescaped(value: str) -> str:
    bad = re.search(r"(?:^|[^\\])(?:\\\\)*(?:\\([^\\,=])|([,=])|\\$)", value)
    if bad:
        raise SelectorError(
            f"invalid field selector: invalid escape sequence or unescaped character in {value}"
        )
    return re.sub(r"\\(.)", r"\1", value)
