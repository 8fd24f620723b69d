#pragma once
#include <gtest/gtest.h>

#include <string>

#include "sluice/base/error.h"

namespace sluice::nn {

/// For tests: returns the message of the Error{kUsage} that `f` throws. The test fails if `f`
/// throws nothing.
template <typename F>
std::string usage_error(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace sluice::nn
