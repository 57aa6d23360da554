import multiprocessing
import sys

from .. import helper
from ..helper import value


class Thing:
    def __init__(self, x):
        self.x = x


def make(x):
    return Thing(x + value)


if __name__ == "__main__":
    print(sys.argv, __file__, __cached__, __spec__, helper.__spec__)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print([thing.x for thing in pool.map(make, range(3))])
    raise ValueError("from a module")
