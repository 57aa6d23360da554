"""`python -m florhook`."""

from .cli import main

if __name__ == "__main__":
    main()
