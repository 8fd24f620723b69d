#include "sluice/data/feed_queues.h"

#include <algorithm>
#include <chrono>

namespace sluice::data {

OutfeedQueue::OutfeedQueue(const OutfeedQueueOptions& options) : options_(options) {
  require(options.depth >= 0, "OutfeedQueue: depth must be at least 0, got {}", options.depth);
}

void OutfeedQueue::open(const FeedLayout& layout) {
  const std::lock_guard hold(lock_);
  layout_ = layout;
  cancelled_ = ever_ = false;
  groups_ = replica_ = 0;
  bytes_.assign(layout.fields.size(), {});
  last_.assign(layout.fields.size(), {});
}

void OutfeedQueue::take(std::span<const ConstArrayView> fields) {
  std::unique_lock hold(lock_);
  const bool bounded = options_.mode == Mode::kAll && options_.depth > 0;
  if (bounded && replica_ == 0)
    changed_.wait(hold, [&] { return cancelled_ || groups_ < options_.depth; });
  if (cancelled_) return;
  for (size_t f = 0; f < fields.size(); ++f)
    bytes_[f].insert(bytes_[f].end(), fields[f].data, fields[f].data + fields[f].spec.bytes());
  if (++replica_ < layout_.replicas) return;
  replica_ = 0;
  ever_ = true;
  ++groups_;
  if (options_.mode == Mode::kLast) {
    std::swap(last_, bytes_);
    for (auto& field : bytes_) field.clear();
  }
  changed_.notify_all();
}

void OutfeedQueue::cancel() {
  const std::lock_guard hold(lock_);
  cancelled_ = true;
  changed_.notify_all();
}

std::vector<NamedArray> OutfeedQueue::dequeue() {
  const std::lock_guard hold(lock_);
  require(ever_,
          "dequeue: outfeed '{}' must have got an element, got none yet; run a program that "
          "enqueues one, or call wait_for",
          layout_.name);
  std::vector<NamedArray> arrays;
  const bool all = options_.mode == Mode::kAll;
  for (size_t f = 0; f < layout_.fields.size(); ++f) {
    const TensorSpec& spec = layout_.fields[f].spec;
    std::vector<int64_t> dims;
    if (all) dims.push_back(groups_);
    if (layout_.replicas != 1) dims.push_back(layout_.replicas);
    dims.insert(dims.end(), spec.shape.begin(), spec.shape.end());
    HostTensor array({Shape(dims), spec.dtype, {}});
    auto& from = all ? bytes_[f] : last_[f];
    const auto size = static_cast<int64_t>(array.bytes().size());
    std::copy_n(from.begin(), size, array.bytes().begin());
    if (all) from.erase(from.begin(), from.begin() + size);
    arrays.push_back({layout_.fields[f].name, std::move(array)});
  }
  if (all) groups_ = 0;
  changed_.notify_all();
  return arrays;
}

bool OutfeedQueue::wait_for(double seconds) {
  std::unique_lock hold(lock_);
  return changed_.wait_for(hold, std::chrono::duration<double>(seconds),
                           [&] { return present() > 0; });
}

int64_t OutfeedQueue::size() const {
  const std::lock_guard hold(lock_);
  return present();
}

}  // namespace sluice::data
