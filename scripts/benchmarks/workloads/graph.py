"""20,000 objects, as many as a large trainer's graph has: graph.py ROUNDS OBJECTS"""

import sys


class Node:
    def __init__(self, number, before):
        self.name = f"node {number}"
        self.before = before
        self.inputs = [number, float(number)]
        self.options = {"rate": 0.1 * number}


def main(rounds, objects):
    nodes = []
    for number in range(objects // 4):  # a node, its attributes, its list and its dict
        nodes.append(Node(number, nodes[-1] if nodes else None))
    for epoch in range(rounds):
        for node in nodes:
            node.inputs[0] += epoch
    print(f"done: {nodes[-1].inputs}")


main(*map(int, sys.argv[1:]))
