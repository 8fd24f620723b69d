#include "sluice/compiler/compile.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "sluice/base/checked.h"
#include "sluice/base/sys.h"
#include "sluice/compiler/announce_remote.h"
#include "sluice/compiler/budget.h"
#include "sluice/compiler/dead_code.h"
#include "sluice/compiler/emit_function.h"
#include "sluice/compiler/entry_bounds.h"
#include "sluice/compiler/fold_entries.h"
#include "sluice/compiler/functionalise.h"
#include "sluice/compiler/fuse.h"
#include "sluice/compiler/inline_calls.h"
#include "sluice/compiler/layouts.h"
#include "sluice/compiler/pipeline.h"
#include "sluice/compiler/placement.h"
#include "sluice/compiler/project.h"
#include "sluice/compiler/schedule_transfers.h"
#include "sluice/compiler/share_work.h"
#include "sluice/compiler/split_ops.h"
#include "sluice/compiler/synchronise.h"
#include "sluice/ir/verify.h"

namespace sluice {
namespace compiler {
namespace {

constexpr int64_t kMostStaging = 1 << 20;  // Larger pieces are hardly faster.

// Arenas of a device, by their place in Executable::arenas.
struct DeviceArenas {
  int32_t persistent = 0;
  int32_t frames = 0;
  int32_t workspace = 0;
};

class Compiler : public GlobalAddresses {
 public:
  Compiler(const Ir& ir, const CompileOptions& options)
      : ir_(ir), options_(options), facts_(ir), pipeline_(options) {}

  Compiled run() {
    const auto begin = std::chrono::steady_clock::now();
    require(!options_.devices.empty(), "compile: no device is given");
    queue_names(options_.io_queues);
    describe_machine();
    place_variables();
    if (ir_.remote_buffer_count() > 0 && pipeline_.enabled("entries")) {
      indices_ = IndexTable(ir_, globals_, [&](GraphId g) -> const Body& { return body_of(g); });
    }
    for (const auto& [name, id] : ir_.entries()) compile_entry(name, ir_.graph(id));
    finish_arenas();
    check_entries(exe_);
    announce_remote(exe_, transfers_before_calls_);
    check_budgets(compiled_.executable);
    compiled_.passes = pipeline_.records();
    for (const Globals::Variable& v : globals_.variables) compiled_.variables.push_back(v.info);
    compiled_.variable_index = globals_.variable_index;
    compiled_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(compiled_);
  }

  exe::Address variable(int32_t index) override {
    const exe::VariablePlan& v = exe_.variables[static_cast<size_t>(index)];
    return {exe::Address::Base::kArena, v.arena, v.offset, 0, 0, {}};
  }
  exe::ValueId variable_value(int32_t index) override {
    return exe_.variables[static_cast<size_t>(index)].value;
  }

  exe::Address constant(int32_t index, int32_t device) override {
    const exe::ConstantPlan& c = constant_plan(index, device);
    return {exe::Address::Base::kArena, c.arena, c.offset, 0, 0, {}};
  }
  exe::ValueId constant_value(int32_t index, int32_t device) override {
    return constant_plan(index, device).value;
  }

 private:
  const Target& target(int32_t device) const {
    require(device >= 0 && device < static_cast<int32_t>(options_.devices.size()),
            "compile: there is no device {}, the program has {}", device, options_.devices.size());
    return *options_.devices[static_cast<size_t>(device)].target;
  }

  TargetOf target_of() const {
    return [this](int32_t d) -> const Target& { return target(d); };
  }

