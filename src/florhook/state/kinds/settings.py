"""State outside the graph: what a program sets for the whole process, one object for each library that has some."""

from __future__ import annotations

import _locale
import functools
import gc
import itertools
import marshal
import operator
import os
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...dataclass import dataclass
from .base import Kind, Registry

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan


@dataclass(frozen=True)
class Setting:
    """`read` gives a value that `write` takes. What differs between processes that do the same is not `compared`."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    compared: bool = True


class World:
    """The settings of Python or of a library."""

    def __init__(self, name: str, settings: list[Setting]) -> None:
        self.name = name
        self.settings = {setting.name: setting for setting in settings}

    def read(self, compared: bool) -> tuple[tuple[str, Any], ...]:
        return tuple((s.name, s.read()) for s in self.settings.values() if s.compared is compared)

    def write(self, values: tuple[tuple[str, Any], ...]) -> None:
        for name, value in values:
            setting = self.settings.get(name)
            if setting is not None and setting.read() != value:
                setting.write(value)


WORLDS: dict[str, World] = {}


class Settings(Kind):
    """Set last, when whatever they might influence is done."""

    name, how, late = "settings", "in place", 3

    def shell(self, obj: World, scan: Scan) -> str:
        return obj.name

    def create(self, spec: str, loader: Loader) -> World:
        return WORLDS[spec]

    def content(self, obj: World, scan: Scan) -> Any:
        scan.hint(obj, obj.read(compared=False))
        return obj.read(compared=True)

    def apply(self, obj: World, content: Any, loader: Loader) -> None:
        obj.write(content)
        obj.write(loader.hint() or ())


# What wandb imports when it has time, and torch's compiler, which a replay may do without (`replay/spared.py`).
ANY_MOMENT = ("opentelemetry.", "urllib3.exceptions.DependencyWarning", "sympy.")


def _filters() -> tuple[Any, ...]:
    """But for those that come from imports at whatever moment these happen."""
    return tuple(row for row in warnings.filters if not _category(row[2]).startswith(ANY_MOMENT))


def _category(category: Any) -> str:
    return f"{category.__module__}.{category.__qualname__}"


def _set_filters(filters: tuple[Any, ...]) -> None:
    with warnings.catch_warnings():  # tells the warnings module, when it is left, that filters have changed
        pass
    warnings.filters[:] = filters  # type: ignore[index]


def _locales() -> tuple[str, ...]:
    return tuple(_locale.setlocale(category, None) for category in LOCALES)


def _set_locales(names: tuple[str, ...]) -> None:
    for category, name in zip(LOCALES, names, strict=True):
        _locale.setlocale(category, name)


LOCALES = (_locale.LC_CTYPE, _locale.LC_COLLATE, _locale.LC_TIME, _locale.LC_MONETARY, _locale.LC_NUMERIC)


OF_NOTEBOOKS = ("IPKernelApp",)  # loggers of what runs a notebook


def _decimal() -> Any:
    """The context of decimal numbers; nothing where it is as at the start, whether the module is there or not."""
    module = sys.modules.get("decimal")
    if module is None:
        return None
    context = module.getcontext()
    return None if repr(context) == repr(module.DefaultContext) else context


def _set_decimal(context: Any) -> None:
    import decimal

    decimal.setcontext(decimal.DefaultContext if context is None else context)


def _loggers() -> tuple[Any, ...]:
    """Level, flags, handlers and filters of the program's loggers and the root's that are not as they were made."""
    logging = sys.modules.get("logging")
    if logging is None:
        return 0, ()
    rows = [_logger("", logging.root), *(_logger(*each) for each in _set_up(logging, of_libraries=False))]
    return logging.root.manager.disable, tuple(row for row in rows if row != unchanged_logger(row[0]))


def _set_up(logging: Any, of_libraries: bool) -> list[tuple[str, Any]]:
    """The loggers that are not as they were made, by name: libraries', or the program's."""
    known = list(logging.root.manager.loggerDict.items())
    found = [
        (name, each)
        for name, each in known
        if isinstance(each, logging.Logger)
        and (each.level or each.disabled or not each.propagate or each.handlers or each.filters)
    ]
    return sorted(
        (each for each in found if _of_a_library(each[0]) is of_libraries), key=operator.itemgetter(0)
    )


def _library_levels() -> bytes:
    """Level and flags of libraries' loggers that are not as they were made, as far as the libraries are imported."""
    logging = sys.modules.get("logging")
    made = _set_up(logging, of_libraries=True) if logging else []
    return marshal.dumps([(name, each.level, each.disabled, each.propagate) for name, each in made], 2)


