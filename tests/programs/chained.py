def inner():
    raise KeyError("inner")


def outer():
    try:
        inner()
    except KeyError as error:
        raise ValueError("outer") from error


try:
    outer()
except ValueError:
    print("before")
    raise RuntimeError("while handling")