  void describe_machine() {
    exe_.replicas = ir_.fix_replication("a compiled program");
    require(exe_.replicas % options_.processes == 0,
            "compile: {} processes cannot share {} replicas evenly", options_.processes,
            exe_.replicas);
    for (const ReplicaGrouping& g : facts_.groups()) exe_.groups.push_back({g.stride(), g.size()});
    for (size_t d = 0; d < options_.devices.size(); ++d) {
      const DeviceSpec& spec = options_.devices[d];
      exe_.devices.push_back(
          {spec.target->kind(),
           spec.target->isa(),
           spec.memory,
           exe::workers_of_replica(spec.threads, exe_.replicas / options_.processes),
           {{"compute"}}});
      const auto add = [&](const char* name, exe::ArenaKind kind) {
        exe_.arenas.push_back({fmt::format("{}{}", name, d), kind, exe::Space::kDevice,
                               static_cast<int32_t>(d), 0, 0});
        return static_cast<int32_t>(exe_.arenas.size() - 1);
      };
      DeviceArenas a;
      a.persistent = add("persistent", exe::ArenaKind::kPersistent);
      a.frames = add("frames", exe::ArenaKind::kFrames);
      a.workspace = add("workspace", exe::ArenaKind::kWorkspace);
      arenas_.push_back(a);
    }
    for (int s = 0; s < ir_.stream_count(); ++s) {
      exe_.streams.push_back({ir_.stream(s).name, ir_.stream(s).input, ir_.stream(s).spec});
    }
    if (ir_.remote_buffer_count() == 0) return;
    const bool file = options_.remote_space == exe::Space::kFile;
    const char* const tier = file ? "file" : "host";
    exe_.tiers.push_back({tier, options_.remote_space, options_.remote_memory});
    exe_.arenas.push_back({tier, exe::ArenaKind::kTier, options_.remote_space, -1, 0, 0});
    const auto arena = static_cast<int32_t>(exe_.arenas.size() - 1);
    for (int32_t b = 1; b <= ir_.remote_buffer_count(); ++b) {
      const RemoteBufferInfo& buffer = ir_.remote_buffer_info(b);
      exe::RemoteBufferPlan plan{
          fmt::format("remote{}", b), buffer.spec, buffer.entries, arena, 0, 0};
      plan.entry_stride = round_up(buffer.spec.bytes(), file ? sys::kFilePage : 64);
      plan.offset = exe_.arenas.back().bytes;
      exe_.arenas.back().bytes =
          checked_add(plan.offset, checked_mul(plan.entry_stride, buffer.entries));
      exe_.remote_buffers.push_back(std::move(plan));
    }
    if (file && (options_.remote_direct || options_.verify_remote)) serve_file();
  }

  // Host memory that a file tier needs besides: where direct transfers pass, and checksums.
  void serve_file() {
    int64_t entry = 0, checksums = 0;
    for (const exe::RemoteBufferPlan& b : exe_.remote_buffers) {
      entry = std::max(entry, b.entry_stride);
      checksums = checked_add(checksums, checked_mul(exe::checksums_of_entry(b), b.entries));
    }
    exe_.tiers.push_back({"host", exe::Space::kHost, -1});
    const auto add = [&](const char* name, exe::ArenaKind kind, int64_t bytes) {
      exe_.arenas.push_back({name, kind, exe::Space::kHost, -1, bytes, 0});
    };
    if (options_.remote_direct)
      add("staging", exe::ArenaKind::kStaging, std::min(entry, kMostStaging));
    if (options_.verify_remote)
      add("checksums", exe::ArenaKind::kChecksums, checked_mul(checksums, sizeof(uint64_t)));
  }

  int64_t reserve(int32_t arena, int64_t bytes) {
    exe::Arena& a = exe_.arenas[static_cast<size_t>(arena)];
    const int64_t offset = round_up(a.bytes, 64);
    a.bytes = checked_add(offset, bytes);
    return offset;
  }

