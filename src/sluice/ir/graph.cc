#include "sluice/ir/graph.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/base/ids/ids_format.h"
#include "sluice/base/provenance.h"
#include "sluice/ir/builtin.h"
#include "sluice/ir/ir.h"
#include "sluice/ir/op_def.h"
#include "sluice/ir/provenance_scope.h"

namespace sluice {
namespace {

/// Line of the thread's LineScope; empty: ops have the line of their call.
std::string& line_of_thread() {
  thread_local std::string line;
  return line;
}

std::string text_of(const std::source_location& where) {
  std::string_view file(where.file_name());
  if (const auto slash = file.rfind('/'); slash != file.npos) file.remove_prefix(slash + 1);
  return fmt::format("{}:{}", file, where.line());
}

// Whether a and b have the same names and types of options, in the same order.
bool same_fields(const Attrs& a, const Attrs& b) {
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first && x.second.index() == y.second.index();
                    });
}

// Returns the provenance of an op that is added `here` by a call in `line`.
std::shared_ptr<const Provenance> provenance_of(const OpDef& def, const Provenance& here,
                                                std::string line) {
  auto own = std::make_shared<Provenance>(here);
  if (here.op.empty()) {
    own->op = def.name;
    own->line = std::move(line);
  }
  if (here.role == OpRole::kForward && def.has(Trait::kCollective)) own->role = OpRole::kCollective;
  if (&def != &builtin::loop()) own->per_iteration = {};
  return own;
}

}  // namespace

Graph::Graph(IrState* ir, GraphId id, std::string name, bool entry)
    : ir_(ir),
      id_(id),
      name_(std::move(name)),
      entry_(entry),
      here_(std::make_unique<Provenance>()) {}
Graph::~Graph() = default;

std::string Op::label() const { return fmt::format("{}.{}", def->type, id); }

Mode OpDef::input_mode(int i) const {
  if (inputs.empty()) return Mode::kRead;
  return i < std::ssize(inputs) ? at(inputs, i).mode : inputs.back().mode;
}

bool OpDef::zero_gradient(int i) const {
  if (has(Trait::kZeroGradient) || input_mode(i) == Mode::kWrite) return true;
  return !inputs.empty() && at(inputs, std::min<int64_t>(i, std::ssize(inputs) - 1)).zero_gradient;
}

Ir Graph::ir() const { return Ir(ir_->shared_from_this()); }

Tensor Graph::handle(TensorId id) const {
  SLUICE_CHECK(id.valid() && id < tensors_.end_id());
  return Tensor(ir_->weak_from_this(), ir_->id, id_, id);
}

Tensors Graph::handles(const std::vector<TensorId>& ids) const {
  Tensors result;
  for (const TensorId id : ids) result.push_back(handle(id));
  return result;
}

bool Graph::owns(const Tensor& t) const { return t.valid() && &t.graph() == this; }

Tensor Graph::input_named(std::string_view name) const {
  for (const TensorId id : inputs_) {
    if (info(id).name == name) return handle(id);
  }
  return {};
}

Tensors Graph::variables() const {
  Tensors result;
  for (const TensorId id : tensors_.ids()) {
    if (info(id).kind == TensorKind::kVariable) result.push_back(handle(id));
  }
  return result;
}

const Op& Graph::op(OpId id) const { return ops_[op_index(id)]; }

OpIndex Graph::op_index(OpId id) const {
  const auto found = op_index_.find(id);
  require(found != op_index_.end(), "graph {}: there is no op {}", name_, id);
  return found->second;
}

std::string Graph::unique_name(std::string name) {
  if (!by_name_.contains(name)) return name;
  for (;;) {
    std::string candidate = fmt::format("{}__t{}", name, ir_->next_tensor_suffix++);
    if (!by_name_.contains(candidate)) return candidate;
  }
}

TensorId Graph::add_tensor(TensorInfo info) {
  const TensorId id = tensors_.end_id();
  info.name = unique_name(std::move(info.name));
  by_name_.emplace(info.name, id);
  tensors_.push_back(std::move(info));
  return id;
}

TensorId Graph::add_root(std::string name, const TensorSpec& spec, TensorKind kind) {
  for (const int64_t d : spec.shape)
    require(d >= 0, "tensor '{}': shape {} has a negative dimension", name, to_string(spec.shape));
  spec.bytes();  // Refuses sizes beyond 63 bits.
  TensorInfo info;
  info.name = std::move(name);
  info.spec = spec;
  info.kind = kind;
  info.storage = storages_.end_id();
  const TensorId id = add_tensor(std::move(info));
  storages_.push_back({id, {{OpId(), id}}});
  return id;
}

