"""Sluice: trains and runs neural networks larger than the memory of their device.

    import numpy as np
    import sluice
    from sluice import ops

    ir = sluice.Ir()
    image = ir.h2d_stream((8, 784), sluice.float32, "image")
    with ir.main_graph as main:
        x = main.host_load(image)
        w = sluice.variable(np.zeros((784, 10), np.float32), name="w")
        out = sluice.host_store(ops.softmax(x @ w), "probabilities")
    session = sluice.Session(ir, memory=4 << 20)
    print(session.run({image: images})[out])
"""

from sluice import data, ops
from sluice._context import current_graph
from sluice._core import (
    Binding, D2hStream, Graph, H2dStream, Infeed, Ir, Outfeed, Session, Tensor, TensorSpec, dtype)
from sluice.errors import (
    ArgumentTypeError, BadFileError, Diverged, DoesNotFit, Error, InternalError, IoError,
    NoCheckpoint, PeerLost, Stopped, UsageError)

float32 = dtype.float32
float16 = dtype.float16
bfloat16 = dtype.bfloat16
int32 = dtype.int32
uint32 = dtype.uint32
uint8 = dtype.uint8
bool_ = dtype.bool_
float64 = dtype.float64
int64 = dtype.int64


def variable(data, dtype=None, name="t"):
    """Adds a variable with the first value `data` to the current graph, an entry graph.

    Python's numbers and 64-bit arrays become 32-bit without a `dtype`.
    """
    return current_graph().variable(data, dtype, name)


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


__all__ = [
    "ArgumentTypeError", "BadFileError", "Binding", "D2hStream", "Diverged", "DoesNotFit", "Error",
    "Graph", "H2dStream", "Infeed", "InternalError", "IoError", "Ir", "NoCheckpoint", "Outfeed",
    "PeerLost", "Session", "Stopped", "Tensor", "TensorSpec", "UsageError", "bfloat16", "bool_",
    "constant", "current_graph", "data", "dtype", "float16", "float32", "float64", "host_load",
    "host_store", "int32", "int64", "ops", "uint32", "uint8", "variable",
]
