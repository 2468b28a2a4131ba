"""Faults at each system call of loads and saves: ``python -m tests.faults --help``."""