Tensor Graph::input(const TensorSpec& spec, std::string name, Pass pass) {
  require(!entry_, "graph {}: an entry graph has no inputs; use a stream or a variable", name_);
  const TensorId id = add_root(std::move(name), spec, TensorKind::kInput);
  tensors_[id].pass = pass;
  inputs_.push_back(id);
  return handle(id);
}

namespace {

void check_groups(const TensorSpec& spec, const VariableInfo& info, const Ir& ir,
                  const std::string& name) {
  if (!info.group && info.shard == 0) return;
  const int replicas = ir.fix_replication("variable '" + name + "'");
  require(!info.group || info.group->replicas() == replicas,
          "variable '{}': groups must be of the {} replicas of the program, got {}", name, replicas,
          info.group ? info.group->replicas() : 0);
  if (info.shard == 0) return;
  const int size = info.group ? info.group->size() : replicas;
  require(
      info.shard > 0 && size % info.shard == 0,
      "variable '{}': shard must be positive and divide the {} replicas of a group, got {} chunks",
      name, size, info.shard);
  require(spec.shape.rank() == 1 && !spec.meta_shape.empty() &&
              spec.elements() == ceil_div(spec.meta_shape.elements(), info.shard),
          "variable '{}': must be one of {} chunks of its meta_shape {}, got {}", name, info.shard,
          to_string(spec.meta_shape), to_string(spec));
}

}  // namespace

Tensor Graph::variable(const TensorSpec& spec, VariableInfo info, std::string name) {
  require(entry_, "variable '{}': variables live in entry graphs, not in {}", name, name_);
  require(!name.empty(), "variable: the name must not be empty; it is the key in checkpoints");
  check_groups(spec, info, ir(), name);
  require_device_dtype(spec, fmt::format("variable '{}'", name));
  const TensorId id = add_root(std::move(name), spec, TensorKind::kVariable);
  if (info.path.empty()) info.path = tensors_[id].name;
  tensors_[id].variable = std::make_shared<VariableInfo>(std::move(info));
  return handle(id);
}

Tensor Graph::variable(const TensorSpec& spec, Initializer initializer, std::string name,
                       std::string path) {
  VariableInfo info;
  info.path = std::move(path);
  info.initializer = std::move(initializer);
  return variable(spec, std::move(info), std::move(name));
}

Tensor Graph::variable(HostTensor value, std::string name) {
  const TensorSpec spec = value.spec();
  return variable(spec, Initializer::array(std::move(value)), std::move(name));
}

Tensor Graph::constant(HostTensor value, std::string name) {
  require_device_dtype(value.spec(), fmt::format("constant '{}'", name));
  const TensorId id = add_root(std::move(name), value.spec(), TensorKind::kConstant);
  tensors_[id].constant = std::make_shared<const HostTensor>(std::move(value));
  return handle(id);
}

Tensor Graph::scalar(double value, DType dtype, std::string name) {
  require(can_store(dtype, value),
          "scalar '{}': must be {} to be {}, got {}; use another number or dtype", name,
          taken_by(dtype), name_of(dtype), value);
  return constant(HostTensor::of<double>({}, f64, {value}).cast(dtype), std::move(name));
}

void Graph::add_output(const Tensor& output) {
  check_operand(output, "output");
  outputs_.push_back(output.id());
}

void Graph::set_outputs(const Tensors& outputs) {
  outputs_.clear();
  appended_outputs_.clear();
  for (const Tensor& t : outputs) add_output(t);
}

Tensors Graph::original_outputs() const {
  Tensors result;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!std::binary_search(appended_outputs_.begin(), appended_outputs_.end(), i)) {
      result.push_back(handle(outputs_[i]));
    }
  }
  return result;
}

void Graph::check_operand(const Tensor& t, std::string_view what) const {
  require(t.valid(), "{}: an operand is an empty handle", what);
  require(&t.graph() == this, "{}: tensor '{}' belongs to graph {}{}, not to {}", what, t.name(),
          t.graph().name(), t.graph().ir_ == ir_ ? "" : " of another Ir", name_);
  const OpId producer = info(t).producer;
  require(!producer.valid() || op_index_.contains(producer),
          "{}: tensor '{}' must be made by an op of graph {}, got one that was moved or removed; a "
          "loop's body passes its tensors to the graph as carried values",
          what, t.name(), name_);
}

int64_t Graph::next_order(Effect::Action kind, int32_t id) {
  int64_t order = 0;
  for (const Op& op : ops_) {
    for (const Effect& e : op.effects) order += e.kind == kind && e.id == id;
  }
  return order;
}

