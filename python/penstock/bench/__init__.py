"""Measures I/O: alternating contestants, cold and warm files, peers, results."""
