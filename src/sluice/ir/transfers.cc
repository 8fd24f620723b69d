#include "sluice/ir/builtin.h"
#include "sluice/ir/ir.h"
#include "sluice/ir/provenance_scope.h"

namespace sluice {
namespace {

void check_buffer(const Ir& ir, const RemoteBuffer& buffer, const RemoteEntry& entry) {
  require(buffer.ir == ir.id(), "remote buffer {} belongs to another Ir", buffer.id);
  if (const Tensor* const t = entry.tensor()) {
    require(t->elements() == 1 && (t->dtype() == i32 || t->dtype() == u32),
            "remote buffer {}: an entry must be a scalar int32 or uint32, got {}", buffer.id,
            to_string(t->spec()));
  } else {
    const int64_t entries = ir.remote_entries(buffer);
    require(entry.constant() >= 0 && entry.constant() < entries,
            "remote buffer {}: entry {} is outside its {} entries", buffer.id, entry.constant(),
            entries);
  }
}

void check_tensor(const RemoteBuffer& buffer, const Tensor& t) {
  require(t.spec() == buffer.spec, "Tensor '{}' ({}) does not match buffer {} ({})", t.name(),
          to_string(t.spec()), buffer.id, to_string(buffer.spec));
}

std::vector<TensorArg> operands(const Tensor& t, const RemoteEntry& entry) {
  if (entry.tensor() == nullptr) return {t};
  return {t, *entry.tensor()};
}

// Adds an undefined tensor that a transfer overwrites.
Tensor unwritten(Graph& graph, const TensorSpec& spec, std::string name) {
  const builtin::InitOptions options{.shape = spec.shape, .dtype = spec.dtype, .undefined = true};
  return graph.emit(builtin::init(), {}, to_attrs(options), {.name = std::move(name)})[0];
}

}  // namespace

Effect Graph::transfer(Effect::Action kind, int32_t id, int64_t entry) {
  const bool stream = kind == Effect::Action::kStreamRead || kind == Effect::Action::kStreamWrite;
  // On an I/O queue, the wait for a feed would block the transfers after it.
  const bool fed = stream && ir_->streams[Id<StreamInfo>(id)].feed >= 0;
  return {kind, id, next_order(kind, id), entry, fed ? IoMode::kCompute : io_mode_};
}

Tensor Graph::host_load(const H2dStream& stream, std::string name) {
  require(stream.ir == ir_->id, "host_load: stream '{}' belongs to another Ir", stream.name);
  if (name.empty()) name = stream.name;
  const ProvenanceScope of(*this, {.variable = stream.name});
  const Tensor target = unwritten(*this, stream.spec, name + "_init");
  return emit(builtin::host_load(), {target}, {},
              {.name = name, .effects = {transfer(Effect::Action::kStreamRead, stream.id)}})[0];
}

void Graph::host_store(const D2hStream& stream, const Tensor& t) {
  require(stream.ir == ir_->id, "host_store: stream '{}' belongs to another Ir", stream.name);
  require(t.shape() == stream.spec.shape && t.dtype() == stream.spec.dtype,
          "host_store: tensor '{}' is {}, stream '{}' takes {}", t.name(), to_string(t.spec()),
          stream.name, to_string(stream.spec));
  emit(builtin::host_store(), {t}, {},
       {.effects = {transfer(Effect::Action::kStreamWrite, stream.id)}});
}

D2hStream Graph::host_store(const Tensor& t, std::string name) {
  const D2hStream stream = ir().d2h_stream({t.shape(), t.dtype(), {}}, std::move(name));
  host_store(stream, t);
  return stream;
}

Tensor Graph::remote_load(const RemoteBuffer& buffer, const RemoteEntry& entry, std::string name) {
  check_buffer(ir(), buffer, entry);
  if (name.empty()) {
    name = entry.tensor() != nullptr
               ? fmt::format("id_{}_offset_{}", buffer.id, entry.tensor()->name())
               : fmt::format("id_{}_offset_{}", buffer.id, entry.constant());
  }
  const Tensor target = unwritten(*this, buffer.spec, name + "_remote_load");
  return emit(builtin::remote_load(), operands(target, entry), {},
              {.name = name + "_remote_loaded",
               .effects = {transfer(Effect::Action::kRemoteLoad, buffer.id, entry.constant())},
               .outputs = {buffer.spec}})[0];
}

Tensor Graph::remote_load_(const RemoteBuffer& buffer, const RemoteEntry& entry, const Tensor& t) {
  check_buffer(ir(), buffer, entry);
  check_tensor(buffer, t);
  return emit(builtin::remote_load(), operands(t, entry), {},
              {.effects = {transfer(Effect::Action::kRemoteLoad, buffer.id, entry.constant())}})[0];
}

void Graph::remote_store(const RemoteBuffer& buffer, const RemoteEntry& entry, const Tensor& t) {
  check_buffer(ir(), buffer, entry);
  check_tensor(buffer, t);
  emit(builtin::remote_store(), operands(t, entry), {},
       {.effects = {transfer(Effect::Action::kRemoteStore, buffer.id, entry.constant())}});
}

}  // namespace sluice
