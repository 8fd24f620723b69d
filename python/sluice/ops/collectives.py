"""Collectives: each combines a tensor over groups of replicas (default: all replicas)."""

from sluice.ops._operators import (
    replica_sharded_slice, replicated_all_gather, replicated_all_reduce, replicated_all_reduce_,
    replicated_all_reduce_identical_grad_inputs, replicated_all_reduce_identical_inputs,
    replicated_reduce_scatter, replicated_slice)

__all__ = [
    "replica_sharded_slice", "replicated_all_gather", "replicated_all_reduce",
    "replicated_all_reduce_", "replicated_all_reduce_identical_grad_inputs",
    "replicated_all_reduce_identical_inputs", "replicated_reduce_scatter", "replicated_slice",
]
