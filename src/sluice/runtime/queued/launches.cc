#include "sluice/runtime/queued/launches.h"

#include <algorithm>
#include <string_view>

#include "sluice/base/hash.h"

namespace sluice::runtime {
namespace {

constexpr size_t kMaxKernels = 128;  // More would let the device wait for the host to gather them.
constexpr size_t kMaxRecordings = 1024;

template <typename T>
uint64_t hash_of(const std::vector<T>& values) {
  static_assert(std::has_unique_object_representations_v<T>);
  return hash64({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

}  // namespace

void Launches::Batch::clear() {
  kernels.clear();
  operands.clear();
  scalars.clear();
}

uint64_t Launches::Batch::hash() const {
  return (hash_of(kernels) * 31 + hash_of(operands)) * 31 + hash_of(scalars);
}

Launches::Launches(Commands& commands, const StackNeeds& needs, DeviceAddress workspace)
    : commands_(commands), workspace_(workspace) {
  gathered_.kernels.reserve(kMaxKernels);
  gathered_.operands.reserve(kMaxKernels * needs.operands);
  gathered_.scalars.reserve(kMaxKernels * needs.scalars);
  operands_.reserve(needs.operands);
  scalars_.reserve(needs.scalars);
}

void Launches::add(const LoadedKernel& kernel, const DeviceAddress* operands,
                   const int64_t* scalars) {
  gathered_.kernels.push_back(&kernel);
  gathered_.operands.insert(gathered_.operands.end(), operands, operands + kernel.arguments);
  gathered_.scalars.insert(gathered_.scalars.end(), scalars, scalars + kernel.scalars->size());
  if (gathered_.kernels.size() == kMaxKernels) flush();
}

const Launches::Recorded* Launches::find(uint64_t hash) const {
  const auto [first, last] = recorded_.equal_range(hash);
  const auto found =
      std::find_if(first, last, [&](const auto& r) { return r.second.batch == gathered_; });
  return found == last ? nullptr : &found->second;
}

void Launches::launch_all() {
  auto operands = gathered_.operands.begin();
  auto scalars = gathered_.scalars.begin();
  for (const LoadedKernel* kernel : gathered_.kernels) {
    const auto operands_end = operands + static_cast<ptrdiff_t>(kernel->arguments);
    const auto scalars_end = scalars + static_cast<ptrdiff_t>(kernel->scalars->size());
    operands_.assign(operands, operands_end);
    scalars_.assign(scalars, scalars_end);
    commands_.launch(kernel->step, {kernel->state, operands_, workspace_, scalars_});
    operands = operands_end;
    scalars = scalars_end;
  }
}

void Launches::flush() {
  if (gathered_.kernels.empty()) return;
  if (gathered_.kernels.size() == 1) {
    launch_all();
  } else {
    const uint64_t hash = gathered_.hash();
    const Recorded* recorded = find(hash);
    if (recorded == nullptr && recorded_.size() < kMaxRecordings) {
      auto recording = commands_.record([&] { launch_all(); });
      recorded = &recorded_.emplace(hash, Recorded{gathered_, std::move(recording)})->second;
    }
    if (recorded == nullptr) {
      launch_all();
    } else {
      commands_.replay(*recorded->recording, recorded->batch.kernels);
    }
  }
  gathered_.clear();
}

}  // namespace sluice::runtime
