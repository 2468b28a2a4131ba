"""Makes the group of a communicator or of a process group."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.dist.gathering import Gathering, RankError
from penstock.dist.mpi.ranks import Ranks
from penstock.dist.torch_group import TorchGroup
from penstock.errors import IncompatibleError, InvalidError


@contextmanager
def joined(comm: Any, timeout: float) -> Iterator[Gathering]:
    """Use the group of :func:`join` in a block. Collective.

    After an exception that the other ranks do not get in the same step, this rank leaves the group.
    """
    group = join(comm, timeout)
    try:
        yield group
    except RankError:
        group.free()
        raise
    except BaseException:
        group.leave()
        raise
    group.free()


def join(comm: Any, timeout: float) -> Gathering:
    """Return the group of a communicator of mpi4py, or of a process group of torch.

    ``None`` is torch's default group. A :class:`Gathering` is returned as it is.

    Raises:
        IncompatibleError: It is neither.
        InvalidError: There is no default group, this process is not in the group, or the group was
            destroyed.
    """
    if isinstance(comm, Gathering):
        return comm
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    has_torch = distributed is not None and distributed.is_available()
    if comm is None:
        if distributed is None or not has_torch or not distributed.is_initialized():
            raise InvalidError(
                "there is no default process group",
                remedy="pass an MPI communicator, or call torch.distributed.init_process_group",
            )
        return TorchGroup(None)
    if distributed is not None and has_torch:
        if isinstance(comm, distributed.ProcessGroup):
            try:
                return TorchGroup(comm)
            except ValueError as error:
                raise InvalidError(
                    f"the process group is not usable: {error}",
                    remedy="pass a process group that has not been destroyed",
                ) from error
        if comm is distributed.GroupMember.NON_GROUP_MEMBER:
            raise InvalidError("this process is not in the process group")
    if hasattr(comm, "Idup"):
        return Ranks(comm, timeout)
    raise IncompatibleError(
        f"a {type(comm).__name__} is not a communicator",
        remedy="pass an mpi4py.MPI.Comm or a process group of torch.distributed",
    )
