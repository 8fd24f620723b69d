// The combinators that hold several elements: shuffle, batch and cache.
#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "sluice/data/draw.h"
#include "sluice/data/pipeline/node.h"

namespace sluice::data {
namespace {

using internal::Combinator;
using internal::ElementView;
using internal::Node;
using internal::ShapeVariation;
using internal::Stream;

class Shuffled final : public Combinator {
 public:
  Shuffled(const Dataset& input, uint64_t seed, int64_t buffer)
      : Combinator(input), buffer_(static_cast<size_t>(buffer)) {
    key_ = key_of(seed, "shuffle");
  }

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<Draws>(input().open(pass), fold(key_, pass), buffer_);
  }

 private:
  class Draws final : public Stream {
   public:
    Draws(std::unique_ptr<Stream> input, Seed key, size_t buffer)
        : input_(std::move(input)), key_(key), buffer_(buffer) {}

    std::optional<Element> next() override {
      while (!ended_ && held_.size() < buffer_) {
        std::optional<Element> element = input_->next();
        ended_ = !element;
        if (element) held_.push_back(std::move(*element));
      }
      if (held_.empty()) return std::nullopt;
      const uint32_t drawn = random_below(key_, draws_++, static_cast<uint32_t>(held_.size()));
      std::swap(held_[drawn], held_.back());
      std::optional<Element> element = std::move(held_.back());
      held_.pop_back();
      return element;
    }

   private:
    std::unique_ptr<Stream> input_;
    Seed key_;
    size_t buffer_;
    uint64_t draws_ = 0;
    std::vector<Element> held_;
    bool ended_ = false;
  };

  Seed key_;
  size_t buffer_;
};

/// Joins elements along a new first axis. The first of them is element number `first` of a pass.
Element join(std::vector<Element> elements, int64_t first) {
  const ElementSpecs specs = specs_of(elements[0]);
  int64_t k = 0;
  for (const Element& element : elements) {
    if (k++ == 0 || internal::has_specs(element, specs)) continue;
    fail(ErrorKind::kUsage,
         "batch: element {} must be {} like element {}, got {}; give all elements one shape",
         first + k - 1, to_string(specs), first, to_string(specs_of(element)));
  }
  return internal::stack_elements(std::move(elements));
}

class Batched final : public Combinator {
 public:
  Batched(const Dataset& input, int64_t n, Remainder remainder)
      : Combinator(input), n_(n), keeps_(remainder == Remainder::kKeep) {}

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<Batches>(input().open(pass), n_, keeps_);
  }
  std::optional<ElementSpecs> specs() const override {
    std::optional<ElementSpecs> specs = input().specs();
    if (!specs || !specs->is_static) return std::nullopt;
    const std::optional<int64_t> all = input().size();
    const bool has_full = !keeps_ || !all || *all >= n_;
    const int64_t rows = has_full ? n_ : std::max<int64_t>(*all, 1);
    for (TensorSpec& spec : specs->arrays) {
      std::vector<int64_t> dims{rows};
      dims.insert(dims.end(), spec.shape.begin(), spec.shape.end());
      spec = {Shape(std::move(dims)), spec.dtype, {}};
    }
    specs->is_static = variation() == ShapeVariation::kNo;
    return specs;
  }
  ShapeVariation variation() const override {
    const std::optional<int64_t> all = input().size();
    const bool is_equal = !keeps_ || (all && (*all == kForever || *all % n_ == 0 || *all < n_));
    return is_equal ? ShapeVariation::kNo : ShapeVariation::kLastBatch;
  }
  std::optional<int64_t> size() const override { return batches_of(input().size()); }
  std::optional<int64_t> indexed() const override { return batches_of(input().indexed()); }
  Element at(int64_t k, uint64_t pass) const override {
    const int64_t first = k * n_;
    const int64_t end = std::min(first + n_, *input().indexed());
    std::vector<Element> elements;
    for (int64_t i = first; i < end; ++i) elements.push_back(input().at(i, pass));
    return join(std::move(elements), first);
  }

 private:
  std::optional<int64_t> batches_of(std::optional<int64_t> all) const {
    if (!all || *all == kForever) return all;
    return *all / n_ + (keeps_ && *all % n_ != 0 ? 1 : 0);
  }

  class Batches final : public Stream {
   public:
    Batches(std::unique_ptr<Stream> input, int64_t n, bool keeps)
        : input_(std::move(input)), n_(n), keeps_(keeps) {}

    std::optional<Element> next() override {
      std::vector<Element> elements;
      while (!ended_ && static_cast<int64_t>(elements.size()) < n_) {
        std::optional<Element> element = input_->next();
        ended_ = !element;
        if (element) elements.push_back(std::move(*element));
      }
      if (elements.empty() || (ended_ && !keeps_)) return std::nullopt;
      const int64_t first = first_;
      first_ += static_cast<int64_t>(elements.size());
      return join(std::move(elements), first);
    }

