"""The names of the benchmarks, by the module that defines them, in the order of the documents.

The other modules define none: ``run`` is what a benchmark is, ``beside`` has pairs of reads,
``daily_cases`` and ``daily_gpu_cases`` are those of ``daily``, ``compare`` compares two builds, and
``documents`` writes results as pages.
"""

MODULES = {
    "reads": ("link", "cached_read", "sizes", "random_read", "cold_read"),
    "write_durable": ("write_durable",),
    "overhead": ("overhead",),
    "hdf5_reads": ("hdf5_gzip", "hdf5_few", "hdf5_codecs", "hdf5_plain", "hdf5_strided"),
    "hdf5_write": ("hdf5_write",),
    "hdf5_host": ("hdf5_host",),
    "hdf5_small": ("hdf5_small",),
    "hdf5_sizes": ("hdf5_sizes",),
    "reread": ("reread",),
    "driver": ("vfd", "vfd_write", "vfd_durable", "vfd_attributes", "vfd_small"),
    "connector": ("async_submit", "async_plotfile"),
    "async_small": ("async_small",),
    "daily": ("daily", "daily_gpu"),
}
NAMES = tuple(name for names in MODULES.values() for name in names)
