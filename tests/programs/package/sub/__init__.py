print("sub", flush=True)
