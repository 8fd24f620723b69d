#pragma once
#include <nanobind/stl/string.h>

#include <string>
#include <utility>
#include <vector>

#include "python/bindings/bindings.h"
#include "python/bindings/source_lines.h"
#include "sluice/ir/call.h"
#include "sluice/ir/ir.h"

namespace sluice::python {

/// Raises ArgumentTypeError, a TypeError.
[[noreturn]] void refuse_type(const std::string& text);

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

/// A remote buffer as Python holds it. It keeps the Ir, which stores the number of entries.
struct RemoteBufferHandle {
  Ir ir;
  RemoteBuffer buffer;
};

/// While it exists, ops that this thread adds, to any graph, have the line of the Python program
/// that is running.
class AtPythonLine {
 public:
  AtPythonLine() : scope_(source_line()) {}

 private:
  Graph::LineScope scope_;
};

/// Returns an argument that must be a tensor. ArgumentTypeError, which `what` begins, for others.
Tensor tensor_argument(nb::handle value, const char* what);
/// Returns an argument that must be an object of the bound class T.
template <typename T>
const T& object_argument(nb::handle value, const char* what, const char* name) {
  const T* object = nullptr;
  if (nb::try_cast(value, object, /*convert=*/false) && object != nullptr) return *object;
  refuse_type(fmt::format("{}: must be {}, got {}", what, name,
                          nb::cast<std::string>(value.type().attr("__name__"))));
}
/// Converts {input of a called graph: tensor of the parent graph}.
TensorMap tensor_map(const nb::dict& named);
/// Converts the entry of a remote buffer: an integer or a scalar tensor.
RemoteEntry entry_argument(nb::handle entry);

/// Returns the value of a word. Error{kUsage} listing all words for any other.
template <typename E>
E word_argument(const char* what, const std::string& word,
                const std::vector<std::pair<const char*, E>>& words) {
  std::string known;
  for (const auto& [text, value] : words) {
    if (word == text) return value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", text);
  }
  fail(ErrorKind::kUsage, "{}: must be one of {}, got '{}'", what, known, word);
}
/// Converts "compute", "io" or "io_overlapped".
IoMode io_mode_argument(const std::string& mode);
/// Returns the word of a mode.
const char* io_mode_word(IoMode mode);

}  // namespace sluice::python
