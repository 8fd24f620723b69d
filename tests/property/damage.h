#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

/// The driver of the suites that damage plans. A suite is a table of programs and their damages.
/// The driver compares each damaged plan with the right one.
namespace sluice::property {

/// One change of a plan.
struct Damage {
  std::string kind;                ///< For example "wait dropped" or "buffer moved".
  std::string position;            ///< Position in the plan.
  std::vector<std::string> rules;  ///< The rules that may refuse a defect; empty for all rules.
  /// Changes a copy of the right plan. Returns the reason why the change is a defect, or an empty
  /// text if a run must show it.
  std::function<std::string(exe::Executable&)> apply;
  /// Whether the damaged plan has the fingerprint that it states. An accepted plan may have other
  /// results if it does not. Without this function, an accepted plan has the right results.
  std::function<bool(const exe::Executable&)> fingerprint_holds = {};
  /// Whether the results must differ, also if the checker refuses the plan. Not set: either.
  std::optional<bool> differs = {};
  /// If set, makes the damaged plan instead of `apply`. Error{kBadFile} if the parser refuses it.
  std::function<exe::Executable()> parse = {};
};

/// Returns whether a plan has the fingerprint of the right one.
std::function<bool(const exe::Executable&)> same_fingerprint(const exe::Executable& right);

/// Runs a plan. Returns the first difference from the results of the right plan in words, or an
/// empty text without a difference. An error of the run is a difference.
using Comparison = std::function<std::string(const exe::Executable&)>;

/// A right plan and the runs that compare damaged plans with it.
struct PlanUnderTest {
  exe::Executable right;
  Comparison dry_runs = {};  ///< Shows a defect of any plan. Not set: only the change shows it.
  Comparison runs = {};      ///< Compares the results of a plan that the checker accepts.
  std::function<bool(const exe::Executable&)> fits_devices = {};  ///< Not set: any plan fits.
};

/// The reader of a plan that refused it, or its results.
enum class Verdict : uint8_t {
  kUnchanged,    ///< The plan equals the right one.
  kParser,       ///< The parser refused the plan.
  kDefect,       ///< The checker refused a defect by a rule of its kind.
  kChecker,      ///< The checker refused the plan, of which no run shows a defect.
  kDevice,       ///< The device refused the plan.
  kFingerprint,  ///< The fingerprint alone refused the plan.
  kAlike         ///< The plan is accepted and has the right results.
};

/// The damages of some plans by verdict and kind.
struct Tally {
  std::map<std::string, std::map<Verdict, int>> by_kind;
  int differing = 0;  ///< Plans whose results were compared and differ.

  int count(Verdict verdict) const;
  int defects(const std::string& kind) const;
  int kinds_of_defects() const;
  Tally& operator+=(const Tally& other);
};

/// Expects (as gtest does) that the right plan is accepted. Expects that each damaged plan is
/// refused, a defect by one of its rules, or has the right results. Returns the verdicts.
Tally judge(const PlanUnderTest& under_test, const std::vector<Damage>& damages);

/// Expects a defect of each of these kinds.
void expect_defects(const Tally& tally, const std::vector<std::string>& kinds);

/// Writes the counts to stdout, with the defects of each kind.
void print(const Tally& tally);

}  // namespace sluice::property
