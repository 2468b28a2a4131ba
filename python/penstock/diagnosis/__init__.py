"""Checks of a machine's support for I/O between storage and GPUs.

There are three steps, each independent of the next: :mod:`~penstock.diagnosis.facts` gathers facts
as a plain dictionary; :mod:`~penstock.diagnosis.checks` judges them, line by line; the command and
:mod:`~penstock.diagnosis.page` display the lines.
"""

from penstock.diagnosis.checks import judge
from penstock.diagnosis.facts import gather
from penstock.diagnosis.line import Line, Status, readable
from penstock.diagnosis.system import System

__all__ = ["Line", "Status", "System", "gather", "judge", "readable"]
