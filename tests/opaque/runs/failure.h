#pragma once
#include <string>

#include "sluice/base/error.h"

namespace sluice::opaque {

struct Failure {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;  ///< Empty if there was no error.
};

/// Calls f. Returns the sluice::Error that it throws.
template <typename F>
Failure failure_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  }
  return {};
}

}  // namespace sluice::opaque
