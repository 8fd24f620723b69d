#include "random_graph.h"

#include <algorithm>

#include "random_graph_ops.h"
#include "sluice/ir/builtin.h"
#include "sluice/ir/call.h"
#include "sluice/ir/ir.h"
#include "sluice/ops/ops.h"
#include "sluice/transforms/autodiff.h"
#include "sluice/transforms/recompute.h"

namespace sluice::property {
namespace {

constexpr int kDeepest = 3;

bool writes_by_reference(const Graph& g) {
  const Tensors inputs = g.inputs();
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](const Tensor& t) { return g.info(t).pass == Pass::kByReference; });
}

bool has_effects(const Graph& g) {
  const Ir ir = g.ir();
  return std::any_of(g.ops().begin(), g.ops().end(), [&](const Op& op) {
    return !op.effects.empty() ||
           std::any_of(op.callees.begin(), op.callees.end(),
                       [&](GraphId id) { return has_effects(ir.graph(id)); });
  });
}

// Whether the graph or a callee names a device. A branch must not call such a graph, since it may
// run on another device.
bool names_devices(const Graph& g) {
  const Ir ir = g.ir();
  return std::any_of(g.ops().begin(), g.ops().end(), [&](const Op& op) {
    return op.device != kInheritDevice ||
           std::any_of(op.callees.begin(), op.callees.end(),
                       [&](GraphId id) { return names_devices(ir.graph(id)); });
  });
}

class Generator {
 public:
  explicit Generator(const Recipe& recipe) : recipe_(recipe) {}

  RandomProgram run() {
    const Seed key = fold(Seed{0x51u, 0x1ceu}, recipe_.seed);
    Dice dice(key);
    large_ = dice.one_in(16);
    layered_ = dice.one_in(3);
    apart_ = dice.one_in(2);
    const int length = 3 + dice(38);
    grow_entry(out_.ir.main_graph(), {}, {}, key, length);
    out_.runs = {"main", "main"};
    if (dice.one_in(4)) {
      Graph& eval = out_.ir.entry_graph("eval");
      Tensors shared, weights;
      for (const Tensor& v : out_.ir.main_graph().variables()) {
        if (dice.one_in(3)) continue;
        (apart_ && v.name().starts_with("weight") ? weights : shared)
            .push_back(out_.ir.share_variable(v, eval));
      }
      grow_entry(eval, shared, weights, fold(key, "eval"), 2 + dice(8));
      out_.runs = {"main", "eval", "main"};
    }
    count_ops(out_);
    return std::move(out_);
  }

 private:
  void grow_entry(Graph& graph, Tensors values, Tensors weights, Seed key, int length) {
    Scope s{graph, std::move(values), std::move(weights)};
    s.largest = large_ ? 160 : 5;
    s.layered = layered_;
    s.all_operators = recipe_.all_operators;
    Dice dice(fold(key, "roots"));
    if (layered_) add_weights(s, dice);
    choose_device(s, fold(key, "first"));
    const int variables = 1 + dice(4);
    for (int i = 0; i < variables; ++i) {
      const TensorSpec spec{random_shape(dice, s.largest), f32, {}};
      s.values.push_back(
          graph.variable(random_array(spec, static_cast<uint64_t>(dice(1000))), "w"));
    }
    if (dice.one_in(2)) s.values.push_back(graph.variable(random_array({{2}, u32, {}}, 7), "seed"));
    read_stream(s, dice);
    grow(s, fold(key, "body"), length);
    choose_device(s, fold(key, "last"));
    write_stream(s, dice, s.any(dice));
    write_stream(s, dice, s.values.back());
    if (s.all_operators) write_results(s, dice);
  }

  // Writes most results, so that few ops are dead code.
  void write_results(Scope& s, Dice& dice) {
    for (size_t i = s.values.size(); i-- > 0;) {
      if (!dice.one_in(4)) write_stream(s, dice, s.values[i]);
    }
  }

