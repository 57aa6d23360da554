"""Hindsight logging: record an unmodified training program, ask it for more prints afterwards."""

__version__ = "0.1.0"
