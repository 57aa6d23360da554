"""A data set of Python objects in memory, five a record: objects.py EPOCHS RECORDS"""

import random
import sys


def main(epochs, records):
    random.seed(0)
    data = [
        {"id": number, "text": f"record {number}", "vector": [random.random(), random.random()]}
        for number in range(records)
    ]
    weights = [0.0, 0.0]
    for epoch in range(epochs):
        total = 0.0
        for record in random.sample(data, records):
            x, y = record["vector"]
            error = weights[0] * x + weights[1] * y - len(record["text"]) / 10
            weights[0] -= 1e-3 * error * x
            weights[1] -= 1e-3 * error * y
            total += error * error
        print(f"epoch {epoch} error {total / records:.6f}")
    print(f"done: {weights}")


main(*map(int, sys.argv[1:]))
