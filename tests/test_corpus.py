"""The standard library and what is installed here, rewritten: but for the probes the code is what it was."""

from __future__ import annotations

from pathlib import Path

import corpus

SAMPLE = 130  # files; scripts/corpus takes all


def test_a_sample_of_the_library_and_the_packages() -> None:
    """Lines, names, variables, flags and docstrings of every function are those of the plain file, in both forms."""
    for files, count in ((library(), SAMPLE), (packages(), SAMPLE // 4)):
        judged = [corpus.judge(path) for path in files[:: max(1, len(files) // count)]]
        odd = [(each.path, d) for each in judged for d in each.differences if not corpus.is_known(d)]
        assert not odd
        assert sum(not each.why for each in judged) >= min(len(files), count) * 0.9


def library() -> list[Path]:
    return corpus.files(packages=False)


def packages() -> list[Path]:
    return sorted({*corpus.files()} - {*library()})


def test_the_comparison_finds_what_it_is_for() -> None:
    """Code of another source differs in each of the things that are compared."""
    plain = compile("def f(a):\n    'doc'\n    b = a\n    return b", "x.py", "exec")
    others = {
        "co_varnames": "def f(a):\n    'doc'\n    c = a\n    return c",
        "lines": "def f(a):\n    'doc'\n\n    b = a; return b",
        "names": "def f(a):\n    'doc'\n    b = a\n    return b.c",
        "docstring": "def f(a):\n    'other'\n    b = a\n    return b",
        "co_flags": "def f(a):\n    'doc'\n    b = a\n    yield\n    return b",
        "no code": "def g(a):\n    'doc'\n    b = a\n    return b",
        "begins": "def f(a):\n    'doc'\n\n    b = a\n    return b",
    }
    for word, source in others.items():
        found = list(corpus.differences(plain, compile(source, "x.py", "exec")))
        assert any(word in each for each in found), (word, found)
    assert not list(corpus.differences(plain, plain))
