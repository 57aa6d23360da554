import multiprocessing
import pickle
import sys


class Answer:
    def __init__(self, value):
        self.value = value


def work(value):
    return Answer(value + 1)


if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        answers = pool.map(work, range(4))
    print([answer.value for answer in answers], {type(answer).__name__ for answer in answers})
    print(sys.modules["__mp_main__"] is sys.modules["__main__"])
    print(pickle.loads(pickle.dumps(Answer(3))).value, Answer.__module__)