   private:
    std::unique_ptr<Stream> input_;
    int64_t n_;
    bool keeps_;
    int64_t first_ = 0;
    bool ended_ = false;
  };

  int64_t n_;
  bool keeps_;
};

class Cached final : public Combinator {
 public:
  explicit Cached(const Dataset& input) : Combinator(input) {}

  std::unique_ptr<Stream> open(uint64_t) const override {
    if (std::shared_ptr<const Elements> all = stored()) {
      return std::make_unique<Stored>(std::move(all));
    }
    return std::make_unique<Storing>(*this, input().open(0));
  }

  /// Reads pass 0 if that alone shows its size.
  std::optional<int64_t> indexed() const override {
    std::optional<int64_t> size = input().size();
    if (!size) size = static_cast<int64_t>(load()->size());
    return size == kForever ? std::nullopt : size;
  }
  Element at(int64_t k, uint64_t) const override {
    const auto index = static_cast<size_t>(k);
    if (const auto all = stored()) return (*all)[index];
    const std::optional<int64_t> size = input().indexed();
    if (!size) return (*load())[index];
    {
      const std::lock_guard lock(mutex_);
      if (index < parts_.size() && parts_[index]) return *parts_[index];
    }
    Element element = input().at(k, 0);
    const std::lock_guard lock(mutex_);
    if (elements_ == nullptr) keep(element, index, static_cast<size_t>(*size));
    return element;
  }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const override {
    const auto all = stored();
    return all ? internal::copy_element(sluice::at(*all, k), k, to) : Node::write_at(k, pass, to);
  }

 private:
  using Elements = std::vector<Element>;

  class Stored final : public Stream {
   public:
    explicit Stored(std::shared_ptr<const Elements> elements) : elements_(std::move(elements)) {}
    std::optional<Element> next() override {
      if (number_ == elements_->size()) return std::nullopt;
      return (*elements_)[number_++];
    }

   private:
    std::shared_ptr<const Elements> elements_;
    size_t number_ = 0;
  };

  class Storing final : public Stream {
   public:
    Storing(const Cached& cached, std::unique_ptr<Stream> input)
        : cached_(cached), input_(std::move(input)) {}
    std::optional<Element> next() override {
      if (elements_ == nullptr) return std::nullopt;
      std::optional<Element> element = input_->next();
      if (element) {
        elements_->push_back(*element);
        return element;
      }
      const std::lock_guard lock(cached_.mutex_);
      cached_.store(std::move(elements_));
      elements_ = nullptr;
      return std::nullopt;
    }

   private:
    const Cached& cached_;
    std::unique_ptr<Stream> input_;
    std::shared_ptr<Elements> elements_ = std::make_shared<Elements>();
  };

  std::shared_ptr<const Elements> stored() const {
    const std::lock_guard lock(mutex_);
    return elements_;
  }
  /// Reads pass 0 to its end, once for all threads.
  std::shared_ptr<const Elements> load() const {
    const std::lock_guard one(loading_);
    if (stored() == nullptr) {
      const std::unique_ptr<Stream> pass = open(0);
      while (pass->next()) {
      }
    }
    return stored();
  }
  /// Keeps an element of `size` that at() made. The caller holds mutex_.
  void keep(const Element& element, size_t index, size_t size) const {
    parts_.resize(size);
    if (parts_[index]) return;
    parts_[index] = element;
    if (++made_ != size) return;
    auto all = std::make_shared<Elements>();
    for (std::optional<Element>& part : parts_) all->push_back(std::move(*part));
    store(std::move(all));
  }
  /// Stores all elements, unless it has them. The caller holds mutex_.
  void store(std::shared_ptr<const Elements> all) const {
    if (elements_ == nullptr) elements_ = std::move(all);
    parts_ = {};
  }

  mutable std::mutex loading_;                         ///< Held while load() reads.
  mutable std::mutex mutex_;                           ///< Guards the members below.
  mutable std::shared_ptr<const Elements> elements_;   ///< Null before all elements were read.
  mutable std::vector<std::optional<Element>> parts_;  ///< Elements that at() made until then.
  mutable size_t made_ = 0;                            ///< Elements in `parts_`.
};

}  // namespace

Dataset Dataset::shuffle(uint64_t seed, int64_t buffer) const {
  require(buffer >= 1 && buffer <= std::numeric_limits<uint32_t>::max(),
          "shuffle: the buffer must hold 1 to {} elements, got {}",
          std::numeric_limits<uint32_t>::max(), buffer);
  return Dataset(std::make_shared<const Shuffled>(*this, seed, buffer));
}

Dataset Dataset::batch(int64_t n, Remainder remainder) const {
  require(n >= 1, "batch: must join at least 1 element, got {}", n);
  return Dataset(std::make_shared<const Batched>(*this, n, remainder));
}

Dataset Dataset::cache() const {
  require(!node_->varies_by_epoch(),
          "cache: must store elements that all epochs share, got a map that reads the epoch; put "
          "the map after cache()");
  return Dataset(std::make_shared<const Cached>(*this));
}

}  // namespace sluice::data
