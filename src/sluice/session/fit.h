#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/ir/ir.h"
#include "sluice/report/forecast/rates.h"
#include "sluice/session/options.h"
#include "sluice/session/rung_result.h"

namespace sluice {

struct Compiled;

/// A program and the options of the session that would run it.
struct RungProgram {
  Ir ir;
  SessionOptions session;
};

/// One of several programs that compute the same results and need different memory.
struct Rung {
  std::string name;  ///< "none" or "optimizer": the difference from the rung before.
  std::function<RungProgram()> build;
};

/// Programs from which the budgets of their sessions choose.
struct Ladder {
  std::vector<Rung> rungs;  ///< At least one. They are tried in this order until one fits.
  /// Programs of another kind, tried only if no rung fits. They are not chosen, but an error may
  /// name the first one that fits. An error of one of them ends the search without a result.
  std::vector<Rung> advice = {};
  std::string program = "main";  ///< The program whose time is forecast.
  /// Returns the rates of the forecast, which has no influence on the choice. Null: assumed rates.
  /// Called at most once, if a rung after the first is chosen.
  std::function<report::Rates()> rates = nullptr;
};

/// The choice of find_fit().
struct Fit {
  std::vector<RungResult> tried;       ///< The rungs that were compiled, in order.
  std::optional<size_t> chosen;        ///< Index of the rung that fits; absent if none does.
  std::optional<size_t> advised;       ///< Index of the advice that fits, if no rung does.
  RungProgram program;                 ///< Program of the chosen rung, or of the first one.
  std::shared_ptr<Compiled> compiled;  ///< The compiled `program`.
};

/// Compiles rungs in order, each once, until one fits the budgets (exe::find_excess()). The choice
/// does not depend on the machine. A session may open the result without compiling it again.
/// Errors of building and compiling a rung.
Fit find_fit(const Ladder& ladder);

}  // namespace sluice
