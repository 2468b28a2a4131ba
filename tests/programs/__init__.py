"""Random programs of transfers through each interface of Penstock, against a model in NumPy.

A program is a list of operations: datasets of every layout, type, filter and fill are made,
written, read, resized, copied, visited and deleted, with requests under way, which are waited for,
polled, cancelled or dropped. A model does the same at once, in the order of the calls. What is
guaranteed, and therefore tested:

- Through any interfaces of one process, transfers of one file take effect in the order of their
  submission. A read that is finished gives what the model had when it was submitted.
- A write that was cancelled, interrupted or failed leaves each element of its selection old or new,
  and no other element changed.
- A read of a virtual dataset whose source lost elements gives those that are left at their
  coordinates, or an error.
- The file that is left, read by h5py without Penstock, is the model's.
- No call fails that should succeed, and every failure is reported.

Plain calls of h5py are outside this guarantee, because HDF5 has no record of the requests. Before
a program reads, writes, resizes, flushes, deletes or closes by plain h5py, it waits for its own
requests on the datasets concerned: the *rule of plain access*. Where a method of an interface
settles them itself, the programs leave it to that method.

The programs of the interfaces ``hdf5`` and ``mpi`` are in C, and HDF5 alone is their model: see
``alone/`` and ``parallel/``.

    python -m tests.programs --interface python --count 20000 --seed 1
"""
