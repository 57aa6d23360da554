import sys

if sys.version_info < (3, 11):
    raise SystemExit("no groups here")


def fail(text):
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


raise ExceptionGroup("several", [fail("one"), ExceptionGroup("nested", [fail("two"), TypeError(3)])])
