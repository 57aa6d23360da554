"""`python -m florhook`."""

from .shadows import hide_folder

if __name__ == "__main__":
    hide_folder()
    from .hash_seed import pin_early

    pin_early()  # it may start this process anew: nothing is imported before
    from .imports import Uncollected

    with Uncollected():
        from .cli import main

    main()
