// The combinators that read several datasets in turn: concat, interleave and sample_from.
#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/data/draw.h"
#include "sluice/data/pipeline/node.h"
#include "sluice/data/pipeline/weights.h"

namespace sluice::data {
namespace {

using internal::ElementView;
using internal::Node;
using internal::Stream;

int64_t add_sizes(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kForever : sum;
}
int64_t multiply_sizes(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kForever : product;
}

/// Whether elements with these specs differ in the shapes of their arrays at most.
bool have_equal_fields(const ElementSpecs& a, const ElementSpecs& b) {
  return a.names == b.names &&
         std::equal(a.arrays.begin(), a.arrays.end(), b.arrays.begin(), b.arrays.end(),
                    [](const TensorSpec& x, const TensorSpec& y) { return x.dtype == y.dtype; });
}

/// An element of an input.
struct InputElement {
  size_t input = 0;
  int64_t number = 0;
};

/// A node whose elements come from several inputs.
class Mixture : public Node {
 public:
  /// `name` is that of the combinator.
  Mixture(const char* name, std::vector<Dataset> inputs) : inputs_(std::move(inputs)) {
    require(!inputs_.empty(), "{}: requires at least one dataset, got none", name);
    std::optional<size_t> first;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::optional<ElementSpecs> specs = inputs_[i].element_specs();
      if (!specs) continue;
      if (!first) {
        first = i;
        specs_ = specs;
        continue;
      }
      require(have_equal_fields(*specs_, *specs),
              "{}: dataset {} must have the fields and dtypes of dataset {}, {}, got {}", name, i,
              *first, to_string(*specs_), to_string(*specs));
      are_equal_ = are_equal_ && specs->arrays == specs_->arrays;
      specs_->is_static = specs_->is_static && specs->is_static;
    }
    are_equal_ = are_equal_ && first && all_of([](const Node& n) { return n.specs().has_value(); });
  }

  std::optional<ElementSpecs> specs() const final { return are_equal_ ? specs_ : std::nullopt; }
  internal::ShapeVariation variation() const final { return internal::variation_of(inputs_); }
  bool varies_by_epoch() const final {
    return !all_of([](const Node& n) { return !n.varies_by_epoch(); });
  }
  Element at(int64_t k, uint64_t pass) const final {
    const InputElement found = find(k, pass);
    return input(found.input).at(found.number, pass);
  }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const final {
    const InputElement found = find(k, pass);
    return input(found.input).write_at(found.number, pass, to);
  }

 protected:
  /// Returns the element of an input that is element k of a pass. The inputs are indexed.
  virtual InputElement find(int64_t k, uint64_t pass) const = 0;

  size_t inputs() const { return inputs_.size(); }
  const Node& input(size_t i) const { return *inputs_[i].node(); }
  template <typename F>
  bool all_of(F&& holds) const {
    return std::all_of(inputs_.begin(), inputs_.end(),
                       [&](const Dataset& input) { return holds(*input.node()); });
  }
  std::vector<std::unique_ptr<Stream>> open_all(uint64_t pass) const {
    std::vector<std::unique_ptr<Stream>> streams;
    for (const Dataset& input : inputs_) streams.push_back(input.node()->open(pass));
    return streams;
  }
  std::optional<int64_t> sum_of_sizes() const {
    int64_t sum = 0;
    bool is_known = true;
    for (const Dataset& input : inputs_) {
      const std::optional<int64_t> size = input.size();
      if (size == kForever) return kForever;
      is_known = is_known && size.has_value();
      sum = add_sizes(sum, size.value_or(0));
    }
    return is_known ? std::optional(sum) : std::nullopt;
  }
  /// The inputs' numbers of elements; empty if one of them is not indexed. Computed once, at the
  /// first use, because cache() may read a pass.
  const std::vector<int64_t>& indexed_sizes() const {
    std::call_once(sizes_once_, [this] {
      std::vector<int64_t> sizes;
      for (const Dataset& input : inputs_) {
        const std::optional<int64_t> size = input.node()->indexed();
        if (!size) return;
        sizes.push_back(*size);
      }
      sizes_ = std::move(sizes);
    });
    return sizes_;
  }
  std::optional<int64_t> sum_of_indexed() const {
    const std::vector<int64_t>& sizes = indexed_sizes();
    if (sizes.empty()) return std::nullopt;
    int64_t sum = 0;
    for (const int64_t size : sizes) sum = add_sizes(sum, size);
    return sum;
  }

