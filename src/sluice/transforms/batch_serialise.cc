#include "sluice/transforms/batch_serialise.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "sluice/base/checked.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/collectives.h"
#include "sluice/ops/random.h"
#include "sluice/ops/updates.h"
#include "sluice/transforms/values.h"

namespace sluice::transforms {
namespace {

const TensorSpec kIndex{{}, i32, {}};

bool contains(const Tensors& list, const Tensor& t) {
  return std::find(list.begin(), list.end(), t) != list.end();
}

template <typename Handle>
const Handle* find(const std::vector<std::pair<Tensor, Handle>>& list, const Tensor& t) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const auto& p) { return p.first == t; });
  return found == list.end() ? nullptr : &found->second;
}

// Whether replicas of the group store shards. A tensor that cannot be cut is stored whole by each
// replica.
bool in_shards(const TensorSpec& spec, const std::optional<ReplicaGrouping>& group) {
  return group && group->size() > 1 && spec.shape.rank() > 0;
}

TensorSpec kept_spec(const Tensor& t, const std::optional<ReplicaGrouping>& group) {
  if (!in_shards(t.spec(), group)) return t.spec();
  require(t.meta_shape().empty(),
          "batch_serialise: a tensor with shard_group must be whole, got '{}', a shard of {}",
          t.name(), to_string(t.meta_shape()));
  return {{ceil_div(t.elements(), group->size())}, t.dtype(), t.shape()};
}

// Collects the streams and remote buffers that a graph and its callees use.
void add_effects(const Graph& graph, std::set<std::pair<bool, int32_t>>& used,
                 std::set<GraphId>& seen) {
  if (!seen.insert(graph.id()).second) return;
  for (const Op& op : graph.ops()) {
    for (const Effect& e : op.effects) {
      const bool remote =
          e.kind == Effect::Action::kRemoteLoad || e.kind == Effect::Action::kRemoteStore;
      const bool stream =
          e.kind == Effect::Action::kStreamRead || e.kind == Effect::Action::kStreamWrite;
      if (remote || stream) used.emplace(remote, e.id);
    }
    for (const GraphId callee : op.callees) add_effects(graph.ir().graph(callee), used, seen);
  }
}

// Transfers of one iteration.
struct Load {
  Tensor input;  // Input of the graph.
  LoadHandle from;
};
struct Store {
  Tensor tensor;  // Input or output of the graph.
  std::optional<ReplicaGrouping> shard_group;
  std::vector<D2hStream> streams;
  std::vector<BatchHandle> buffers;
};

class Serialiser {
 public:
  Serialiser(Graph& graph, const BatchSerialiseOptions& options)
      : graph_(graph), ir_(graph.ir()), options_(options), io_(options.io_mode) {
    require(options.steps >= 1, "batch_serialise: steps must be at least 1, got {}", options.steps);
    require(options.rows >= 1, "batch_serialise: rows must be at least 1, got {}", options.rows);
    sort_out();
    choose_io_mode();
  }

  BatchSerialised run() {
    Graph& outer = ir_.create_empty_graph(base_name(graph_.name()) + "__repeat_graph");
    result_.graph = outer.id();
    State state;
    state.row = outer.input(kIndex, "batch_serial_loop_index");
    if (seed()) state.seed = outer.input(options_.seed_input.spec(), "batch_serial_random_seed");
    for (const Tensor& t : passed_) {
      state.passed.push_back(outer.input(t.spec(), t.name(), graph_.info(t).pass));
      result_.inputs.emplace_back(t, state.passed.back());
    }
    for (const BatchUpdate& u : updates_) {
      state.updated.push_back(outer.input(u.spec, u.name, Pass::kByReference));
      result_.updated.emplace_back(u.name, state.updated.back());
    }
    const Graph::IoScope scope(outer, io_);
    if (io_ == IoMode::kIoOverlapped) {
      overlapped(outer, state);
    } else {
      one_by_one(outer, state);
    }
    verify_transformed(outer);
    result_.io_mode = io_;
    return std::move(result_);
  }

 private:
  // Tensors of the graph under construction.
  struct State {
    Tensor row;
    Tensor seed;
    Tensors passed;
    Tensors updated;
  };

