"""Operators. Each adds an op to the graph of its operands and returns its result.

A number or an array as an operand becomes a constant of the dtype of the first tensor. Axes and
sizes are an integer or a list. Functions that end with `_` write into their first operand: every
handle to its storage sees the new value.
"""

from sluice.ops import collectives
from sluice.ops._operators import *  # noqa: F403: the generated functions
from sluice.ops._calls import (
    call, call_with_info, conditional, conditional_with_info, repeat, repeat_with_info, scan,
    while_loop)