 private:
  std::vector<Dataset> inputs_;
  std::optional<ElementSpecs> specs_;  ///< The first known specs.
  bool are_equal_ = true;              ///< All specs are known and equal.
  mutable std::once_flag sizes_once_;
  mutable std::vector<int64_t> sizes_;
};

class Concatenated final : public Mixture {
 public:
  explicit Concatenated(std::vector<Dataset> inputs) : Mixture("concat", std::move(inputs)) {
    for (size_t i = 0; i + 1 < this->inputs(); ++i) {
      require(input(i).size() != kForever,
              "concat: only the last dataset may have no end, got dataset {} without one; use "
              "take(n)",
              i);
    }
  }

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<InTurn>(*this, pass);
  }
  std::optional<int64_t> size() const override { return sum_of_sizes(); }
  std::optional<int64_t> indexed() const override { return sum_of_indexed(); }

 private:
  InputElement find(int64_t k, uint64_t) const override {
    const std::vector<int64_t>& sizes = indexed_sizes();
    size_t input = 0;
    while (k >= sizes[input]) k -= sizes[input++];
    return {input, k};
  }

  class InTurn final : public Stream {
   public:
    InTurn(const Concatenated& all, uint64_t pass) : all_(all), pass_(pass) {}

    std::optional<Element> next() override {
      while (input_ < all_.inputs()) {
        if (stream_ == nullptr) stream_ = all_.input(input_).open(pass_);
        if (std::optional<Element> element = stream_->next()) return element;
        stream_.reset();
        ++input_;
      }
      return std::nullopt;
    }

   private:
    const Concatenated& all_;
    uint64_t pass_;
    size_t input_ = 0;
    std::unique_ptr<Stream> stream_;
  };
};

class Interleaved final : public Mixture {
 public:
  Interleaved(std::vector<Dataset> inputs, int64_t block)
      : Mixture("interleave", std::move(inputs)), block_(block) {}

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<Blocks>(open_all(pass), block_);
  }
  std::optional<int64_t> size() const override { return sum_of_sizes(); }
  std::optional<int64_t> indexed() const override { return sum_of_indexed(); }

 private:
  /// Number of elements in `rounds` rounds, each of which reads a block of every dataset.
  int64_t elements_in(int64_t rounds) const {
    const int64_t each = multiply_sizes(rounds, block_);
    int64_t sum = 0;
    for (const int64_t size : indexed_sizes()) sum = add_sizes(sum, std::min(size, each));
    return sum;
  }
  InputElement find(int64_t k, uint64_t) const override {
    // Finds the last round that begins at element k or before. Each round before it reads a block
    // of the longest dataset.
    int64_t round = 0, end = k / block_ + 1;
    while (end - round > 1) {
      const int64_t middle = round + (end - round) / 2;
      (elements_in(middle) <= k ? round : end) = middle;
    }
    k -= elements_in(round);
    const int64_t first = round * block_;
    const std::vector<int64_t>& sizes = indexed_sizes();
    for (size_t input = 0;; ++input) {
      const int64_t here = std::clamp<int64_t>(sizes[input] - first, 0, block_);
      if (k < here) return {input, first + k};
      k -= here;
    }
  }

  class Blocks final : public Stream {
   public:
    Blocks(std::vector<std::unique_ptr<Stream>> streams, int64_t block)
        : streams_(std::move(streams)), block_(block) {}

    std::optional<Element> next() override {
      while (!streams_.empty()) {
        if (input_ == streams_.size()) input_ = 0;
        std::optional<Element> element = streams_[input_]->next();
        if (!element) {
          streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(input_));
          taken_ = 0;
          continue;
        }
        if (++taken_ == block_) {
          taken_ = 0;
          ++input_;
        }
        return element;
      }
      return std::nullopt;
    }

   private:
    std::vector<std::unique_ptr<Stream>> streams_;  ///< Inputs that have not ended.
    int64_t block_;
    size_t input_ = 0;
    int64_t taken_ = 0;  ///< Elements of the current block.
  };

  int64_t block_;
};

/// Counts how often each dataset was drawn before element k of a pass. It stores the counts at
/// every kDraws-th element of the last passes, and draws at most kDraws elements again.
class DrawCounts {
 public:
  DrawCounts(const internal::WeightTable& table, size_t datasets)
      : table_(table), datasets_(datasets) {}

  /// `key` is that of the pass.
  InputElement find(int64_t k, uint64_t pass, Seed key) const {
    const auto draw = [&](int64_t i) { return table_.draw(key, static_cast<uint64_t>(i)); };
    const size_t input = draw(k);
    int64_t count = stored(k / kDraws, pass, key, input);
    for (int64_t i = k - k % kDraws; i < k; ++i) count += draw(i) == input ? 1 : 0;
    return {input, count};
  }

 private:
  static constexpr int64_t kDraws = 512;
  static constexpr size_t kPasses = 4;

