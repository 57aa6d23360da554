"""What `florhook doctor` prints."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..errors import UsageError
from ..launch import Target
from ..settings import Settings
from .modules import Module, examine
from .place import findings

USAGE = "doctor takes -v and a program: doctor [-v] train.py, doctor [-v] -m package.module, or nothing"
LONGEST = 60  # characters of a loop's first line
MOST_NAMES = 8  # of the modules in a summary


def doctor(settings: Settings, words: list[str]) -> None:
    """Print what would be recorded of the program that the words name, or whether florhook works here."""
    everything = words[:1] in (["-v"], ["--verbose"])
    target = _target_of(words[everything:])
    lines: Iterator[str]
    if target is None:
        lines = (f"{what}: {found}" for what, found in findings(settings))
    else:
        lines = _lines(examine(target, settings, everything), everything)
    print("\n".join(lines))


def _target_of(words: list[str]) -> Target | None:
    if not words:
        return None
    first = words[0]
    if first in ("-m", "-c") and len(words) > 1:
        return Target("module" if first == "-m" else "code", words[1], words[2:])
    if first.startswith("-"):
        raise UsageError(USAGE)
    return Target("script", first, words[1:])


def _lines(modules: list[Module], everything: bool) -> Iterator[str]:
    instrumented = [module for module in modules if module.instrumented]
    of_libraries = [] if everything else [module for module in instrumented if _is_included(module)]
    for module in instrumented:
        if module not in of_libraries:
            yield from _with_loops(module)
    yield from _included(of_libraries)
    for module in modules:
        if module.problem:
            yield f"{module.name} ({_short(module.path)}): not instrumented, {module.problem}"
    others = [module for module in modules if not module.decision.user]
    if everything:
        yield from (f"{module.name}: not instrumented, {_reason(module)}" for module in others)
    else:
        yield from _summary(others)


def _is_included(module: Module) -> bool:
    return module.decision.reason.startswith("included by")


def _with_loops(module: Module) -> Iterator[str]:
    yield f"{module.name} ({_short(module.path)}): {_when(module)}, {module.decision.reason}"
    if not module.loops:
        yield "    no loops"
    for loop in module.loops:
        text = loop.text if len(loop.text) <= LONGEST else loop.text[: LONGEST - 3] + "..."
        yield f"    line {loop.line}: {text}  [{loop.hindrance or 'recorded'}]"


def _when(module: Module) -> str:
    return "instrumented" if module.named else "instrumented when it is imported"


def _included(modules: list[Module]) -> Iterator[str]:
    """A line for each pattern of the list."""
    groups: dict[str, list[Module]] = {}
    for module in modules:
        groups.setdefault(f"{_when(module)}, {module.decision.reason}", []).append(module)
    for text, group in groups.items():
        loops = [loop for module in group for loop in module.loops]
        recorded = sum(not loop.hindrance for loop in loops)
        names = group[0].name if len(group) == 1 else f"{group[0].name} and {len(group) - 1} more modules"
        yield f"{names}: {text}; {len(loops)} loops, {recorded} recorded (-v shows them)"


def _summary(others: list[Module]) -> Iterator[str]:
    """One line for each package, and one for each reason that says all."""
    groups: dict[tuple[str, str], list[Module]] = {}
    for module in others:
        package = module.name.partition(".")[0] if "site-packages" in module.decision.reason else ""
        groups.setdefault((package, _reason(module)), []).append(module)
    for (package, reason), group in sorted(groups.items()):
        names = [module.name for module in group]
        if package:
            count = f" ({len(names)} modules)" if len(names) > 1 else ""
            yield f"{package}{count}: not instrumented, {reason}"
        else:
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            yield f"{', '.join(sorted(names)[:MOST_NAMES])}{more}: not instrumented, {reason}"


def _reason(module: Module) -> str:
    reason = module.decision.reason
    if "site-packages" in reason:
        return f"{reason} (FLOR_INCLUDE={module.name.partition('.')[0]} makes it the program's own)"
    return reason


def _short(path: str) -> str:
    """Relative where that is shorter."""
    return path.removeprefix(os.getcwd().rstrip(os.sep) + os.sep)