std::vector<Operand> Graph::operands_of(const OpDef& def, const std::vector<TensorArg>& inputs,
                                        const std::vector<Mode>& modes) const {
  const Ids<StorageId, StorageId> ties = mirrored();
  const auto tie = [&](const TensorInfo& t) { return ties[t.storage]; };
  std::vector<Operand> operands;
  operands.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    Operand operand;
    operand.tensor = inputs[i].tensor.id();
    operand.mode = modes.empty() ? def.input_mode(static_cast<int>(i)) : modes[i];
    operand.version = storage(info(operand.tensor).storage).version();
    if (operand.mode != Mode::kRead) {
      const TensorInfo& target = info(operand.tensor);
      require(target.kind != TensorKind::kConstant, "{}: constant '{}' cannot be written", def.name,
              target.name);
      for (const Operand& before : operands) {
        const TensorInfo& other = info(before.tensor);
        if (before.mode == Mode::kRead) continue;
        require(other.storage != target.storage, "{}: two operands write '{}'", def.name,
                target.name);
        require(ties.empty() || tie(other) != tie(target),
                "{}: two operands write '{}' and '{}', which show the same elements", def.name,
                other.name, target.name);
      }
      operand.new_version = Version(operand.version + 1);
    }
    operands.push_back(operand);
  }
  return operands;
}

TensorId Graph::add_result(const Op& op, size_t i, const TensorSpec& spec,
                           const EmitOptions& options) {
  std::string name = i < options.output_names.size() ? options.output_names[i] : options.name;
  if (name.empty())
    name = fmt::format("{}_{}{}", op.def->name, op.id, i == 0 ? "" : fmt::format("_{}", i));
  const auto& aliases = op.def->aliases;
  const auto alias = std::find_if(aliases.begin(), aliases.end(),
                                  [&](const Alias& a) { return a.output == static_cast<int>(i); });
  TensorId id;
  if (alias == aliases.end()) {
    id = add_root(std::move(name), spec, TensorKind::kResult);
    storages_.back().writers.front().op = op.id;
  } else {
    const Operand& input = at(op.inputs, alias->input);
    TensorInfo result;
    result.name = std::move(name);
    result.spec = spec;
    result.storage = info(input.tensor).storage;
    Storage& target = storages_[result.storage];
    result.version = target.version();
    id = add_tensor(std::move(result));
    if (input.new_version.valid()) target.writers.back().handle = id;
  }
  tensors_[id].producer = op.id;
  tensors_[id].output = static_cast<int>(i);
  return id;
}

Tensors Graph::emit(const OpDef& def, const std::vector<TensorArg>& inputs, Attrs attrs,
                    EmitOptions options) {
  std::string where = line_of_thread();
  if (where.empty() && !inputs.empty()) where = text_of(inputs.front().where);
  const auto context = [&] {
    const std::string& scope = here_->module_path;
    return fmt::format("adding {}{}{} to graph {}", def.name, scope.empty() ? "" : " in " + scope,
                       where.empty() ? "" : " at " + where, name_);
  };
  Op op;
  std::vector<TensorSpec> out_specs;
  try {
    for (const TensorArg& t : inputs) check_operand(t.tensor, def.name);
    const size_t min = def.inputs.size() - (def.variadic ? 1 : 0);
    require(inputs.size() >= min && (def.variadic || inputs.size() == min),
            "{}: needs {}{} inputs, got {}", def.name, def.variadic ? "at least " : "", min,
            inputs.size());
    if (!same_fields(attrs, def.options)) {
      fail(ErrorKind::kUsage, "{}: options must be '{}', got '{}'", def.name,
           to_string(def.options), to_string(attrs));
    }
    std::vector<TensorSpec> in_specs;
    for (const TensorArg& t : inputs) in_specs.push_back(spec(t.tensor.id()));
    out_specs = options.outputs.empty() ? def.infer(OpView(def, attrs, in_specs)) : options.outputs;
    op.inputs = operands_of(def, inputs, options.modes);
  } catch (Error& e) {
    throw e.note(context());
  }
  op.id = ir_->next_op;
  ++ir_->next_op;
  op.def = &def;
  op.attrs = std::move(attrs);
  op.effects = std::move(options.effects);
  op.callees = std::move(options.callees);
  for (const GraphId callee : op.callees) ir_->callers[callee].insert(id_);
  op.device = device_;
  op.provenance = provenance_of(def, *here_, std::move(where));
  for (const Operand& operand : op.inputs) {
    if (!operand.new_version.valid()) continue;
    storages_[info(operand.tensor).storage].writers.push_back({op.id, {}});
  }
  for (size_t i = 0; i < out_specs.size(); ++i)
    op.outputs.push_back(add_result(op, i, out_specs[i], options));
  op_index_.emplace(op.id, ops_.end_id());
  ops_.push_back(std::move(op));
  const Tensors outputs = handles(ops_.back().outputs);
  if (!mirrors_.empty() && !settling_) settle_mirrors(Op(ops_.back()));
  return outputs;
}