  // Adds matrices like the weights of layers and their optimizer state: some have equal shapes, and
  // some sizes are near multiples of a panel.
  void add_weights(Scope& s, Dice& dice) {
    constexpr int64_t kSizes[] = {1, 2, 7, 15, 16, 17, 24, 31, 32, 33, 40};
    const auto size = [&] { return dice.one_in(2) ? kSizes[dice(11)] : 1 + dice(40); };
    Shape shape{size(), size()};
    const int count = 1 + dice(4);
    for (int i = 0; i < count; ++i) {
      (apart_ ? s.weights : s.values)
          .push_back(s.graph.variable(
              random_array({shape, f32, {}}, static_cast<uint64_t>(dice(1000))), "weight"));
      if (dice.one_in(2)) shape = {dice.one_in(2) ? shape[1] : size(), size()};
    }
  }

  void grow(Scope& s, Seed key, int length) {
    for (int i = 0; i < length; ++i) {
      const Seed own = fold(key, static_cast<uint64_t>(i));
      const uint64_t name = uint64_t{own.hi} << 32 | own.lo;
      if (recipe_.skipped.contains(name)) continue;
      out_.decisions.push_back(name);
      decide(s, own);
    }
  }

  // At random, sets the device of the following ops. An entry usually names a device, other graphs
  // usually inherit theirs.
  void choose_device(Scope& s, Seed key) {
    if (recipe_.devices == 1 || s.in_branch) return;
    Dice dice(fold(key, "device"));
    if (dice.one_in(2)) return;
    s.graph.set_device(dice.one_in(s.depth == 0 ? 8 : 2) ? kInheritDevice : dice(recipe_.devices));
  }

  void decide(Scope& s, Seed key) {
    choose_device(s, key);
    Dice dice(fold(key, "kind"));
    const int kind = dice(100);
    const bool deeper = s.depth < kDeepest;
    if (kind < 12 && deeper) return call(s, dice, key);
    if (kind < 20 && deeper && !s.differentiable) return repeat(s, dice, key);
    if (kind < 25 && deeper) return conditional(s, dice, key);
    if (kind < 31 && s.depth == 0) return gradient(s, dice, key);
    if (kind < 36 && !s.in_branch && !s.differentiable) return read_stream(s, dice);
    if (kind < 41 && !s.in_branch && !s.differentiable)
      return write_stream(s, dice, *s.find(dice, anything));
    // The first device that uses a buffer owns it. A branch on another device must not use it.
    const bool owned_elsewhere = s.in_branch && recipe_.devices > 1;
    if (kind < 45 && !s.differentiable && !owned_elsewhere) return remote(s, dice);
    out_.census.updates += add_plain_op(s, dice);
  }

  static IoMode io_mode(Dice& dice) {
    constexpr IoMode kModes[] = {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped,
                                 IoMode::kIoOverlapped};
    return kModes[dice(4)];
  }

  void read_stream(Scope& s, Dice& dice) {
    const Graph::IoScope mode(s.graph, io_mode(dice));
    if (inputs_.empty() || dice.one_in(2)) {
      const TensorSpec spec =
          dice.one_in(3) ? TensorSpec{random_shape(dice, s.largest), f32, {}} : s.any(dice).spec();
      inputs_.push_back(out_.ir.h2d_stream(spec, "in"));
    }
    s.add(s.graph.host_load(inputs_[static_cast<size_t>(dice(static_cast<int>(inputs_.size())))]));
  }

  void write_stream(Scope& s, Dice& dice, const Tensor& t) {
    const Graph::IoScope mode(s.graph, io_mode(dice));
    for (const D2hStream& stream : outputs_) {
      if (stream.spec == t.spec() && dice.one_in(2)) return s.graph.host_store(stream, t);
    }
    outputs_.push_back(s.graph.host_store(t, "out"));
  }

