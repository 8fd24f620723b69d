#include "sluice/train/feeds/training_items.h"

#include <fmt/format.h>

#include <algorithm>

#include "sluice/report/summary.h"
#include "sluice/runtime/process_group.h"

namespace sluice::train {
namespace {

constexpr double kMinShownShare = 0.1;  // A smaller share is not shown.

}  // namespace

TrainingItems::TrainingItems(internal::ModelState& state, DataLoader& data,
                             const internal::ModelCalls& calls)
    : state_(state), data_(data), calls_(calls), training_(state.programs().training) {}

TrainingItems::~TrainingItems() {
  if (is_fed()) feed_->close();
}

void TrainingItems::check() const {
  require(state_.options().infeed == nullptr && !training_.outfeed,
          "fit: a model must read its samples from the loader and return arrays, got one with a "
          "queue in Options::infeed or Options::outfeed; use Options::prefetch, or call the model "
          "in a loop");
  require(!training_.infeed || data_.options().remainder == data::Remainder::kDrop,
          "fit: a loader of a model with prefetch must drop the remainder of an epoch, got one "
          "that keeps it");
}

void TrainingItems::open_feed() {
  std::vector<size_t> labels;
  const std::vector<std::string>& names = data_.sample_specs().names;
  for (const internal::ModelCalls::LabelledResult& result : calls_.labelled()) {
    const auto found = std::find(names.begin(), names.end(), result.labels.name);
    const size_t index =
        names.empty() ? result.labels.index : static_cast<size_t>(found - names.begin());
    if (index < data_.sample_specs().arrays.size()) labels.push_back(index);
  }
  const auto feed = std::make_shared<ItemFeed>(state_.network(), data_, data_.call_size(),
                                               std::move(labels), position_, limits_);
  const auto lock = state_.next_call();
  state_.programs().session.bind_feed(*training_.infeed, feed);
  feed_ = feed;
}

void TrainingItems::start_epoch(SampleHash hash) {
  if (training_.infeed) {
    position_ = next_item(state_, data_, hash);
    if (!is_fed()) open_feed();
    return;
  }
  place_run(state_, data_, hash);
  position_ = {data_.epoch(), data_.position()};
}

bool TrainingItems::next() {
  const auto begin = Clock::now();
  const bool found = is_fed() ? feed_->has_item() : (item_ = data_.next()) != nullptr;
  waited_ += std::chrono::duration<double>(Clock::now() - begin).count();
  if (found) ++position_.item;
  return found;
}

void TrainingItems::end_call() {
  if (is_fed()) feed_->end_item();
}

const data::Element& TrainingItems::whole_item() {
  if (is_fed()) {
    data_.start_epoch(position_.epoch, position_.item - 1);
    item_ = data_.next();
    SLUICE_CHECK(item_ != nullptr);
  }
  return *item_;
}

double TrainingItems::waited_seconds() const {
  if (!is_fed()) return waited_;
  Session& session = state_.programs().session;
  const int64_t replicas = std::max<int64_t>(training_.replicas / session.agreement().size(), 1);
  double seconds = waited_;
  for (const report::FeedReport& feed : session.feed_statistics()) {
    if (feed.name == training_.infeed->name)
      seconds += feed.waits_for_host.seconds / static_cast<double>(replicas);
  }
  return seconds;
}

std::string TrainingItems::waits_text() {
  const auto now = Clock::now();
  const double waited = waited_seconds();
  const double share = (waited - shown_waited_) /
                       std::max(std::chrono::duration<double>(now - shown_).count(), 1e-9);
  shown_ = now;
  shown_waited_ = waited;
  if (share <= kMinShownShare) return "";
  const std::string source = is_fed() ? fmt::format("feed '{}'", training_.infeed->name) : "data";
  return fmt::format(" | Waits for {}:{:.0f}%", source, 100 * std::min(share, 1.0));
}

}  // namespace sluice::train
