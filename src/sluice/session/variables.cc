#include "sluice/session/variables.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "sluice/base/hash.h"

namespace sluice {

TensorSpec Variables::spec(size_t variable) const {
  return host_spec(plans()[variable].spec, *compiled_.variables[variable]);
}

size_t Variables::index_of(const Tensor& variable) const {
  const TensorInfo& info = variable.graph().info(variable);
  const auto found = info.variable == nullptr ? compiled_.variable_index.end()
                                              : compiled_.variable_index.find(info.variable.get());
  require(found != compiled_.variable_index.end(), "tensor '{}' is not a variable of this session",
          info.name);
  return static_cast<size_t>(found->second);
}

size_t Variables::index_of(const Tensor& variable, const ConstArrayView& value) const {
  const size_t v = index_of(variable);
  const TensorSpec want = spec(v);
  require(value.spec.dtype == want.dtype, "variable '{}': the array must be {}, got {}", path(v),
          name_of(want.dtype), name_of(value.spec.dtype));
  require(value.spec.shape == want.shape, "variable '{}': the array must be {}, got {}", path(v),
          to_string(want.shape), to_string(value.spec.shape));
  require(value.data != nullptr || value.spec.elements() == 0,
          "variable '{}': the array must have memory, got a null pointer", path(v));
  return v;
}

// Calls f(replica, first, at, elements) for each replica's part of the elements [begin, begin +
// count) of a variable as the host sees it. `first` is the part's first element in the replica's
// tensor, and `at` is its position in the chunk.
template <typename F>
void Variables::for_each_part(size_t variable, int64_t begin, int64_t count, F&& f) const {
  const TensorSpec& spec = plans()[variable].spec;
  for (int r = 0; r < executor_.executable().replicas; ++r) {
    const HostPart part = host_part(spec, *compiled_.variables[variable], r);
    const int64_t from = std::max(begin, part.begin);
    const int64_t to = std::min(begin + count, part.begin + part.count);
    if (from < to) f(r, from - part.begin, from - begin, to - from);
  }
}

runtime::OpenDevice& Variables::device_of(int32_t arena, int replica) const {
  return executor_.device(executor_.executable().arenas[exe::ArenaId(arena)].device, replica);
}

bool Variables::every_process_has(size_t variable, const std::vector<int>& replicas) const {
  std::set<int> processes;
  for (const int r : replicas) processes.insert(process_of(variable, r));
  return static_cast<int>(processes.size()) == agreement_.size();
}

// Copies elements from `first` on of the tensor of one replica of this process.
void Variables::read_copy(size_t variable, int replica, int64_t first,
                          std::span<std::byte> out) const {
  const exe::VariablePlan& plan = plans()[variable];
  if (plan.buffer >= 0)
    return executor_.remote(replica).read(plan.buffer, plan.entry, first * size_of(plan.spec.dtype),
                                          out);
  device_of(plan.arena, replica)
      .read(executor_.arena(plan.arena, replica) + plan.offset, plan.spec, plan.layout, first, out);
}

void Variables::read(size_t variable, int64_t begin, std::span<std::byte> out) const {
  const int64_t width = size_of(plans()[variable].spec.dtype);
  struct ElementRange {
    int64_t first;  // First element in the tensor of a replica.
    int64_t count;
    std::vector<int> replicas;  // All replicas that hold this part.
  };
  std::map<int64_t, ElementRange> parts;  // Indexed by position in the chunk.
  for_each_part(variable, begin, static_cast<int64_t>(out.size()) / width,
                [&](int replica, int64_t first, int64_t at, int64_t count) {
                  parts.try_emplace(at, ElementRange{first, count, {}})
                      .first->second.replicas.push_back(replica);
                });
  for (const auto& [at, p] : parts) {
    const auto part = std::span(out.data() + at * width, out.data() + (at + p.count) * width);
    const auto has = [&](int r) { return executor_.placement().has(r, plans()[variable]); };
    const bool shared = every_process_has(variable, p.replicas);
    const auto own =
        shared ? std::find_if(p.replicas.begin(), p.replicas.end(), has) : p.replicas.begin();
    if (has(*own)) read_copy(variable, *own, p.first, part);
    if (!shared) agreement_.broadcast(process_of(variable, *own), part);
  }
}

void Variables::write(size_t variable, int64_t begin, std::span<const std::byte> in) {
  const exe::VariablePlan& plan = plans()[variable];
  const int64_t width = size_of(plan.spec.dtype);
  for_each_part(
      variable, begin, static_cast<int64_t>(in.size()) / width,
      [&](int replica, int64_t first, int64_t at, int64_t count) {
        if (!executor_.placement().has(replica, plan)) return;
        const auto part = std::span(in.data() + at * width, in.data() + (at + count) * width);
        if (plan.buffer >= 0)
          return executor_.remote(replica).write(plan.buffer, plan.entry, first * width, part);
        device_of(plan.arena, replica)
            .write(executor_.arena(plan.arena, replica) + plan.offset, plan.spec, plan.layout,
                   first, part);
      });
}

HostTensor Variables::value(size_t variable) const {
  HostTensor value(spec(variable));
  read(variable, 0, value.bytes());
  return value;
}

std::vector<std::vector<std::string>> Variables::copy_hashes() const {
  using Digits = std::array<char, 32>;
  std::vector<Digits> digits;  // By variable and replica; zeros for copies of other processes.
  std::vector<int> owners;
  std::vector<std::byte> chunk;
  const int replicas = executor_.executable().replicas;
  for (size_t v = 0; v < count(); ++v) {
    const int64_t width = size_of(plans()[v].spec.dtype);
    for (int r = 0; r < replicas; ++r) {
      Digits& own = digits.emplace_back();
      owners.push_back(process_of(v, r));
      if (owners.back() != agreement_.rank()) continue;
      const int64_t elements = host_part(plans()[v].spec, *compiled_.variables[v], r).count;
      Digest digest;
      for (int64_t first = 0; first < elements; first += kVariableChunk) {
        chunk.resize(static_cast<size_t>(std::min(kVariableChunk, elements - first) * width));
        read_copy(v, r, first, chunk);
        digest.add(chunk);
      }
      const std::string hex = digest.hex();
      std::copy_n(hex.begin(), own.size(), own.begin());
    }
  }
  if (!owners.empty()) agreement_.share(std::as_writable_bytes(std::span(digits)), owners);
  std::vector<std::vector<std::string>> hashes;
  for (auto next = digits.begin(); next != digits.end();) {
    auto& copies = hashes.emplace_back();
    for (int r = 0; r < replicas; ++r, ++next) copies.emplace_back(next->begin(), next->end());
  }
  return hashes;
}

void Variables::initialize() {
  for (const exe::ConstantPlan& c : executor_.executable().constants) {
    if (c.data.empty()) continue;
    const exe::DeviceId device = executor_.executable().arenas[c.arena].device;
    for (int r = 0; r < executor_.executable().replicas; ++r) {
      if (executor_.placement().has(r, device))
        device_of(c.arena, r)
            .write(executor_.arena(c.arena, r) + c.offset, c.spec, "row", 0, c.data);
    }
  }
  Digest digest;
  for (size_t v = 0; v < count(); ++v) {
    const TensorSpec whole = spec(v);
    const int64_t width = size_of(whole.dtype);
    std::vector<std::byte> chunk(
        static_cast<size_t>(std::min(kVariableChunk, whole.elements()) * width));
    InitialValue value(compiled_.variables[v]->initializer, whole);
    for (int64_t begin = 0; begin < whole.elements(); begin += kVariableChunk) {
      const int64_t elements = std::min(kVariableChunk, whole.elements() - begin);
      const std::span<std::byte> part(chunk.data(), chunk.data() + elements * width);
      value.fill(begin, elements, part);
      if (agreement_.size() > 1) digest.add(part);
      write(v, begin, part);
    }
  }
  agreement_.require_same("initial values", digest.hex());
}

}  // namespace sluice
