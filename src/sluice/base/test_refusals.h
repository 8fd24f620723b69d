#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "sluice/base/error.h"

namespace sluice {

/// For tests: an action that must throw, and the expected error.
struct Refusal {
  std::string name;
  std::function<void()> act;
  std::string part;  ///< Text that the message must contain.
  ErrorKind kind = ErrorKind::kUsage;
};

/// Runs each `act`. The test fails unless it throws an Error of `kind` whose message contains
/// `part`.
inline void expect_refused(const std::vector<Refusal>& refusals) {
  for (const Refusal& r : refusals) {
    try {
      r.act();
      ADD_FAILURE() << r.name << ": no error";
    } catch (const Error& e) {
      EXPECT_EQ(to_string(e.kind()), to_string(r.kind)) << r.name << ": " << e.what();
      EXPECT_NE(std::string(e.what()).find(r.part), std::string::npos)
          << r.name << "\n  says:     " << e.what() << "\n  expected: " << r.part;
    }
  }
}

}  // namespace sluice
