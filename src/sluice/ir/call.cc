#include "sluice/ir/call.h"

#include <algorithm>
#include <limits>

#include "sluice/ir/builtin.h"

namespace sluice {

Tensor CallSiteInfo::graph_to_parent(const Tensor& t) const {
  const Graph& callee = called_graph();
  require(callee.owns(t), "call site {}: tensor '{}' does not belong to the called graph {}",
          op().label(), t.name(), callee.name());
  for (size_t i = 0; i < callee.input_ids().size(); ++i) {
    if (callee.input_ids()[i] == t.id()) return input(static_cast<int>(i));
  }
  for (size_t i = 0; i < callee.output_ids().size(); ++i) {
    if (callee.output_ids()[i] == t.id()) return output(static_cast<int>(i));
  }
  fail(ErrorKind::kUsage, "call site {}: tensor '{}' is neither an input nor an output of {}",
       op().label(), t.name(), callee.name());
}

Tensor CallSiteInfo::parent_to_graph(const Tensor& t) const {
  for (size_t i = 0; i < op().inputs.size(); ++i) {
    if (op().inputs[i].tensor == t.id() && parent_->owns(t)) {
      return called_graph().handle(called_graph().input_ids()[i]);
    }
  }
  fail(ErrorKind::kUsage, "call site {}: tensor '{}' is not one of its inputs", op().label(),
       t.name());
}

Tensors CallSiteInfo::inputs() const {
  Tensors result;
  for (const Operand& o : op().inputs) result.push_back(parent_->handle(o.tensor));
  return result;
}
Tensors CallSiteInfo::outputs() const {
  Tensors result;
  for (const TensorId t : op().outputs) result.push_back(parent_->handle(t));
  return result;
}
Tensor CallSiteInfo::input(int i) const {
  require(i >= 0 && i < static_cast<int>(op().inputs.size()),
          "call site {}: input must be in [0, {}), got {}", op().label(), op().inputs.size(), i);
  return parent_->handle(at(op().inputs, i).tensor);
}
Tensor CallSiteInfo::output(int i) const {
  require(i >= 0 && i < static_cast<int>(op().outputs.size()),
          "call site {}: output must be in [0, {}), got {}", op().label(), op().outputs.size(), i);
  return parent_->handle(at(op().outputs, i));
}

namespace ops {
namespace {

struct Arguments {
  std::vector<TensorArg> tensors;
  std::vector<Mode> modes;
};

std::string describe_missing(const Graph& parent, const Graph& graph, const Tensors& found) {
  std::string table;
  for (size_t i = 0; i < found.size(); ++i) {
    table += fmt::format("\n  {} <- {}", graph.info(graph.input_ids()[i]).name,
                         found[i].valid() ? found[i].name() : "(missing)");
  }
  return fmt::format("Not enough inputs have been provided: graph {} called in {} has {} inputs{}",
                     graph.name(), parent.name(), found.size(), table);
}

Arguments match_inputs(Graph& parent, Graph& graph, const Tensors& inputs, const TensorMap& named,
                       std::string_view what, const std::source_location& where) {
  require(parent.ir().id() == graph.ir().id(), "{}: graph {} belongs to another Ir", what,
          graph.name());
  require(&graph != &parent, "{}: graph {} would call itself", what, graph.name());
  require(!graph.is_entry(), "{}: {} is an entry graph and cannot be called", what, graph.name());
  const auto& ids = graph.input_ids();
  require(inputs.size() <= ids.size(), "{}: {} inputs given, graph {} has {}", what, inputs.size(),
          graph.name(), ids.size());
  Tensors found(ids.size());
  for (size_t i = 0; i < inputs.size(); ++i) found[i] = inputs[i];
  auto next = ids.begin();  // Names often come in the order of the inputs.
  for (const auto& [input, argument] : named) {
    require(graph.owns(input), "{}: '{}' is not a tensor of graph {}", what, input.name(),
            graph.name());
    auto found_input = std::find(next, ids.end(), input.id());
    if (found_input == ids.end()) found_input = std::find(ids.begin(), ids.end(), input.id());
    require(found_input != ids.end(), "{}: '{}' is not an input of graph {}", what, input.name(),
            graph.name());
    next = found_input + 1;
    Tensor& slot = at(found, found_input - ids.begin());
    require(!slot.valid(), "{}: input '{}' of graph {} is given twice", what, input.name(),
            graph.name());
    slot = argument;
  }
  Arguments arguments;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!found[i].valid()) fail(ErrorKind::kUsage, "{}", describe_missing(parent, graph, found));
    require(parent.owns(found[i]), "{}: tensor '{}' belongs to graph {}, not to {}", what,
            found[i].name(), found[i].graph().name(), parent.name());
    const TensorInfo& input = graph.info(ids[i]);
    if (found[i].shape() != input.spec.shape || found[i].dtype() != input.spec.dtype)
      fail(ErrorKind::kUsage, "{}: input '{}' of graph {} must be {}, got tensor '{}' with {}",
           what, input.name, graph.name(), to_string(input.spec), found[i].name(),
           to_string(found[i].spec()));
    arguments.tensors.emplace_back(found[i], where);
    arguments.modes.push_back(input.pass == Pass::kByReference ? Mode::kUpdate : Mode::kRead);
  }
  return arguments;
}

struct Results {
  std::vector<TensorSpec> specs;
  std::vector<std::string> names;
};

Results results_of(const Tensors& outputs) {
  Results r;
  for (const Tensor& t : outputs) {
    r.specs.push_back(t.spec());
    r.names.push_back(t.name());
  }
  return r;
}

// Calls the graph of a loop. Returns its outputs, without those that transforms appended.
Tensors call_original(Graph& wrapper, Graph& graph, const TensorMap& named,
                      const std::source_location& where) {
  const Tensors results = call(wrapper, graph, {}, named, where);
  const Tensors original = graph.original_outputs();
  Tensors carried;
  for (size_t k = 0; k < results.size() && carried.size() < original.size(); ++k) {
    if (graph.output_ids()[k] == original[carried.size()].id()) carried.push_back(results[k]);
  }
  return carried;
}

}  // namespace

