#include "sluice/compiler/lower/tables.h"

#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/base/sys.h"
#include "sluice/exe/process_map.h"

namespace sluice::compiler {
namespace {

constexpr int64_t kMaxStaging = 1 << 20;  // In bytes; larger pieces are hardly faster.

bool has_io_transfers(const Program& program, exe::DeviceId device) {
  for (const BodyId id : callees_first(program)) {
    const Body& body = program.body(id);
    if (body.device != device) continue;
    for (const Node& node : body.nodes) {
      const auto* transfer = node.as<Node::Transfer>();
      if (transfer != nullptr && transfer->queue > 0) return true;
    }
  }
  return false;
}

}  // namespace

Tables::Tables(Program& program, const Context& context)
    : program_(program), context_(context), exe_(program.executable) {
  add_devices();
  add_streams();
  if (program.ir.remote_buffer_count() > 0) add_remote_buffers();
  add_feeds();
  if (std::any_of(arenas_.begin(), arenas_.end(),
                  [](const DeviceArenas& a) { return a.staging >= 0; }))
    add_host_tier();
  add_variables();
  add_channels();
}

exe::ArenaId Tables::add_arena(const std::string& name, exe::ArenaKind kind, exe::Space space,
                               exe::DeviceId device, int64_t bytes) {
  return exe_.arenas.push_back({name, kind, space, device, bytes, 0});
}

void Tables::add_devices() {
  const CompileOptions& options = context_.options;
  exe_.replicas = program_.ir.replication();
  const exe::ProcessMap map(exe_.replicas, static_cast<int>(options.devices.size()),
                            options.processes, options.map);
  for (const ReplicaGrouping& g : program_.groups) exe_.groups.push_back({g.stride(), g.size()});
  for (size_t d = 0; d < options.devices.size(); ++d) {
    const DeviceSpec& spec = options.devices[d];
    const exe::DeviceId device(d);
    exe_.devices.push_back(
        {spec.target->kind(), spec.target->isa(), spec.memory,
         spec.target->is_queued() ? 1 : exe::workers_of_replica(spec.threads, map.replicas_each()),
         queue_names(has_io_transfers(program_, device) ? options.io_queues : 0),
         spec.target->is_queued()});
    const auto add = [&](const char* name, exe::ArenaKind kind) {
      return add_arena(fmt::format("{}{}", name, d), kind, exe::Space::kDevice, device);
    };
    DeviceArenas a;
    a.persistent = add("persistent", exe::ArenaKind::kPersistent);
    a.frames = add("frames", exe::ArenaKind::kFrames);
    a.workspace = add("workspace", exe::ArenaKind::kWorkspace);
    if (spec.target->is_queued()) {
      a.staging = exe_.arenas.end_id();
      for (size_t q = 0; q < exe_.devices.back().queues.size(); ++q) {
        add_arena(fmt::format("staging{}.{}", d, q), exe::ArenaKind::kStaging, exe::Space::kPinned,
                  device);
      }
    }
    arenas_.push_back(a);
  }
}

void Tables::add_streams() {
  for (int s = 0; s < program_.ir.stream_count(); ++s) {
    const StreamInfo& stream = program_.ir.stream(s);
    exe_.streams.push_back({stream.name, stream.input, stream.spec});
  }
}

// Rings are in host memory that is not pinned: a device with queues copies through its staging
// memory.
void Tables::add_feeds() {
  for (const FeedInfo& feed : program_.ir.feeds()) {
    add_host_tier();
    exe::Feed plan{feed.name, feed.input, feed.depth, {}};
    for (const int32_t s : feed.streams) {
      const StreamInfo& stream = program_.ir.stream(s);
      exe::FeedRing ring{exe::StreamId(s), program_.feed_slots.at(s), exe::ArenaId(), 0,
                         round_up(stream.spec.bytes(), 64)};
      ring.arena = add_arena("ring " + stream.name, exe::ArenaKind::kRings, exe::Space::kHost,
                             exe::DeviceId(), checked_mul(ring.slots, ring.slot_bytes));
      plan.rings.push_back(ring);
    }
    exe_.feeds.push_back(std::move(plan));
  }
}

void Tables::add_remote_buffers() {
  const CompileOptions& options = context_.options;
  const bool file = options.remote_space == exe::Space::kFile;
  const char* const tier = file ? "file" : "host";
  exe_.tiers.push_back({tier, options.remote_space, options.remote_memory});
  const exe::ArenaId tier_arena =
      add_arena(tier, exe::ArenaKind::kTier, options.remote_space, exe::DeviceId());
  for (int32_t b = 1; b <= program_.ir.remote_buffer_count(); ++b) {
    const RemoteBufferInfo& buffer = program_.ir.remote_buffer_info(b);
    exe::RemoteBufferPlan plan{
        fmt::format("remote{}", b), buffer.spec, buffer.entries, tier_arena, 0, 0};
    plan.entry_stride = round_up(buffer.spec.bytes(), file ? sys::kFilePage : 64);
    plan.offset = arena(tier_arena).bytes;
    arena(tier_arena).bytes =
        checked_add(plan.offset, checked_mul(plan.entry_stride, buffer.entries));
    exe_.remote_buffers.push_back(std::move(plan));
  }
  if (file && (options.remote_direct || options.verify_remote)) add_file_memory();
}

// Adds the host memory that a file tier needs: staging for direct transfers, and checksums.
void Tables::add_file_memory() {
  int64_t entry = 0, checksums = 0;
  for (const exe::RemoteBufferPlan& b : exe_.remote_buffers) {
    entry = std::max(entry, b.entry_stride);
    checksums = checked_add(checksums, checked_mul(exe::checksums_of_entry(b), b.entries));
  }
  add_host_tier();
  if (context_.options.remote_direct)
    add_arena("staging", exe::ArenaKind::kStaging, exe::Space::kHost, exe::DeviceId(),
              std::min(entry, kMaxStaging));
  if (context_.options.verify_remote)
    add_arena("checksums", exe::ArenaKind::kChecksums, exe::Space::kHost, exe::DeviceId(),
              checked_mul(checksums, sizeof(uint64_t)));
}

// Adds the tier of host memory, which counts pinned memory too, unless it exists.
void Tables::add_host_tier() {
  for (const exe::Tier& t : exe_.tiers) {
    if (t.space == exe::Space::kHost) return;
  }
  const bool budgeted = context_.options.remote_space == exe::Space::kHost;
  exe_.tiers.push_back({"host", exe::Space::kHost, budgeted ? context_.options.remote_memory : -1});
}

void Tables::add_variables() {
  for (const Variable& variable : program_.variables) {
    exe::VariablePlan plan;
    plan.path = variable.info->path;
    plan.spec = variable.spec;
    plan.bytes = context_.target(variable.device).buffer_bytes(variable.spec, variable.layout);
    plan.layout = to_string(variable.layout);
    if (const VariableLocation& location = variable.info->location; location.buffer > 0) {
      plan.buffer = exe::BufferId(location.buffer - 1);
      plan.entry = location.entry;
      const exe::RemoteBufferPlan& buffer = exe_.remote_buffers[plan.buffer];
      plan.arena = buffer.arena;
      plan.offset = buffer.offset + plan.entry * buffer.entry_stride;
    } else {
      plan.arena = arenas_[exe::DeviceId(variable.device)].persistent;
      plan.offset = reserve(plan.arena, plan.bytes);
    }
    const OpRole role = variable.info->role;
    exe_.origins.variables.push_back({role, exe::VariableId()});
    plan.value = add_value(variable.name, 0,
                           row_of(Provenance{.role = role, .variable = variable.info->path}));
    plan.shard = variable.info->shard;
    plan.group = group_index(variable.info->group);
    plan.initializer = variable.info->initializer.text();
    exe_.variables.push_back(std::move(plan));
  }
  std::map<std::string, exe::VariableId> rows;
  for (const exe::VariablePlan& v : exe_.variables)
    rows.emplace(v.path, exe::VariableId(rows.size()));
  for (const exe::VariableId v : exe_.variables.ids()) {
    const auto owner = rows.find(program_.variables[v].info->owner);
    if (owner != rows.end()) exe_.origins.variables[v].owner = owner->second;
  }
}

void Tables::add_channels() {
  for (const ProgramChannel& c : program_.channels) {
    const std::string name = fmt::format("{}to{}", c.from, c.to);
    const exe::SlotMemory memory =
        exe::slot_memory(exe_, exe::DeviceId(c.from), exe::DeviceId(c.to));
    const exe::ArenaId slots = add_arena("slots " + name, exe::ArenaKind::kSlots, memory.space,
                                         memory.device, checked_mul(c.capacity, c.slot_bytes));
    exe_.channels.push_back(
        {name, exe::DeviceId(c.from), exe::DeviceId(c.to), c.capacity, slots, 0, c.slot_bytes});
  }
}

// Index of the replica groups that share one value of a variable; -1 for all replicas. Each has a
// constant stride and is a group of `grouping` or a part of one.
exe::GroupId Tables::group_index(const std::optional<ReplicaGrouping>& grouping) {
  if (!grouping || grouping->groups() == 1) return {};
  const ReplicaGrouping fine = grouping->const_rg();
  const exe::ReplicaGroup group{fine.stride(), fine.size()};
  const auto found = std::find(exe_.groups.begin(), exe_.groups.end(), group);
  if (found != exe_.groups.end()) return exe_.groups.id_of(*found);
  return exe_.groups.push_back(group);
}

int64_t Tables::reserve(exe::ArenaId index, int64_t bytes) {
  const int64_t alignment = context_.target(arena(index).device).alignment();
  const int64_t offset = round_up(arena(index).bytes, alignment);
  arena(index).bytes = checked_add(offset, bytes);
  return offset;
}

exe::Address Tables::variable(exe::VariableId index) const {
  const exe::VariablePlan& v = exe_.variables[index];
  return {exe::Address::Base::kArena, v.arena, v.offset, 0, 0, {}};
}

exe::ValueId Tables::variable_value(exe::VariableId index) const {
  return exe_.variables[index].value;
}

exe::Address Tables::constant(ConstantIndex index, exe::DeviceId device) {
  const exe::ConstantPlan& c = constant_plan(index, device);
  return {exe::Address::Base::kArena, c.arena, c.offset, 0, 0, {}};
}

exe::ValueId Tables::constant_value(ConstantIndex index, exe::DeviceId device) {
  return constant_plan(index, device).value;
}

const exe::ConstantPlan& Tables::constant_plan(ConstantIndex index, exe::DeviceId device) {
  const auto [found, fresh] = constants_.try_emplace({index, device}, exe_.constants.end_id());
  if (fresh) {
    const Constant& c = program_.constants[index];
    exe::ConstantPlan plan;
    plan.name = c.name;
    plan.spec = c.data->spec();
    plan.arena = arenas_[device].persistent;
    plan.offset = reserve(plan.arena, plan.spec.bytes());
    plan.value = add_value("constant " + c.name, 0);
    plan.data.assign(c.data->bytes().begin(), c.data->bytes().end());
    exe_.constants.push_back(std::move(plan));
  }
  return exe_.constants[found->second];
}

int32_t Tables::row_of(std::span<const SharedProvenance> provenances) {
  std::string key;
  key.reserve(provenances.size() * 160);
  const auto add = [&](const void* bytes, size_t size) {
    key.append(static_cast<const char*>(bytes), size);
  };
  for (const SharedProvenance& p : provenances) {
    const std::string* const texts[] = {&p->op, &p->block, &p->module_path, &p->line, &p->variable};
    const int64_t numbers[] = {static_cast<int64_t>(p->role), p->at.micro_batch, p->at.row,
                               p->per_iteration.micro_batch, p->per_iteration.row};
    add(numbers, sizeof numbers);
    for (const std::string* text : texts) {
      const size_t size = text->size();
      add(&size, sizeof size);
      key += *text;
    }
  }
  std::vector<Provenance>& rows = exe_.origins.rows;
  const auto [row, fresh] =
      provenances_.try_emplace(std::move(key), static_cast<int32_t>(rows.size()));
  if (fresh) {
    for (const SharedProvenance& p : provenances) rows.push_back(*p);
  }
  return row->second;
}

exe::ValueId Tables::add_value(const std::string& tensor, int64_t version, int32_t provenance) {
  exe_.origins.values.push_back(provenance);
  return exe_.values.push_back({tensor, version, -1});
}

void Tables::set_message(exe::ValueId value, int32_t message) {
  int32_t& own = exe_.values[value].message;
  SLUICE_CHECK(own == -1 || own == message);
  own = message;
}

exe::Address Tables::frames(exe::DeviceId device) const {
  return {exe::Address::Base::kArena, arenas_[device].frames, 0, 0, 0, {}};
}

void Tables::reserve_frame(exe::DeviceId device, int64_t bytes) {
  exe::Arena& frames = arena(arenas_[device].frames);
  frames.bytes = std::max(frames.bytes, bytes);
}

void Tables::reserve_workspace(exe::DeviceId device, int64_t bytes) {
  exe::Arena& workspace = arena(arenas_[device].workspace);
  const int64_t alignment = context_.target(device).alignment();
  workspace.stride = std::max(workspace.stride, round_up(bytes, alignment));
  workspace.bytes = workspace.stride * exe_.devices[device].workers;
}

void Tables::reserve_staging(exe::DeviceId device, int32_t queue, int64_t bytes) {
  const exe::ArenaId first = arenas_[device].staging;
  if (!first.valid()) return;
  exe::Arena& staging = arena(exe::ArenaId(first + queue));
  staging.bytes = std::max(staging.bytes, exe::StagingPlan::of_transfers(bytes).bytes());
}

std::vector<exe::Queue> queue_names(int io_queues) {
  switch (io_queues) {
    case 0:
      return {{"compute"}};
    case 1:
      return {{"compute"}, {"io"}};
    case 3:
      return {{"compute"}, {"load"}, {"store"}, {"prefetch"}};
    default:
      fail(ErrorKind::kUsage, "io queues: must be 0, 1 or 3 (loads, stores, prefetches), got {}",
           io_queues);
  }
}

}  // namespace sluice::compiler
