// The combinators that hold at most one element.
#include <algorithm>
#include <utility>

#include "sluice/data/draw.h"
#include "sluice/data/pipeline/node.h"

namespace sluice::data {
namespace {

using internal::CheckedMap;
using internal::Combinator;
using internal::ElementView;
using internal::Node;
using internal::ShapeVariation;
using internal::Stream;

class Mapped final : public Combinator {
 public:
  Mapped(const Dataset& input, CheckedMap map) : Combinator(input), map_(std::move(map)) {}

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<Calls>(map_, input().open(pass), pass);
  }
  std::optional<ElementSpecs> specs() const override { return map_.specs; }
  ShapeVariation variation() const override {
    return map_.specs ? ShapeVariation::kNo : input().variation();
  }
  std::optional<int64_t> indexed() const override { return input().indexed(); }
  Element at(int64_t k, uint64_t pass) const override { return map_(input().at(k, pass), k, pass); }
  bool varies_by_epoch() const override { return map_.epoch_f || input().varies_by_epoch(); }

 private:
  class Calls final : public Stream {
   public:
    Calls(const CheckedMap& map, std::unique_ptr<Stream> input, uint64_t pass)
        : map_(map), input_(std::move(input)), pass_(pass) {}

    std::optional<Element> next() override {
      std::optional<Element> element = input_->next();
      if (element) element = map_(std::move(*element), number_++, pass_);
      return element;
    }

   private:
    const CheckedMap& map_;
    std::unique_ptr<Stream> input_;
    uint64_t pass_;
    int64_t number_ = 0;
  };

  CheckedMap map_;
};

class Repeated final : public Combinator {
 public:
  Repeated(const Dataset& input, int64_t passes) : Combinator(input), passes_(passes) {}

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<Passes>(*this, first_pass(pass));
  }
  std::optional<int64_t> size() const override { return all_of(input().size()); }
  std::optional<int64_t> indexed() const override {
    const std::optional<int64_t> each = input().indexed();
    return each ? all_of(each) : std::nullopt;
  }
  Element at(int64_t k, uint64_t pass) const override {
    const int64_t n = *input().indexed();
    return input().at(k % n, first_pass(pass) + static_cast<uint64_t>(k / n));
  }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const override {
    const int64_t n = *input().indexed();
    return input().write_at(k % n, first_pass(pass) + static_cast<uint64_t>(k / n), to);
  }

 private:
  /// Number of the pass of the input that a pass begins with.
  uint64_t first_pass(uint64_t pass) const {
    return passes_ == kForever ? pass : pass * static_cast<uint64_t>(passes_);
  }
  /// Number of elements of all passes, from that of each.
  std::optional<int64_t> all_of(std::optional<int64_t> each) const {
    if (passes_ == 0 || each == 0) return 0;
    if (passes_ == kForever || each == kForever) return kForever;
    if (!each) return std::nullopt;
    int64_t product = 0;
    return __builtin_mul_overflow(*each, passes_, &product) ? kForever : product;
  }

  class Passes final : public Stream {
   public:
    Passes(const Repeated& repeated, uint64_t first) : repeated_(repeated), first_(first) {}

    std::optional<Element> next() override {
      while (done_ != repeated_.passes_) {
        if (pass_ == nullptr) {
          pass_ = repeated_.input().open(first_ + static_cast<uint64_t>(done_));
          is_empty_ = true;
        }
        if (std::optional<Element> element = pass_->next()) {
          is_empty_ = false;
          return element;
        }
        require(!is_empty_ || repeated_.passes_ != kForever,
                "repeat: each pass that repeats forever must have elements, got none in pass {}",
                first_ + static_cast<uint64_t>(done_));
        pass_.reset();
        // If this pass is empty, later passes are empty too. Skip them: there may be very many.
        done_ = is_empty_ ? repeated_.passes_ : done_ + 1;
      }
      return std::nullopt;
    }

