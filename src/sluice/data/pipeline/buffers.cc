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
using internal::Stream;

class Shuffled final : public Combinator {
 public:
  Shuffled(const Dataset& input, uint64_t seed, int64_t buffer)
      : Combinator(input), buffer_(static_cast<size_t>(buffer)) {
    key_ = fold({static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)}, "shuffle");
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
  const auto n = static_cast<int64_t>(elements.size());
  for (int64_t k = 1; k < n; ++k) {
    const Element& element = elements[static_cast<size_t>(k)];
    if (internal::has_specs(element, specs)) continue;
    fail(ErrorKind::kUsage,
         "batch: element {} must be {} like element {}, got {}; give all elements one shape",
         first + k, to_string(specs), first, to_string(specs_of(element)));
  }
  Element batch;
  batch.names = specs.names;
  for (size_t i = 0; i < specs.arrays.size(); ++i) {
    std::vector<HostTensor> arrays;
    arrays.reserve(elements.size());
    for (Element& element : elements) arrays.push_back(std::move(element.arrays[i]));
    batch.arrays.push_back(HostTensor::stack(arrays));
  }
  return batch;
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
    specs->is_static = !may_vary();
    return specs;
  }
  bool may_vary() const override {
    const std::optional<int64_t> all = input().size();
    return keeps_ && !(all && (*all == kForever || *all % n_ == 0 || *all < n_));
  }
  std::optional<int64_t> size() const override {
    const std::optional<int64_t> all = input().size();
    if (!all || *all == kForever) return all;
    return *all / n_ + (keeps_ && *all % n_ != 0 ? 1 : 0);
  }

 private:
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
    const std::lock_guard lock(mutex_);
    if (elements_ != nullptr) return std::make_unique<Stored>(elements_);
    return std::make_unique<Storing>(*this, input().open(0));
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
      if (cached_.elements_ == nullptr) cached_.elements_ = std::move(elements_);
      elements_ = nullptr;
      return std::nullopt;
    }

   private:
    const Cached& cached_;
    std::unique_ptr<Stream> input_;
    std::shared_ptr<Elements> elements_ = std::make_shared<Elements>();
  };

  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Elements> elements_;  ///< Null before a pass reached its end.
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

Dataset Dataset::cache() const { return Dataset(std::make_shared<const Cached>(*this)); }

}  // namespace sluice::data
