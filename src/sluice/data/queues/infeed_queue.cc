#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/data/feed_queues.h"
#include "sluice/data/pipeline/node.h"

namespace sluice::data {
namespace {

std::string to_text(const std::vector<FeedField>& fields) {
  std::string text;
  for (const FeedField& field : fields)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", field.name, to_string(field.spec));
  return text;
}

}  // namespace

InfeedQueue::InfeedQueue(Dataset dataset, const InfeedQueueOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
  require(depth() >= 1 && depth() <= kMaxPrefetchDepth,
          "InfeedQueue: prefetch_depth must be 1 to {}, got {}", kMaxPrefetchDepth, depth());
  specs_ = check_static(dataset_, "InfeedQueue");
  for (size_t i = 0; i < specs_.arrays.size(); ++i) {
    fields_.push_back(
        {specs_.names.empty() ? fmt::to_string(i) : specs_.names[i], specs_.arrays[i]});
  }
}

/// Returns the index in an element for each field of a feed.
std::vector<size_t> InfeedQueue::indices_in(const FeedLayout& layout) const {
  std::vector<size_t> indices;
  bool is_right = layout.fields.size() == fields_.size();
  for (size_t f = 0; f < layout.fields.size() && is_right; ++f) {
    const FeedField& field = layout.fields[f];
    size_t index = f;
    if (!specs_.names.empty()) {
      const auto found = std::find(specs_.names.begin(), specs_.names.end(), field.name);
      index = std::distance(specs_.names.begin(), found);
    }
    is_right = index < fields_.size() && fields_[index].spec.shape == field.spec.shape &&
               fields_[index].spec.dtype == field.spec.dtype;
    indices.push_back(index);
  }
  require(is_right,
          "InfeedQueue: feed '{}' must have the fields of the dataset ({}), got ({}); make it with "
          "ir.infeed(name, queue.fields()), or map the dataset to its fields",
          layout.name, to_text(fields_), to_text(layout.fields));
  return indices;
}

void InfeedQueue::open(const FeedLayout& layout) {
  std::vector<size_t> indices = indices_in(layout);
  {
    const std::lock_guard hold(use_);
    require(!is_used_,
            "InfeedQueue: one feed must use the queue at a time, got feed '{}' and feed '{}'; "
            "make a queue for each feed, or end the other session first",
            layout.name, user_);
    is_used_ = true;
    user_ = layout.name;
  }
  const std::lock_guard hold(lock_);
  indices_ = std::move(indices);
  pass_.reset();
  position_ = 0;
}

bool InfeedQueue::next(std::span<const ArrayView> fields) {
  const std::lock_guard hold(lock_);
  if (!pass_) pass_.emplace(dataset_.iterate());
  const std::optional<Element> element = pass_->next();
  if (!element) return false;
  if (!internal::has_specs(*element, specs_)) {
    const int64_t number = pass_->position() - 1;
    pass_.emplace(dataset_.take(0).iterate());  // The pass ends, as after any other error.
    fail(ErrorKind::kUsage, "InfeedQueue: element {} must be {} like the first one, got {}", number,
         to_string(specs_), to_string(specs_of(*element)));
  }
  for (size_t f = 0; f < fields.size(); ++f) {
    const auto from = element->arrays[indices_[f]].bytes();
    std::memcpy(fields[f].data, from.data(), from.size());
  }
  position_.fetch_add(1);
  return true;
}

void InfeedQueue::cancel() {
  const std::lock_guard hold(use_);
  is_used_ = false;
}

}  // namespace sluice::data
