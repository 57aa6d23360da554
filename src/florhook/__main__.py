"""`python -m florhook`."""

from .shadows import hide_folder

if __name__ == "__main__":
    hide_folder()
    from .hash_seed import pin_early

    pin_early()  # it may start this process anew: nothing is imported before
    from .uncollected import no_collections

    with no_collections():
        from .cli import main

    main()
