import sys

value = sys.argv[1]
sys.exit({"none": None, "text": "a last word", "negative": -1, "true": True, "list": [1]}.get(value) if not value.isdigit() else int(value))
