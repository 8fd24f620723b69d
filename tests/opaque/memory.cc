#include "memory.h"

#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <new>

#include "sluice/base/checked.h"
#include "sluice/base/error.h"

namespace sluice::opaque {
namespace {

constexpr int64_t kPage = 4096;
constexpr std::align_val_t kAligned{static_cast<size_t>(kAlignment)};

}  // namespace

void Memory::Pages::operator()(std::byte* pages) const { munmap(pages, mapped); }
void Memory::Free::operator()(std::byte* bytes) const { ::operator delete[](bytes, kAligned); }

Memory::~Memory() = default;

runtime::DeviceAddress Memory::allocate(int64_t bytes) {
  // The pages also hold an odd multiple of the alignment in front, and a gap after.
  const auto mapped = static_cast<size_t>(round_up(bytes, kPage) + 2 * kPage);
  void* const pages = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Block block{bytes, nullptr, {nullptr, Pages{mapped}}};
  if (pages != MAP_FAILED) {
    block.pages.reset(static_cast<std::byte*>(pages));
    block.data.reset(static_cast<std::byte*>(
        ::operator new[](static_cast<size_t>(bytes), kAligned, std::nothrow)));
  }
  if (block.data == nullptr)
    fail(ErrorKind::kDoesNotFit, "the system refuses {} bytes of opaque device memory", bytes);
  std::memset(block.data.get(), 0xff, static_cast<size_t>(bytes));
  const uint64_t address = reinterpret_cast<uintptr_t>(pages) + kAlignment;
  const std::unique_lock lock(mutex_);
  blocks_.emplace(address, std::move(block));
  return runtime::DeviceAddress::of_device(address);
}

std::byte* Memory::bytes_at(runtime::DeviceAddress begin, int64_t bytes) const {
  const uint64_t number = begin.in_device();
  const std::shared_lock lock(mutex_);
  auto block = blocks_.upper_bound(number);
  const bool inside = bytes >= 0 && block != blocks_.begin() && [&] {
    --block;
    const uint64_t offset = number - block->first;
    const auto size = static_cast<uint64_t>(block->second.bytes);
    return offset <= size && static_cast<uint64_t>(bytes) <= size - offset;
  }();
  if (!inside) {
    fail(ErrorKind::kInternal,
         "opaque: {} bytes at address {:#x} must lie in one allocation of this device", bytes,
         number);
  }
  return block->second.data.get() + (number - block->first);
}

void Memory::pin(std::span<std::byte> memory) {
  const Range pinned = range_of(memory.data(), static_cast<int64_t>(memory.size()));
  const std::unique_lock lock(mutex_);
  bool good = !memory.empty();
  for (const Range& r : pinned_) good = good && (pinned.end <= r.begin || r.end <= pinned.begin);
  if (!good) {
    fail(ErrorKind::kInternal,
         "opaque: pinned memory must not be empty or overlap other pinned memory, got {} bytes",
         memory.size());
  }
  pinned_.push_back(pinned);
}

void Memory::check_pinned(const std::byte* begin, int64_t bytes) const {
  const Range wanted = range_of(begin, bytes);
  const std::shared_lock lock(mutex_);
  for (const Range& r : pinned_) {
    if (bytes >= 0 && r.begin <= wanted.begin && wanted.end <= r.end) return;
  }
  fail(ErrorKind::kInternal, "opaque: {} bytes of the host must be pinned to be copied", bytes);
}

std::vector<Range> Memory::ranges() const {
  const std::shared_lock lock(mutex_);
  std::vector<Range> all = pinned_;
  for (const auto& [begin, block] : blocks_)
    all.push_back({begin, begin + static_cast<uint64_t>(block.bytes)});
  return all;
}

}  // namespace sluice::opaque
