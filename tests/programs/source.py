import dataclasses
import doctest
import inspect
import traceback
import typing
import warnings


@dataclasses.dataclass
class Point:
    """A point.

    >>> Point(1).x
    1
    """

    x: int
    y: "typing.Optional[int]" = None


def function(a, b=2):
    return a + b


limit: int = 3
print(inspect.getsource(Point))
print(inspect.getsource(function), inspect.getfile(function))
print(typing.get_type_hints(Point), __annotations__)
print(doctest.testmod())
warnings.warn("here")
try:
    function("a")
except TypeError:
    traceback.print_exc()
