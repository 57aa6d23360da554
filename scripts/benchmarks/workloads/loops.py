"""Pure Python, bodies that attract each other: loops.py EPOCHS STEPS BODIES"""

import math
import random
import sys


def move(places, speeds):
    energy = 0.0
    for i, (x, y) in enumerate(places):
        for j in range(i):
            dx, dy = places[j][0] - x, places[j][1] - y
            distance = math.sqrt(dx * dx + dy * dy + 0.01)
            pull = 1e-4 / distance**3
            speeds[i][0] += pull * dx
            speeds[i][1] += pull * dy
            speeds[j][0] -= pull * dx
            speeds[j][1] -= pull * dy
            energy -= 1e-4 / distance
    for place, speed in zip(places, speeds, strict=True):
        place[0] += speed[0]
        place[1] += speed[1]
    return energy


def main(epochs, steps, bodies):
    random.seed(0)
    places = [[random.random(), random.random()] for _ in range(bodies)]
    speeds = [[0.0, 0.0] for _ in range(bodies)]
    for epoch in range(epochs):
        total = 0.0
        for _ in range(steps):
            total += move(places, speeds)
        print(f"epoch {epoch} energy {total:.6f}")
    print(f"done: {places[0]}")


main(*map(int, sys.argv[1:]))