  // Variables of all entries lie on the device of the first op that uses them, in the order they were made.
  void place_variables() {
    for (const auto& [name, id] : ir_.entries()) {
      const Graph& graph = ir_.graph(id);
      std::unordered_map<TensorId, int32_t> device;
      for (const Op& op : graph.ops()) {
        for (const Operand& o : op.inputs) {
          const TensorId root = graph.storage(graph.info(o.tensor).storage).root;
          check_reader(graph.info(root), op);
          device.try_emplace(root, op.device == kInheritDevice ? 0 : op.device);
        }
      }
      for (const Tensor& t : graph.variables()) {
        const TensorInfo& info = graph.info(t);
        const size_t known = globals_.variables.size();
        globals_.variable(info);
        if (globals_.variables.size() == known) continue;
        const auto d = device.find(t.id());
        check_home(info, d == device.end() ? 0 : d->second);
      }
    }
    choose_layouts();
    for (size_t i = 0; i < globals_.variables.size(); ++i) add_variable(i);
  }

  static void check_reader(const TensorInfo& info, const Op& op) {
    if (info.variable == nullptr || info.variable->home.buffer <= 0) return;
    const Home& home = info.variable->home;
    fail(ErrorKind::kUsage,
         "{}: variable '{}' lives in entry {} of remote buffer {}; only remote_load reads it",
         op.label(), info.name, home.entry, home.buffer);
  }

  void check_home(const TensorInfo& info, int32_t device) {
    require(device >= 0 && device < static_cast<int32_t>(options_.devices.size()),
            "variable '{}': there is no device {}", info.name, device);
    globals_.variables.back().device = device;
    globals_.variables.back().name = info.name;
    const Home& home = info.variable->home;
    if (!home.remote()) return;
    require(home.buffer > 0 && home.buffer <= ir_.remote_buffer_count(),
            "variable '{}': there is no remote buffer {}, the program has {}", info.name,
            home.buffer, ir_.remote_buffer_count());
    const RemoteBufferInfo& buffer = ir_.remote_buffer_info(home.buffer);
    require(home.entry >= 0 && home.entry < buffer.entries,
            "variable '{}': entry {} is outside the {} entries of remote buffer {}", info.name,
            home.entry, buffer.entries, home.buffer);
    require(info.spec == buffer.spec, "variable '{}' is {}, entries of remote buffer {} are {}",
            info.name, to_string(info.spec), home.buffer, to_string(buffer.spec));
    const auto [other, fresh] =
        remote_variables_.try_emplace({home.buffer - 1, home.entry}, info.name);
    require(fresh, "variables '{}' and '{}' both live in entry {} of remote buffer {}",
            other->second, info.name, home.entry, home.buffer);
  }

  void choose_layouts() {
    variable_layouts_.resize(globals_.variables.size());
    if (!pipeline_.enabled("layouts")) return;
    std::vector<const Body*> entries;
    for (const auto& [name, id] : ir_.entries()) entries.push_back(&body_of(id));
    variable_layouts_ =
        choose_variable_layouts(entries, globals_.variables.size(), bodies(), target_of());
  }

  void add_variable(size_t index) {
    const Globals::Variable& variable = globals_.variables[index];
    const Layout& layout = variable_layouts_[index];
    exe::VariablePlan plan;
    plan.path = variable.info->path;
    plan.spec = variable.spec;
    plan.bytes = buffer_bytes(variable.spec, layout);
    plan.layout = to_string(layout);
    if (const Home& home = variable.info->home; home.buffer > 0) {
      plan.buffer = home.buffer - 1;
      plan.entry = home.entry;
      const exe::RemoteBufferPlan& buffer = exe_.remote_buffers[static_cast<size_t>(plan.buffer)];
      plan.arena = buffer.arena;
      plan.offset = buffer.offset + plan.entry * buffer.entry_stride;
    } else {
      plan.arena = arenas_[static_cast<size_t>(variable.device)].persistent;
      plan.offset = reserve(plan.arena, plan.bytes);
    }
    plan.value = add_value(variable.name, 0);
    plan.shard = variable.info->shard;
    plan.group = group_index(variable.info->group);
    plan.initializer = variable.info->initializer.text();
    exe_.variables.push_back(std::move(plan));
  }