  // Stores to or loads from an entry. Its index is a constant or computed from a scalar, e.g. an
  // iteration.
  void remote(Scope& s, Dice& dice) {
    const Graph::IoScope mode(s.graph, io_mode(dice));
    if (buffers_.empty() || dice.one_in(3)) {
      buffers_.push_back(out_.ir.remote_buffer(s.any(dice).spec(), 1 + dice(3)));
    }
    const RemoteBuffer& buffer =
        buffers_[static_cast<size_t>(dice(static_cast<int>(buffers_.size())))];
    ++out_.census.remote;
    const auto scalar =
        s.find(dice, [](const Tensor& t) { return t.dtype() == i32 && t.shape().empty(); });
    const int64_t entries = out_.ir.remote_entries(buffer);
    if (!scalar && !dice.one_in(3)) {
      s.values.push_back(dice.one_in(2) ? s.graph.scalar(dice(4), i32, "row")
                                        : ops::cast(ops::mean(ops::detach(s.any(dice))) * 3, i32));
    }
    const RemoteEntry entry = scalar && !dice.one_in(3)
                                  ? RemoteEntry(ops::increment_mod(row(dice, *scalar), dice(3),
                                                                   static_cast<double>(entries)))
                                  : RemoteEntry(dice(static_cast<int>(entries)));
    const auto target = s.find(dice, [&](const Tensor& t) {
      return t.spec() == buffer.spec && t.dtype() == f32 && !s.is_constant(t);
    });
    if (target && !s.pure && dice.one_in(4)) {
      s.graph.remote_load_(buffer, entry, *target);
    } else if (dice.one_in(2)) {
      s.add(s.graph.remote_load(buffer, entry));
    } else {
      s.graph.remote_store(buffer, entry, s.with_spec(dice, buffer.spec));
    }
  }

  // Random index arithmetic on a scalar, like the computation of rows and steps.
  Tensor row(Dice& dice, Tensor t) {
    const int ops = dice(3);
    for (int i = 0; i < ops; ++i) {
      const int number = 1 + dice(4);
      switch (dice(5)) {
        case 0:
          t = t * number;
          break;
        case 1:
          t = t / number;
          break;
        case 2:
          t = t - number;
          break;
        case 3:
          t = ops::cast(ops::cast(t, u32), i32);
          break;
        default:
          t = t + number;
      }
    }
    return t;
  }

  // The row of the next iteration: counted, or cyclic.
  Tensor row_after(Dice& dice, const Tensor& row) {
    const int by = dice(4) - 1;
    return dice.one_in(2) ? row + by : ops::increment_mod(row, by, 1 + dice(4));
  }

  // Makes a scope for an empty graph called from `s`.
  Scope open(const Scope& s, Graph& graph) {
    Scope inner{graph, {}, {}};
    inner.depth = s.depth + 1;
    inner.differentiable = s.differentiable;
    inner.in_branch = s.in_branch;
    inner.largest = s.largest;
    inner.layered = s.layered;
    inner.all_operators = s.all_operators;
    return inner;
  }

  static bool anything(const Tensor&) { return true; }

  // Adds `count` inputs to the graph of `inner` for tensors of `s`, the first one float32. Returns
  // these tensors as the arguments.
  Tensors add_inputs(const Scope& s, Scope& inner, Dice& dice, int count, bool references) {
    Tensors arguments;
    for (int i = 0; i < count; ++i) {
      const bool weight = i > 0 && !s.weights.empty() && !dice.one_in(3);
      const Tensor t = i == 0   ? s.any(dice)
                       : weight ? s.weights[static_cast<size_t>(i) % s.weights.size()]
                                : *s.find(dice, anything);
      const bool by_reference = references && t.dtype() == f32 && dice.one_in(weight ? 2 : 3);
      (weight ? inner.weights : inner.values)
          .push_back(
              inner.graph.input(t.spec(), "x", by_reference ? Pass::kByReference : Pass::kByValue));
      arguments.push_back(t);
    }
    return arguments;
  }

  Tensor argument(Scope& s, Dice& dice, const TensorSpec& spec) {
    for (const Tensor& w : s.weights) {
      if (w.spec() == spec && !dice.one_in(3)) return w;
    }
    return s.with_spec(dice, spec);
  }

  // Finds arguments for an existing graph. An argument that the graph writes by reference must not
  // be a constant, and no tensor may be written twice.
  Tensors arguments_for(Scope& s, Dice& dice, const Graph& graph, const Tensors& wanted = {}) {
    Tensors arguments;
    std::vector<int32_t> written;
    for (size_t i = 0; i < graph.input_ids().size(); ++i) {
      const TensorInfo& input = graph.info(graph.input_ids()[i]);
      Tensor t = i < wanted.size() ? wanted[i] : argument(s, dice, input.spec);
      if (input.pass == Pass::kByReference) {
        const StorageId storage = s.graph.info(t).storage;
        if (s.is_constant(t) || std::find(written.begin(), written.end(), storage) != written.end())
          t = ops::identity(t);
        written.push_back(s.graph.info(t).storage);
      }
      arguments.push_back(t);
    }
    return arguments;
  }

