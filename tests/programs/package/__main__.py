from . import helper

print(__name__, __package__, __spec__.name, helper.value)
raise SystemExit(6)
