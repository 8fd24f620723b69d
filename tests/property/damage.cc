#include "damage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "sluice/base/error.h"
#include "sluice/check/checker.h"
#include "sluice/exe/fingerprint.h"

namespace sluice::property {
namespace {

using Faults = std::vector<check::Violation>;

std::string text(const Faults& faults) {
  std::string all;
  for (const check::Violation& v : faults) all += "\n  " + v.rule + ": " + v.message;
  return all.empty() ? " nothing" : all;
}

bool names_a_rule(const Faults& faults, const std::vector<std::string>& rules) {
  return std::any_of(faults.begin(), faults.end(), [&](const check::Violation& v) {
    return rules.empty() || std::find(rules.begin(), rules.end(), v.rule) != rules.end();
  });
}

class Judge {
 public:
  Judge(const PlanUnderTest& under_test, Tally& tally) : under_test_(under_test), tally_(tally) {}

  /// Returns nothing if an expectation failed.
  std::optional<Verdict> judge(const Damage& damage) {
    exe::Executable plan;
    std::string defect;
    try {
      plan = damage.parse ? damage.parse() : under_test_.right;
      if (damage.apply) defect = damage.apply(plan);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kBadFile) return Verdict::kParser;
      return failed(damage, std::string("the parser fails: ") + e.what());
    }
    if (plan == under_test_.right) {
      if (!defect.empty()) return failed(damage, "nothing changes, although " + defect);
      return fingerprint_holds(damage, plan) ? Verdict::kUnchanged : Verdict::kFingerprint;
    }
    if (damage.differs && results_differ(plan) != *damage.differs)
      return failed(damage, *damage.differs ? "its results are right" : "its results differ");
    const Faults faults = check::violations(plan);
    if (defect.empty() && under_test_.dry_runs) defect = under_test_.dry_runs(plan);
    if (!defect.empty()) {
      if (names_a_rule(faults, damage.rules)) return Verdict::kDefect;
      return failed(damage, defect + "; the checker reports:" + text(faults));
    }
    if (!faults.empty()) return Verdict::kChecker;
    if (under_test_.fits_devices && !under_test_.fits_devices(plan)) return Verdict::kDevice;
    // A plan that only its fingerprint refuses may compute anything, but its run must end.
    const bool differs = !damage.differs && results_differ(plan);
    if (!fingerprint_holds(damage, plan)) return Verdict::kFingerprint;
    if (differs) return failed(damage, "the plan is accepted: " + under_test_.runs(plan));
    return Verdict::kAlike;
  }

 private:
  static bool fingerprint_holds(const Damage& damage, const exe::Executable& plan) {
    return !damage.fingerprint_holds || damage.fingerprint_holds(plan);
  }

  bool results_differ(const exe::Executable& plan) {
    const bool differs = under_test_.runs && !under_test_.runs(plan).empty();
    tally_.differing += differs;
    return differs;
  }

  static std::optional<Verdict> failed(const Damage& damage, const std::string& why) {
    ADD_FAILURE() << damage.kind << " at " << damage.position << ": " << why;
    return std::nullopt;
  }

  const PlanUnderTest& under_test_;
  Tally& tally_;
};

}  // namespace

std::function<bool(const exe::Executable&)> same_fingerprint(const exe::Executable& right) {
  return [was = exe::fingerprint(right)](const exe::Executable& e) {
    return exe::fingerprint(e) == was;
  };
}

int Tally::count(Verdict verdict) const {
  int sum = 0;
  for (const auto& [kind, verdicts] : by_kind) {
    const auto found = verdicts.find(verdict);
    if (found != verdicts.end()) sum += found->second;
  }
  return sum;
}

int Tally::defects(const std::string& kind) const {
  const auto found = by_kind.find(kind);
  if (found == by_kind.end() || !found->second.contains(Verdict::kDefect)) return 0;
  return found->second.at(Verdict::kDefect);
}

int Tally::kinds_of_defects() const {
  return static_cast<int>(std::count_if(by_kind.begin(), by_kind.end(), [](const auto& kind) {
    return kind.second.contains(Verdict::kDefect);
  }));
}

Tally& Tally::operator+=(const Tally& other) {
  for (const auto& [kind, verdicts] : other.by_kind) {
    for (const auto& [verdict, n] : verdicts) by_kind[kind][verdict] += n;
  }
  differing += other.differing;
  return *this;
}

Tally judge(const PlanUnderTest& under_test, const std::vector<Damage>& damages) {
  Tally tally;
  const Faults faults = check::violations(under_test.right);
  EXPECT_TRUE(faults.empty()) << "the checker refuses the right plan:" << text(faults);
  for (const Comparison& runs : {under_test.dry_runs, under_test.runs}) {
    EXPECT_EQ(runs ? runs(under_test.right) : "", "") << "the right plan depends on the run";
  }
  Judge judge(under_test, tally);
  for (const Damage& d : damages) {
    if (const auto verdict = judge.judge(d)) ++tally.by_kind[d.kind][*verdict];
  }
  return tally;
}

void expect_defects(const Tally& tally, const std::vector<std::string>& kinds) {
  for (const std::string& kind : kinds) EXPECT_GT(tally.defects(kind), 0) << kind;
}

void print(const Tally& tally) {
  for (const auto& [kind, verdicts] : tally.by_kind) {
    if (verdicts.contains(Verdict::kDefect))
      std::printf("%4d  %s\n", verdicts.at(Verdict::kDefect), kind.c_str());
  }
  std::printf(
      "%d defects refused by a rule of their kind; refused without a visible defect by the parser "
      "%d, the checker %d, the device %d, the fingerprint %d; %d alike, %d unchanged\n",
      tally.count(Verdict::kDefect), tally.count(Verdict::kParser), tally.count(Verdict::kChecker),
      tally.count(Verdict::kDevice), tally.count(Verdict::kFingerprint),
      tally.count(Verdict::kAlike), tally.count(Verdict::kUnchanged));
}

}  // namespace sluice::property
