import traceback

try:
    import package.broken
except SyntaxError:
    traceback.print_exc()
try:
    import package.raises
except ValueError:
    traceback.print_exc()
try:
    import package.missing
except ImportError:
    traceback.print_exc()
import package.imports_missing