  bool seed() const { return options_.seed_input.valid(); }

  void sort_out() {
    const Tensors inputs = graph_.inputs();
    Tensors stored = inputs;
    const Tensors outputs = graph_.outputs();
    for (const Tensor& t : outputs) {
      if (!contains(stored, t)) stored.push_back(t);
    }
    for (const auto& [t, from] : options_.loads) {
      if (!graph_.owns(t)) continue;
      require(contains(inputs, t),
              "batch_serialise of graph {}: a tensor in loads must be an input, got '{}'",
              graph_.name(), t.name());
    }
    if (seed()) {
      const Tensor& t = options_.seed_input;
      require(contains(inputs, t) && t.dtype() == u32 && t.shape() == Shape({2}),
              "batch_serialise of graph {}: seed_input must be a (2,) uint32 input of the graph, "
              "got '{}' ({})",
              graph_.name(), t.name(), to_string(t.spec()));
      require(find(options_.loads, t) == nullptr,
              "batch_serialise of graph {}: seed_input '{}' cannot also be in loads", graph_.name(),
              t.name());
    }
    for (const BatchUpdate& u : options_.updates) {
      if (!graph_.owns(u.value)) continue;
      require(contains(outputs, u.value),
              "batch_serialise of graph {}: the value of update '{}' must be an output, got '{}'",
              graph_.name(), u.name, u.value.name());
      updates_.push_back(u);
    }
    for (const Tensor& t : inputs) {
      if (const LoadHandle* from = find(options_.loads, t)) {
        check(t, *from);
        loads_.push_back({t, *from});
      } else if (!seed() || t != options_.seed_input) {
        passed_.push_back(t);
      }
    }
    for (const Tensor& t : stored) {
      if (const LoadHandle* from = find(options_.loads, t)) {
        if (const auto* handle = std::get_if<BatchHandle>(from)) {
          if (find(options_.store_buffers, t) != nullptr) result_.stored.emplace_back(t, *handle);
          continue;
        }
      }
      for (const auto& [tensor, stream] : options_.store_streams) {
        if (tensor == t) store_of(t, {}).streams.push_back(stream);
      }
      for (const auto& [tensor, handle] : options_.store_buffers) {
        if (tensor != t) continue;
        check(t, handle);
        const bool shards = in_shards(t.spec(), handle.shard_group);
        store_of(t, shards ? handle.shard_group : std::nullopt).buffers.push_back(handle);
        result_.stored.emplace_back(t, handle);
      }
    }
  }

  // Each slice of a tensor is made once, even if it is stored several times.
  Store& store_of(const Tensor& t, const std::optional<ReplicaGrouping>& group) {
    for (Store& s : stores_) {
      if (s.tensor == t && s.shard_group == group) return s;
    }
    return stores_.emplace_back(Store{t, group, {}, {}});
  }

  void check(const Tensor& t, const LoadHandle& from) {
    if (const auto* handle = std::get_if<BatchHandle>(&from)) return check(t, *handle);
    const auto& stream = std::get<H2dStream>(from);
    require(stream.spec == t.spec(),
            "batch_serialise of graph {}: input '{}' is {}, stream '{}' carries {}", graph_.name(),
            t.name(), to_string(t.spec()), stream.name, to_string(stream.spec));
  }

  // Also enlarges the buffer to the number of entries that its rows need.
  void check(const Tensor& t, const BatchHandle& handle) {
    const TensorSpec kept = kept_spec(t, handle.shard_group);
    require(handle.buffer.spec == kept,
            "batch_serialise of graph {}: tensor '{}' ({}) does not match buffer {} ({})",
            graph_.name(), t.name(), to_string(kept), handle.buffer.id,
            to_string(handle.buffer.spec));
    ir_.grow(handle.buffer, handle.row.entries(options_.rows, options_.steps));
  }

