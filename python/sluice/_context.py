"""The graphs of `with graph:` blocks, innermost last. Each thread has its own."""

import threading

from sluice.errors import UsageError

_local = threading.local()


def _graphs():
    if not hasattr(_local, "graphs"):
        _local.graphs = []
    return _local.graphs


def enter(graph):
    """Makes `graph` the current graph. All graphs in use belong to one Ir."""
    graphs = _graphs()
    if graphs and graphs[-1].ir.id != graph.ir.id:
        raise UsageError(
            f"with graph: must be a graph of Ir {graphs[-1].ir.id}, which is in use, got a graph "
            f"of Ir {graph.ir.id}; leave the outer `with` first")
    graphs.append(graph)


def leave(graph):
    """Ends the innermost block, which is that of `graph`."""
    graphs = _graphs()
    if not graphs or graphs[-1] != graph:
        raise UsageError("with graph: blocks must end in the reverse order of their beginnings")
    graphs.pop()


def current_graph():
    """Returns the graph of the innermost `with graph:` block."""
    graphs = _graphs()
    if not graphs:
        raise UsageError("no graph is in use; call the function within `with graph:`")
    return graphs[-1]
