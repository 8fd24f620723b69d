#pragma once
#include "python/bindings/bindings.h"
#include "python/bindings/source_lines.h"
#include "sluice/ir/ir.h"

namespace sluice::python {

/// A graph as Python holds it. It keeps the Ir, which owns the graph.
struct GraphHandle {
  Ir ir;
  GraphId id;

  explicit GraphHandle(Graph& graph) : ir(graph.ir()), id(graph.id()) {}
  Graph& get() const { return ir.graph(id); }
  bool operator==(const GraphHandle& other) const {
    return ir.id() == other.ir.id() && id == other.id;
  }
};

/// While it exists, ops that this thread adds, to any graph, have the line of the Python program
/// that is running.
class AtPythonLine {
 public:
  AtPythonLine() : scope_(source_line()) {}
  explicit AtPythonLine(const Graph&) : AtPythonLine() {}

 private:
  Graph::LineScope scope_;
};

}  // namespace sluice::python
