"""HDF5 files and their datasets. A transfer takes four steps, each in a module of its own.

1. **Open**: ``file``, ``group`` and ``dataset`` have subclasses of h5py's classes, ``objects``
   what they have in common. ``source`` opens what ``"file.h5:name"`` names. ``library`` binds the
   native library to h5py's copy of HDF5, gives its lock, and waits for the requests with which an
   access by h5py would conflict.
2. **Choose**: each dataset has a ``dataset_reader``, which carries out the transfer in one native
   call, or has ``h5py_reader`` do a small one of objects. What it refuses takes the steps below, by
   ``reading`` and ``writing``: ``selection`` turns the argument of ``dataset[...]`` into elements
   or a dataspace, and ``conversions`` the type of an array's elements into an HDF5 type
   (``memory_types``), which it keeps. ``by_h5py`` carries out what only h5py can: what the library
   lacks is an ``OnlyH5pyError``. ``small`` has the sizes.
3. **Submit**: ``submit`` gives the native library the dataset, the dataspace and the memory.
4. **Wait**: :class:`penstock.Request` waits for one transfer.

``blocks`` reads a dataset slab by slab in these steps. ``plugins`` has the options of Penstock's
HDF5 plugins, and ``registration`` makes them known to h5py. ``cf`` has the rules by which packed
numbers and missing values are decoded.

The modules import each other in one direction. This module imports none of them, so that each can
be imported by itself.
"""