  void add_results(Scope& s, const Tensors& results) {
    s.values.insert(s.values.end(), results.begin(), results.end());
  }

  void call(Scope& s, Dice& dice, Seed key) {
    std::vector<Graph*> known;
    for (Graph* g : callables_) {
      if (usable(s, *g)) known.push_back(g);
    }
    Graph* graph = nullptr;
    Tensors wanted;
    if (!known.empty() && !dice.one_in(3)) {
      graph = known[static_cast<size_t>(dice(static_cast<int>(known.size())))];
    } else {
      graph = &out_.ir.create_empty_graph("sub");
      Scope inner = open(s, *graph);
      wanted = add_inputs(s, inner, dice, 1 + dice(4), true);
      grow(inner, fold(key, "callee"), 1 + dice(6));
      const int outputs = dice(4) + (s.all_operators ? 2 : 0);
      for (int i = 0; i < outputs; ++i) graph->add_output(*inner.find(dice, anything));
      finish(s, *graph);
    }
    out_.census.by_reference += writes_by_reference(*graph);
    ++out_.census.calls;
    add_results(s, ops::call(s.graph, *graph, arguments_for(s, dice, *graph, wanted)));
  }

  // Depth of the calls in a graph; 0 without calls.
  int height(const Graph& g) const {
    int max = 0;
    for (const Op& op : g.ops()) {
      for (const GraphId id : op.callees) max = std::max(max, 1 + height(out_.ir.graph(id)));
    }
    return max;
  }

  bool usable(const Scope& s, const Graph& g) const {
    if (s.in_branch && (has_effects(g) || names_devices(g))) return false;
    if (s.differentiable && differentiable_.count(g.id()) == 0) return false;
    return s.depth + 1 + height(g) <= kDeepest + 3;
  }

  void finish(const Scope& s, Graph& graph) {
    callables_.push_back(&graph);
    if (s.differentiable) differentiable_.insert(graph.id());
  }

  void repeat(Scope& s, Dice& dice, Seed key) {
    Graph& graph = out_.ir.create_empty_graph("body");
    Scope inner = open(s, graph);
    const int carried = dice(4);
    Tensors wanted = add_inputs(s, inner, dice, carried, false);
    Dice rotation(fold(key, "rotation"));
    const int followers = carried > 0 && rotation.one_in(2) ? 1 + rotation(4) : 0;
    for (int i = 0; i < followers; ++i) {
      const TensorSpec spec = graph.inputs()[0].spec();
      inner.values.push_back(graph.input(spec, "x"));
      wanted.push_back(s.with_spec(rotation, spec));
    }
    const Tensors more = add_inputs(s, inner, dice, 1 + dice(3), true);
    wanted.insert(wanted.end(), more.begin(), more.end());
    ops::RepeatOptions options;
    if (dice.one_in(2)) {
      options.iteration = graph.input({{}, i32, {}}, "iteration");
      inner.values.push_back(options.iteration);
      inner.values.push_back(ops::cast(options.iteration, f32) * 0.5);
    }
    const bool reused = dice.one_in(4);
    grow(inner, fold(key, "body"), 1 + dice(6));
    Tensors outputs;
    for (int k = 0; k < carried; ++k) {
      const TensorSpec spec = graph.inputs()[static_cast<size_t>(k)].spec();
      Tensor next = inner.with_spec(dice, spec);
      if (spec.dtype == i32 && spec.shape.empty() && !dice.one_in(3))
        next = row_after(dice, graph.inputs()[static_cast<size_t>(k)]);
      if (spec.dtype == f32 && !dice.one_in(4))
        next =
            inner.keep(ops::clip(next * 0.5 + inner.with_spec(dice, spec), {.min = -4, .max = 4}));
      outputs.push_back(next);
    }
    add_followers(rotation, graph, carried, followers, outputs);
    graph.set_outputs(outputs);
    if (reused && !options.iteration.valid()) finish(s, graph);
    constexpr int kTrips[] = {0, 1, 2, 5, 5, 3};
    const int64_t trips = kTrips[dice(6)];
    Tensors arguments = arguments_for(s, dice, graph, [&] {
      Tensors w = wanted;
      // Fills the position of the iteration; removed below.
      if (options.iteration.valid()) w.push_back(options.iteration);
      return w;
    }());
    if (options.iteration.valid()) arguments.pop_back();
    out_.census.by_reference += writes_by_reference(graph);
    ++out_.census.repeats;
    add_results(s, ops::repeat(s.graph, graph, trips, arguments, {}, options));
  }

