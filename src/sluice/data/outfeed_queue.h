#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "sluice/base/feed.h"

namespace sluice::data {

struct OutfeedQueueOptions {
  /// Whether dequeue() returns all elements since the last call (kAll), or the newest (kLast).
  enum class Mode : uint8_t { kAll, kLast } mode = Mode::kAll;
  /// Most groups that the queue holds in mode kAll; the device waits while it is full. 0: no limit.
  int64_t depth = 0;
};

/// A sink that holds the elements of an outfeed. Any thread may dequeue them, also during a run.
class OutfeedQueue : public FeedSink {
 public:
  using Mode = OutfeedQueueOptions::Mode;
  explicit OutfeedQueue(const OutfeedQueueOptions& options = {});

  void open(const FeedLayout& layout) override;
  void take(std::span<const ConstArrayView> fields) override;
  void cancel() override;

  /// Returns the fields by name. In mode kAll, an array holds the k groups that are present, with
  /// the axes k, the replicas and those of an element, and the queue becomes empty. In mode kLast,
  /// it holds the newest group, without the first axis. The axis of one replica is left out.
  /// Error{kUsage} if nothing was ever enqueued.
  std::vector<NamedArray> dequeue();
  /// Waits until dequeue() returns at least one group, at most for `seconds`. Returns whether it
  /// does.
  bool wait_for(double seconds);
  /// Returns the number of groups that dequeue() would return.
  int64_t size() const;

 private:
  int64_t present() const { return options_.mode == Mode::kAll || groups_ == 0 ? groups_ : 1; }

  const OutfeedQueueOptions options_;
  mutable std::mutex lock_;
  std::condition_variable changed_;
  FeedLayout layout_;
  bool cancelled_ = false;
  bool ever_ = false;    ///< A group was enqueued.
  int64_t groups_ = 0;   ///< Whole groups in `bytes_`.
  int64_t replica_ = 0;  ///< Replica of the next element.
  std::vector<std::vector<std::byte>>
      bytes_;                                 ///< By field, with the elements of a part of a group.
  std::vector<std::vector<std::byte>> last_;  ///< By field: the newest group, in mode kLast.
};

}  // namespace sluice::data
