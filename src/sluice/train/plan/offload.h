#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/session/rung_result.h"
#include "sluice/train/options.h"

namespace sluice::train {

/// A kind of tensors that have one location.
struct OffloadKind {
  std::string_view word;  ///< "optimizer"
  Location TensorLocations::*location;
};

/// Returns the kinds in the order in which Offload::kAutomatic tries them.
std::span<const OffloadKind> offload_kinds();

/// Formats the kinds in remote memory: "optimizer,weights", or "none".
std::string to_string(const TensorLocations& locations);

/// The reason of an OffloadDecision.
enum class OffloadReason : uint8_t {
  kGiven,     ///< Options::locations names the tensors.
  kNoBudget,  ///< No device has a budget.
  kFits,      ///< The first program fits.
  kNeeded,    ///< The first program exceeds a budget, so kinds were added.
};

/// The tensors in remote memory and the programs that were compiled to choose them.
struct OffloadDecision {
  TensorLocations locations = {};  ///< Locations of the program; the first one's, if none fits.
  OffloadReason reason = OffloadReason::kGiven;
  bool fits = true;  ///< Whether the program fits the budgets.
  /// The programs that were compiled, in order: their bytes, bytes saved and seconds added. The
  /// last one is chosen if `fits`. The first name is to_string() of its locations, each other name
  /// is the kind that was added.
  std::vector<RungResult> tried = {};
  /// Locations with which a phased step fits, if no program of the strategy does.
  std::optional<TensorLocations> phased = {};
  int64_t updates = 1;  ///< Updates of a run, whose time is forecast; 0 in inference.

  /// Formats the reason: "without it, device 0 (cpu) needs 5096 bytes; optimizer saves 2048 bytes
  /// for 0.21 ms an update".
  std::string why() const;
};

}  // namespace sluice::train
