#include "sluice/train/pipeline/choose_depths.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "sluice/base/checked.h"
#include "sluice/base/error.h"
#include "sluice/train/pipeline/stage_devices.h"

namespace sluice::train {
namespace {

using Depths = std::vector<int>;

constexpr int kMaxStagesForAll = 8;        // 1,430 vectors of depths; 9 stages have 4,862.
constexpr int64_t kMaxTasks = 20'000'000;  // Tasks of all simulations, about 0.2 s.
constexpr double kEqualTimes = 1.001;   // Times below this multiple of the minimum count as equal.
constexpr double kImproved = 1 - 1e-6;  // A smaller gain is the error of rounding.

// Returns the largest depth of a stage.
int largest(size_t stages, size_t stage) { return 2 * static_cast<int>(stages - stage) - 1; }

// Checks costs and computes the bytes and times of depths.
class Model {
 public:
  Model(const PipelineCosts& costs, int64_t micro_batches)
      : costs_(costs),
        micro_batches_(micro_batches),
        steps_(steps_of(costs)),
        min_(depths_of(Schedule::kInterleaved, steps_.empty() ? 0 : steps_.back() + 1)),
        devices_(devices_of(costs.devices, static_cast<int>(costs.stages.size()))) {
    require(!costs.stages.empty(), "pipeline: must have at least 1 stage, got 0");
    // Check the times and the number of micro-batches.
    simulate_pipeline(order(min_), std::min<int64_t>(micro_batches, 1), costs.stages, devices_);
    require(costs.activation_bytes.size() == costs.stages.size(),
            "pipeline: must have the activation bytes of each of {} stages, got {}",
            costs.stages.size(), costs.activation_bytes.size());
    for (const int64_t bytes : costs.activation_bytes)
      require(bytes >= 0, "pipeline: activation bytes must be at least 0, got {}", bytes);
    const DeviceId last = *std::max_element(devices_.begin(), devices_.end());
    require(costs.budgets.empty() || costs.budgets.contains(last),
            "pipeline: must have the budgets of {} devices, got {}", last + 1,
            costs.budgets.size());
    for (const int64_t bytes : costs.budgets)
      require(bytes >= 0, "pipeline: a budget must be at least 0 bytes, got {}", bytes);
  }

  // Returns the depths S - s, below which a pipeline waits.
  const Depths& min() const { return min_; }

  // Returns the bytes that are stored by the stages of a device, or of all devices if it is
  // invalid.
  int64_t bytes(const Depths& depths, DeviceId device = {}) const {
    int64_t sum = 0;
    for (const StageId s : devices_.ids()) {
      if (device.valid() && devices_[s] != device) continue;
      const auto step = static_cast<size_t>(steps_[s]);
      const int64_t sets = std::min<int64_t>(depths[step], micro_batches_);
      sum = checked_add(sum, checked_mul(sets, costs_.activation_bytes[s]));
    }
    return sum;
  }

  // Returns whether depths fall from stage to stage and keep the budgets.
  bool allows(const Depths& depths) const {
    for (size_t s = 1; s < depths.size(); ++s) {
      if (depths[s] >= depths[s - 1]) return false;
    }
    return costs_.budgets.empty() ||
           std::all_of(devices_.begin(), devices_.end(), [&](DeviceId device) {
             return bytes(depths, device) <= costs_.budgets[device];
           });
  }

  // Returns the time of depths. `vectors` is about the number of depths to be tried: with more, the
  // simulation is shorter, and the time of later micro-batches is extrapolated.
  double seconds(const Depths& depths, int64_t vectors) const {
    const PipelineOrder tasks = order(depths);
    const auto simulated = [&](int64_t micro_batches) {
      return simulate_pipeline(tasks, micro_batches, costs_.stages, devices_).total;
    };
    const int64_t limit =
        std::max<int64_t>(16, kMaxTasks / vectors / (2 * tasks.stages * tasks.stages)) *
        tasks.stages;
    const int64_t count = std::min(micro_batches_, limit);
    if (count == micro_batches_) return simulated(count);
    const double all = simulated(count), half = simulated(count / 2);
    return all + static_cast<double>(micro_batches_ - count) /
                     static_cast<double>(count - count / 2) * (all - half);
  }

