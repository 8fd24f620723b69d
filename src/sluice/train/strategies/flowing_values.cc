#include "sluice/train/strategies/flowing_values.h"

#include <algorithm>

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"

namespace sluice::train {
namespace {

Tensor find(const MicroBatchValues& values, const FlowingValue& value) {
  if (value.is_gradient) {
    const auto found = values.gradients.find(value.value.second);
    return found == values.gradients.end() ? Tensor() : found->second;
  }
  const auto found = values.forward.find(value.value);
  return found == values.forward.end() ? Tensor() : found->second;
}

void add(const FlowingValue& value, const Tensor& t, MicroBatchValues& values) {
  if (value.is_gradient) {
    values.gradients.emplace(value.value.second, t);
  } else {
    values.forward.emplace(value.value, t);
  }
}

}  // namespace

FlowingValues::FlowingValues(const Cut& cut, const BlockGradients& gradients,
                             const PlacedStages& stages, std::vector<Flow> flows,
                             const Options& options)
    : cut_(cut),
      gradients_(gradients),
      stages_(stages),
      options_(options),
      flows_(std::move(flows)) {
  std::map<const OrderLoop*, std::set<Slot>> known;
  for (const Flow& flow : flows_) add(flow, known);
  require(buffers_.empty() || options.locations.activations == Location::kRemote,
          "training: locations.activations must be remote where values pass from one loop over "
          "micro-batches to another, got device");
}

void FlowingValues::add(const Flow& flow, std::map<const OrderLoop*, std::set<Slot>>& known) {
  const Task& maker = flow.made_by.task;
  made_by_[{maker.kind, key_of(maker)}].push_back(&flow);
  for (const MicroBatchTask& reader : flow.read_by) {
    const TaskDistance d = distance(flow.made_by, reader, options_.accumulate);
    if (!d.iterations) {
      const Waiting waiting{flow.value, stages_[maker.stage].device};
      int64_t& capacity = buffers_[waiting].capacity;
      capacity = std::max(capacity, d.capacity);
      loads_.insert_or_assign({{reader.task.kind, key_of(reader.task)}, flow.value}, waiting);
      continue;
    }
    if (flow.made_by.loops.empty()) continue;
    const int64_t factor = flow.made_by.factor(flow.made_by.loops.size() - 1);
    const OrderLoop* const loop = flow.made_by.loops.back();
    std::vector<Slot>& slots = slots_[loop];
    for (int64_t age = 1; age <= *d.iterations; ++age) {
      const Slot slot{{flow.value, flow.device}, maker.micro_batch.constant - age * factor, factor};
      if (known[loop].insert(slot).second) slots.push_back(slot);
    }
  }
}

RemoteEntry FlowingValues::entry(const TaskContext& context, const Task& task,
                                 int64_t capacity) const {
  const Affine& m = task.micro_batch;
  Tensor sum;
  for (size_t d = 0; d < context.iterations.size(); ++d) {
    const auto factor = static_cast<double>(m.factor(context.outer + d));
    if (factor == 0) continue;
    const Tensor& i = context.iterations[d];
    const Tensor term = factor == 1 ? i : i * factor;
    sum = sum.valid() ? sum + term : term;
  }
  if (!sum.valid()) return m.constant % capacity;
  if (capacity >= options_.accumulate)
    return m.constant == 0 ? sum : sum + static_cast<double>(m.constant);
  return ops::increment_mod(sum, static_cast<double>(m.constant), static_cast<double>(capacity));
}

MicroBatchValues FlowingValues::read(const TaskContext& context, const Task& task) {
  MicroBatchValues values;
  const auto known = values_.back().find(task.micro_batch.constant);
  const DeviceId device = stages_[task.stage].device;
  const auto read_one = [&](const FlowingValue& v) {
    if (find(values, v).valid()) return;
    const auto waiting = loads_.find({{task.kind, key_of(task)}, v});
    if (waiting == loads_.end()) {
      if (known == values_.back().end()) return;
      const auto t = known->second.find({v, device});
      if (t != known->second.end()) train::add(v, t->second, values);
      return;
    }
    const Buffer& there = buffers_.at(waiting->second);
    const DeviceScope on(context.graph, waiting->second.second);
    const Graph::IoScope scope(context.graph, options_.io_mode);
    const Tensor t = context.graph.remote_load(there.buffer.value(),
                                               entry(context, task, there.capacity), "value");
    train::add(v, t, values);
  };
  for (const BlockId b : blocks_of(task, stages_)) {
    if (task.runs_forward()) {
      for (const FlowingValue& v : reads_forward(cut_.blocks[b])) read_one(v);
    }
    if (task.runs_backward()) {
      for (const FlowingValue& v : reads_backward(cut_.blocks[b], gradients_[b], nullptr))
        read_one(v);
    }
  }
  return values;
}

void FlowingValues::write(const TaskContext& context, const Task& task,
                          const MicroBatchValues& found, const MicroBatchValues& values) {
  const auto flows = made_by_.find({task.kind, key_of(task)});
  if (flows == made_by_.end()) return;
  std::set<FlowingValue> stored;
  for (const Flow* flow : flows->second) {
    const Tensor made = find(values, flow->value);
    if (!made.valid() || made == find(found, flow->value)) continue;
    values_.back()[task.micro_batch.constant].insert_or_assign({flow->value, flow->device}, made);
    const DeviceId device = stages_[task.stage].device;
    const auto there = buffers_.find({flow->value, device});
    if (there == buffers_.end() || !stored.insert(flow->value).second) continue;
    Buffer& b = there->second;
    if (!b.buffer) b.buffer = context.graph.ir().remote_buffer(made.spec(), b.capacity);
    const Graph::IoScope scope(context.graph, options_.io_mode);
    context.graph.remote_store(*b.buffer, entry(context, task, b.capacity), made);
  }
}

Tensors FlowingValues::enter_loop(const OrderLoop& loop, Graph& body) {
  const auto& outside = values_.back();
  std::map<int64_t, ByReader> inside;
  Tensors carried;
  for (const Slot& slot : slots_[&loop]) {
    const auto at = outside.find(slot.micro_batch);
    const bool known = at != outside.end() && at->second.contains(slot.reader);
    require(known,
            "order: a loop reads values of micro-batch {} in its first iteration; tasks before the "
            "loop must make them",
            slot.micro_batch);
    const Tensor& t = at->second.at(slot.reader);
    carried.push_back(t);
    inside[slot.micro_batch].emplace(slot.reader, body.input(t.spec(), t.name()));
  }
  values_.push_back(std::move(inside));
  return carried;
}

Tensors FlowingValues::results_of_loop(const OrderLoop& loop) const {
  Tensors results;
  const auto slots = slots_.find(&loop);
  if (slots == slots_.end()) return results;
  for (const Slot& slot : slots->second)
    results.push_back(values_.back().at(slot.micro_batch + slot.factor).at(slot.reader));
  return results;
}

void FlowingValues::leave_loop(const OrderLoop& loop, const Tensors& results) {
  values_.pop_back();
  const std::vector<Slot>& slots = slots_[&loop];
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    values_.back()[loop.trips * slot.factor + slot.micro_batch].insert_or_assign(slot.reader,
                                                                                 results[i]);
  }
}

}  // namespace sluice::train
