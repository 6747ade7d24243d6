"""The formats that names, labels, ports and addresses must have, with upstream's texts.

Each function gives the problems of one value; none means that it is well-formed.

Counterpart: apimachinery `util/validation`, `api/validation`.
"""

from __future__ import annotations

import ipaddress
import re

DNS_LABEL_MAX = 63
DNS_SUBDOMAIN_MAX = 253
LABEL_VALUE_MAX = 63
QUALIFIED_NAME_MAX = 63

_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_WILDCARD = rf"\*\.{_DNS_SUBDOMAIN}"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_RELAXED_ENV_NAME = "[ -<>-~]+"
_HTTP_HEADER = "[-A-Za-z0-9]+"
_HTTP_PATH = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+"
_CONDITION_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"

_compiled: dict[str, re.Pattern[str]] = {}


def _matches(pattern: str, value: str) -> bool:
    made = _compiled.get(pattern)
    if made is None:
        made = _compiled[pattern] = re.compile(pattern, re.ASCII)
    return made.fullmatch(value) is not None


def _regex_text(message: str, pattern: str, *examples: str) -> str:
    # Upstream ends every example with ", " and joins them with " or ", so two spaces meet.
    shown = " or ".join(f"'{example}', " for example in examples)
    opening = f"(e.g. {shown}" if examples else "("
    return f"{message} {opening}regex used for validation is '{pattern}')"


def _max_length(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def dns_label_problems(value: str) -> list[str]:
    """RFC 1123 label."""
    problems = [_max_length(DNS_LABEL_MAX)] if len(value) > DNS_LABEL_MAX else []
    if not _matches(_DNS_LABEL, value):
        if _matches(_DNS_SUBDOMAIN, value):
            return [*problems, "must not contain dots"]
        text = (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character"
        )
        problems.append(_regex_text(text, _DNS_LABEL, "my-name", "123-abc"))
    return problems


def dns_subdomain_problems(value: str) -> list[str]:
    """RFC 1123 subdomain: what most objects' names must be."""
    problems = [_max_length(DNS_SUBDOMAIN_MAX)] if len(value) > DNS_SUBDOMAIN_MAX else []
    if not _matches(_DNS_SUBDOMAIN, value):
        text = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' "
            "or '.', and must start and end with an alphanumeric character"
        )
        problems.append(_regex_text(text, _DNS_SUBDOMAIN, "example.com"))
    return problems


def wildcard_problems(value: str) -> list[str]:
    """A subdomain whose first label is `*`."""
    if _matches(_WILDCARD, value):
        return []
    text = (
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must "
        "consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character"
    )
    return [_regex_text(text, _WILDCARD, "*.example.com")]


def qualified_name_problems(value: str) -> list[str]:
    """`[prefix/]name`: label and annotation keys, resource names, taint keys."""
    parts = value.split("/")
    problems: list[str] = []
    if len(parts) > 2:
        text = (
            "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an alphanumeric character"
        )
        example = _regex_text(text, _QUALIFIED, "MyName", "my.name", "123-abc")
        return [f"{example} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    if len(parts) == 2:
        if not parts[0]:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {problem}" for problem in dns_subdomain_problems(parts[0])]
    name = parts[-1]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > QUALIFIED_NAME_MAX:
        problems.append(f"name part {_max_length(QUALIFIED_NAME_MAX)}")
    if not _matches(_QUALIFIED, name):
        text = (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
            "with an alphanumeric character"
        )
        problems.append(_regex_text(text, _QUALIFIED, "MyName", "my.name", "123-abc"))
    return problems


def label_value_problems(value: str) -> list[str]:
    """A label's value; empty is fine."""
    problems = [_max_length(LABEL_VALUE_MAX)] if len(value) > LABEL_VALUE_MAX else []
    if not _matches(_LABEL_VALUE, value):
        text = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
            "'.', and must start and end with an alphanumeric character"
        )
        problems.append(_regex_text(text, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return problems


def config_key_problems(value: str) -> list[str]:
    """A key of a ConfigMap or Secret."""
    problems = [_max_length(DNS_SUBDOMAIN_MAX)] if len(value) > DNS_SUBDOMAIN_MAX else []
    if not _matches(_CONFIG_KEY, value):
        text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        problems.append(_regex_text(text, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    return problems + _no_dots(value)


def env_name_problems(value: str) -> list[str]:
    """An environment variable's name: any printable ASCII but `=`."""
    if not value:
        return ["environment variable name must not be empty"]
    if not _matches(_RELAXED_ENV_NAME, value):
        return [
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
        ]
    return []


def env_prefix_problems(value: str) -> list[str]:
    """A prefix of `envFrom`."""
    return env_name_problems(value)


def _no_dots(value: str) -> list[str]:
    if value == ".":
        return ["must not be '.'"]
    if value == "..":
        return ["must not be '..'"]
    if value.startswith(".."):
        return ["must not start with '..'"]
    return []


def path_segment_problems(value: str) -> list[str]:
    """A name that must fit into a URL path: `/` and `%` are out."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{mark}'" for mark in ("/", "%") if mark in value]


def prefixed_path_problems(value: str) -> list[str]:
    """`domain/path`: who manages something, or which controller."""
    if not value:
        return ["must not be empty"]
    prefix, slash, path = value.partition("/")
    if not slash or not prefix or not path:
        return ['must be a domain-prefixed path (such as "acme.io/foo")']
    problems = [f"{problem}" for problem in dns_subdomain_problems(prefix)]
    if not _matches(_HTTP_PATH, path):
        problems.append(_regex_text("Invalid path", _HTTP_PATH))
    return problems


def condition_reason_problems(value: str) -> list[str]:
    """A condition's reason: CamelCase, perhaps several of them."""
    if _matches(_CONDITION_REASON, value):
        return []
    text = (
        "a condition reason must start with alphabetic character, optionally followed by a string of "
        "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'"
    )
    return [
        _regex_text(
            text, _CONDITION_REASON, "my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"
        )
    ]


def http_header_problems(value: str) -> list[str]:
    """A header's name."""
    if _matches(_HTTP_HEADER, value):
        return []
    text = "a valid HTTP header must consist of alphanumeric characters or '-'"
    return [_regex_text(text, _HTTP_HEADER, "X-Header-Name")]


def port_number_problems(port: int) -> list[str]:
    """1-65535."""
    return [] if 1 <= port <= 65535 else ["must be between 1 and 65535, inclusive"]


def port_name_problems(value: str) -> list[str]:
    """An IANA service name: container port names and named targets."""
    problems = []
    if len(value) > 15:
        problems.append("must be no more than 15 bytes")
    if not _matches("[-a-z0-9]+", value):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        problems.append("must contain at least one letter (a-z)")
    if "--" in value:
        problems.append("must not contain consecutive hyphens")
    if value and (value[0] == "-" or value[-1] == "-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def ip_problems(value: str) -> list[str]:
    """An IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    return []


def canonical_ip_problems(value: str) -> list[str]:
    """An address in the one way to write it: the name of an IPAddress."""
    problems = ip_problems(value)
    if not problems and str(ipaddress.ip_address(value)) != value:
        problems.append("must be a canonical format IP address")
    return problems


def cidr_problems(value: str) -> list[str]:
    """An address range."""
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        return ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
    return [] if "/" in value else ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