  void choose_io_mode() {
    if (io_ != IoMode::kIoOverlapped) return;
    if (options_.steps < 2) {
      fall_back("it requires at least 2 steps, got 1");
      return;
    }
    std::set<std::pair<bool, int32_t>> used;
    std::set<GraphId> seen;
    add_effects(graph_, used, seen);
    const auto conflict = [&](bool remote, int32_t id) {
      if (io_ == IoMode::kIoOverlapped && used.count({remote, id}) != 0)
        fall_back(fmt::format("the graph itself uses {} {}", remote ? "remote buffer" : "stream",
                              remote ? std::to_string(id) : "'" + ir_.stream(id).name + "'"));
    };
    for (const Load& load : loads_) {
      if (const auto* stream = std::get_if<H2dStream>(&load.from)) {
        conflict(false, stream->id);
      } else {
        conflict(true, std::get<BatchHandle>(load.from).buffer.id);
      }
    }
    for (const Store& store : stores_) {
      for (const D2hStream& stream : store.streams) conflict(false, stream.id);
      for (const BatchHandle& handle : store.buffers) conflict(true, handle.buffer.id);
    }
  }

  void fall_back(const std::string& reason) {
    io_ = IoMode::kIo;
    result_.note = fmt::format("graph {}: io_overlapped is not possible: {}; io is used",
                               graph_.name(), reason);
  }

  // Returns entry (row, step) of a handle.
  RemoteEntry entry(const BatchHandle& handle, const State& state, const RemoteEntry& step) const {
    const Tensor first = handle.row.first_entry(state.row, options_.steps);
    if (!first.valid()) return step;
    if (step.tensor() != nullptr) return first + *step.tensor();
    return step.constant() == 0 ? first : first + static_cast<double>(step.constant());
  }

  Tensors load(Graph& g, const State& state, const RemoteEntry& step, int64_t m) const {
    const Graph::ProvenanceScope of(g, of_micro_batch(m));
    Tensors loaded;
    for (const Load& l : loads_) {
      if (const auto* stream = std::get_if<H2dStream>(&l.from)) {
        loaded.push_back(g.host_load(*stream, l.input.name()));
      } else {
        const auto& handle = std::get<BatchHandle>(l.from);
        loaded.push_back(g.remote_load(handle.buffer, entry(handle, state, step), l.input.name()));
      }
    }
    return loaded;
  }

  void store(Graph& g, const State& state, const Tensors& values, const RemoteEntry& step,
             int64_t m) const {
    const Graph::ProvenanceScope of(g, of_micro_batch(m));
    for (size_t i = 0; i < stores_.size(); ++i) {
      for (const D2hStream& stream : stores_[i].streams) g.host_store(stream, values[i]);
      for (const BatchHandle& handle : stores_[i].buffers)
        g.remote_store(handle.buffer, entry(handle, state, step), values[i]);
    }
  }

  // Gathers shards, calls the graph, updates variables, cuts shards and advances the seed. Returns
  // the values of `stores_`. Collectives are here and not in load(), because a gather right after
  // its load would have to wait for it.
  Tensors compute(Graph& g, State& state, const Tensors& loaded, int64_t m) const {
    const Graph::ProvenanceScope of(g, of_micro_batch(m));
    TensorMap given;
    for (size_t i = 0; i < loads_.size(); ++i) {
      const auto* from = std::get_if<BatchHandle>(&loads_[i].from);
      const bool shard = from != nullptr && in_shards(loads_[i].input.spec(), from->shard_group);
      given.emplace_back(
          loads_[i].input,
          shard ? ops::replicated_all_gather(loaded[i], 0, from->shard_group) : loaded[i]);
    }
    for (size_t i = 0; i < passed_.size(); ++i) given.emplace_back(passed_[i], state.passed[i]);
    if (seed()) {
      const Tensors seeds = ops::split_random_seed(state.seed);
      given.emplace_back(options_.seed_input, seeds[0]);
      state.seed = seeds[1];
    }
    const Tensors made = ops::call(g, graph_, {}, given);
    const Tensors outputs = graph_.outputs();
    const auto result = [&](const Tensor& t) {
      return at(made, std::find(outputs.begin(), outputs.end(), t) - outputs.begin());
    };
    for (size_t i = 0; i < updates_.size(); ++i) {
      const Graph::ProvenanceScope update(g,
                                          {.role = updates_[i].role, .variable = updates_[i].name});
      updates_[i].apply(state.updated[i], result(updates_[i].value));
    }
    Tensors values;
    for (const Store& s : stores_) {
      if (const Tensor* t = find(given, s.tensor)) {
        values.push_back(*t);
      } else {
        values.push_back(result(s.tensor));
      }
      if (s.shard_group) values.back() = ops::replica_sharded_slice(values.back(), s.shard_group);
    }
    return values;
  }

