raise ValueError("at import")
