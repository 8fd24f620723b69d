"""Calls, loops and conditionals. They add to the current graph."""

import inspect

from sluice._context import current_graph
from sluice._core import Graph, Tensor
from sluice._graphs import result_tensors
from sluice.errors import ArgumentTypeError, UsageError

MAX_ITERATIONS = 2**31 - 1


def _flat(inputs):
    """Returns the inputs of a call. Lists and tuples of tensors count as their members."""
    flat = []
    for value in inputs:
        if isinstance(value, (list, tuple)) and all(isinstance(v, Tensor) for v in value):
            flat.extend(value)
        else:
            flat.append(value)
    return flat


def _function(what, function):
    """Returns a function from a list of tensors to a list of tensors."""
    if not callable(function):
        raise ArgumentTypeError(f"{what} must be a function, got {type(function).__name__}")
    signature = inspect.signature(function)

    def on_lists(arguments):
        try:
            signature.bind(*arguments)
        except TypeError as error:
            raise UsageError(
                f"{what} must take {len(arguments)} tensors, got {signature}: {error}") from None
        return result_tensors(what, function(*arguments))

    return on_lists


def call(graph, *inputs, inputs_dict=None):
    """Calls a graph. Returns its outputs, a tuple.

    `inputs` fill its inputs from the first. Lists of tensors count as their members; numbers and
    arrays become constants. `inputs_dict` has the remaining ones: {input of the graph: tensor}.
    """
    return call_with_info(graph, *inputs, inputs_dict=inputs_dict).outputs


def call_with_info(graph, *inputs, inputs_dict=None):
    """Calls a graph as call() does. Returns a CallSiteInfo."""
    return current_graph().call_with_info(graph, _flat(inputs), inputs_dict or {})


def repeat(body, n, *inputs, inputs_dict=None, iteration=None, condition=None, infeed=None):
    """Runs a graph or a function `n` times on the device. Returns the values after the last one.

    A graph: iteration i receives output k of iteration i - 1 as its input k. Its other inputs are
    invariant, or accumulate if they are passed by reference. Its int32 input `iteration` receives
    the number of the iteration. An iteration begins only while its bool input `condition`, by
    reference, is true.

    A function receives the values of `inputs`, then those that it returned, as tensors of the
    current graph. With an `infeed`, the fields of its next element follow.
    """
    if isinstance(body, Graph):
        if infeed is not None:
            raise UsageError("repeat: infeed requires a function; a graph uses dequeue()")
        return repeat_with_info(body, n, *inputs, inputs_dict=inputs_dict, iteration=iteration,
                                condition=condition).outputs
    if inputs_dict or iteration is not None or condition is not None:
        raise UsageError("repeat: inputs_dict, iteration and condition require a graph")
    body = _function("repeat: the body", body)
    return tuple(current_graph().repeat_function(n, body, _flat(inputs), infeed))


def repeat_with_info(graph, n, *inputs, inputs_dict=None, iteration=None, condition=None):
    """Repeats a graph as repeat() does. Returns a CallSiteInfo of the loop's wrapper graph."""
    return current_graph().repeat_with_info(
        graph, n, _flat(inputs), inputs_dict or {}, iteration, condition)


def while_loop(condition, body, *inputs, infeed=None, max_iterations=MAX_ITERATIONS):
    """Runs a function while a condition holds, at most `max_iterations` times, on the device.

    `condition` receives the carried values and returns a scalar bool tensor. `body`, `inputs` and
    `infeed` are those of repeat(). Returns the values after the last iteration.
    """
    condition = _function("while_loop: the condition", condition)
    body = _function("while_loop: the body", body)
    return tuple(
        current_graph().while_loop(condition, body, _flat(inputs), infeed, max_iterations))


def scan(graph, carried, sequences, inputs_dict=None, descending=False):
    """Runs a graph for each row of the sequences. Returns (carried values, rows of results).

    The inputs of the graph are the carried values, then a row of each sequence, then invariant
    ones. Its outputs are the new carried values, then rows of results.
    """
    return current_graph().scan(graph, list(carried), list(sequences), inputs_dict or {},
                                descending)


def conditional(cond, then_branch, else_branch, then_inputs=(), else_inputs=(),
                then_inputs_dict=None, else_inputs_dict=None):
    """Runs one of two graphs, whose outputs have equal specs. Returns the outputs, a tuple."""
    return conditional_with_info(cond, then_branch, else_branch, then_inputs, else_inputs,
                                 then_inputs_dict, else_inputs_dict).outputs


def conditional_with_info(cond, then_branch, else_branch, then_inputs=(), else_inputs=(),
                          then_inputs_dict=None, else_inputs_dict=None):
    """Runs one of two graphs as conditional() does. Returns a ConditionalSiteInfo."""
    return current_graph().conditional_with_info(
        cond, then_branch, else_branch, _flat(then_inputs or ()), _flat(else_inputs or ()),
        then_inputs_dict or {}, else_inputs_dict or {})
