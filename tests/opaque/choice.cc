#include "choice.h"

#include <cstdlib>
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
  return {make_target(), make_device(options)};
}

}  // namespace sluice::opaque
