#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sluice/base/host_tensor.h"

namespace sluice {

/// A field of the elements of a feed.
struct FeedField {
  std::string name = {};
  TensorSpec spec = {};
};

/// The elements of a feed, as the program uses them.
struct FeedLayout {
  std::string name = {};  ///< Name of the feed.
  std::vector<FeedField> fields = {};
  int64_t replicas = 1;  ///< Elements of a group: element t * replicas + r belongs to replica r.
};

/// Produces the elements of an infeed. One thread calls next(); it belongs to the feed.
class FeedSource {
 public:
  virtual ~FeedSource() = default;
  /// Learns the layout before the first next(). Throws an Error to refuse it.
  virtual void open(const FeedLayout&) {}
  /// Fills the fields of the next element, in their order. Returns false at the end of the data;
  /// then it is not called again. An exception ends the run that needs the element. If a later run
  /// needs it too, next() is called again.
  virtual bool next(std::span<const ArrayView> fields) = 0;
  /// Requests that next() returns soon, with any result. Another thread calls this function when
  /// the feed ends, during next() or not. A session waits for next() in its destructor, so a source
  /// that may block for long implements cancel().
  virtual void cancel() {}
};

/// Takes the elements of an outfeed. One thread calls take(); it belongs to the feed.
class FeedSink {
 public:
  virtual ~FeedSink() = default;
  /// Learns the layout before the first take(). Throws an Error to refuse it.
  virtual void open(const FeedLayout&) {}
  /// Takes the next element. The arrays are valid until the call returns. If it blocks, the device
  /// waits once the rings of the feed are full. An exception ends the run; the element is lost.
  virtual void take(std::span<const ConstArrayView> fields) = 0;
  /// Requests that take() returns soon; see FeedSource::cancel.
  virtual void cancel() {}
};

}  // namespace sluice
