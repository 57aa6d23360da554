"""Where recorded state goes: staging memory, a writer process, pack files and an SQLite catalog."""
