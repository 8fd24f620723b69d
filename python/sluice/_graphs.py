"""Graphs from Python functions, and the functions of the current graph."""

import inspect
import typing

from sluice import _core
from sluice._context import current_graph
from sluice._core import Tensor, TensorSpec
from sluice.errors import ArgumentTypeError, UsageError


class TensorByRef(Tensor):
    """Annotation of a parameter whose tensor is passed by reference.

    The caller of the graph sees what the graph writes to it. `List[TensorByRef]` does so for all
    members of a list.
    """


def is_spec(value):
    """Whether an argument becomes an input of a graph."""
    return isinstance(value, (Tensor, TensorSpec))


def result_tensors(what, result):
    """Returns the result of a function as a list of tensors. It may be None, a Tensor, or several.

    `what` begins the text of an error.
    """
    if result is None:
        return []
    if isinstance(result, Tensor):
        return [result]
    if not isinstance(result, (str, bytes)):
        try:
            result = list(result)
        except TypeError:
            pass
        else:
            if all(isinstance(t, Tensor) for t in result):
                return result
    raise UsageError(f"{what} must return None, a Tensor or Tensors, got {_type_name(result)}")


def _type_name(value):
    """Returns the type of a value, or the types of the members of a list."""
    if isinstance(value, list):
        return f"a list of {', '.join(sorted({type(v).__name__ for v in value}))}"
    return type(value).__name__


def _by_reference(function, parameter):
    """Whether the annotation of a parameter is TensorByRef, or a list or tuple of it."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        try:
            annotation = typing.get_type_hints(function).get(parameter.name)
        except NameError:
            return False
    if annotation is TensorByRef:
        return True
    return TensorByRef in typing.get_args(annotation)


def _inputs(graph, parameter, value, by_ref):
    """Returns what a parameter of the function receives. Tensors and specs become inputs."""
    def add(spec, name):
        return graph.input(spec.shape, spec.dtype, name, by_ref, spec.meta_shape)

    if is_spec(value):
        return add(value, parameter.name)
    if parameter.kind is parameter.VAR_KEYWORD:
        members = value.values()
    elif isinstance(value, (list, tuple)):
        members = value
    else:
        return value
    specs = [is_spec(member) for member in members]
    if not any(specs):
        return value
    if not all(specs):
        raise ArgumentTypeError(
            f"create_graph: parameter '{parameter.name}' must have only tensors or none, got a "
            "mixture")
    if parameter.kind is parameter.VAR_KEYWORD:
        return {name: add(member, name) for name, member in value.items()}
    return [add(member, f"{parameter.name}_{i}") for i, member in enumerate(value)]


def create_graph(ir, function, *args, **kwargs):
    """Makes a graph by calling `function` once (Ir.create_graph)."""
    if not callable(function):
        raise ArgumentTypeError(
            f"create_graph: the first argument must be a function, got {type(function).__name__}")
    name = getattr(function, "__qualname__", None)
    if name is None:
        raise ArgumentTypeError(
            "create_graph: the function must have a __qualname__, which names the graph, got "
            f"{type(function).__name__}")
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(
            f"create_graph: arguments must match {name}{signature}, got: {error}") from None
    bound.apply_defaults()
    graph = ir.create_empty_graph(name.replace(".<locals>", ""))
    for parameter in signature.parameters.values():
        value = bound.arguments[parameter.name]
        bound.arguments[parameter.name] = _inputs(
            graph, parameter, value, _by_reference(function, parameter))
    with graph:
        result = function(*bound.args, **bound.kwargs)
    for output in result_tensors(f"create_graph: {name}", result):
        graph.add_output(output)
    return graph


def graph_input(shape, dtype, name="t", by_ref=False, meta_shape=()):
    """Adds an input to the current graph, after the existing ones."""
    return current_graph().input(shape, dtype, name, by_ref, meta_shape)


def graph_output(t):
    """Adds an output to the current graph, after the existing ones."""
    current_graph().add_output(t)


def variable(data, dtype=None, name="t", path="", shape=None, grouping=None):
    """Adds a variable with the first value `data` to the current graph, an entry graph.

    Python's numbers and 64-bit arrays become 32-bit without a `dtype`. `data` may be an
    Initializer for `shape`. `path` is the key in files (default: the name). Replicas of a group of
    `grouping` hold one value (default: all). With several groups, `data` has them as first axis.
    """
    return current_graph().variable(data, dtype, name, path, shape, grouping)


def sharded_variable(data, dtype=None, name="t", path="", shape=None, grouping=None, shards=0):
    """Adds a variable of which each replica of a group holds one of `shards` chunks.

    The tensor is the chunk, and its meta_shape is the shape of the whole. 0 shards: one for each
    replica of the group.
    """
    return current_graph().sharded_variable(data, dtype, name, path, shape, grouping, shards)


def remote_variable(data, buffer, entry=0, dtype=None, name="t", path="", shape=None,
                    grouping=None, shards=0):
    """Adds a variable whose only copy is an entry of a remote buffer; load it with remote_load().

    If the entries are shards, `data` is the whole tensor.
    """
    return current_graph().remote_variable(
        data, buffer, entry, dtype, name, path, shape, grouping, shards)


def constant(data, dtype=None, name="t"):
    """Adds a constant to the current graph."""
    return current_graph().constant(data, dtype, name)


def host_load(stream, name=""):
    """Loads the next entry of a stream into a new tensor of the current graph."""
    return current_graph().host_load(stream, name)


def host_store(t, stream="d2h_stream"):
    """Stores `t` as the next entry of a stream, or of a new stream of this name.

    Returns the stream.
    """
    graph = current_graph()
    if isinstance(stream, str):
        stream = graph.ir.d2h_stream(t.shape, t.dtype, stream)
    graph.host_store(stream, t)
    return stream


def remote_load(buffer, entry=0, name=""):
    """Loads an entry of a remote buffer into a new tensor of the current graph.

    The entry is a number, or a scalar int32 or uint32 tensor.
    """
    return current_graph().remote_load(buffer, entry, name)


def remote_load_(buffer, entry, t):
    """Loads an entry of a remote buffer over `t`. Returns the new version of `t`."""
    return current_graph().remote_load_(buffer, entry, t)


def remote_store(buffer, entry, t):
    """Stores `t` in an entry of a remote buffer."""
    current_graph().remote_store(buffer, entry, t)


def dequeue(feed):
    """Loads the next element of an infeed. Returns its fields by name, in their order."""
    return current_graph().dequeue(feed)


def enqueue(feed, fields):
    """Stores an element of an outfeed: {name: tensor} for all fields."""
    current_graph().enqueue(feed, fields)


def name_scope(name):
    """Within the block, ops of the current graph have `name` in their module path."""
    return _core.name_scope(current_graph(), name)


def device_scope(device):
    """Within the block, ops of the current graph run on a device. None: that of the caller."""
    return _core.device_scope(current_graph(), device)


def io_scope(mode):
    """Within the block, transfers of the current graph have a mode.

    "compute": at their position in program order. "io": on an I/O queue. "io_overlapped": also
    issued as early and waited for as late as the order allows.
    """
    return _core.io_scope(current_graph(), mode)