CallSiteInfo call_with_info(Graph& parent, Graph& graph, const Tensors& inputs,
                            const TensorMap& named, std::source_location where) {
  Arguments a = match_inputs(parent, graph, inputs, named, "call", where);
  Results r = results_of(graph.outputs());
  const OpIndex index = parent.ops().end_id();
  parent.emit(builtin::call(), a.tensors, {},
              {.callees = {graph.id()},
               .modes = std::move(a.modes),
               .outputs = std::move(r.specs),
               .output_names = std::move(r.names)});
  return {parent, parent.ops()[index].id};
}

Tensors call(Graph& parent, Graph& graph, const Tensors& inputs, const TensorMap& named,
             std::source_location where) {
  return call_with_info(parent, graph, inputs, named, where).outputs();
}

namespace {

// Returns the operand of a loop that is its condition; -1 if it has none.
int64_t condition_input(const Graph& graph, size_t carried, const RepeatOptions& options) {
  if (!options.condition.valid()) return -1;
  require(carried == 0,
          "repeat: graph {} must have no outputs where a condition is given, got {}; update inputs "
          "by reference",
          graph.name(), carried);
  const auto& ids = graph.input_ids();
  const TensorSpec& spec = options.condition.spec();
  const auto found_input = std::find(ids.begin(), ids.end(), options.condition.id());
  require(graph.owns(options.condition) && found_input != ids.end() && spec.shape.empty() &&
              spec.dtype == boolean && graph.info(*found_input).pass == Pass::kByReference,
          "repeat: the condition must be a scalar bool input of {}, by reference, got '{}', {}",
          graph.name(), options.condition.name(), to_string(spec));
  // The iteration is an input, but not an operand.
  const auto iteration = options.iteration.valid()
                             ? std::find(ids.begin(), found_input, options.iteration.id())
                             : found_input;
  return found_input - ids.begin() - (iteration != found_input ? 1 : 0);
}

}  // namespace