void Graph::keep_in_step(Mirror mirror) {
  check_operand(mirror.view, "keep_in_step");
  for (const Tensor& source : mirror.sources) check_operand(source, "keep_in_step");
  mirrors_.push_back(std::move(mirror));
}

Ids<StorageId, StorageId> Graph::mirrored() const {
  if (mirrors_.empty()) return {};
  Ids<StorageId, StorageId> min;
  for (const StorageId s : storages_.ids()) min.push_back(s);
  const auto find = [&](StorageId s) {
    while (min[s] != s) s = min[s];
    return s;
  };
  for (const Mirror& m : mirrors_) {
    for (const Tensor& source : m.sources) {
      const auto [low, high] =
          std::minmax({find(info(source).storage), find(info(m.view).storage)});
      min[high] = low;
    }
  }
  for (StorageId& s : min) s = find(s);
  return min;
}

// First copies each written view back to its sources. Later views go first, because a view may show
// an earlier view. Then refreshes every view of a changed source. A written view needs no refresh
// if all views copied back have one source each: its elements reached the sources unchanged.
void Graph::settle_mirrors(const Op& op) {
  Ids<StorageId, bool> changed(storages_.size(), false);
  const auto has_changed = [&](const Tensor& t) { return bool{changed[info(t).storage]}; };
  const auto change = [&](const Tensor& t) { changed[info(t).storage] = true; };
  for (const Operand& o : op.inputs) {
    if (o.new_version.valid()) change(handle(o.tensor));
  }
  struct Settling {  // Resets the flag, also when an op of a mirror throws.
    bool& on;
    explicit Settling(bool& flag) : on(flag) { on = true; }
    ~Settling() { on = false; }
  } const settling(settling_);
  const std::vector<Mirror> mirrors = mirrors_;
  std::vector<bool> written(mirrors.size(), false);
  bool unchanged_on_the_way = true;
  for (size_t i = mirrors.size(); i-- > 0;) {
    if (!has_changed(mirrors[i].view)) continue;
    mirrors[i].write_back();
    for (const Tensor& source : mirrors[i].sources) change(source);
    written[i] = true;
    unchanged_on_the_way = unchanged_on_the_way && mirrors[i].sources.size() == 1;
  }
  for (size_t i = 0; i < mirrors.size(); ++i) {
    const auto& sources = mirrors[i].sources;
    if (!std::any_of(sources.begin(), sources.end(), has_changed)) continue;
    if (written[i] && unchanged_on_the_way) continue;
    mirrors[i].refresh();
    change(mirrors[i].view);
  }
}

void Graph::set_device(int device) {
  require(device >= kInheritDevice, "graph {}: device must be at least {}, got {}", name_,
          kInheritDevice, device);
  device_ = device;
}

DeviceScope::DeviceScope(Graph& graph, int device) : graph_(graph), previous_(graph.device_) {
  graph.set_device(device);
}
DeviceScope::~DeviceScope() { graph_.device_ = previous_; }

Graph::LineScope::LineScope(std::string line)
    : previous_(std::exchange(line_of_thread(), std::move(line))) {}
Graph::LineScope::~LineScope() { line_of_thread() = std::move(previous_); }

void Graph::set_block(std::string block) { here_->block = std::move(block); }
const std::string& Graph::block() const { return here_->block; }

Graph::ProvenanceScope::ProvenanceScope(Graph& graph, const ProvenanceFields& fields)
    : graph_(graph),
      previous_(std::exchange(graph.here_, std::make_unique<Provenance>(*graph.here_))) {
  Provenance& here = *graph.here_;
  if (fields.role) here.role = *fields.role;
  if (fields.block) here.block = *fields.block;
  if (fields.variable) here.variable = *fields.variable;
  here.at = here.at + fields.at;
  here.per_iteration = fields.per_iteration;
}
Graph::ProvenanceScope::~ProvenanceScope() { graph_.here_ = std::move(previous_); }

Graph::Scope::Scope(Graph& graph, const std::string& scope)
    : graph_(graph), previous_(graph.here_->module_path.size()) {
  std::string& path = graph.here_->module_path;
  if (!path.empty()) path += '/';
  path += scope;
}
Graph::Scope::~Scope() { graph_.here_->module_path.resize(previous_); }

Graph::IoScope::IoScope(Graph& graph, IoMode mode) : graph_(graph), previous_(graph.io_mode_) {
  graph.io_mode_ = mode;
}
Graph::IoScope::~IoScope() { graph_.io_mode_ = previous_; }

}  // namespace sluice
