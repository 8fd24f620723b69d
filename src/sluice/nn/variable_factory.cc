#include "sluice/nn/variable_factory.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "sluice/base/checked.h"
#include "sluice/base/provenance.h"
#include "sluice/ir/builtin.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/nn/dot_tree.h"

namespace sluice::nn {

template class BasicDotTree<VariableFactory, NamedVariableFactories>;
template class BasicDotTree<RemoteBuffer, NamedRemoteBuffers>;

namespace {

// Removes the suffix "#nth", which distinguishes several variables of one path.
std::string_view path_without_number(std::string_view path) {
  const size_t mark = path.rfind('#');
  const bool numbered =
      mark != path.npos && path.find_first_not_of("0123456789", mark + 1) == path.npos;
  return numbered ? path.substr(0, mark) : path;
}

Initializer uniform_of(double deviation) {
  const double bound = std::sqrt(3.0) * deviation;
  return uniform(-bound, bound);
}

OpRole op_role_of(Role role) {
  switch (role) {
    case Role::kWeight:
      break;
    case Role::kRunning:
      return OpRole::kRunningAverage;
    case Role::kState:
      return OpRole::kUpdate;
    case Role::kAccumulator:
      return OpRole::kAccumulation;
  }
  return OpRole::kForward;
}

double he_deviation(int64_t fan, double gain) {
  return gain / std::sqrt(static_cast<double>(std::max<int64_t>(fan, 1)));
}

double xavier_deviation(const Fans& fans, double gain) {
  return gain * std::sqrt(2.0 / static_cast<double>(std::max<int64_t>(fans.in + fans.out, 1)));
}

}  // namespace

Fans conv_fans(const Shape& weight) {
  require(weight.rank() >= 2, "conv_fans: a weight must have at least two axes, got {}",
          to_string(weight));
  const int64_t taps = std::accumulate(weight.begin() + 2, weight.end(), int64_t{1},
                                       [](int64_t a, int64_t b) { return checked_mul(a, b); });
  return {.in = std::max<int64_t>(checked_mul(weight[1], taps), 1),
          .out = std::max<int64_t>(checked_mul(weight[0], taps), 1)};
}

Initializer fan_in_uniform(int64_t fan_in) {
  return uniform_of(he_deviation(fan_in, std::sqrt(1.0 / 3)));
}
Initializer he_uniform(int64_t fan, double gain) { return uniform_of(he_deviation(fan, gain)); }
Initializer he_normal(int64_t fan, double gain) { return normal(0, he_deviation(fan, gain)); }
Initializer xavier_uniform(Fans fans, double gain) {
  return uniform_of(xavier_deviation(fans, gain));
}
Initializer xavier_normal(Fans fans, double gain) {
  return normal(0, xavier_deviation(fans, gain));
}

Initializer orthogonal(const Shape& shape, double gain) {
  require(shape.rank() >= 2, "orthogonal: a weight must have at least two axes, got {}",
          to_string(shape));
  return Initializer::orthogonal(shape[0], shape.elements() / std::max<int64_t>(shape[0], 1), gain);
}

namespace internal {

PathCounts::PathCounts(const Ir& ir) {
  std::unordered_set<const VariableInfo*> seen;  // Entries share variables.
  for (const auto& [name, id] : ir.entries()) {
    const Graph& entry = ir.graph(id);
    for (const TensorId t : entry.tensors().ids()) {
      const auto& variable = entry.info(t).variable;
      if (variable && seen.insert(variable.get()).second)
        ++counts_[path_without_number(variable->path)];
    }
  }
}

int64_t PathCounts::operator[](std::string_view path) const {
  const auto found = counts_.find(path);
  return found == counts_.end() ? 0 : found->second;
}

void PathCounts::add(const Tensor& variable) {
  ++counts_[path_without_number(variable.graph().info(variable).variable->path)];
}

}  // namespace internal

VariableFactory::VariableFactory(TensorSpec spec, Initializer initializer, Pass pass,
                                 std::optional<ReplicaGrouping> group)
    : spec_(std::move(spec)),
      initializer_(std::move(initializer)),
      pass_(pass),
      group_(std::move(group)) {
  const HostTensor* value = initializer_.value();
  const TensorSpec whole = host_spec(spec_, {.path = {}, .initializer = {}, .group = group_});
  require(value == nullptr || (value->shape() == whole.shape && value->dtype() == whole.dtype),
          "variable factory: first value must be {}, got {}", to_string(whole),
          value == nullptr ? "" : to_string(value->spec()));
}

VariableFactory VariableFactory::running() const {
  VariableFactory result = *this;
  result.role_ = Role::kRunning;
  return result;
}

VariableFactory VariableFactory::owned_by(std::string owner, Role role) const {
  VariableFactory result = *this;
  result.role_ = role;
  result.owner_ = std::move(owner);
  return result;
}

VariableFactory VariableFactory::sharded(int chunks) const {
  if (chunks == 0 || shard_ > 0) return *this;
  require(chunks > 0 && spec_.shape.rank() > 0,
          "variable factory: shards require at least one axis and one chunk, got {} in {} chunks",
          to_string(spec_), chunks);
  VariableFactory shards = *this;
  shards.shard_ = chunks;
  shards.spec_ = {{ceil_div(spec_.elements(), chunks)}, spec_.dtype, spec_.shape};
  return shards;
}

VariableFactory VariableFactory::as_state_of(const TensorSpec& spec,
                                             const VariableInfo& other) const {
  VariableFactory state = owned_by("");
  state.group_ = other.group;
  if (other.shard == 0 || spec_.shape != spec.shape) return state;
  state.shard_ = other.shard;
  state.spec_.meta_shape = spec.meta_shape;
  return state;
}

Tensor VariableFactory::create_input(Graph& graph, std::string name) const {
  return graph.input(spec_, std::move(name), pass_);
}

Tensor VariableFactory::create_variable(Graph& main, std::string name, const std::string& path,
                                        uint64_t seed, int64_t nth,
                                        const VariableLocation& location,
                                        const std::string& prefix) const {
  const Seed run{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
  VariableInfo info;
  info.path = nth == 0 ? path : fmt::format("{}#{}", path, nth);
  info.initializer = initializer_.keyed(fold(fold(run, path), static_cast<uint64_t>(nth)));
  info.group = group_;
  info.shard = shard_;
  info.location = location;
  info.role = op_role_of(role_);
  if (role_ == Role::kState || role_ == Role::kAccumulator)
    info.owner = prefix.empty() || owner_.empty() ? prefix + owner_ : prefix + "." + owner_;
  return main.variable(spec_, std::move(info), std::move(name));
}

std::string to_string(const VariableFactory& factory) {
  return fmt::format("<sluice::nn::VariableFactory object at {}>",
                     static_cast<const void*>(&factory));
}

template <typename Make>
NamedTensors NamedVariableFactories::init_at(Graph& main, const InitOptions& options,
                                             internal::PathCounts& made, const Make& make) const {
  require(main.is_entry(), "init: graph of variables must be an entry graph, got {}", main.name());
  const auto [keys, factories] = unpack();
  NamedTensors result;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string path = options.prefix.empty() ? keys[i] : options.prefix + "." + keys[i];
    const Tensor t = make(keys[i], factories[i], path);
    made.add(t);
    result.merge(keys[i], t);
  }
  return result;
}

NamedTensors NamedVariableFactories::init(Graph& main, const InitOptions& options,
                                          internal::PathCounts& made) const {
  return init_at(main, options, made,
                 [&](const std::string&, const VariableFactory& factory, const std::string& path) {
                   return factory.create_variable(main, path, path, options.seed, made[path], {},
                                                  options.prefix);
                 });
}

NamedTensors NamedVariableFactories::init(Graph& main, const InitOptions& options) const {
  internal::PathCounts made(main.ir());
  return init(main, options, made);
}

NamedTensors NamedVariableFactories::init_remote(Graph& main, const NamedRemoteBuffers& buffers,
                                                 int64_t entry, const InitOptions& options,
                                                 internal::PathCounts& made) const {
  const int replicas = main.ir().replication();
  return init_at(
      main, options, made,
      [&](const std::string& key, const VariableFactory& factory, const std::string& path) {
        const RemoteBuffer* const buffer = buffers.find_leaf(key);
        require(buffer != nullptr, "init_remote: variable '{}' has no buffer; buffers are {}", key,
                internal::join_keys(buffers.keys_flat()));
        const int size = factory.group() ? factory.group()->size() : replicas;
        return factory.sharded(buffer->spec.meta_shape.empty() ? 0 : size)
            .create_variable(main, path, path, options.seed, made[path], {buffer->id, entry},
                             options.prefix);
      });
}

NamedTensors NamedVariableFactories::init_remote(Graph& main, const NamedRemoteBuffers& buffers,
                                                 int64_t entry, const InitOptions& options) const {
  internal::PathCounts made(main.ir());
  return init_remote(main, buffers, entry, options, made);
}

NamedTensors NamedVariableFactories::init_zero(Graph& graph) const {
  NamedTensors result;
  for_each([&](const std::string& key, const VariableFactory& factory) {
    const TensorSpec& spec = factory.spec();
    const builtin::InitOptions zeros{.shape = spec.shape, .dtype = spec.dtype};
    const Graph::ProvenanceScope of(graph, {.variable = factory.owner()});
    result.merge(
        key, graph.emit(builtin::init(), {}, to_attrs(zeros), {.name = key, .outputs = {spec}})[0]);
  });
  return result;
}

NamedTensors NamedVariableFactories::select(const NamedTensors& tensors, Role role) const {
  NamedTensors result;
  tensors.for_each([&](const std::string& key, const Tensor& t) {
    const VariableFactory* const factory = find_leaf(key);
    if (factory != nullptr && factory->role() == role) result.merge(key, t);
  });
  return result;
}

}  // namespace sluice::nn
