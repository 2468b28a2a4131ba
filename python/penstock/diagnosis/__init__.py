"""What a machine offers to I/O between storage and GPUs, and what is in the way of it.

Three steps, each with no knowledge of the next: :mod:`~penstock.diagnosis.facts` reads, and gives
a plain dictionary; :mod:`~penstock.diagnosis.checks` judges these facts, line by line; the command
and :mod:`~penstock.diagnosis.page` show the lines.
"""

from penstock.diagnosis.checks import judge
from penstock.diagnosis.facts import gather
from penstock.diagnosis.line import Line, Status, readable
from penstock.diagnosis.system import System

__all__ = ["Line", "Status", "System", "gather", "judge", "readable"]
