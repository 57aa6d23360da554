import sys

print("kept")
sys.stdout = None
sys.stderr = None
raise ValueError("unseen")