  // Adds a loop of `trips` iterations whose body is `body(graph, state, iteration, carried) ->
  // carried`. The seed is also carried.
  template <typename Body>
  Tensors loop(Graph& outer, State& state, int64_t trips, const Tensors& carried,
               const Body& body) {
    Graph& g = ir_.create_empty_graph(base_name(graph_.name()) + "__batch_serial_step");
    const Graph::IoScope scope(g, io_);
    State inner;
    Tensors inputs;
    if (seed()) {
      inner.seed = g.input(state.seed.spec(), "seed");
      inputs.push_back(state.seed);
    }
    Tensors inside;
    for (const Tensor& t : carried) {
      inside.push_back(g.input(t.spec(), t.name()));
      inputs.push_back(t);
    }
    inner.row = g.input(kIndex, "row");
    inputs.push_back(state.row);
    for (size_t i = 0; i < passed_.size(); ++i) {
      inner.passed.push_back(
          g.input(passed_[i].spec(), passed_[i].name(), graph_.info(passed_[i]).pass));
      inputs.push_back(state.passed[i]);
    }
    for (const Tensor& t : state.updated) {
      inner.updated.push_back(g.input(t.spec(), t.name(), Pass::kByReference));
      inputs.push_back(t);
    }
    const Tensor iteration = g.input(kIndex, "iteration");
    Tensors results = body(g, inner, iteration, inside);
    if (seed()) results.insert(results.begin(), inner.seed);
    g.set_outputs(results);
    verify_transformed(g);
    const Graph::ProvenanceScope of_loop(outer, {.per_iteration = {.micro_batch = 1}});
    Tensors after =
        ops::repeat(outer, g, trips, inputs, {}, ops::RepeatOptions{.iteration = iteration});
    if (seed()) {
      state.seed = after[0];
      after.erase(after.begin());
    }
    return after;
  }

  // Ops of micro-batch `m`, in the body of the loop relative to the iteration.
  static Graph::ProvenanceFields of_micro_batch(int64_t m) { return {.at = {.micro_batch = m}}; }

  void one_by_one(Graph& outer, State& state) {
    loop(outer, state, options_.steps, {},
         [&](Graph& g, State& inner, const Tensor& step, const Tensors&) {
           const Tensors values = compute(g, inner, load(g, inner, step, 0), 0);
           store(g, inner, values, step, 0);
           return Tensors{};
         });
  }

  // Lk loads, Ck computes and Sk stores micro-batch k, N of them. {} is the loop.
  // L0; L1 | C0; { Lk, Sk-2 | Ck-1 }; SN-2 | CN-1; SN-1.
  void overlapped(Graph& outer, State& state) {
    const int64_t n = options_.steps;
    const Tensors first = load(outer, state, 0, 0);
    Tensors loaded = load(outer, state, 1, 1);
    Tensors values = compute(outer, state, first, 0);
    if (n > 2) {
      Tensors carried = loaded;
      carried.insert(carried.end(), values.begin(), values.end());
      carried = loop(outer, state, n - 2, carried,
                     [&](Graph& g, State& inner, const Tensor& iteration, const Tensors& inside) {
                       const auto middle = inside.begin() + static_cast<int64_t>(loads_.size());
                       Tensors next = load(g, inner, iteration + 2.0, 2);
                       store(g, inner, Tensors(middle, inside.end()), iteration, 0);
                       const Tensors made = compute(g, inner, Tensors(inside.begin(), middle), 1);
                       next.insert(next.end(), made.begin(), made.end());
                       return next;
                     });
      const auto middle = carried.begin() + static_cast<int64_t>(loads_.size());
      loaded.assign(carried.begin(), middle);
      values.assign(middle, carried.end());
    }
    store(outer, state, values, n - 2, n - 2);
    store(outer, state, compute(outer, state, loaded, n - 1), n - 1, n - 1);
  }

