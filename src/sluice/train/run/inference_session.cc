// Inference models with the weights of a training, in separate sessions.
#include <algorithm>
#include <set>

#include "sluice/exe/memory_needs.h"
#include "sluice/train/cut/cut.h"
#include "sluice/train/devices.h"
#include "sluice/train/model_state.h"

namespace sluice::train::internal {
namespace {

constexpr int kRemote = -1;  // Remote memory in place of a device.

// Returns the bytes that a session has allocated, by device.
std::map<int, int64_t> bytes_of(const Session& session) {
  std::map<int, int64_t> bytes;
  for (const exe::MemoryNeeds& needs : exe::memory_needs(session.executable(), 0))
    bytes[needs.device >= 0 ? needs.device : kRemote] += needs.total_bytes;
  return bytes;
}

std::set<std::string> names_of_blocks(const Network& network, nn::RunMode mode) {
  const Ir scratch;
  std::set<std::string> names;
  for (const BlockGraph& block : cut(network.build(scratch, mode)).blocks) names.insert(block.name);
  return names;
}

// Removes the blocks of training that evaluation leaves out, such as dropout, from the stages. The
// options of an inference model may be a copy of those of its training.
void keep_evaluated(const Network& network, Options& options) {
  if (!options.strategy) return;
  auto* const pipelined = std::get_if<PipelinedExecution>(&*options.strategy);
  auto* const sharded = std::get_if<ShardedExecution>(&*options.strategy);
  if (pipelined == nullptr && sharded == nullptr) return;
  Stages& stages = pipelined != nullptr ? pipelined->stages : sharded->stages;
  auto* const list = std::get_if<std::vector<Stage>>(&stages);
  if (list == nullptr || list->empty()) return;
  const std::set<std::string> trained = names_of_blocks(network, nn::RunMode::kTrain);
  const std::set<std::string> evaluated = names_of_blocks(network, nn::RunMode::kEvaluate);
  std::vector<Stage> kept;
  bool step_is_kept = false;  // Whether a stage of the step in the schedule is kept.
  for (const Stage& stage : *list) {
    std::vector<std::string> blocks = stage.blocks();
    std::erase_if(blocks, [&](const std::string& name) {
      return trained.contains(name) && !evaluated.contains(name);
    });
    if (!stage.is_concurrent()) step_is_kept = false;
    if (blocks.empty() && !stage.blocks().empty()) continue;
    Stage& copy = kept.emplace_back(std::move(blocks));
    if (stage.device()) copy.device(*stage.device());
    if (step_is_kept) copy.concurrent();
    step_is_kept = true;
  }
  *list = std::move(kept);
}

}  // namespace

ModelState::ModelState(std::shared_ptr<ModelState> training, Options options)
    : training_(std::move(training)),
      network_(training_->network_),
      options_(std::move(options)),
      trains_(false) {}

ModelState::~ModelState() {
  if (!training_ || !programs_) return;
  const auto lock = training_->next_call();
  for (const auto& [device, bytes] : bytes_of(programs_->session))
    training_->inference_bytes_[device] -= bytes;
}

// Returns the options of a session whose budgets are those of this training minus the bytes of the
// training and of its other inference models.
SessionOptions ModelState::with_remaining_budgets(SessionOptions session) const {
  std::map<int, int64_t> held = bytes_of(programs_->session);
  for (const auto& [device, bytes] : inference_bytes_) held[device] += bytes;
  const SessionOptions& mine = options_.session;
  const auto limit = [&](int64_t& budget, int64_t whole, int device) {
    if (whole < 0) return;
    const int64_t left = std::max<int64_t>(whole - held[device], 0);
    budget = budget < 0 ? left : std::min(budget, left);
  };
  limit(session.remote_memory, mine.remote_memory, kRemote);
  if (session.device.device != mine.device.device) return session;
  const bool limited = mine.device.memory >= 0 || !mine.more_devices.empty();
  // Devices that are like device 0 have the same budget, but not the same bytes left.
  if (limited && session.more_devices.empty())
    session = with_devices(std::move(session), programs_->training.devices);
  limit(session.device.memory, mine.device.memory, 0);
  for (size_t d = 0; d < session.more_devices.size(); ++d) {
    const bool listed = d < mine.more_devices.size();
    limit(session.more_devices[d].memory, listed ? mine.more_devices[d].memory : mine.device.memory,
          static_cast<int>(d) + 1);
  }
  return session;
}

void ModelState::open_inference_session() {
  const auto lock = training_->next_call();
  training_->compile();
  Options options = options_;
  options.session = training_->with_remaining_budgets(options.session);
  keep_evaluated(network_, options);
  try {
    open(std::make_unique<ModelPrograms>(network_, std::nullopt, options, std::nullopt));
  } catch (Error& e) {
    if (e.kind() == ErrorKind::kDoesNotFit)
      e.note("opening an inference model while the training model keeps its memory");
    throw;
  }
  for (const auto& [device, bytes] : bytes_of(programs_->session))
    training_->inference_bytes_[device] += bytes;
}

// Copies the weights of the training, or their averages, unless they are those of the last call.
void ModelState::copy_weights() {
  const auto lock = training_->next_call();
  const Session& from = training_->programs_->session;
  const uint64_t changes = from.variable_changes();
  if (copied_ == changes) return;
  const Training& trained = training_->programs_->training;
  programs_->training.variables.for_each([&](const std::string& path, const Tensor& variable) {
    const Tensor* const average = trained.averages.find_leaf(path);
    const Tensor* const source = average != nullptr ? average : trained.variables.find_leaf(path);
    // Training may lack a variable of evaluation, which then keeps its value.
    if (source != nullptr) programs_->session.write(variable, from.read(*source));
  });
  copied_ = changes;
}

}  // namespace sluice::train::internal