  // Carried value 0 becomes the first follower, which becomes the next one. Sometimes the last one
  // becomes value 0, or the order of the followers is another one.
  void add_followers(Dice& dice, const Graph& graph, int carried, int followers, Tensors& outputs) {
    if (followers == 0) return;
    const Tensors inputs = graph.inputs();
    const auto first = inputs.begin() + carried;
    Tensors values{inputs[0]};
    values.insert(values.end(), first, first + followers);
    if (dice.one_in(4)) outputs[0] = values.back();
    const size_t back = dice.one_in(3) ? 0 : 1;
    for (size_t i = 1; i < values.size(); ++i) outputs.push_back(values[i - back]);
    out_.census.rotations += followers;
  }

  void conditional(Scope& s, Dice& dice, Seed key) {
    const Tensor a = ops::mean(ops::detach(s.any(dice)));
    const Tensor condition =
        dice.one_in(4) ? s.graph.constant(HostTensor::of<bool>({}, boolean, {dice.one_in(2)}))
                       : ops::greater(a, ops::scalar_like(a, dice.real(-0.5, 0.5)));
    std::vector<TensorSpec> specs;
    const int count = 1 + dice(2);
    for (int i = 0; i < count; ++i) specs.push_back(s.any(dice).spec());
    const auto branch = [&](const char* name, Tensors& arguments) -> Graph& {
      Graph& graph = out_.ir.create_empty_graph(name);
      Scope inner = open(s, graph);
      inner.in_branch = true;
      arguments = add_inputs(s, inner, dice, 1 + dice(3), false);
      grow(inner, fold(key, name), 1 + dice(4));
      for (const TensorSpec& spec : specs) graph.add_output(inner.with_spec(dice, spec));
      finish(s, graph);
      return graph;
    };
    Tensors then_arguments, else_arguments;
    Graph& then_graph = branch("then", then_arguments);
    Graph& else_graph = dice.one_in(5) ? then_graph : branch("else", else_arguments);
    if (&then_graph == &else_graph) else_arguments = arguments_for(s, dice, then_graph);
    ++out_.census.conditionals;
    add_results(s, ops::conditional(s.graph, condition, then_graph, else_graph, then_arguments,
                                    else_arguments));
  }

  // Makes a graph and its gradient (sometimes with accumulation or recomputation), calls both, and
  // updates the arguments.
  void gradient(Scope& s, Dice& dice, Seed key) {
    Graph& forward = out_.ir.create_empty_graph("forward");
    Scope inner = open(s, forward);
    inner.differentiable = true;
    Tensors wanted;
    const int count = 1 + dice(3);
    for (int i = 0; i < count; ++i) {
      const bool weight = i > 0 && !s.weights.empty();
      wanted.push_back(weight ? s.weights[static_cast<size_t>(i) % s.weights.size()] : s.any(dice));
      (weight ? inner.weights : inner.values).push_back(forward.input(wanted.back().spec(), "x"));
    }
    grow(inner, fold(key, "forward"), 2 + dice(8));
    Tensor loss = ops::mean(ops::tanh(inner.any(dice)));
    for (int i = 0; s.all_operators && i < 4; ++i)
      loss = loss + ops::mean(ops::tanh(inner.any(dice)));
    forward.add_output(loss);
    if (dice.one_in(2)) forward.add_output(inner.any(dice));
    const int mode = dice(4);
    if (mode == 0) return accumulated(s, dice, key, forward, wanted);
    std::optional<transforms::GradGraphInfo> info;
    try {
      info = transforms::autodiff(forward, {.unreachable = transforms::Unreachable::kZeros});
      if (mode == 1) info = transforms::recompute_graph(*info).info;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;
      return;  // An op overwrites a value before its gradient needs it.
    }
    const CallSiteInfo call =
        ops::call_with_info(s.graph, forward, arguments_for(s, dice, forward, wanted));
    choose_device(s, fold(key, "backward"));
    const CallSiteInfo back =
        ops::call_with_info(s.graph, info->graph(), seeds(s, dice, *info), info->inputs_dict(call));
    ++out_.census.gradients;
    add_results(s, call.outputs());
    add_results(s, back.outputs());
    for (const auto& [parent, grad] :
         ordered(info->fwd_parent_ins_to_grad_parent_outs(call, back))) {
      if (s.is_constant(parent)) continue;
      choose_device(s, fold(key, static_cast<uint64_t>(parent.id())));
      const Tensor updated = ops::scaled_add_(parent, grad, 1.0, -0.125);
      if (std::find(s.weights.begin(), s.weights.end(), parent) == s.weights.end())
        s.values.push_back(updated);
      ++out_.census.updates;
    }
  }

