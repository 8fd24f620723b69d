#include "sluice/base/system/call_log.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace sluice::sys {
namespace {

std::mutex recording;  // Guards `recorder`.
std::function<void(const RecordedCall&)> recorder;
std::atomic<bool> records{false};

}  // namespace

void set_call_recorder(std::function<void(const RecordedCall&)> record) {
  const std::lock_guard hold(recording);
  recorder = std::move(record);
  records = recorder != nullptr;
}

void internal::record_call(const char* call, std::string_view path, std::string_view to,
                           int64_t offset, std::span<const std::byte> bytes) {
  if (!records.load(std::memory_order_relaxed)) return;
  const std::lock_guard hold(recording);
  if (recorder == nullptr) return;
  recorder({call, std::string(path), std::string(to), offset, {bytes.begin(), bytes.end()}});
}

}  // namespace sluice::sys