def _set_library_levels(rows: bytes) -> None:
    import logging

    unchanged = {row[0]: unchanged_logger(row[0])[:4] for row in marshal.loads(_library_levels())}
    for name, level, disabled, propagate in {
        **unchanged,
        **{row[0]: row for row in marshal.loads(rows)},
    }.values():
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.disabled, logger.propagate = disabled, propagate


def _of_a_library(name: str) -> bool:
    """Whether a logger is named as a library's modules are: what those set up, they set up in any process."""
    module = sys.modules.get(name.partition(".")[0])
    # A package may be without a file.
    place = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return name in OF_NOTEBOOKS or is_installed(str(place))


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Python's folders and those of installed packages."""
    import sysconfig

    return tuple(
        {path + os.sep for path in sysconfig.get_paths().values()} - {sysconfig.get_path("data") + os.sep}
    )


@functools.cache
def is_installed(path: str) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    return path.startswith(_libraries())


def _logger(name: str, logger: Any) -> tuple[Any, ...]:
    return (
        name,
        logger.level,
        logger.disabled,
        logger.propagate,
        tuple(logger.handlers),
        tuple(logger.filters),
    )


def unchanged_logger(name: str) -> tuple[Any, ...]:
    return name, 0 if name else 30, False, True, (), ()  # the root logger starts at WARNING


def _set_loggers(state: tuple[Any, ...]) -> None:
    import logging

    disable, rows = state
    wanted = {row[0]: row for row in rows}
    for name in {*wanted, "", *(name for name, _ in _set_up(logging, of_libraries=False))}:
        logger = logging.getLogger(name or None)
        row = wanted.get(name) or unchanged_logger(name)
        _, level, logger.disabled, logger.propagate, handlers, filters = row
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.filters[:] = filters
    logging.disable(disable)


def _set_thresholds(thresholds: tuple[int, ...]) -> None:
    gc.set_threshold(*thresholds)


# Where Python keeps the counters that it names threads and pools of threads by.
THREAD_COUNTERS = (("threading", "_counter"), ("concurrent.futures.thread", "ThreadPoolExecutor._counter"))


def _thread_numbers() -> tuple[str | None, ...]:
    """As the counters show themselves; None for one whose module was not imported."""
    return tuple(
        repr(operator.attrgetter(place)(sys.modules[home]).__self__) if home in sys.modules else None
        for home, place in THREAD_COUNTERS
    )


def _set_thread_numbers(numbers: tuple[str | None, ...]) -> None:
    import pkgutil

    for (home, place), number in zip(THREAD_COUNTERS, numbers, strict=True):
        if number is not None:
            owner, _, name = f"{home}.{place}".rpartition(".")
            counter = itertools.count(int(number.removeprefix("count(").removesuffix(")")))
            setattr(pkgutil.resolve_name(owner), name, counter.__next__)


PYTHON = World(
    "python",
    [
        Setting("garbage collection", gc.get_threshold, _set_thresholds),
        Setting("warnings", _filters, _set_filters),
        Setting("locale", _locales, _set_locales),
        Setting("decimal", _decimal, _set_decimal),
        Setting("logging", _loggers, _set_loggers),
        Setting("logging of libraries", _library_levels, _set_library_levels, compared=False),
        Setting("names of threads", _thread_numbers, _set_thread_numbers, compared=False),
    ],
)


def add_world(world: World) -> None:
    WORLDS[world.name] = world


def register(registry: Registry) -> None:
    registry.add(Settings(), World)
    add_world(PYTHON)
