"""Penstock and its peers side by side on one machine: see docs/performance.md."""