   private:
    const Repeated& repeated_;
    uint64_t first_;
    std::unique_ptr<Stream> pass_;
    int64_t done_ = 0;
    bool is_empty_ = true;
  };

  int64_t passes_;
};

/// A range of the elements: take() and skip().
class Range final : public Combinator {
 public:
  Range(const Dataset& input, int64_t skipped, int64_t taken)
      : Combinator(input), skipped_(skipped), taken_(taken) {}

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<RangeStream>(input().open(pass), skipped_, taken_);
  }
  std::optional<int64_t> size() const override { return part_of(input().size()); }
  std::optional<int64_t> indexed() const override {
    const std::optional<int64_t> all = input().indexed();
    return all ? part_of(all) : std::nullopt;
  }
  Element at(int64_t k, uint64_t pass) const override { return input().at(skipped_ + k, pass); }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const override {
    return input().write_at(skipped_ + k, pass, to);
  }

 private:
  /// Number of elements of the range, from that of the input.
  std::optional<int64_t> part_of(std::optional<int64_t> all) const {
    if (taken_ == 0) return 0;
    if (all == kForever) return taken_;
    if (!all) return std::nullopt;
    return std::min(std::max<int64_t>(*all - skipped_, 0), taken_);
  }

  class RangeStream final : public Stream {
   public:
    RangeStream(std::unique_ptr<Stream> input, int64_t skipped, int64_t taken)
        : input_(std::move(input)), skipped_(skipped), left_(taken) {}

    std::optional<Element> next() override {
      if (left_ == 0) return std::nullopt;
      for (; skipped_ != 0; --skipped_) {
        if (!input_->next()) return end();
      }
      if (left_ != kForever) --left_;
      std::optional<Element> element = input_->next();
      return element ? std::move(element) : end();
    }

   private:
    std::nullopt_t end() {
      left_ = 0;
      return std::nullopt;
    }

    std::unique_ptr<Stream> input_;
    int64_t skipped_;
    int64_t left_;
  };

  int64_t skipped_;
  int64_t taken_;
};

class Zipped final : public Node {
 public:
  explicit Zipped(std::vector<Dataset> inputs) : inputs_(std::move(inputs)) {
    require(!inputs_.empty(), "zip: requires at least one dataset, got none");
    specs();
  }

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    std::vector<std::unique_ptr<Stream>> inputs;
    for (const Dataset& input : inputs_) inputs.push_back(input.node()->open(pass));
    return std::make_unique<Joined>(std::move(inputs));
  }
  std::optional<ElementSpecs> specs() const override {
    ElementSpecs all;
    for (const Dataset& input : inputs_) {
      const std::optional<ElementSpecs> specs = input.element_specs();
      if (!specs) return std::nullopt;
      require(all.arrays.empty() || all.names.empty() == specs->names.empty(), kMixed);
      all.arrays.insert(all.arrays.end(), specs->arrays.begin(), specs->arrays.end());
      all.names.insert(all.names.end(), specs->names.begin(), specs->names.end());
      all.is_static = all.is_static && specs->is_static;
    }
    internal::check_names(all.arrays.size(), all.names, "zip");
    return all;
  }
  std::optional<int64_t> size() const override {
    int64_t min = kForever;
    for (const Dataset& input : inputs_) {
      const std::optional<int64_t> size = input.size();
      if (!size) return std::nullopt;
      min = std::min(min, *size);
    }
    return min;
  }
  ShapeVariation variation() const override { return internal::variation_of(inputs_); }
  bool varies_by_epoch() const override {
    return std::any_of(inputs_.begin(), inputs_.end(),
                       [](const Dataset& input) { return input.node()->varies_by_epoch(); });
  }
  std::optional<int64_t> indexed() const override {
    int64_t min = kForever;
    for (const Dataset& input : inputs_) {
      const std::optional<int64_t> size = input.node()->indexed();
      if (!size) return std::nullopt;
      min = std::min(min, *size);
    }
    return min;
  }
  Element at(int64_t k, uint64_t pass) const override {
    Element all;
    for (const Dataset& input : inputs_) append(input.node()->at(k, pass), all);
    internal::check_names(all.arrays.size(), all.names, "zip");
    return all;
  }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const override {
    size_t written = 0;
    for (const Dataset& input : inputs_)
      written += input.node()->write_at(k, pass, to.from(written));
    return written;
  }

 private:
  static constexpr const char* kMixed =
      "zip: all datasets must have fields with names, or none; got both";

  static void append(Element part, Element& all) {
    require(all.arrays.empty() || all.names.empty() == part.names.empty(), kMixed);
    std::move(part.arrays.begin(), part.arrays.end(), std::back_inserter(all.arrays));
    std::move(part.names.begin(), part.names.end(), std::back_inserter(all.names));
  }

  class Joined final : public Stream {
   public:
    explicit Joined(std::vector<std::unique_ptr<Stream>> inputs) : inputs_(std::move(inputs)) {}

    std::optional<Element> next() override {
      if (ended_) return std::nullopt;
      Element all;
      for (const auto& input : inputs_) {
        std::optional<Element> part = input->next();
        ended_ = !part;
        if (ended_) return std::nullopt;
        append(std::move(*part), all);
      }
      if (!checked_) internal::check_names(all.arrays.size(), all.names, "zip");
      checked_ = true;
      return all;
    }

   private:
    std::vector<std::unique_ptr<Stream>> inputs_;
    bool ended_ = false;
    bool checked_ = false;
  };

  std::vector<Dataset> inputs_;
};

}  // namespace

