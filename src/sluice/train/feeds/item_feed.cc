#include "sluice/train/feeds/item_feed.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/base/error.h"
#include "sluice/base/numbers/slices.h"

namespace sluice::train {
namespace {

constexpr int64_t kMaxOwnDepth = 1024;  // Items of the own loader that its workers make ahead.

std::optional<int64_t> micro_batches_of_epoch(const data::BatchLoader& loader, int64_t of_item) {
  const std::optional<int64_t> items = loader.items();
  if (!items || *items == data::kForever) return std::nullopt;
  return checked_mul(*items, of_item);
}

data::LoaderOptions own_options(const data::LoaderOptions& options, int64_t items) {
  data::LoaderOptions own = options;
  own.batch /= items;
  own.depth = static_cast<int>(
      std::clamp<int64_t>(options.depth * std::min(items, kMaxOwnDepth), 1, kMaxOwnDepth));
  return own;
}

}  // namespace

ItemFeed::ItemFeed(const Network& network, const data::BatchLoader& loader, const CallSize& size,
                   std::vector<size_t> labels, ItemPosition begin, const Limits& limits)
    : network_(network),
      limits_(limits),
      micro_batch_(size.micro_batch),
      micro_batches_(size.samples() / size.micro_batch),
      whole_items_(!loader.items()),
      slices_(whole_items_ ? micro_batches_ : 1),
      epoch_micro_batches_(micro_batches_of_epoch(loader, micro_batches_)),
      label_arrays_(std::move(labels)),
      sample_(loader.sample_specs()),
      slice_(slices_),
      epoch_(begin.epoch),
      read_of_epoch_(checked_mul(begin.item, micro_batches_)),
      labels_(empty_labels()) {
  loader_.emplace(loader.dataset(), own_options(loader.options(), micro_batches_ / slices_));
  loader_->start_epoch(begin.epoch, read_of_epoch_ / slices_);
}

size_t ItemFeed::index_of(const std::string& field) const {
  if (!sample_.names.empty()) {
    const auto found = std::find(sample_.names.begin(), sample_.names.end(), field);
    return static_cast<size_t>(found - sample_.names.begin());
  }
  size_t index = 0;  // Index in a tuple, as in the network.
  for (const Field& f : network_.fields()) {
    if (f.name == field) return index;
    if (!f.once) ++index;
  }
  return index;
}

void ItemFeed::open(const FeedLayout& layout) {
  const std::lock_guard reading(reading_);
  indices_.clear();
  for (const FeedField& field : layout.fields) {
    const size_t index = index_of(field.name);
    const bool is_right = index < sample_.arrays.size() &&
                          sample_.arrays[index].dtype == field.spec.dtype &&
                          sample_.arrays[index].elements() * micro_batch_ == field.spec.elements();
    require(is_right, "fit: {} samples must have the field '{}' {}, got samples of {}",
            micro_batch_, field.name, to_string(field.spec), to_string(sample_));
    indices_.push_back(index);
  }
}

// Goes on to the next epoch of the loader, unless the trainer needs no other item.
bool ItemFeed::start_next_epoch() {
  const bool is_empty = read_of_epoch_ == 0;
  const bool ends = is_empty || ++epochs_ >= limits_.epochs;
  {
    const std::lock_guard items(items_);
    epoch_ends_.push_back(loaded_items_);
    at_end_ = ends;
  }
  if (ends) return false;
  read_of_epoch_ = 0;
  loader_->start_epoch(++epoch_);
  return true;
}

// Loads an item of the own loader. Returns false at the end of the data.
bool ItemFeed::load() {
  while (loader_ && made_ / micro_batches_ < limits_.items) {
    if (epoch_micro_batches_ && read_of_epoch_ >= *epoch_micro_batches_) {
      // Workers continue in the next epoch if next() has returned the end of this one.
      if (loader_->position() == *loader_->items()) loader_->next();
      if (!start_next_epoch()) return false;
    }
    item_ = loader_->next();
    if (item_ != nullptr) {
      slice_ = 0;
      read_of_epoch_ += slices_;
      const std::lock_guard items(items_);
      ++loaded_items_;
      return true;
    }
    if (!start_next_epoch()) return false;
  }
  return false;
}

bool ItemFeed::load_after_errors() {
  if (error_ != nullptr) std::rethrow_exception(error_);
  {
    const std::lock_guard items(items_);
    if (at_end_) return false;
  }
  try {
    return load();
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

data::Element ItemFeed::empty_labels() const {
  data::Element labels;
  labels.names = sample_.names;
  for (size_t i = 0; i < sample_.arrays.size(); ++i) {
    const TensorSpec& spec = sample_.arrays[i];
    const bool is_label =
        std::find(label_arrays_.begin(), label_arrays_.end(), i) != label_arrays_.end();
    std::vector<int64_t> dims{is_label ? micro_batches_ * micro_batch_ : 0};
    dims.insert(dims.end(), spec.shape.begin(), spec.shape.end());
    labels.arrays.emplace_back(TensorSpec{Shape(std::move(dims)), spec.dtype, {}});
  }
  return labels;
}

// Copies the labels of the micro-batch that next() makes.
void ItemFeed::keep_labels() {
  const int64_t of_item = made_ % micro_batches_;
  const std::lock_guard items(items_);
  if (!label_arrays_.empty()) {
    if (of_item == 0) {
      if (free_labels_.empty()) free_labels_.push_back(empty_labels());
      made_labels_.push_back(std::move(free_labels_.back()));
      free_labels_.pop_back();
    }
    for (const size_t i : label_arrays_) {
      const auto from = Slices(item_->arrays[i].bytes(), slices_)[slice_];
      std::ranges::copy(
          from, Slices(made_labels_.back().arrays[i].bytes(), micro_batches_)[of_item].begin());
    }
  }
  if (of_item == micro_batches_ - 1) ++made_items_;
}

bool ItemFeed::make_next(std::span<const ArrayView> fields) {
  if (slice_ == slices_ && !load_after_errors()) return false;
  for (size_t f = 0; f < fields.size(); ++f) {
    const auto from = Slices(item_->arrays[indices_[f]].bytes(), slices_)[slice_];
    std::memcpy(fields[f].data, from.data(), from.size());
  }
  keep_labels();
  ++slice_;
  ++made_;
  return true;
}

bool ItemFeed::next(std::span<const ArrayView> fields) {
  const std::lock_guard reading(reading_);
  return make_next(fields);
}

// Whether the epoch has another item, if the thread of the feed has found out.
std::optional<bool> ItemFeed::known_item() {
  const std::lock_guard items(items_);
  if (!epoch_ends_.empty() && epoch_ends_.front() == ended_items_) {
    epoch_ends_.pop_front();
    return false;
  }
  if (loaded_items_ > ended_items_) return true;
  return at_end_ ? std::optional(false) : std::nullopt;
}

bool ItemFeed::has_item() {
  if (!whole_items_) return true;
  if (const std::optional<bool> known = known_item()) return *known;
  const std::lock_guard reading(reading_);
  // The thread of the feed may have loaded an item since then.
  if (const std::optional<bool> known = known_item()) return *known;
  load_after_errors();
  return known_item().value_or(false);
}

void ItemFeed::end_item() {
  const auto is_made = [&] {
    const std::lock_guard items(items_);
    return made_items_ > ended_items_;
  };
  if (!is_made()) {
    // In a process without a ring of the feed, its thread does not make elements.
    const std::lock_guard reading(reading_);
    while (!is_made() && make_next({})) {
    }
  }
  SLUICE_CHECK(is_made());
  const std::lock_guard items(items_);
  ++ended_items_;
  if (label_arrays_.empty()) return;
  free_labels_.push_back(std::exchange(labels_, std::move(made_labels_.front())));
  made_labels_.pop_front();
}

void ItemFeed::close() {
  const std::lock_guard reading(reading_);
  loader_.reset();
  slice_ = slices_;
}

}  // namespace sluice::train
