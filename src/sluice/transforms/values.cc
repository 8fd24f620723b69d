#include "sluice/transforms/values.h"

#include <algorithm>
#include <string_view>

#include "sluice/ir/builtin.h"
#include "sluice/ir/verify.h"

namespace sluice::transforms {

Value value_read(const Graph& graph, const Operand& operand) {
  return {graph.info(operand.tensor).storage, operand.version};
}

Value value_made(const Graph& graph, const Op& op, size_t output) {
  const int32_t storage = graph.info(op.outputs[output]).storage;
  for (const Alias& a : op.def->aliases) {
    if (static_cast<size_t>(a.output) != output) continue;
    const Operand& target = op.inputs[static_cast<size_t>(a.input)];
    return {storage, target.new_version >= 0 ? target.new_version : target.version};
  }
  return {storage, 0};
}

Value value_of_handle(const Graph& graph, TensorId handle) {
  return {graph.info(handle).storage, graph.info(handle).version};
}

Value value_of_output(const Graph& graph, TensorId output) {
  const int32_t storage = graph.info(output).storage;
  return {storage, graph.storage(storage).version()};
}

AliasStep alias_step(const Graph& graph, TensorId handle) {
  const TensorInfo& info = graph.info(handle);
  if (info.producer < 0 || graph.storage(info.storage).root == handle) return {};
  const Op& op = graph.op(info.producer);
  for (const Alias& a : op.def->aliases) {
    if (a.output != info.output) continue;
    const auto input = static_cast<size_t>(a.input);
    return {&op, input, static_cast<size_t>(a.output), op.inputs[input].mode != Mode::kRead};
  }
  return {};
}

Layout layout_of(const Graph& graph, TensorId handle) {
  for (AliasStep step = alias_step(graph, handle); step.op != nullptr;
       step = alias_step(graph, handle)) {
    if (!step.writes && !step.op->def->has(Trait::kView)) return Layout::kPartial;
    handle = step.op->inputs[step.input].tensor;
  }
  return Layout::kWhole;
}

bool is_detached(const Graph& graph, TensorId handle) {
  for (AliasStep step = alias_step(graph, handle); step.op != nullptr;
       step = alias_step(graph, handle)) {
    if (!step.writes && step.op->def->zero_gradient(static_cast<int>(step.input))) return true;
    handle = step.op->inputs[step.input].tensor;
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
  const int32_t id = graph.info(graph.input_ids()[i]).storage;
  const Storage& storage = graph.storage(id);
  for (size_t v = 1; v < storage.writers.size(); ++v) {
    const Op& op = graph.op(storage.writers[v].op);
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      if (graph.info(op.inputs[k].tensor).storage == id && changes(graph, op, k)) return true;
    }
  }
  return false;
}

bool changes(const Graph& graph, const Op& op, size_t i) {
  if (op.inputs[i].new_version < 0) return false;
  const Ir ir = graph.ir();
  if (op.def == &builtin::call()) return writes_input(ir.graph(op.callees[0]), i);
  if (op.def == &builtin::loop()) {
    // The first two inputs of the loop's wrapper are not operands. Carried tensors are always
    // written.
    const auto carried = static_cast<size_t>(from_attrs<builtin::LoopOptions>(op.attrs).carried);
    return i < carried || writes_input(ir.graph(op.callees[0]), i + 2);
  }
  return true;
}

VersionRange same_contents(const Graph& graph, int32_t storage, int64_t version) {
  const auto& writers = graph.storage(storage).writers;
  const auto changed_by = [&](int64_t v) {
    const Op& op = graph.op(writers[static_cast<size_t>(v)].op);
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      if (graph.info(op.inputs[k].tensor).storage == storage && changes(graph, op, k)) return true;
    }
    return false;
  };
  VersionRange range{version, version};
  while (range.first > 0 && !changed_by(range.first)) --range.first;
  while (range.last + 1 < static_cast<int64_t>(writers.size()) && !changed_by(range.last + 1))
    ++range.last;
  return range;
}

}  // namespace sluice::transforms
