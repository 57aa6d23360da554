"""Dumps what a program can see of itself."""
import sys

main = sys.modules["__main__"]
print(sys.argv)
print(sys.path)
for name, value in list(globals().items()):
    if name.startswith("__") and name != "__flor__":
        print(name, type(value).__name__ if name in ("__loader__", "__builtins__") else value)
print(vars(__loader__) if not isinstance(__loader__, type) else __loader__)
print(main.__dict__ is globals(), sys.flags, sorted(set(vars(main)) - {"__flor__"}))
print(sys.path_importer_cache.get(globals().get("__file__"), "not there"))
