#include "sluice/train/plan/offload.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::train {
namespace {

constexpr OffloadKind kOffloadKinds[] = {{"optimizer", &TensorLocations::optimizer},
                                         {"weights", &TensorLocations::weights},
                                         {"accumulators", &TensorLocations::accumulators},
                                         {"activations", &TensorLocations::activations}};

// The figures of the rungs after the first: "; optimizer saves 524288 bytes for 0.21 ms an update".
std::string savings(const OffloadDecision& decision) {
  const double updates = static_cast<double>(std::max<int64_t>(decision.updates, 1));
  std::string text;
  for (size_t i = 1; i < decision.tried.size(); ++i) {
    const RungResult& rung = decision.tried[i];
    text += fmt::format("; {} saves {} bytes for {:.2f} ms {}", rung.name, rung.saved_bytes,
                        rung.added_seconds / updates * 1e3,
                        decision.updates > 0 ? "an update" : "a call");
  }
  return text;
}

}  // namespace

std::span<const OffloadKind> offload_kinds() { return kOffloadKinds; }

std::string to_string(const TensorLocations& locations) {
  std::vector<std::string_view> words;
  for (const OffloadKind& kind : kOffloadKinds) {
    if (locations.*kind.location == Location::kRemote) words.push_back(kind.word);
  }
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ","));
}

std::string OffloadDecision::why() const {
  switch (reason) {
    case OffloadReason::kGiven:
      return "given by locations";
    case OffloadReason::kNoBudget:
      return "device memory has no budget";
    case OffloadReason::kFits:
      return "the program fits the budgets";
    case OffloadReason::kNeeded:
      break;
  }
  const std::vector<exe::MemoryNeeds>& first = tried.at(0).memories;
  const auto exceeded =
      std::find_if(first.begin(), first.end(), [](const exe::MemoryNeeds& m) { return !m.fits(); });
  const std::string needs =
      exceeded == first.end()
          ? "the program does not fit"
          : fmt::format("{} needs {} bytes", exceeded->name, exceeded->total_bytes);
  return fmt::format("without it, {}{}", needs, savings(*this));
}

}  // namespace sluice::train