  // The groups whose members hold one value of a variable: one of a constant stride, at least a part of its group.
  int32_t group_index(const std::optional<ReplicaGrouping>& grouping) {
    if (!grouping || grouping->groups() == 1) return -1;
    const ReplicaGrouping fine = grouping->const_rg();
    const exe::ReplicaGroup group{fine.stride(), fine.size()};
    const auto found = std::find(exe_.groups.begin(), exe_.groups.end(), group);
    if (found != exe_.groups.end()) return static_cast<int32_t>(found - exe_.groups.begin());
    exe_.groups.push_back(group);
    return static_cast<int32_t>(exe_.groups.size() - 1);
  }

  exe::ValueId add_value(const std::string& tensor, int64_t version) {
    exe_.values.push_back({tensor, version});
    return static_cast<exe::ValueId>(exe_.values.size() - 1);
  }

  const exe::ConstantPlan& constant_plan(int32_t index, int32_t device) {
    const auto [place, fresh] =
        constant_plans_.try_emplace({index, device}, static_cast<int32_t>(exe_.constants.size()));
    if (fresh) {
      const Globals::Constant& c = globals_.constants[static_cast<size_t>(index)];
      exe::ConstantPlan plan;
      plan.name = c.name;
      plan.spec = c.data->spec();
      plan.arena = arenas_[static_cast<size_t>(device)].persistent;
      plan.offset = reserve(plan.arena, plan.spec.bytes());
      plan.value = add_value("constant " + c.name, 0);
      plan.data.assign(c.data->bytes().begin(), c.data->bytes().end());
      exe_.constants.push_back(std::move(plan));
    }
    return exe_.constants[static_cast<size_t>(place->second)];
  }

  void compile_entry(const std::string& name, const Graph& graph) {
    Body whole = functionalise(graph, facts_, globals_);
    optimise(whole);
    exe::Program program;
    program.name = name;
    for (const SequenceUse& use : facts_[graph.id()].sequences) {
      if (use.sequence.of == Sequence::Of::kStream)
        program.streams.push_back({use.sequence.id, use.count});
    }
    std::vector<Body> parts = project(std::move(whole), globals_, facts_, exe_);
    for (Body& part : parts) {
      const int32_t device = part.device;
      const int32_t function = lower(part, fmt::format("{} on {}", name, device), &program);
      exe::Entry entry{
          device,
          function,
          {exe::Address::Base::kArena, arenas_[static_cast<size_t>(device)].frames, 0, 0, 0, {}}};
      exe::Arena& frames = exe_.arenas[static_cast<size_t>(entry.frame.index)];
      frames.bytes =
          std::max(frames.bytes, exe_.functions[static_cast<size_t>(function)].frame_bytes);
      program.entries.push_back(std::move(entry));
    }
    name_messages(program, exe_);
    add_remote_finals(graph, program);
    std::sort(program.finals.begin(), program.finals.end(),
              [](const exe::Final& a, const exe::Final& b) { return a.variable < b.variable; });
    exe_.programs.push_back(std::move(program));
  }

  // Variables in remote buffers that some store may have changed, but none whose entry and value are known.
  void add_remote_finals(const Graph& graph, exe::Program& program) const {
    for (size_t v = 0; v < exe_.variables.size(); ++v) {
      const exe::VariablePlan& plan = exe_.variables[v];
      if (plan.buffer < 0 || !facts_[graph.id()].stores_to.contains(plan.buffer + 1)) continue;
      const auto index = static_cast<int32_t>(v);
      const bool known = std::any_of(program.finals.begin(), program.finals.end(),
                                     [&](const exe::Final& f) { return f.variable == index; });
      if (!known) program.finals.push_back({index, exe::kNoValue});
    }
  }

  const Body& body_of(GraphId id) {
    const auto found = bodies_.find(id);
    if (found != bodies_.end()) return found->second;
    Body body = functionalise(ir_.graph(id), facts_, globals_);
    inline_into(body);
    return bodies_.emplace(id, std::move(body)).first->second;
  }

