"""Tuning: finds the best options on a file system, for host memory or a GPU.

``rows`` lists the kinds of transfers and a grid of settings for each, ``race`` finds the best of
them, ``measure`` measures them by ``worker`` processes on temporary ``files``, ``tuner`` combines
these, ``profiles`` stores the result, and ``cufile`` tunes cuFile's own configuration.
"""
