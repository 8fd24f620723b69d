#include "sluice/ir/ir.h"

#include <algorithm>
#include <atomic>

namespace sluice {
namespace {

std::atomic<uint64_t> next_ir_id{1};

void check_replication(int replicas) {
  require(replicas >= 1 && replicas <= kMaxReplicas, "Ir: replication must be 1 to {}, got {}",
          kMaxReplicas, replicas);
}

}  // namespace

Ir::Ir(int replication) : state_(std::make_shared<IrState>()) {
  check_replication(replication);
  state_->id = next_ir_id++;
  state_->replication = replication;
}

Graph& Ir::entry_graph(const std::string& name) {
  const auto found = state_->entries.find(name);
  if (found != state_->entries.end()) return graph(found->second);
  const GraphId id = state_->graphs.end_id();
  state_->graphs.push_back(std::unique_ptr<Graph>(new Graph(state_.get(), id, name, true)));
  state_->entries.emplace(name, id);
  return *state_->graphs.back();
}

Graph& Ir::create_graph_named(std::string full_name) {
  const GraphId id = state_->graphs.end_id();
  state_->graphs.push_back(
      std::unique_ptr<Graph>(new Graph(state_.get(), id, std::move(full_name), false)));
  return *state_->graphs.back();
}

Graph& Ir::create_empty_graph(const std::string& name) {
  return create_graph_named(fmt::format("{}_subgraph({})", name, take_graph_number()));
}

std::string Ir::unique_stream_name(const std::string& name) const {
  const auto taken = [&](const std::string& n) {
    return std::any_of(state_->streams.begin(), state_->streams.end(),
                       [&](const StreamInfo& s) { return s.name == n; });
  };
  std::string unique = name;
  while (taken(unique)) unique = fmt::format("{}__t{}", name, state_->next_tensor_suffix++);
  return unique;
}

H2dStream Ir::h2d_stream(const TensorSpec& spec, std::string name) {
  require_device_dtype(spec, fmt::format("stream '{}'", name));
  name = unique_stream_name(name);
  state_->streams.push_back({name, spec, true});
  return {state_->id, static_cast<int32_t>(stream_count() - 1), name, spec};
}

D2hStream Ir::d2h_stream(const TensorSpec& spec, std::string name) {
  require_device_dtype(spec, fmt::format("stream '{}'", name));
  name = unique_stream_name(name);
  state_->streams.push_back({name, spec, false});
  return {state_->id, static_cast<int32_t>(stream_count() - 1), name, spec};
}

RemoteBuffer Ir::remote_buffer(const TensorSpec& spec, int64_t entries) {
  require_device_dtype(spec, "remote buffer");
  require(entries >= 1, "remote buffer: entries must be a positive integer, got {}", entries);
  state_->remote_buffers.push_back({spec, entries});
  return {id(), remote_buffer_count(), spec};
}

RemoteBuffer Ir::remote_buffer(const VariableLocation& location) const {
  require(location.buffer > 0 && location.buffer <= remote_buffer_count(),
          "there is no remote buffer {}, the program has {}", location.buffer,
          remote_buffer_count());
  return {id(), location.buffer, remote_buffer_info(location.buffer).spec};
}

int64_t Ir::remote_entries(const RemoteBuffer& buffer) const {
  require(buffer.ir == id(), "remote buffer {} belongs to another Ir", buffer.id);
  return remote_buffer_info(buffer.id).entries;
}

void Ir::grow(const RemoteBuffer& buffer, int64_t entries) {
  require(entries >= 1, "remote buffer: entries must be a positive integer, got {}", entries);
  const int64_t now = remote_entries(buffer);
  state_->remote_buffers[Id<RemoteBufferInfo>(buffer.id - 1)].entries = std::max(now, entries);
}

void Ir::set_replication(int replicas) {
  check_replication(replicas);
  require(replicas == replication() || state_->replication_user.empty(),
          "Ir: replication {} cannot become {}: {} relies on it", replication(), replicas,
          state_->replication_user);
  state_->replication = replicas;
}

int Ir::fix_replication(const std::string& user) const {
  if (state_->replication_user.empty()) state_->replication_user = user;
  return replication();
}

ReplicaGrouping Ir::replica_grouping(int stride, int size) const {
  const int replicas = fix_replication("a replica grouping");
  return ReplicaGrouping::make(replicas, stride, size == 0 ? replicas / std::max(stride, 1) : size);
}

ReplicaGrouping Ir::replica_grouping_from_assignments(std::vector<int> groups) const {
  const int replicas = fix_replication("a replica grouping");
  require(static_cast<int>(groups.size()) == replicas,
          "replica grouping: {} replicas are assigned, the program has {}", groups.size(),
          replicas);
  return ReplicaGrouping::from_assignments(std::move(groups));
}

Tensor Ir::share_variable(const Tensor& from, Graph& to) {
  const TensorInfo& info = from.graph().info(from);
  require(info.kind == TensorKind::kVariable, "share_variable: '{}' is not a variable", info.name);
  require(from.graph().ir().id() == id() && to.ir().id() == id(),
          "share_variable: '{}' and graph {} must both be of this Ir", info.name, to.name());
  const Tensor shared = to.variable(info.spec, *info.variable, info.name);
  to.tensors_[shared.id()].variable = info.variable;
  return shared;
}

Tensor Ir::make_input(Graph& graph, const TensorSpec& spec, int position) {
  return graph.input(spec, position == 0 ? "x" : fmt::format("x{}", position));
}
Tensor Ir::make_input(Graph& graph, const Tensor& like, int position) {
  return make_input(graph, like.spec(), position);
}
Tensor Ir::make_input(Graph& graph, const NamedInput& input, int) {
  return graph.input(input.spec, input.name, input.pass);
}

}  // namespace sluice