  BodyOf bodies() {
    return [this](GraphId id) -> const Body& { return body_of(id); };
  }

  void inline_into(Body& body) {
    pipeline_.run("inline", body, [&](Body& b) { return inline_calls(b, facts_, bodies()); });
  }

  void optimise(Body& body) {
    inline_into(body);
    pipeline_.run("dead-code", body, [&](Body& b) { return remove_dead_code(b, facts_); });
    pipeline_.run("share-work", body, [&](Body& b) { return share_work(b, target_of()); });
    pipeline_.run("split", body, [&](Body& b) { return split_ops(b, target_of()); });
    apply_layouts(body, variable_layouts_);
    pipeline_.run("fuse", body, [&](Body& b) { return fuse(b, target_of(), compiled_.fusions); });
    pipeline_.run("layouts", body,
                  [&](Body& b) { return assign_layouts(b, bodies(), target_of()); });
  }

  // The function of a graph whose results in `used` are wanted, on parameters of these layouts; inputs in `indexed` are
  // index parameters. Whatever their arguments are, it is one function.
  int32_t function_of(GraphId graph, int32_t device, const std::vector<bool>& used,
                      const std::vector<Layout>& params, bool loop_body,
                      const std::vector<bool>& indexed) {
    std::string memo =
        fmt::format("graph {} device {} {}used ", graph, device, loop_body ? "loop " : "");
    for (const bool u : used) memo += u ? '1' : '0';
    for (size_t i = 0; i < params.size(); ++i) {
      if (params[i] != Layout{}) memo += fmt::format(" {} {}", i, to_string(params[i]));
    }
    for (size_t i = 0; i < indexed.size(); ++i) {
      if (indexed[i]) memo += fmt::format(" index {}", i);
    }
    const auto found = functions_.find(memo);
    if (found != functions_.end()) return found->second;
    Body body = functionalise(ir_.graph(graph), facts_, globals_,
                              loop_body ? GraphRole::kLoopBody : GraphRole::kFunction);
    take_index_params(body, loop_body, indexed);
    for (size_t r = 0; r < used.size(); ++r) {
      if (!used[r]) body.results[r] = kNone;
    }
    for (size_t i = 0; i < params.size(); ++i)
      body.values[static_cast<size_t>(body.params[i].in)].layout = params[i];
    optimise(body);
    body.device = device;
    const int32_t id = lower(body, memo, nullptr);
    functions_.emplace(memo, id);
    return id;
  }

