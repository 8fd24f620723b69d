#include "sluice/train/checkpoints/continue_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/base/hash.h"
#include "sluice/nn/update/optimizers.h"
#include "sluice/runtime/process_group.h"
#include "sluice/train/fit.h"
#include "sluice/train/options/option_table.h"
#include "sluice/train/run/load_weights.h"

namespace sluice::train {
namespace {

constexpr int64_t kHashedSamples = 16;  // Samples of epoch 0 that DataOrder::hash covers.

std::string hash_of_samples(const data::BatchLoader& loader, int64_t samples) {
  Digest digest;
  const int64_t count = std::min(samples, kHashedSamples);
  for (int64_t i = 0; i < count; ++i) {
    const std::optional<data::Element> sample =
        loader.sample(i == 0 ? 0 : i * (samples - 1) / (count - 1));
    if (!sample) return "";
    for (const HostTensor& array : sample->arrays) digest.add(array.bytes());
  }
  return digest.hex();
}

std::string text_of(const DataOrder& data) {
  return fmt::format("{} samples of {}, {}", data.samples ? fmt::format("{}", *data.samples) : "?",
                     data.fields,
                     data.shuffled ? fmt::format("shuffled with seed {}", data.seed) : "in order");
}

void compare(const DataOrder& expected, const DataOrder& found) {
  DataOrder without_hash = found;
  without_hash.hash = expected.hash;
  require(expected == without_hash,
          "data: must be {}, as in the run that was resumed, got {}; override data to continue "
          "with it",
          text_of(expected), text_of(found));
  require(expected.hash.empty() || found.hash.empty() || expected.hash == found.hash,
          "data: must be the samples of the run that was resumed, {}, got other values; override "
          "data to continue with them",
          text_of(expected));
}

// The item that begins at or after some samples of an epoch.
int64_t item_after(int64_t samples, int64_t batch) { return (samples + batch - 1) / batch; }

}  // namespace

DataOrder order_of(const data::BatchLoader& loader, SampleHash hash) {
  const data::LoaderOptions& options = loader.options();
  DataOrder order{.samples = loader.samples(),
                  .shuffled = options.shuffle == data::Shuffle::kYes,
                  .seed = options.seed,
                  .fields = to_string(loader.sample_specs())};
  if (hash == SampleHash::kYes) {
    // Data without an end are compared by their first samples.
    const int64_t samples =
        order.samples.value_or(0) == data::kForever ? kHashedSamples : order.samples.value_or(0);
    if (samples > 0) order.hash = hash_of_samples(loader, samples);
  }
  if (order.samples == data::kForever) order.samples.reset();
  if (!order.shuffled) order.seed = 0;
  return order;
}

void DataLoader::start_at(const TrainingModel& model) {
  place_run(internal::ModelAccess::state(model), *this, SampleHash::kYes);
}

ItemPosition next_item(internal::ModelState& state, const data::BatchLoader& loader,
                       SampleHash hash) {
  const bool compares = state.expected_data().has_value();
  DataOrder order = order_of(loader, compares ? SampleHash::kYes : hash);
  if (compares) compare(*state.expected_data(), order);
  const Run run = state.run();
  const int64_t batch = loader.options().batch;
  int64_t epoch = run.epoch, item = item_after(run.epoch_samples, batch);
  const bool is_other = !run.data.fields.empty() && !compares &&
                        (run.data.samples != order.samples || run.data.fields != order.fields);
  if (is_other && item > 0) {  // Other data begin with an epoch.
    ++epoch;
    item = 0;
  }
  const std::optional<int64_t> items = loader.items();
  if (items && *items != data::kForever && *items > 0) {
    epoch += item / *items;
    item %= *items;
  }
  state.set_position(std::move(order), epoch, item, batch);
  return {epoch, item};
}

void place_run(internal::ModelState& state, data::BatchLoader& loader, SampleHash hash) {
  const auto [epoch, item] = next_item(state, loader, hash);
  if (loader.epoch() != epoch || loader.position() != item) loader.start_epoch(epoch, item);
}

namespace internal {

Run ModelState::run() const {
  const auto lock = next_call();
  Run run = run_;
  run.seed = options_.seed;
  run.learning_rate = rate_;
  if (run.losses > 0) run.losses_hash = losses_hash_.hex();
  for (const Option<Options>& option : options_table()) {
    if (option.decides_bits) run.options.emplace_back(option.name, option.print(options_));
  }
  for (auto& [name, value] : run.options) {
    if (name == "learning_rate" && value == "default" && rate_) value = fmt::format("{}", *rate_);
  }
  if (optimizer_) run.options.emplace_back("optimizer", optimizer_->rules());
  std::sort(run.options.begin(), run.options.end());
  return run;
}

void ModelState::name_run() {
  const auto lock = next_call();
  if (!run_.id.empty()) return;
  std::random_device random;
  Hash128 id;
  for (uint64_t* const word : {&id.high, &id.low}) *word = uint64_t{random()} << 32 | random();
  programs().session.agreement().broadcast(0, std::as_writable_bytes(std::span(&id, 1)));
  run_.id = id.hex();
}

std::map<std::string, std::string> ModelState::save_metadata() const {
  if (!options_.ema_decay) return {};
  return {{kAverageKey, fmt::format("{}", *options_.ema_decay)}};
}

void ModelState::continue_run(const Run& run, bool any_data) {
  const auto lock = next_call();
  const std::vector<double> own = run_.coefficients;
  run_ = run;
  run_.options.clear();
  if (!optimizer_ || run_.coefficients.size() != optimizer_->streamed().size())
    run_.coefficients = own;  // They are of another optimizer.
  losses_hash_ = Hash128::parse(run.losses_hash).value_or(Hash128());
  if (run.learning_rate && (!programs_ || programs_->training.learning_rate))
    rate_ = run.learning_rate;
  resumed_log_ = run.log;
  resumed_best_.reset();
  expected_data_.reset();
  if (!any_data && !run.data.fields.empty()) expected_data_ = run.data;
}

void ModelState::set_position(DataOrder data, int64_t epoch, int64_t item, int64_t batch) {
  const auto lock = next_call();
  run_.data = std::move(data);
  run_.epoch = epoch;
  run_.epoch_samples = checked_mul(item, batch);
  expected_data_.reset();
}

std::string ModelState::log_in(const std::string& folder) const {
  const auto found = logs_.find(folder);
  return found == logs_.end() ? resumed_log_ : found->second;
}

void ModelState::set_log(const std::string& folder, const std::string& name) {
  const auto lock = next_call();
  logs_[folder] = name;
  run_.log = name;
}

void ModelState::end_epoch() {
  const auto lock = next_call();
  ++run_.epoch;
  run_.epoch_samples = 0;
}

void ModelState::add_loss(float sum, std::span<const float> parts) {
  const auto lock = next_call();
  loss_words_.resize(5 + parts.size());
  std::memcpy(loss_words_.data(), &losses_hash_, sizeof losses_hash_);
  loss_words_[4] = sum;
  std::copy(parts.begin(), parts.end(), loss_words_.begin() + 5);
  losses_hash_ = hash128(std::as_bytes(std::span(loss_words_)));
  ++run_.losses;
}

}  // namespace internal
}  // namespace sluice::train
