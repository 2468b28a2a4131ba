"""The same array in the memory of every rank, of which each rank reads a share.

- ``load``: the call; it reads ahead while shares are exchanged.
- ``source``: what is read, and in which units it can be divided.
- ``exchange``: how shares get to the other ranks: NCCL, copies between GPUs, or host memory.
- ``peers``: the copies between GPUs of one host.
"""

from penstock.dist.replicated.load import load_replicated

__all__ = ["load_replicated"]
