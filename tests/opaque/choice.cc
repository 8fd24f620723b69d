#include "choice.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>

#include "device.h"
#include "target.h"

namespace sluice::opaque {

DeviceChoice choice() {
  Options options;
  const char* const mode = std::getenv("SLUICE_OPAQUE");
  if (mode != nullptr && std::string_view(mode) == "threads") options.mode = Mode::kThreads;
  if (const char* const seed = std::getenv("SLUICE_OPAQUE_SEED"))
    options.seed = std::strtoull(seed, nullptr, 10);
  static std::mutex mutex;
  static std::weak_ptr<runtime::Device> last;
  const std::lock_guard lock(mutex);
  std::shared_ptr<runtime::Device> device = last.lock();
  if (device == nullptr) last = device = make_device(options);
  return {make_target(), device};
}

}  // namespace sluice::opaque
