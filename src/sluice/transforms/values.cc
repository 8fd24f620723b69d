#include "sluice/transforms/values.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "sluice/ir/builtin.h"
#include "sluice/ir/verify.h"

namespace sluice::transforms {

Value value_read(const Graph& graph, const Operand& operand) {
  return {graph.info(operand.tensor).storage, operand.version};
}

Value value_made(const Graph& graph, const Op& op, size_t output) {
  const StorageId storage = graph.info(op.outputs[output]).storage;
  for (const Alias& a : op.def->aliases) {
    if (std::cmp_not_equal(a.output, output)) continue;
    const Operand& target = at(op.inputs, a.input);
    return {storage, target.new_version.valid() ? target.new_version : target.version};
  }
  return {storage, Version(0)};
}

Value value_of_handle(const Graph& graph, TensorId handle) {
  return {graph.info(handle).storage, graph.info(handle).version};
}

Value value_of_output(const Graph& graph, TensorId output) {
  const StorageId storage = graph.info(output).storage;
  return {storage, graph.storage(storage).version()};
}

AliasStep alias_step(const Graph& graph, TensorId handle) {
  const TensorInfo& info = graph.info(handle);
  if (!info.producer.valid() || graph.storage(info.storage).root == handle) return {};
  const Op& op = graph.op(info.producer);
  for (const Alias& a : op.def->aliases) {
    if (a.output != info.output) continue;
    return {&op, a.input, a.output, at(op.inputs, a.input).mode != Mode::kRead};
  }
  return {};
}

Layout layout_of(const Graph& graph, TensorId handle) {
  for (AliasStep step = alias_step(graph, handle); step.op != nullptr;
       step = alias_step(graph, handle)) {
    if (!step.writes && !step.op->def->has(Trait::kView)) return Layout::kPartial;
    handle = at(step.op->inputs, step.input).tensor;
  }
  return Layout::kWhole;
}

bool is_detached(const Graph& graph, TensorId handle) {
  for (AliasStep step = alias_step(graph, handle); step.op != nullptr;
       step = alias_step(graph, handle)) {
    if (!step.writes && step.op->def->zero_gradient(step.input)) return true;
    handle = at(step.op->inputs, step.input).tensor;
  }
  return false;
}

std::string base_name(const std::string& graph_name) {
  constexpr std::string_view kNumber = "_subgraph(";
  std::string name = graph_name;
  for (size_t at = name.find(kNumber); at != std::string::npos; at = name.find(kNumber, at)) {
    const size_t end = name.find_first_not_of("0123456789", at + kNumber.size());
    const bool is_number =
        end != std::string::npos && end > at + kNumber.size() && name[end] == ')';
    if (is_number) {
      name.erase(at, end + 1 - at);
    } else {
      at += kNumber.size();
    }
  }
  return name;
}

size_t position(const std::vector<TensorId>& ids, const Tensor& t) {
  return static_cast<size_t>(std::find(ids.begin(), ids.end(), t.id()) - ids.begin());
}

void verify_transformed([[maybe_unused]] const Graph& graph) {
#ifndef NDEBUG
  verify(graph.ir());
#endif
}

bool writes_input(const Graph& graph, size_t i) {
  const StorageId id = graph.info(graph.input_ids()[i]).storage;
  const Storage& storage = graph.storage(id);
  for (const Version v : IdRange(Version(1), storage.writers.end_id())) {
    const Op& op = graph.op(storage.writers[v].op);
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      if (graph.info(op.inputs[k].tensor).storage == id && changes(graph, op, k)) return true;
    }
  }
  return false;
}

bool changes(const Graph& graph, const Op& op, size_t i) {
  if (!op.inputs[i].new_version.valid()) return false;
  const Ir ir = graph.ir();
  if (op.def == &builtin::call()) return writes_input(ir.graph(op.callees[0]), i);
  if (op.def == &builtin::loop()) {
    // The first two inputs of the loop's wrapper are not operands. Carried tensors are always
    // written.
    const size_t carried = builtin::carried(op);
    return i < carried || writes_input(ir.graph(op.callees[0]), i + 2);
  }
  return true;
}

VersionRange same_contents(const Graph& graph, StorageId storage, Version version) {
  const auto& writers = graph.storage(storage).writers;
  const auto changed_by = [&](Version v) {
    const Op& op = graph.op(writers[v].op);
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      if (graph.info(op.inputs[k].tensor).storage == storage && changes(graph, op, k)) return true;
    }
    return false;
  };
  VersionRange range{version, version};
  while (range.first > 0 && !changed_by(range.first)) range.first = Version(range.first - 1);
  for (Version next(version + 1); next < writers.end_id() && !changed_by(next); ++next)
    range.last = next;
  return range;
}

}  // namespace sluice::transforms
