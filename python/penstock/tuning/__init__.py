"""Tuning: which options are best on a file system, for host memory or a GPU.

``search`` finds, ``rows`` says what is searched, ``measure`` measures by ``worker`` processes on
``files`` of their own, ``tuner`` puts these together, ``profiles`` keeps what was found, and
``cufile`` does the same for cuFile's own configuration.
"""
