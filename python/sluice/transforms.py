"""Transforms of graphs: gradients, accumulation, recomputation, phases."""

from sluice._core import (
    AccumulationResult, AddedInput, BatchHandle, BatchSerialised, BatchUpdate, Connection,
    ExpectedConnection, GradGraphInfo, RecomputeResult, autodiff, autodiff_with_accumulation,
    batch_serial_buffer, batch_serialise, batch_serialise_fwd_and_grad, decompose_sum,
    recompute_graph, split_stores, value_and_grad)

__all__ = [
    "AccumulationResult", "AddedInput", "BatchHandle", "BatchSerialised", "BatchUpdate",
    "Connection", "ExpectedConnection", "GradGraphInfo", "RecomputeResult", "autodiff",
    "autodiff_with_accumulation", "batch_serial_buffer", "batch_serialise",
    "batch_serialise_fwd_and_grad", "decompose_sum", "recompute_graph", "split_stores",
    "value_and_grad",
]