namespace internal {

ShapeVariation variation_of(const std::vector<Dataset>& datasets) {
  ShapeVariation maximum = ShapeVariation::kNo;
  for (const Dataset& dataset : datasets) maximum = std::max(maximum, dataset.node()->variation());
  return maximum;
}

CheckedMap checked_map(std::string_view what, Dataset::Map f, std::optional<ElementSpecs> specs) {
  require(f != nullptr, "{}: the function must be callable, got an empty one", what);
  if (specs) check_names(specs->arrays.size(), specs->names, what);
  return {.f = std::move(f), .specs = std::move(specs)};
}

CheckedMap checked_map(std::string_view what, Dataset::EpochMap f, MapOptions options) {
  require(f != nullptr, "{}: the function must be callable, got an empty one", what);
  if (options.specs) check_names(options.specs->arrays.size(), options.specs->names, what);
  return {.epoch_f = std::move(f),
          .key = key_of(options.seed, "map"),
          .specs = std::move(options.specs)};
}

}  // namespace internal

Dataset Dataset::map(Map f, std::optional<ElementSpecs> specs) const {
  return Dataset(std::make_shared<const Mapped>(
      *this, internal::checked_map("map", std::move(f), std::move(specs))));
}

Dataset Dataset::map(EpochMap f, MapOptions options) const {
  return Dataset(std::make_shared<const Mapped>(
      *this, internal::checked_map("map", std::move(f), std::move(options))));
}

Dataset Dataset::repeat(int64_t passes) const {
  require(passes >= 0, "repeat: the number of passes must be at least 0, got {}", passes);
  return Dataset(std::make_shared<const Repeated>(*this, passes));
}

Dataset Dataset::take(int64_t n) const {
  require(n >= 0, "take: the number of elements must be at least 0, got {}", n);
  return Dataset(std::make_shared<const Range>(*this, 0, n));
}

Dataset Dataset::skip(int64_t n) const {
  require(n >= 0, "skip: the number of elements must be at least 0, got {}", n);
  return Dataset(std::make_shared<const Range>(*this, n, kForever));
}

Dataset zip(std::vector<Dataset> datasets) {
  return Dataset(std::make_shared<const Zipped>(std::move(datasets)));
}

}  // namespace sluice::data
