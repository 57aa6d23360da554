"""`python -m florhook`."""

from .hash_seed import pin_early

if __name__ == "__main__":
    pin_early()  # it may start this process anew: nothing is imported before
    from .cli import main

    main()