  static std::vector<std::pair<Tensor, Tensor>> ordered(
      const std::unordered_map<Tensor, Tensor>& map) {
    std::vector<std::pair<Tensor, Tensor>> list(map.begin(), map.end());
    std::sort(list.begin(), list.end(),
              [](const auto& a, const auto& b) { return a.first.id() < b.first.id(); });
    return list;
  }

  Tensors seeds(Scope& s, Dice& dice, const transforms::GradGraphInfo& info) {
    Tensors grads;
    for (const auto& c : info.expected_inputs()) {
      if (c.type == transforms::Connection::kFwdGrad)
        grads.push_back(s.with_spec(dice, c.fwd_tensor.spec()));
    }
    return grads;
  }

  // Runs 1 to 3 micro-batches in a loop, then updates by their accumulated gradient.
  void accumulated(Scope& s, Dice& dice, Seed key, Graph& forward, const Tensors& wanted) {
    std::optional<transforms::AccumulationResult> result;
    try {
      result = transforms::autodiff_with_accumulation(
          forward, forward.inputs(), {}, {.unreachable = transforms::Unreachable::kZeros});
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;
      return;
    }
    const auto& info = result->info;
    Graph& step = out_.ir.create_empty_graph("micro_batch");
    Scope inner = open(s, step);
    Tensors given;
    for (const Tensor& t : forward.inputs()) given.push_back(step.input(t.spec(), "x"));
    inner.values = given;
    Tensors accumulators;
    for (const auto& a : result->added)
      accumulators.push_back(step.input(a.spec, a.name, Pass::kByReference));
    if (!s.in_branch && dice.one_in(2)) read_stream(inner, dice);
    given[0] = inner.with_spec(dice, given[0].spec());
    const CallSiteInfo call = ops::call_with_info(step, forward, given);
    TensorMap connections = info.inputs_dict(call);
    for (size_t i = 0; i < accumulators.size(); ++i)
      connections.emplace_back(result->added[i].input, accumulators[i]);
    const Tensors grads = seeds(inner, dice, info);
    ops::call(step, info.graph(), grads, connections);
    if (dice.one_in(2)) write_stream(inner, dice, call.outputs()[0]);
    Tensors arguments = arguments_for(s, dice, forward, wanted);
    Tensors state;
    for (const auto& a : result->added) {
      state.push_back(s.graph.variable(a.spec, Initializer::constant(0), "state"));
      ops::accumulator_zero_(state.back());
    }
    arguments.insert(arguments.end(), state.begin(), state.end());
    choose_device(s, fold(key, "micro_batches"));
    ops::repeat(s.graph, step, 1 + dice(3), arguments);
    ++out_.census.gradients;
    ++out_.census.repeats;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!s.is_constant(wanted[i]))
        s.values.push_back(ops::scaled_add_(wanted[i], state[i + 1], 1.0, -0.25));
      ++out_.census.updates;
    }
  }

  const Recipe& recipe_;
  RandomProgram out_;
  bool large_ = false;
  bool layered_ = false;
  bool apart_ = false;  ///< Only layers use weights.
  std::vector<H2dStream> inputs_;
  std::vector<D2hStream> outputs_;
  std::vector<RemoteBuffer> buffers_;
  std::vector<Graph*> callables_;
  std::set<GraphId> differentiable_;
};

}  // namespace

RandomProgram random_program(const Recipe& recipe) { return Generator(recipe).run(); }

}  // namespace sluice::property
