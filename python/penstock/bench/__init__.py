"""Measurements of I/O: contestants in turns, cold and warm files, peers, results."""