  struct PassCounts {
    uint64_t pass = 0;
    uint64_t used = 0;            ///< Number of the last use; 0 if there was none.
    std::vector<int64_t> counts;  ///< By interval and dataset.
  };

  int64_t stored(int64_t interval, uint64_t pass, Seed key, size_t input) const {
    const std::lock_guard lock(mutex_);
    PassCounts& entry = entry_of(pass);
    entry.used = ++uses_;
    const auto wanted = static_cast<size_t>(interval);
    if (entry.counts.empty()) entry.counts.resize(datasets_);
    while (entry.counts.size() <= wanted * datasets_) {
      const size_t intervals = entry.counts.size() / datasets_;
      for (size_t i = 0; i < datasets_; ++i)
        entry.counts.push_back(entry.counts[(intervals - 1) * datasets_ + i]);
      const uint64_t first = (intervals - 1) * kDraws;
      for (uint64_t i = first; i < first + kDraws; ++i)
        ++entry.counts[intervals * datasets_ + table_.draw(key, i)];
    }
    return entry.counts[wanted * datasets_ + input];
  }
  /// Returns the entry of a pass; it replaces the entry that was not used for longest.
  PassCounts& entry_of(uint64_t pass) const {
    PassCounts* oldest = &entries_[0];
    for (PassCounts& entry : entries_) {
      if (entry.used != 0 && entry.pass == pass) return entry;
      if (entry.used < oldest->used) oldest = &entry;
    }
    oldest->pass = pass;
    oldest->counts.clear();
    return *oldest;
  }

  const internal::WeightTable& table_;
  size_t datasets_;
  mutable std::mutex mutex_;  ///< Guards the members below.
  mutable std::array<PassCounts, kPasses> entries_;
  mutable uint64_t uses_ = 0;
};

class Sampled final : public Mixture {
 public:
  Sampled(std::vector<Dataset> inputs, const std::vector<double>& weights, uint64_t seed)
      : Mixture("sample_from", std::move(inputs)),
        table_("sample_from", weights),
        counts_(table_, this->inputs()),
        key_(key_of(seed, "sample_from")) {
    require(weights.size() == this->inputs(),
            "sample_from: must have one weight for each of {} datasets, got {}", this->inputs(),
            weights.size());
    for (size_t i = 0; i < weights.size(); ++i) is_drawn_.push_back(weights[i] > 0);
  }

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<Draws>(open_all(pass), table_, fold(key_, pass));
  }
  std::optional<int64_t> size() const override {
    return drawn_have_no_end([](const Node& n) { return n.size(); });
  }
  std::optional<int64_t> indexed() const override {
    return drawn_have_no_end([](const Node& n) { return n.indexed(); });
  }

 private:
  /// Returns kForever if size_of() does for each dataset that may be drawn, else nothing: the pass
  /// ends with the first dataset that ends, after a random number of elements.
  template <typename F>
  std::optional<int64_t> drawn_have_no_end(F&& size_of) const {
    for (size_t i = 0; i < inputs(); ++i) {
      if (is_drawn_[i] && size_of(input(i)) != kForever) return std::nullopt;
    }
    return kForever;
  }
  InputElement find(int64_t k, uint64_t pass) const override {
    return counts_.find(k, pass, fold(key_, pass));
  }

  class Draws final : public Stream {
   public:
    Draws(std::vector<std::unique_ptr<Stream>> streams, const internal::WeightTable& table,
          Seed key)
        : streams_(std::move(streams)), table_(table), key_(key) {}

    std::optional<Element> next() override {
      if (ended_) return std::nullopt;
      std::optional<Element> element = streams_[table_.draw(key_, draws_++)]->next();
      ended_ = !element;
      return element;
    }

   private:
    std::vector<std::unique_ptr<Stream>> streams_;
    const internal::WeightTable& table_;
    Seed key_;
    uint64_t draws_ = 0;
    bool ended_ = false;
  };

  internal::WeightTable table_;
  DrawCounts counts_;
  Seed key_;
  std::vector<bool> is_drawn_;
};

}  // namespace

Dataset concat(std::vector<Dataset> datasets) {
  return Dataset(std::make_shared<const Concatenated>(std::move(datasets)));
}

Dataset interleave(std::vector<Dataset> datasets, int64_t block) {
  require(block >= 1, "interleave: a block must have at least 1 element, got {}", block);
  return Dataset(std::make_shared<const Interleaved>(std::move(datasets), block));
}

Dataset sample_from(std::vector<Dataset> datasets, const std::vector<double>& weights,
                    uint64_t seed) {
  return Dataset(std::make_shared<const Sampled>(std::move(datasets), weights, seed));
}

}  // namespace sluice::data
