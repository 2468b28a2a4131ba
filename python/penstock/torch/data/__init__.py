"""Batches of HDF5 files for training."""

from penstock.torch.data.batches import Batches
from penstock.torch.data.dataset import HDF5Dataset

__all__ = ["Batches", "HDF5Dataset"]
