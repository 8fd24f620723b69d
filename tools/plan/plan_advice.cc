#include "tools/plan/plan_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>

#include "sluice/exe/memory_needs.h"
#include "tools/optimizers.h"

namespace sluice::tool {
namespace {

constexpr int64_t kShardThreshold = 512;  // Elements.
constexpr int64_t kMaxPhasedMicroBatches = 1000;

struct Candidate {
  std::string option;
  ToolOptions options;
};

std::vector<Candidate> candidates(const ToolOptions& o, const Programs& programs) {
  ToolOptions base = o;
  base.output.log_level = LogLevel::kError;
  base.step.session.print_after.clear();
  base.step.session.device.memory = -1;
  for (DeviceChoice& d : base.step.session.more_devices) d.memory = -1;
  base.step.session.remote_memory = -1;
  base.offload.tensors = to_string(programs.offload.locations);
  const bool automatic = o.offload.tensors == "auto";
  // A smaller program might fit without the offload that --offload auto chose for this one.
  const bool chosen = automatic && !o.phased() && base.offload.tensors != "none";
  std::vector<Candidate> result;
  const auto add = [&](const std::string& option) -> ToolOptions& {
    const bool names = option.find("--offload") != std::string::npos;
    result.push_back(
        {option + (chosen && !names ? " --offload " + base.offload.tensors : ""), base});
    return result.back().options;
  };
  const bool has_tier = o.offload.remote != "none";
  if (!o.phased()) {
    if (has_tier && has_optimizer_state(o) &&
        programs.offload.locations.optimizer == train::Location::kDevice)
      add("--offload optimizer").offload.tensors = "optimizer";
    // The length of phases with activations on the device grows with the micro-batches.
    if (has_tier && o.step.accumulate <= kMaxPhasedMicroBatches) {
      ToolOptions& phased = add("--strategy phased --offload auto");
      if (automatic) result.back().option = "--strategy phased";
      // Without names or a number of stages, the stages are blocks, which phases are already.
      const train::Stages* const stages = train::given_stages(*o.step.strategy);
      const auto* const named =
          stages == nullptr ? nullptr : std::get_if<std::vector<train::Stage>>(stages);
      const bool blocks = stages == nullptr || (named != nullptr && named->empty());
      phased.step.strategy = train::PhasedExecution{blocks ? std::nullopt : std::optional(*stages)};
      phased.offload.tensors = "auto";
    }
  } else {
    if (o.step.io_mode == IoMode::kIoOverlapped) add("--io-mode io").step.io_mode = IoMode::kIo;
  }
  if (o.step.recompute == train::Recompute::none())
    add("--recompute").step.recompute = train::Recompute::every_block();
  if (o.step.replicas > 1 && o.step.locations.min_elements_sharded > kShardThreshold)
    add(fmt::format("--shard-threshold {}", kShardThreshold)).step.locations.min_elements_sharded =
        kShardThreshold;
  // A sum over twice as many micro-batches would be twice the gradient.
  if (o.model.sizes.micro_batch % 2 == 0 &&
      o.step.accumulation_reduction != train::Accumulation::kSum) {
    const int64_t micro_batch = o.model.sizes.micro_batch / 2;
    const int64_t accumulate = 2 * o.step.accumulate;
    ToolOptions& smaller =
        add(fmt::format("--micro-batch {} --accumulate {}", micro_batch, accumulate));
    smaller.model.sizes.micro_batch = micro_batch;
    smaller.step.accumulate = accumulate;
  }
  if (o.model.sizes.eval_batch > 1) {
    const int64_t batch = o.model.sizes.eval_batch / 2;
    add(fmt::format("--test-batch {}", batch)).model.sizes.eval_batch = batch;
  }
  return result;
}

// Returns the budget of a memory of a candidate; -1: none.
int64_t budget_of(const exe::MemoryNeeds& memory, const SessionOptions& budgets) {
  if (memory.device < 0) return budgets.remote_memory;
  if (memory.device == 0) return budgets.device.memory;
  const auto more = static_cast<size_t>(memory.device) - 1;
  return more < budgets.more_devices.size() ? budgets.more_devices[more].memory : -1;
}

report::Suggestion needs_of(std::string option, std::vector<exe::MemoryNeeds> memories,
                            const SessionOptions& budgets) {
  report::Suggestion needs{std::move(option), 0, 0, true};
  for (exe::MemoryNeeds& m : memories) {
    m.budget_bytes = budget_of(m, budgets);
    needs.fits = needs.fits && m.fits();
    if (m.device >= 0) {
      needs.device_bytes = std::max(needs.device_bytes, m.total_bytes);
    } else {
      needs.tier_bytes += m.total_bytes;
    }
  }
  return needs;
}

// Whether plan `a` saves at least a hundredth of the bytes of plan `b` on the device. Otherwise,
// `a` must not need more on the device and must save that much in tiers.
bool is_smaller(const report::Suggestion& a, const report::Suggestion& b) {
  const auto saves = [](int64_t less, int64_t more) { return less < more - more / 100; };
  return saves(a.device_bytes, b.device_bytes) ||
         (a.device_bytes <= b.device_bytes && saves(a.tier_bytes, b.tier_bytes));
}

// Returns nothing if the options do not make a program of this model. No error of a candidate may
// replace the plan or the refusal that it completes.
std::optional<report::Suggestion> compiled(const Candidate& c, const SessionOptions& budgets) {
  try {
    return needs_of(c.option, build_programs(c.options).compiled->memories, budgets);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<report::Suggestion> suggestions(const ToolOptions& options, const Programs& programs,
                                            const report::PlanReport& plan, double max_seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const double seconds = programs.offload.tried.front().build_seconds;
  const report::Suggestion now = needs_of("", plan.memories, options.step.session);
  std::vector<report::Suggestion> known, unknown;
  for (const Candidate& c : candidates(options, programs)) {
    const std::chrono::duration<double> passed = Clock::now() - begin;
    if (passed.count() + seconds > max_seconds) {
      unknown.push_back({c.option});
      continue;
    }
    const std::optional<report::Suggestion> s = compiled(c, options.step.session);
    if (s && is_smaller(*s, now)) known.push_back(*s);
  }
  std::stable_sort(known.begin(), known.end(),
                   [](const auto& a, const auto& b) { return a.device_bytes < b.device_bytes; });
  known.insert(known.end(), unknown.begin(), unknown.end());
  return known;
}

}  // namespace sluice::tool
