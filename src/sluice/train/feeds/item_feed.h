#pragma once
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "sluice/base/feed.h"
#include "sluice/data/loader.h"
#include "sluice/train/checkpoints/continue_run.h"
#include "sluice/train/model.h"
#include "sluice/train/network.h"

namespace sluice::train {

/// Feeds a training program with the micro-batches of a loader's items, in the loader's order, over
/// all epochs. The thread of the feed makes them ahead of the device. A second thread, the trainer,
/// runs the program, an item in each call. The trainer reads the labels of an item after its call.
///
/// The feed has a loader of its own, of micro-batches, so the given one stays where it is. If the
/// size of the data is not known, it reads whole items, because the end of an epoch drops samples
/// that do not fill one.
class ItemFeed : public FeedSource {
 public:
  /// Upper limits of the items and epochs that the feed reads.
  struct Limits {
    int64_t items = std::numeric_limits<int64_t>::max();
    int64_t epochs = std::numeric_limits<int64_t>::max();
  };

  /// Starts at an item. `labels`: indices of the arrays of a sample that labels() returns.
  ItemFeed(const Network& network, const data::BatchLoader& loader, const CallSize& size,
           std::vector<size_t> labels, ItemPosition begin, const Limits& limits);

  /// Error{kUsage} unless the samples have the fields of the feed.
  void open(const FeedLayout& layout) override;
  bool next(std::span<const ArrayView> fields) override;

  /// Returns whether the epoch has another item. Data of known size do not need this call. At the
  /// end of an epoch, it returns false once. Throws the error of a user's function.
  bool has_item();
  /// Ends the call of an item.
  void end_item();
  /// Returns the labels of the item of the last call, as a loader returns them. Other arrays of the
  /// item have no elements.
  const data::Element& labels() const { return labels_; }
  /// Ends the data. Waits for next(), and releases the loader.
  void close();

 private:
  size_t index_of(const std::string& field) const;
  bool make_next(std::span<const ArrayView> fields);
  bool load();
  bool load_after_errors();
  bool start_next_epoch();
  void keep_labels();
  data::Element empty_labels() const;
  std::optional<bool> known_item();

  const Network network_;
  const Limits limits_;
  const int64_t micro_batch_;
  const int64_t micro_batches_;  ///< In an item, of all replicas.
  const bool whole_items_;       ///< An item of the own loader is a whole item.
  const int64_t slices_;         ///< Micro-batches in an item of the own loader.
  const std::optional<int64_t> epoch_micro_batches_;  ///< Absent: without end, or not known.
  const std::vector<size_t> label_arrays_;
  const data::ElementSpecs sample_;

  std::mutex reading_;  ///< Guards the members below, and is held while a micro-batch is made.
  std::optional<data::BatchLoader> loader_;
  std::exception_ptr error_;             ///< Error of the loader, which is final.
  std::vector<size_t> indices_;          ///< For each field of the feed: its array in a sample.
  const data::Element* item_ = nullptr;  ///< Item of the own loader.
  int64_t slice_ = 0;                    ///< Next micro-batch of `item_`.
  int64_t epoch_ = 0;
  int64_t epochs_ = 0;         ///< Epochs that ended.
  int64_t read_of_epoch_ = 0;  ///< Micro-batches that were loaded in the epoch.
  int64_t made_ = 0;           ///< Micro-batches that next() made.

  std::mutex items_;  ///< Guards the members below. A thread may lock it after `reading_`.
  std::deque<data::Element> made_labels_;  ///< Labels of the items after the last call.
  std::vector<data::Element> free_labels_;
  std::deque<int64_t> epoch_ends_;  ///< Items before each end of an epoch.
  int64_t loaded_items_ = 0;        ///< Counted with `whole_items_`.
  int64_t made_items_ = 0;
  int64_t ended_items_ = 0;  ///< Items whose call has ended.
  bool at_end_ = false;      ///< Without further items.

  data::Element labels_;  ///< The trainer alone uses it.
};

}  // namespace sluice::train
