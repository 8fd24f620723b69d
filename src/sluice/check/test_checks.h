#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "sluice/check/checker.h"
#include "sluice/exe/test_plans.h"

/// Helpers for tests of the checker.
namespace sluice::check {

inline std::string all_of(const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& v : violations) text += v.rule + ": " + v.message + "\n";
  return text;
}

inline void expect_rule(const exe::Executable& e, const std::string& rule,
                        const std::string& about) {
  const std::vector<Violation> found = violations(e);
  bool has = false;
  for (const Violation& v : found) has |= v.rule == rule;
  EXPECT_TRUE(has) << about << " must break '" << rule << "', found:\n" << all_of(found);
}

struct Edit {
  const char* rule;
  const char* from;
  const char* to;
};

inline void refuse(const std::string& text, const std::vector<Edit>& edits) {
  for (const Edit& e : edits) {
    expect_rule(exe::plans::plan(exe::plans::replaced(text, e.from, e.to)), e.rule,
                fmt::format("'{}' -> '{}'", e.from, e.to));
  }
}

using Surgery = std::function<void(exe::Executable&)>;

inline void refuse(const std::string& text, const std::string& rule, const char* about,
                   const Surgery& cut) {
  exe::Executable e = exe::plans::plan(text);
  cut(e);
  expect_rule(e, rule, about);
}

}  // namespace sluice::check
