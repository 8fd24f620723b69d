#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "sluice/base/error.h"

namespace sluice {

/// For tests: something that must be refused, and how.
struct Refusal {
  std::string name;
  std::function<void()> act;
  std::string part;  ///< What the message must contain.
  ErrorKind kind = ErrorKind::kUsage;
};

/// Does each act and fails unless it throws Error with its kind and with its part in the message.
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
