import sys

print(input("prompt? "), sys.stdin.read())