  Graph& graph_;
  Ir ir_;
  const BatchSerialiseOptions& options_;
  IoMode io_;
  std::vector<Load> loads_;
  std::vector<Store> stores_;
  Tensors passed_;
  std::vector<BatchUpdate> updates_;
  BatchSerialised result_;
};

}  // namespace

Tensor RowOffset::first_entry(const Tensor& row, int64_t steps) const {
  if (function_) {
    const Tensor there = function_(row);
    require(there.valid() && there.spec() == kIndex,
            "batch_serialise: the function of a RowOffset must return a scalar int32, got {}",
            there.valid() ? to_string(there.spec()) : "an empty handle");
    return there * static_cast<double>(steps);
  }
  if (!offset_) return {};
  const Tensor there = *offset_ == 0 ? row : row + static_cast<double>(*offset_);
  return there * static_cast<double>(steps);
}

int64_t RowOffset::entries(int64_t rows, int64_t steps) const {
  if (!function_ && !offset_) return steps;
  const int64_t last = checked_add(rows, offset_.value_or(0));
  require(last >= 1, "batch_serialise: the row offset must be at least {} for {} rows, got {}",
          1 - rows, rows, *offset_);
  return checked_mul(last, steps);
}

BatchSerialised batch_serialise(Graph& graph, const BatchSerialiseOptions& options) {
  return Serialiser(graph, options).run();
}

BatchSerialisedPair batch_serialise_fwd_and_grad(const GradGraphInfo& info, const Tensors& named,
                                                 const BatchSerialiseOptions& options) {
  Graph& forward = info.forward_graph();
  Graph& gradient = info.graph();
  const Tensors inputs = gradient.inputs();
  BatchSerialiseOptions forwards = options;
  BatchSerialiseOptions backwards = options;
  backwards.seed_input = {};
  TensorMap passed;  // {forward tensor, input of the gradient graph}
  for (size_t i = 0; i < info.expected_inputs().size(); ++i) {
    const auto& [type, t] = info.expected_inputs()[i];
    if (type == Connection::kFwdGrad) {
      require(find(options.loads, inputs[i]) != nullptr,
              "batch_serialise_fwd_and_grad of graph {}: loads must have the gradient of '{}' "
              "(input '{}' of graph {})",
              forward.name(), t.name(), inputs[i].name(), gradient.name());
    } else if (contains(named, t)) {
      passed.emplace_back(t, inputs[i]);
    } else if (const BatchHandle* stored = find(options.store_buffers, t)) {
      backwards.loads.emplace_back(inputs[i], *stored);
    } else if (const LoadHandle* from = find(options.loads, t);
               from != nullptr && std::holds_alternative<BatchHandle>(*from)) {
      backwards.loads.emplace_back(inputs[i], *from);
    } else {
      const ReplicaGrouping* group = find(options.shard_groups, t);
      BatchHandle kept;
      if (group != nullptr) kept.shard_group = *group;
      kept.buffer = batch_serial_buffer(t, options.steps, options.rows, kept.shard_group);
      forwards.store_buffers.emplace_back(t, kept);
      backwards.loads.emplace_back(inputs[i], kept);
    }
  }
  BatchSerialised fwd = batch_serialise(forward, forwards);
  BatchSerialised grad = batch_serialise(gradient, backwards);
  std::vector<ExpectedConnection> connections;
  for (const auto& [t, input] : passed) {
    const Tensor* outside = find(grad.inputs, input);
    SLUICE_CHECK(outside != nullptr);
    grad.inputs.emplace_back(t, *outside);
    connections.push_back({Connection::kFwd, t});
  }
  // The inputs in `passed_` keep their order; the row precedes them.
  GradGraphInfo connected(forward, forward.ir().graph(grad.graph), std::move(connections), {}, 1);
  return {std::move(fwd), std::move(grad), std::move(connected)};
}

RemoteBuffer batch_serial_buffer(const Tensor& t, int64_t steps, int64_t rows,
                                 const std::optional<ReplicaGrouping>& shard_group) {
  require(steps >= 1 && rows >= 1,
          "batch_serial_buffer for '{}': steps and rows must be at least 1, got {} and {}",
          t.name(), steps, rows);
  return t.graph().ir().remote_buffer(kept_spec(t, shard_group), checked_mul(steps, rows));
}

}  // namespace sluice::transforms
