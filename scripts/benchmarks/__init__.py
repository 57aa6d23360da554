"""Benchmarks that anyone can run and believe: scripts/bench SUBJECT."""
