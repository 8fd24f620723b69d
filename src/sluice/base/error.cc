#include "sluice/base/error.h"

namespace sluice {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInternal:
      return "internal error";
    case ErrorKind::kUsage:
      return "usage";
    case ErrorKind::kBadFile:
      return "bad file";
    case ErrorKind::kDoesNotFit:
      return "does not fit";
    case ErrorKind::kIo:
      return "input/output";
    case ErrorKind::kDiverged:
      return "diverged";
    case ErrorKind::kNoCheckpoint:
      return "no checkpoint";
    case ErrorKind::kPeerLost:
      return "peer lost";
    case ErrorKind::kStopped:
      return "stopped";
  }
  return "error";
}

Error& Error::note(std::string_view note) {
  text_ += fmt::format("\n  while {}", note);
  return *this;
}

namespace internal {
void check_failed(const char* expression, const char* file, int line) {
  std::string_view name(file);
  if (const auto slash = name.rfind('/'); slash != name.npos) name.remove_prefix(slash + 1);
  fail(ErrorKind::kInternal, "internal check failed: {} ({}:{})", expression, name, line);
}
}  // namespace internal

}  // namespace sluice
