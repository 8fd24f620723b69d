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

from sluice import data, ops, transforms
from sluice._context import current_graph
from sluice._core import (
    Binding, CallSiteInfo, ConditionalSiteInfo, D2hStream, Graph, H2dStream, Infeed, Initializer,
    Ir, LoadResult, Outfeed, RemoteBuffer, ReplicaGrouping, Session, Tensor, TensorSpec, dtype)
from sluice._graphs import (
    TensorByRef, constant, dequeue, device_scope, enqueue, graph_input, graph_output, host_load,
    host_store, io_scope, name_scope, remote_load, remote_load_, remote_store, remote_variable,
    sharded_variable, variable)
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

__all__ = [
    "ArgumentTypeError", "BadFileError", "Binding", "CallSiteInfo", "ConditionalSiteInfo",
    "D2hStream", "Diverged", "DoesNotFit", "Error", "Graph", "H2dStream", "Infeed", "Initializer",
    "InternalError", "IoError", "Ir", "LoadResult", "NoCheckpoint", "Outfeed", "PeerLost",
    "RemoteBuffer", "ReplicaGrouping", "Session", "Stopped", "Tensor", "TensorByRef", "TensorSpec",
    "UsageError", "bfloat16", "bool_", "constant", "current_graph", "data", "dequeue",
    "device_scope", "dtype", "enqueue", "float16", "float32", "float64", "graph_input",
    "graph_output", "host_load", "host_store", "int32", "int64", "io_scope", "name_scope", "ops",
    "remote_load", "remote_load_", "remote_store", "remote_variable", "sharded_variable",
    "transforms", "uint32", "uint8", "variable",
]
