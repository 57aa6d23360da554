"""The random states that a program starts with: Python's, and NumPy's, torch's and tempfile's once they are imported.

An unseeded program draws other numbers in each process. Its first states are recorded and set again in a replay, so
that what comes before the first checkpoint is as recorded too.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from typing import Any

LIBRARIES = ("numpy.random", "torch", "tempfile")  # modules after whose import there is a state to read
PYTHON, NAMES = "random", "tempfile"


def row_name(library: str) -> str:
    """Under what name a state is kept among the sources: no module has such a name."""
    return f"<{library}>"


def version_name(library: str) -> str:
    """The same for the version of the library."""
    return f"<version of {library.partition('.')[0]}>"


def version(library: str) -> str:
    """The version of a library, or Python's."""
    if library == PYTHON:
        return version_of_python()
    return str(getattr(sys.modules[library.partition(".")[0]], "__version__", ""))


def compare_version(library: str, recorded: bytes | None) -> None:
    """Say in one line if a run had another version of a library than this process has."""
    was, now = (recorded or b"").decode(), version(library)
    name = "Python" if library == PYTHON else library.partition(".")[0]
    if was not in ("", now):
        sys.stderr.write(f"florhook: the run had {name} {was}, this is {now}: what it computes may differ\n")


def read(library: str) -> bytes:
    """The global random state of a library, as bytes that hold no code."""
    if library in (PYTHON, NAMES):
        return json.dumps(_pythons(library).getstate()).encode()
    if library == "torch":
        return bytes(sys.modules["torch"].get_rng_state().numpy())
    state = _numpy().get_state(legacy=False)
    key = state["state"]["key"]
    plain = {**state, "state": {**state["state"], "key": [int(word) for word in key]}}
    seeds = getattr(_numpy()._bit_generator, "_seed_seq", None)
    if seeds is not None and isinstance(seeds.entropy, int):
        plain["entropy"] = str(seeds.entropy)  # what its children would come from
    return json.dumps(plain, default=float).encode()


def write(library: str, state: bytes) -> None:
    """Set what `read` gave."""
    if library in (PYTHON, NAMES):
        version, numbers, gauss = json.loads(state)
        _pythons(library).setstate((version, tuple(numbers), gauss))
    elif library == "torch":
        torch = sys.modules["torch"]
        torch.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    else:
        plain = json.loads(state)
        bits = _numpy()._bit_generator
        entropy = plain.pop("entropy", None)
        if entropy is not None and hasattr(bits, "seed_seq"):
            seeds = type(bits.seed_seq)(int(entropy))
            bits.__setstate__((bits.state, seeds))
        key = sys.modules["numpy"].array(plain["state"]["key"], dtype="uint32")
        _numpy().set_state({**plain, "state": {**plain["state"], "key": key}})


def _pythons(library: str) -> random.Random:
    if library == PYTHON:
        return random._inst
    return sys.modules[NAMES]._get_candidate_names().rng  # type: ignore[no-any-return]


def names_state() -> random.Random | None:
    """What tempfile draws names from, once it has."""
    names = getattr(sys.modules.get(NAMES), "_name_sequence", None)
    return None if names is None else names.rng


def _numpy() -> Any:
    return sys.modules["numpy.random"].mtrand._rand


def guarded(do: Callable[[str], object]) -> Callable[[str], None]:
    """For an import hook: whatever fails, the import succeeds."""

    def notice(library: str) -> None:
        try:
            do(library)
        except Exception:
            return  # that library's state is not recorded; the first checkpoint is exact all the same

    return notice


def version_of_python() -> str:
    """As `platform` spells it, whose import takes longer than all else here."""
    return sys.version.split()[0].rstrip("+")
