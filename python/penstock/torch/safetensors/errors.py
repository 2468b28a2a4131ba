"""The exceptions that programs for safetensors catch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import IncompatibleError, InvalidError

if TYPE_CHECKING:

    class SafetensorError(Exception):
        """The exception of the package safetensors."""
else:
    try:
        from safetensors import SafetensorError
    except ImportError:

        class SafetensorError(Exception):
            """Stands for the exception of the package safetensors, which is not installed."""


class WeightsError(InvalidError, SafetensorError):
    """A file of weights, or what is asked of it, is not valid."""


class WeightsTypeError(IncompatibleError, SafetensorError):
    """There is no array for a tensor's data type, framework or device."""
