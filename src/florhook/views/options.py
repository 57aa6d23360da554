"""The options of a subcommand."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import UsageError

Options = dict[str, list[str]]


def options_of(
    command: str, words: list[str], values: Collection[str], switches: Collection[str]
) -> tuple[Options, list[str]]:
    """Options, which may be given several times, and the other words."""
    found: Options = {}
    others: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("-"):
            others.append(word)
        elif not word.startswith("--") or name not in (*values, *switches) or (equals and name in switches):
            raise UsageError(f"{command} has no option {word}; see python -m florhook --help")
        elif name in values and not equals and not rest:
            raise UsageError(f"--{name} needs a value")
        else:
            found.setdefault(name, []).append(value if equals or name in switches else rest.pop(0))
    return found, others
