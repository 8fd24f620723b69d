#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "sluice/train/feeds/item_feed.h"
#include "sluice/train/fit.h"
#include "sluice/train/model_state.h"

namespace sluice::train {

/// The items of a loader that fit() trains on, which the calls take as arrays or, in a model with
/// an infeed, from a thread that reads them ahead. A call is next(), the call with samples(), and
/// end_call().
class TrainingItems {
 public:
  TrainingItems(internal::ModelState& state, DataLoader& data, const internal::ModelCalls& calls);
  /// Ends the data of the infeed.
  ~TrainingItems();
  TrainingItems(const TrainingItems&) = delete;
  TrainingItems& operator=(const TrainingItems&) = delete;

  /// Error{kUsage} unless the model can be trained on items.
  void check() const;
  /// Sets the limits of all epochs. Call it before start_epoch().
  void limit(const ItemFeed::Limits& limits) { limits_ = limits; }
  /// Starts at the item that the run of the model reads next.
  void start_epoch(SampleHash hash);
  /// Goes on to the next item. Returns false at the end of an epoch of unknown length.
  bool next();
  /// Returns the samples that a call takes.
  const data::Element& samples() const { return is_fed() ? nothing_ : *item_; }
  void end_call();
  /// Returns the labels of the last call: of the fields in ModelCalls::labelled().
  const data::Element& labels() const { return is_fed() ? feed_->labels() : *item_; }
  /// Returns all samples of the last call. With an infeed, it makes them again and moves the
  /// loader.
  const data::Element& whole_item();
  int64_t epoch() const { return position_.epoch; }
  /// Returns the number of items of the epoch before the next one.
  int64_t position() const { return position_.item; }
  /// Formats the share of the time since the last call of this function in which the training
  /// waited for its data: " | Waits for data:37%". Empty up to 10 %.
  std::string waits_text();

 private:
  using Clock = std::chrono::steady_clock;
  bool is_fed() const { return feed_ != nullptr; }
  void open_feed();
  double waited_seconds() const;

  internal::ModelState& state_;
  DataLoader& data_;
  const internal::ModelCalls& calls_;
  const Training& training_;
  ItemFeed::Limits limits_;
  std::shared_ptr<ItemFeed> feed_;  ///< Null without an infeed.
  ItemPosition position_;
  const data::Element nothing_ = {};
  const data::Element* item_ = nullptr;
  double waited_ = 0;  ///< Seconds in next().
  double shown_waited_ = 0;
  Clock::time_point shown_ = Clock::now();
};

}  // namespace sluice::train