CallSiteInfo repeat_with_info(Graph& parent, Graph& graph, int64_t trips, const Tensors& inputs,
                              const TensorMap& named, const RepeatOptions& options,
                              std::source_location where) {
  constexpr int64_t kMaxTrips = std::numeric_limits<int32_t>::max();
  require(trips >= 0 && trips <= kMaxTrips, "repeat: trips must be in [0, {}], got {}", kMaxTrips,
          trips);
  const auto& ids = graph.input_ids();
  const Tensors original = graph.original_outputs();
  const size_t carried = original.size();
  require(ids.size() >= carried, "repeat: graph {} has {} outputs but only {} inputs to carry them",
          graph.name(), carried, ids.size());
  for (size_t k = 0; k < carried; ++k) {
    const TensorSpec& in = graph.spec(ids[k]);
    const TensorSpec out = original[k].spec();
    require(in.shape == out.shape && in.dtype == out.dtype,
            "repeat: output {} of graph {} must be {} like the input that it feeds, got {}", k,
            graph.name(), to_string(in), to_string(out));
  }
  const bool counts = options.iteration.valid();
  if (counts) {
    require(graph.owns(options.iteration) && options.iteration.shape().empty() &&
                options.iteration.dtype() == i32,
            "repeat: the iteration input must be a scalar int32 input of {}", graph.name());
    const auto found_input = std::find(ids.begin(), ids.end(), options.iteration.id());
    require(found_input != ids.end() && found_input - ids.begin() >= static_cast<int64_t>(carried),
            "repeat: the iteration input must be an input of {} that is not carried", graph.name());
  }

  const int64_t condition = condition_input(graph, carried, options);

  // Make the wrapper graph, whose body is one call. Its inputs are iteration, keep-going, carried
  // values and invariants.
  Ir ir = parent.ir();
  Graph& wrapper = ir.create_empty_graph(graph.name() + "__loop_wrapper");
  const Tensor iteration = wrapper.input({{}, i32, {}}, "iteration");
  wrapper.input({{}, boolean, {}}, "keep_going");
  Tensors body_inputs;
  TensorMap body_named;
  for (size_t i = 0; i < ids.size(); ++i) {
    const TensorInfo& info = graph.info(ids[i]);
    const Tensor inner = counts && ids[i] == options.iteration.id()
                             ? iteration
                             : wrapper.input(info.spec, info.name, info.pass);
    body_named.emplace_back(graph.handle(ids[i]), inner);
  }
  wrapper.set_outputs(call_original(wrapper, graph, body_named, where));

  // The loop's operands are the wrapper's inputs after the first two.
  TensorMap all = named;
  for (size_t i = 0; i < inputs.size(); ++i) {
    require(i < ids.size(), "repeat: {} inputs given, graph {} has {}", inputs.size(), graph.name(),
            ids.size());
    all.emplace_back(graph.handle(ids[i]), inputs[i]);
  }
  if (counts) all.emplace_back(options.iteration, parent.scalar(0, i32, "iteration"));
  Arguments a = match_inputs(parent, graph, {}, all, "repeat", where);
  if (counts) {
    const auto at = std::find(ids.begin(), ids.end(), options.iteration.id()) - ids.begin();
    a.tensors.erase(a.tensors.begin() + at);
    a.modes.erase(a.modes.begin() + at);
  }
  Results r = results_of(original);
  const OpIndex index = parent.ops().end_id();
  parent.emit(
      builtin::loop(), a.tensors,
      to_attrs(builtin::LoopOptions{
          .trips = trips, .carried = static_cast<int64_t>(carried), .condition = condition}),
      {.callees = {wrapper.id()},
       .modes = std::move(a.modes),
       .outputs = std::move(r.specs),
       .output_names = std::move(r.names)});
  return {parent, parent.ops()[index].id};
}

Tensors repeat(Graph& parent, Graph& graph, int64_t trips, const Tensors& inputs,
               const TensorMap& named, const RepeatOptions& options, std::source_location where) {
  return repeat_with_info(parent, graph, trips, inputs, named, options, where).outputs();
}

Tensors conditional(Graph& parent, const Tensor& condition, Graph& then_graph, Graph& else_graph,
                    const Tensors& then_inputs, const Tensors& else_inputs,
                    std::source_location where) {
  require(condition.dtype() == boolean && condition.elements() == 1,
          "conditional: the condition must be a scalar bool, got {}", to_string(condition.spec()));
  Arguments a =
      match_inputs(parent, then_graph, then_inputs, {}, "conditional, then branch", where);
  Arguments b =
      match_inputs(parent, else_graph, else_inputs, {}, "conditional, else branch", where);
  for (const Arguments* branch : {&a, &b}) {
    require(std::all_of(branch->modes.begin(), branch->modes.end(),
                        [](Mode m) { return m == Mode::kRead; }),
            "conditional: a branch with by-reference inputs is not supported");
  }
  Results r = results_of(then_graph.outputs());
  const Results other = results_of(else_graph.outputs());
  require(r.specs.size() == other.specs.size(),
          "conditional: the then branch has {} outputs, the else branch {}", r.specs.size(),
          other.specs.size());
  for (size_t i = 0; i < r.specs.size(); ++i) {
    require(r.specs[i].shape == other.specs[i].shape && r.specs[i].dtype == other.specs[i].dtype,
            "conditional: output {} is {} in the then branch, {} in the else branch", i,
            to_string(r.specs[i]), to_string(other.specs[i]));
  }
  std::vector<TensorArg> operands{TensorArg(condition, where)};
  operands.insert(operands.end(), a.tensors.begin(), a.tensors.end());
  operands.insert(operands.end(), b.tensors.begin(), b.tensors.end());
  return parent.emit(
      builtin::branch(), operands,
      to_attrs(builtin::IfOptions{.then_inputs = static_cast<int64_t>(a.tensors.size())}),
      {.callees = {then_graph.id(), else_graph.id()},
       .outputs = std::move(r.specs),
       .output_names = std::move(r.names)});
}

}  // namespace ops
}  // namespace sluice
