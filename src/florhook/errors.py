"""The exceptions of florhook, each with the exit code that the command line gives it.

FlorError            anything that we tell the user in one line
├── UsageError       2: wrong flags, variables or arguments
├── RefusedError     3: a replay or resume is refused: no such run, unsafe edit, other arguments
│   └── StoreError   3: the store cannot be opened, read or trusted
└── DivergedError    4: a replay does not agree with the record
"""


class FlorError(Exception):
    """What happened and what to do, in one line."""

    exit_code = 1


class UsageError(FlorError):
    exit_code = 2


class RefusedError(FlorError):
    exit_code = 3


class StoreError(RefusedError):
    pass


class DivergedError(FlorError):
    exit_code = 4
