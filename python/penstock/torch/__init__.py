"""Penstock for programs that use torch."""
