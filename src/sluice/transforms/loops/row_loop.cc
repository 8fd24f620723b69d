#include "sluice/transforms/loops/row_loop.h"

#include <algorithm>

#include "sluice/ir/builtin.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/slice.h"

namespace sluice::transforms {
namespace {

// The only op of a graph that has a tensor among its operands, if the tensor is not an output.
const Op* only_user(const Graph& graph, TensorId t) {
  const StorageId storage = graph.info(t).storage;
  for (const TensorId out : graph.output_ids()) {
    if (graph.info(out).storage == storage) return nullptr;
  }
  const Op* found = nullptr;
  for (const Op& op : graph.ops()) {
    for (const Operand& o : op.inputs) {
      if (graph.info(o.tensor).storage != storage) continue;
      if (found != nullptr) return nullptr;
      found = &op;
    }
  }
  return found;
}

}  // namespace

ops::RowOrder reversed(ops::RowOrder order) {
  return order == ops::RowOrder::kAscending ? ops::RowOrder::kDescending
                                            : ops::RowOrder::kAscending;
}

Tensor RowLoop::bind(const Tensor& operand, const TensorSpec& spec,
                     std::optional<ops::RowOrder> order, Tensor input) {
  if (!input.valid()) {
    for (size_t k = carried_; k < bindings_.size(); ++k) {
      if (bindings_[k].operand == operand && bindings_[k].order == order) return bindings_[k].input;
    }
    input = body_.input(spec, operand.valid() ? operand.name() : "iteration");
  }
  bindings_.push_back({input, operand, order});
  return input;
}

Tensor RowLoop::carry(const Tensor& first, Tensor input) {
  SLUICE_CHECK(carried_ == bindings_.size());
  if (!input.valid()) input = body_.input(first.spec(), first.name());
  bindings_.push_back({input, first});
  ++carried_;
  return input;
}

Tensor RowLoop::invariant(const Tensor& t, Tensor input) {
  return bind(t, t.spec(), {}, std::move(input));
}

Tensor RowLoop::row(const Tensor& t, ops::RowOrder order, Tensor input) {
  const auto& dims = t.shape().dims();
  const TensorSpec spec{Shape(std::vector(dims.begin() + 1, dims.end())), t.dtype(), {}};
  return bind(t, spec, order, std::move(input));
}

Tensor RowLoop::iteration(ops::RowOrder order) { return bind({}, {{}, i32, {}}, order, {}); }

RowLoop::Results RowLoop::run(const std::vector<ops::RowOrder>& orders,
                              std::source_location where) {
  Graph& wrapper = body_.ir().create_empty_graph(body_.name() + "__loop_wrapper");
  const Tensor iteration = wrapper.input({{}, i32, {}}, "iteration");
  wrapper.input({{}, boolean, {}}, "keep_going");
  Tensor descending;
  const auto index = [&](ops::RowOrder order) {
    if (order == ops::RowOrder::kAscending) return iteration;
    if (!descending.valid()) {
      const auto last = static_cast<int32_t>(trips_ - 1);
      descending = ops::sub(wrapper.scalar(last, i32, "last_iteration"), iteration);
    }
    return descending;
  };
  std::vector<TensorArg> operands;
  std::vector<Mode> modes;
  TensorMap arguments;
  for (const Binding& b : bindings_) {
    if (!b.operand.valid()) {
      arguments.emplace_back(b.input, index(*b.order));
      continue;
    }
    const Pass pass = b.order ? Pass::kByValue : body_.info(b.input).pass;
    const Tensor inner = wrapper.input(b.operand.spec(), body_.info(b.input).name, pass);
    operands.emplace_back(b.operand, where);
    modes.push_back(pass == Pass::kByReference ? Mode::kUpdate : Mode::kRead);
    arguments.emplace_back(b.input, b.order ? ops::gather(inner, index(*b.order)) : inner);
  }
  const Tensors results = ops::call(wrapper, body_, {}, arguments, where);
  const Tensors original = body_.original_outputs();
  SLUICE_CHECK(original.size() == carried_ + orders.size());
  Tensors outputs;  // Without the outputs that transforms appended.
  for (size_t k = 0; k < results.size() && outputs.size() < original.size(); ++k) {
    if (body_.output_ids()[k] == original[outputs.size()].id()) outputs.push_back(results[k]);
  }
  Results made;
  for (size_t k = carried_; k < outputs.size(); ++k) {
    std::vector<int64_t> dims = outputs[k].shape().dims();
    dims.insert(dims.begin(), trips_);
    const builtin::InitOptions init{
        .shape = Shape(dims), .dtype = outputs[k].dtype(), .undefined = true};
    const std::string& name = original[k].name();
    made.rows.push_back(parent_.emit(builtin::init(), {}, to_attrs(init), {.name = name})[0]);
    operands.emplace_back(made.rows.back(), where);
    modes.push_back(Mode::kUpdate);
    const Tensor inner = wrapper.input(made.rows.back().spec(), name, Pass::kByReference);
    ops::update_row_(inner, outputs[k], index(orders[k - carried_]));
  }
  outputs.resize(carried_);
  wrapper.set_outputs(outputs);
  EmitOptions options{.callees = {wrapper.id()}, .modes = std::move(modes)};
  for (size_t k = 0; k < carried_; ++k) {
    options.outputs.push_back(outputs[k].spec());
    options.output_names.push_back(original[k].name());
  }
  made.carried = parent_.emit(
      builtin::loop(), operands,
      to_attrs(builtin::LoopOptions{.trips = trips_, .carried = static_cast<int64_t>(carried_)}),
      std::move(options));
  return made;
}

std::optional<ops::RowOrder> order_of(const Graph& wrapper, TensorId index, int64_t trips) {
  const TensorId iteration = wrapper.input_ids()[0];
  if (index == iteration) return ops::RowOrder::kAscending;
  const OpId producer = wrapper.info(index).producer;
  if (!producer.valid()) return {};
  const Op& op = wrapper.op(producer);
  if (op.def != &ops::sub_def() || op.inputs[1].tensor != iteration) return {};
  const auto& last = wrapper.info(op.inputs[0].tensor).constant;
  if (last == nullptr || last->as<int32_t>()[0] != trips - 1) return {};
  return ops::RowOrder::kDescending;
}

std::optional<RowUse> row_read(const Graph& wrapper, size_t i) {
  const TensorId t = wrapper.input_ids()[i];
  const Op* const op = only_user(wrapper, t);
  if (op == nullptr || op->def != &ops::gather_def() || op->inputs[0].tensor != t ||
      wrapper.spec(t).shape.empty() || from_attrs<ops::GatherOptions>(op->attrs).axis != 0)
    return {};
  const auto order = order_of(wrapper, op->inputs[1].tensor, wrapper.spec(t).shape[0]);
  if (!order) return {};
  return RowUse{wrapper.handle(op->outputs[0]), Version(0), *order};
}

std::optional<RowUse> row_written(const Graph& wrapper, size_t i) {
  const TensorId t = wrapper.input_ids()[i];
  const Op* const op = only_user(wrapper, t);
  if (op == nullptr || op->def != &ops::update_row_def() || op->inputs[0].tensor != t ||
      wrapper.info(t).pass != Pass::kByReference)
    return {};
  const auto order = order_of(wrapper, op->inputs[2].tensor, wrapper.spec(t).shape[0]);
  if (!order) return {};
  return RowUse{wrapper.handle(op->inputs[1].tensor), op->inputs[1].version, *order};
}

}  // namespace sluice::transforms
