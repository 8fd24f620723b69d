#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>

#include "python/bindings/graphs/parts.h"

/// The scopes of ir/graph.h as context managers.
namespace sluice::python {
namespace {

/// A scope of C++ that is open within a `with` block. `Argument` is what the scope sets.
template <typename Scope, typename Argument>
class ScopeContext {
 public:
  ScopeContext(const GraphHandle& graph, Argument argument)
      : graph_(graph), argument_(std::move(argument)) {}

  GraphHandle enter() {
    require(scope_ == nullptr, "scope: must not be entered twice; make a new one");
    scope_ = std::make_unique<Scope>(graph_.get(), argument_);
    return graph_;
  }
  void leave() { scope_.reset(); }

 private:
  GraphHandle graph_;  // Outlives the scope.
  Argument argument_;
  std::unique_ptr<Scope> scope_;
};

template <typename Context>
void bind_context(nb::module_& m, const char* name, const char* doc) {
  nb::class_<Context>(m, name, doc)
      .def("__enter__", &Context::enter)
      .def("__exit__", [](Context& context, const nb::args&) { context.leave(); });
}

using NameScope = ScopeContext<Graph::Scope, std::string>;
using DeviceContext = ScopeContext<DeviceScope, int>;
using IoContext = ScopeContext<Graph::IoScope, IoMode>;

}  // namespace

IoMode io_mode_argument(const std::string& mode) {
  return word_argument<IoMode>("io mode", mode,
                               {{"compute", IoMode::kCompute},
                                {"io", IoMode::kIo},
                                {"io_overlapped", IoMode::kIoOverlapped}});
}

const char* io_mode_word(IoMode mode) {
  return mode == IoMode::kCompute ? "compute" : mode == IoMode::kIo ? "io" : "io_overlapped";
}

void bind_scopes(nb::module_& m) {
  bind_context<NameScope>(m, "NameScope", "Adds a part to the module path of ops.");
  bind_context<DeviceContext>(m, "DeviceScope", "Sets the device of ops.");
  bind_context<IoContext>(m, "IoScope", "Sets the mode of transfers.");
  m.def(
      "name_scope",
      [](const GraphHandle& graph, const std::string& name) { return NameScope(graph, name); },
      "graph"_a, "name"_a, "Within the block, ops added to `graph` have `name` in their path.");
  m.def(
      "device_scope",
      [](const GraphHandle& graph, std::optional<int> device) {
        return DeviceContext(graph, device.value_or(kInheritDevice));
      },
      "graph"_a, "device"_a.none(),
      "Within the block, ops added to `graph` run on a device. None: that of the caller.");
  m.def(
      "io_scope",
      [](const GraphHandle& graph, const std::string& mode) {
        return IoContext(graph, io_mode_argument(mode));
      },
      "graph"_a, "mode"_a,
      "Within the block, transfers added to `graph` have a mode: \"compute\" (at their position in "
      "program order), \"io\" (on an I/O queue) or \"io_overlapped\" (also issued early).");
}

}  // namespace sluice::python