 private:
  static Ids<StageId, int> steps_of(const PipelineCosts& costs) {
    Ids<StageId, int> steps = costs.steps;
    if (steps.empty()) {
      steps.resize(costs.stages.size());
      std::iota(steps.begin(), steps.end(), 0);
    }
    require(steps.size() == costs.stages.size(),
            "pipeline: must have the step of each of {} stages, got {}", costs.stages.size(),
            steps.size());
    return steps;
  }
  PipelineOrder order(const Depths& depths) const {
    return split_stages(training_order(depths), steps_);
  }

  const PipelineCosts& costs_;
  int64_t micro_batches_;
  Ids<StageId, int> steps_;
  Depths min_;  // Indexed by step.
  Ids<StageId, DeviceId> devices_;
};

// Seconds of the depths that were tried.
using Times = std::map<Depths, double>;

// Returns the times of all depths that the model allows.
Times try_all(const Model& model) {
  std::vector<Depths> found;
  const Depths& min = model.min();
  const auto add = [&](const auto& self, Depths& depths, size_t stage) -> void {
    if (!model.allows(depths)) return;  // Larger depths are not allowed either.
    if (stage == depths.size()) {
      found.push_back(depths);
      return;
    }
    for (; depths[stage] <= largest(depths.size(), stage); ++depths[stage])
      self(self, depths, stage + 1);
    depths[stage] = min[stage];
  };
  Depths depths = min;
  add(add, depths, 0);
  Times times;
  for (const Depths& d : found) times[d] = model.seconds(d, static_cast<int64_t>(found.size()));
  return times;
}

// Returns the depths that exceed the minimum depths by `excess`, or by less where they must.
Depths raised(const Model& model, int excess) {
  Depths depths = model.min();
  for (size_t s = 0; s < depths.size(); ++s) {
    const int min = depths[s];
    depths[s] = std::min(min + excess, largest(depths.size(), s));
    while (depths[s] > min && !model.allows(depths)) --depths[s];
  }
  return depths;
}

// Returns the depths that the model allows and that differ by `change` in neighbouring stages, as
// far as these can change.
std::vector<Depths> neighbours(const Model& model, const Depths& depths, int change) {
  std::vector<Depths> found;
  for (size_t first = 0; first < depths.size(); ++first) {
    Depths changed = depths;
    for (size_t s = first; s < depths.size(); ++s) {
      changed[s] = std::clamp(depths[s] + change, model.min()[s], largest(depths.size(), s));
      if (model.allows(changed)) found.push_back(changed);
    }
  }
  return found;
}

const Times::value_type& fastest(const Times& times) {
  return *std::min_element(times.begin(), times.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
}

// Tries the depths of raised(), then neighbours of the fastest ones as long as they save time.
Times try_some(const Model& model) {
  Times times;
  const auto stages = static_cast<int>(model.min().size());
  const auto attempt = [&](const Depths& depths) {
    if (!times.count(depths)) times[depths] = model.seconds(depths, 8 * stages * stages);
  };
  for (int excess = 0; excess < stages; ++excess) attempt(raised(model, excess));
  double last = std::numeric_limits<double>::infinity();
  while (fastest(times).second < kImproved * last) {
    const auto [start, seconds] = fastest(times);
    last = seconds;
    for (const int change : {-1, 1}) {
      for (const Depths& depths : neighbours(model, start, change)) attempt(depths);
    }
  }
  return times;
}

}  // namespace

std::vector<int> choose_depths(const PipelineCosts& costs, int64_t micro_batches) {
  const Model model(costs, micro_batches);
  if (!model.allows(model.min())) return model.min();
  const Times times = model.min().size() <= kMaxStagesForAll ? try_all(model) : try_some(model);
  const double limit = kEqualTimes * fastest(times).second;
  const auto rank = [&](const Depths& depths) {
    return std::tuple(model.bytes(depths), std::accumulate(depths.begin(), depths.end(), 0),
                      depths);
  };
  const Depths* chosen = nullptr;
  for (const auto& [depths, seconds] : times) {
    if (seconds <= limit && (!chosen || rank(depths) < rank(*chosen))) chosen = &depths;
  }
  return *chosen;
}

}  // namespace sluice::train
