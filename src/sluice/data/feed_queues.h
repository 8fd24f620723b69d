#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sluice/base/feed.h"
#include "sluice/data/dataset.h"

namespace sluice::data {

/// Upper limit of elements that a host makes in advance for each replica.
inline constexpr int kMaxPrefetchDepth = 255;

struct InfeedQueueOptions {
  /// Elements, 1 to kMaxPrefetchDepth, that the host makes in advance for each replica.
  int prefetch_depth = 3;
};

/// A source that feeds the elements of pass 0 of a dataset; repeat() the dataset for more.
///   const auto queue = std::make_shared<data::InfeedQueue>(digits.batch(8).repeat());
///   const Infeed in = ir.infeed("digits", queue->fields(), {.prefetch_depth = queue->depth()});
///   session.bind_feed(in, queue);
/// Replica r reads element t·R + r at step t. A run of any program of a session continues where the
/// last run ended. One feed at a time may use a queue. The queue begins at element 0 each time
/// bind_feed() binds it. An error of a user's function is thrown once, with the element's number.
class InfeedQueue : public FeedSource {
 public:
  /// Error{kUsage} if check_static() refuses the dataset or the depth is out of range.
  explicit InfeedQueue(Dataset dataset, const InfeedQueueOptions& options = {});

  /// Specs of an element with the names of its fields, in the dataset's order. The names of a tuple
  /// are "0", "1", ….
  const std::vector<FeedField>& fields() const { return fields_; }
  int depth() const { return options_.prefetch_depth; }
  /// Number of elements that the queue supplied since it was bound, elements made in advance
  /// included.
  int64_t position() const { return position_.load(); }

  /// Begins at element 0. Error{kUsage} if another feed uses the queue, or if the feed's fields
  /// differ from those of the dataset. Named fields are compared by name, others by their order.
  void open(const FeedLayout& layout) override;
  bool next(std::span<const ArrayView> fields) override;
  void cancel() override;

 private:
  std::vector<size_t> indices_in(const FeedLayout& layout) const;

  const Dataset dataset_;
  const InfeedQueueOptions options_;
  ElementSpecs specs_;
  std::vector<FeedField> fields_;
  std::mutex lock_;  ///< Held while an element is made.
  std::optional<Iterator> pass_;
  std::vector<size_t> indices_;  ///< For each field of the feed: its array in an element.
  std::atomic<int64_t> position_{0};
  std::mutex use_;  ///< Guards the members below.
  bool is_used_ = false;
  std::string user_;  ///< Name of the feed that uses the queue.
};

struct OutfeedQueueOptions {
  /// Whether dequeue() returns all elements since the last call (kAll) or only the newest (kLast).
  enum class Mode : uint8_t { kAll, kLast } mode = Mode::kAll;
  /// Capacity of the queue in groups, in mode kAll; the device blocks while it is full. 0: no
  /// limit.
  int64_t depth = 0;
};

/// A sink that holds the elements of an outfeed. Any thread may dequeue them, also during a run.
class OutfeedQueue : public FeedSink {
 public:
  using Mode = OutfeedQueueOptions::Mode;
  /// Error{kUsage} if the depth is negative.
  explicit OutfeedQueue(const OutfeedQueueOptions& options = {});

  void open(const FeedLayout& layout) override;
  void take(std::span<const ConstArrayView> fields) override;
  void cancel() override;

  /// Returns the fields by name. In mode kAll, an array holds the k groups that are present, with
  /// the axes k, the replicas and those of an element, and the queue becomes empty. In mode kLast,
  /// an array holds the newest group, without the first axis. The axis of a single replica is
  /// omitted. Error{kUsage} before the first element is enqueued.
  std::vector<NamedArray> dequeue();
  /// Waits until dequeue() can return at least one group, at most for `seconds`. Returns whether it
  /// can.
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
      /// Indexed by field, with the elements of a part of a group.
      bytes_;
  std::vector<std::vector<std::byte>> last_;  ///< For each field: the newest group, in mode kLast.
};

}  // namespace sluice::data
