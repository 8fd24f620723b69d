#pragma once
#include <gtest/gtest.h>

#include <string>

#include "sluice/base/error.h"
#include "sluice/planner/problem.h"

namespace sluice::planner {

/// A buffer of alignment 1 that lives in one interval.
inline Buffer make_buffer(std::string name, int64_t begin, int64_t end, int64_t size) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.lifetime = {{begin, end}};
  buffer.size = size;
  return buffer;
}

/// Runs `action` and expects Error{kind} whose text has `part`.
template <typename Action>
void expect_error(ErrorKind kind, const std::string& part, Action&& action) {
  try {
    action();
    ADD_FAILURE() << "no error with '" << part << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

}  // namespace sluice::planner