  // Index parameters are no parameters: a node makes the value for whoever reads it. The wrapper of a loop takes (iteration,
  // keep going, …); its iteration is one, and an indexed carried value is no result.
  void take_index_params(Body& body, bool loop_body, const std::vector<bool>& indexed) {
    const std::vector<BodyParam> all = std::move(body.params);
    body.params.clear();
    const size_t skipped = loop_body ? 2 : 0;
    std::vector<Node> made;
    for (size_t i = 0; i < all.size(); ++i) {
      BodyValue& value = body.values[static_cast<size_t>(all[i].in)];
      if (i >= skipped && (i - skipped >= indexed.size() || !indexed[i - skipped])) {
        value.index = static_cast<int32_t>(body.params.size());
        body.params.push_back(all[i]);
        continue;
      }
      value.index = -1;
      value.source = BodyValue::Source::kUndefined;
      if (loop_body && i == 1) continue;
      Node node;
      node.kind = Node::Kind::kIndex;
      node.index = exe::IndexExpr::param(static_cast<int64_t>(body.index_ranges.size()));
      body.index_ranges.push_back(indices_.range(body.graph, i));
      const bool read = std::any_of(body.nodes.begin(), body.nodes.end(), [&](const Node& n) {
        return std::find(n.inputs.begin(), n.inputs.end(), all[i].in) != n.inputs.end();
      });
      const bool returned =
          std::find(body.results.begin(), body.results.end(), all[i].in) != body.results.end();
      if (!read && !returned) continue;
      value.source = BodyValue::Source::kNode;
      node.outputs = {all[i].in};
      node.out_specs = {value.spec};
      node.where =
          fmt::format("{} of {}", loop_body && i == 0 ? "iteration" : all[i].name, body.name);
      made.push_back(std::move(node));
    }
    body.nodes.insert(body.nodes.begin(), std::make_move_iterator(made.begin()),
                      std::make_move_iterator(made.end()));
    const size_t carried = loop_body ? ir_.graph(body.graph).output_ids().size() : 0;
    for (size_t i = std::min(indexed.size(), carried); i-- > 0;) {
      if (indexed[i]) body.results.erase(body.results.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  int32_t lower(Body& body, const std::string& memo, exe::Program* program) {
    pipeline_.run("entries", body,
                  [&](Body& b) { return fold_entries(b, globals_, facts_, indices_); });
    std::vector<int32_t> transfers_before_calls = number_transfers(body);
    pipeline_.run("transfers", body, [&](Body& b) {
      const int64_t moved = schedule_transfers(b, facts_, options_.io_queues);
      if (moved > 0)
        exe_.devices[static_cast<size_t>(b.device)].queues = queue_names(options_.io_queues);
      return moved;
    });
    const auto used = used_outputs(body);
    std::vector<std::vector<int32_t>> callees;
    for (size_t n = 0; n < body.nodes.size(); ++n)
      callees.push_back(lower_callees(body, body.nodes[n], used[n]));
    number_index_params(body);
    std::vector<KernelChoice> choices(body.nodes.size());
    pipeline_.run("kernels", body, [&](Body& b) {
      for (size_t n = 0; n < b.nodes.size(); ++n) choices[n] = choose(b, b.nodes[n]);
      return static_cast<int64_t>(b.nodes.size());
    });
    Placement placement;
    pipeline_.run("placement", body, [&](Body& b) {
      using Aliasing = PlacementOptions::Aliasing;
      const size_t before = b.nodes.size();
      placement =
          place(b, choices, {pipeline_.enabled("aliasing") ? Aliasing::kOn : Aliasing::kOff});
      for (size_t n = 0; n < b.nodes.size(); ++n) {
        if (b.nodes[n].kind == Node::Kind::kCopy) choices[n] = choose(b, b.nodes[n]);
      }
      return static_cast<int64_t>(b.nodes.size() - before);
    });
    // Placement inserts copies only; callees keep their order.
    std::vector<std::vector<int32_t>> spread(body.nodes.size());
    size_t next = 0;
    for (size_t n = 0; n < body.nodes.size(); ++n) {
      if (body.nodes[n].callees.empty()) continue;
      while (callees[next].empty()) ++next;
      spread[n] = std::move(callees[next++]);
    }
    exe::Function function;
    pipeline_.run("offsets", body, [&](Body& b) {
      const EmitContext context{&exe_, this, &facts_, target(b.device).alignment()};
      function = emit_function(b, placement, choices, spread, context, program);
      return static_cast<int64_t>(function.buffers.size());
    });
    pipeline_.run("synchronise", body, [&](Body&) { return synchronise(function); });
    function.memo = memo;
    for (const exe::Step& step : function.steps) {
      if (const auto* kernel = std::get_if<exe::Kernel>(&step.body)) {
        exe::Arena& workspace =
            exe_.arenas[static_cast<size_t>(arenas_[static_cast<size_t>(body.device)].workspace)];
        workspace.stride = std::max(workspace.stride, round_up(kernel->workspace_bytes, 64));
      }
    }
    exe_.functions.push_back(std::move(function));
    index_inputs_.push_back(body.index_inputs);
    transfers_before_calls_.push_back(std::move(transfers_before_calls));
    return static_cast<int32_t>(exe_.functions.size() - 1);
  }

  std::vector<int32_t> lower_callees(const Body& body, Node& node, const std::vector<bool>& used) {
    if (node.callees.empty()) return {};
    std::vector<bool> results(static_cast<size_t>(node.results), true);
    if (node.kind == Node::Kind::kCall) {
      for (size_t r = 0; r < results.size(); ++r) {
        results[r] = used[r];
        if (!used[r]) node.outputs[r] = kNone;
      }
    }
    // Of a conditional, input 0 is the condition; then come the inputs of one branch and of the other.
    const bool branch = node.kind == Node::Kind::kBranch;
    std::vector<int32_t> functions;
    size_t first = branch ? 1 : 0;
    size_t last = branch ? 1 + static_cast<size_t>(node.then_inputs) : node.inputs.size();
    const bool loop = node.kind == Node::Kind::kLoop;
    if (loop) node.index_args.insert(node.index_args.begin(), exe::IndexExpr::iteration());
    for (const GraphId g : node.callees) {
      std::vector<Layout> params;
      for (size_t i = first; i < last; ++i) params.push_back(body.value(node.inputs[i]).layout);
      functions.push_back(function_of(g, body.device, results, params, loop, node.indexed));
      first = last;
      last = node.inputs.size();
    }
    // Those that the callee takes; the arms of a conditional take none.
    std::vector<exe::IndexExpr> taken;
    for (const int32_t i : index_inputs_[static_cast<size_t>(functions[0])])
      taken.push_back(node.index_args[static_cast<size_t>(i)]);
    node.index_args = std::move(taken);
    return functions;
  }

  KernelChoice choose(const Body& body, const Node& node) const {
    const int32_t device = body.device;
    if (node.kind == Node::Kind::kCopy) {
      return target(device).copy(node.in_specs[0], body.value(node.inputs[0]).layout,
                                 body.value(node.outputs[0]).layout);
    }
    if (node.kind == Node::Kind::kIndex) return {.key = target(device).kind() + ".index"};
    if (node.kind == Node::Kind::kCollective) return {.may_coincide = node.def->may_coincide};
    if (node.kind != Node::Kind::kKernel) return {};
    try {
      if (!node.stages.empty()) return target(device).choose_fused(fused_op(body, node));
      return target(device).choose({OpView(*node.def, node.attrs, node.in_specs, node.out_specs)});
    } catch (Error& e) {
      throw e.note(fmt::format("choosing a kernel for {}.{} made at {}", name_of(node), node.origin,
                               node.where));
    }
  }

  void finish_arenas() {
    for (size_t d = 0; d < arenas_.size(); ++d) {
      exe::Arena& workspace = exe_.arenas[static_cast<size_t>(arenas_[d].workspace)];
      workspace.bytes = workspace.stride * exe_.devices[d].workers;
    }
  }

  const Ir& ir_;
  const CompileOptions& options_;
  FactTable facts_;
  Pipeline pipeline_;
  Globals globals_;
  Compiled compiled_;
  exe::Executable& exe_ = compiled_.executable;
  std::vector<DeviceArenas> arenas_;
  std::vector<Layout> variable_layouts_;
  std::map<std::pair<int32_t, int64_t>, std::string> remote_variables_;  // By buffer and entry.
  std::map<std::pair<int32_t, int32_t>, int32_t> constant_plans_;
  std::unordered_map<GraphId, Body> bodies_;
  std::unordered_map<std::string, int32_t> functions_;
  std::vector<std::vector<int32_t>> index_inputs_;            // Of each function: see Body.
  std::vector<std::vector<int32_t>> transfers_before_calls_;  // Of each function.
  IndexTable indices_;
};

}  // namespace
}  // namespace compiler

Compiled compile(const Ir& ir, const CompileOptions& options) {
#ifndef NDEBUG
  verify(ir);
#endif
  return compiler::Compiler(ir, options).run();
}

}  // namespace sluice
