// The combinators for elements of different lengths: pad and bucket_by_length.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "sluice/base/dtype.h"
#include "sluice/data/pipeline/node.h"

namespace sluice::data {
namespace {

using internal::Combinator;
using internal::ShapeVariation;
using internal::Stream;

constexpr int64_t kMaxPaddedLength = std::numeric_limits<int32_t>::max();

/// Fields to pad, for `what`: pad, pad_to_multiple or bucket_by_length.
class PaddedFields {
 public:
  PaddedFields(const char* what, std::vector<PaddedField> fields)
      : what_(what), fields_(std::move(fields)) {
    require(!fields_.empty(), "{}: requires at least one field, got none", what_);
    for (auto f = fields_.begin(); f != fields_.end(); ++f) {
      require(f->axis >= 0, "{}: the axis of {} must be at least 0, got {}", what_, text(*f),
              f->axis);
      const bool is_new = std::none_of(fields_.begin(), f, [&](const PaddedField& other) {
        return other.field == f->field && other.axis == f->axis;
      });
      require(is_new, "{}: an axis of a field must be padded once, got axis {} of {} twice", what_,
              f->axis, text(*f));
    }
  }

  const char* what() const { return what_; }

  /// Returns the maximum length of the fields.
  int64_t length_of(const ElementSpecs& specs) const {
    int64_t length = 0;
    for (const PaddedField& f : fields_)
      length = std::max(length, specs.arrays[index_of(f, specs)].shape[f.axis]);
    return length;
  }

  /// Returns the specs of padded elements. length(n) is the new length of an axis of length n.
  template <typename F>
  ElementSpecs padded(ElementSpecs specs, F&& length) const {
    for (const PaddedField& f : fields_) {
      TensorSpec& spec = specs.arrays[index_of(f, specs)];
      const int64_t old = spec.shape[f.axis];
      const int64_t wanted = length(old);
      require(old <= wanted, "{}: axis {} of {} must have a length of at most {}, got {}", what_,
              f.axis, text(f), wanted, old);
      std::vector<int64_t> dims(spec.shape.begin(), spec.shape.end());
      dims[static_cast<size_t>(f.axis)] = wanted;
      spec = {Shape(std::move(dims)), spec.dtype, {}};
    }
    return specs;
  }

  /// Returns the padded element.
  template <typename F>
  Element pad(Element element, F&& length) const {
    const ElementSpecs specs = padded(specs_of(element), length);
    for (const PaddedField& f : fields_) {
      const size_t i = index_of(f, specs);
      element.arrays[i] =
          extended(std::move(element.arrays[i]), f.axis, specs.arrays[i].shape[f.axis], f.value);
    }
    return element;
  }

  /// Whether axis 0 of all arrays is padded.
  bool pads_all_rows(const ElementSpecs& specs) const {
    std::vector<bool> pads(specs.arrays.size());
    for (const PaddedField& f : fields_) {
      if (f.axis == 0) pads[index_of(f, specs)] = true;
    }
    return std::find(pads.begin(), pads.end(), false) == pads.end();
  }

 private:
  static std::string text(const PaddedField& f) {
    return f.field.index >= 0 ? fmt::format("field {}", f.field.index)
                              : fmt::format("field '{}'", f.field.name);
  }

  /// Returns the index of a field's array, after a check of its axis and dtype.
  size_t index_of(const PaddedField& f, const ElementSpecs& specs) const {
    auto index = static_cast<size_t>(f.field.index);
    if (f.field.index < 0) {
      const auto found = std::find(specs.names.begin(), specs.names.end(), f.field.name);
      index = found == specs.names.end() ? specs.arrays.size()
                                         : static_cast<size_t>(found - specs.names.begin());
    }
    require(index < specs.arrays.size(), "{}: the field must be one of {}, got {}", what_,
            to_string(specs), text(f));
    const TensorSpec& spec = specs.arrays[index];
    require(f.axis < spec.shape.rank(), "{}: the axis of {} must be in [0, {}), got {}", what_,
            text(f), spec.shape.rank(), f.axis);
    require(can_store(spec.dtype, f.value), "{}: the value of {} must be a number of {}, got {}",
            what_, text(f), name_of(spec.dtype), f.value);
    return index;
  }

  /// Returns an array whose axis is extended to `length` with `value`.
  static HostTensor extended(HostTensor array, int axis, int64_t length, double value) {
    const Shape& shape = array.shape();
    const int64_t old = shape[axis];
    if (old == length) return array;
    std::vector<int64_t> dims(shape.begin(), shape.end());
    int64_t outer = 1;
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    dims[static_cast<size_t>(axis)] = length;
    HostTensor wide({Shape(std::move(dims)), array.dtype(), {}});
    const HostTensor one = HostTensor::of<double>({}, f64, {value}).cast(array.dtype());
    const auto entry = one.bytes();
    const std::span<const std::byte> from = array.bytes();
    const std::span<std::byte> to = wide.bytes();
    if (to.empty()) return wide;
    const size_t row = to.size() / static_cast<size_t>(outer);
    const size_t kept = row / static_cast<size_t>(length) * static_cast<size_t>(old);
    for (size_t i = 0; i < static_cast<size_t>(outer); ++i) {
      if (kept != 0) std::memcpy(&to[i * row], &from[i * kept], kept);
      for (size_t at = kept; at < row; at += entry.size())
        std::memcpy(&to[i * row + at], entry.data(), entry.size());
    }
    return wide;
  }

  const char* what_;
  std::vector<PaddedField> fields_;
};

/// The length of a padded axis: a fixed one, or the next multiple.
struct PaddedLength {
  int64_t length = 0;
  bool is_multiple = false;

  int64_t operator()(int64_t old) const {
    return is_multiple ? (old + length - 1) / length * length : length;
  }
};

class Padded final : public Combinator {
 public:
  Padded(const Dataset& input, PaddedFields fields, PaddedLength length)
      : Combinator(input), fields_(std::move(fields)), length_(length) {
    specs();
  }

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<Calls>(*this, input().open(pass));
  }
  std::optional<ElementSpecs> specs() const override {
    std::optional<ElementSpecs> specs = input().specs();
    if (!specs) return std::nullopt;
    const bool is_static = specs->is_static || pads_remainder(*specs);
    specs = fields_.padded(std::move(*specs), length_);
    specs->is_static = is_static;
    return specs;
  }
  ShapeVariation variation() const override {
    const ShapeVariation variation = input().variation();
    if (variation != ShapeVariation::kLastBatch) return variation;
    const std::optional<ElementSpecs> specs = input().specs();
    return specs && pads_remainder(*specs) ? ShapeVariation::kNo : variation;
  }
  std::optional<int64_t> indexed() const override { return input().indexed(); }
  Element at(int64_t k, uint64_t pass) const override { return pad(input().at(k, pass), k); }

 private:
  bool pads_remainder(const ElementSpecs& specs) const {
    return !length_.is_multiple && fields_.pads_all_rows(specs);
  }
  Element pad(Element element, int64_t number) const {
    return internal::call_for_element(fields_.what(), number,
                                      [&] { return fields_.pad(std::move(element), length_); });
  }

  class Calls final : public Stream {
   public:
    Calls(const Padded& padded, std::unique_ptr<Stream> input)
        : padded_(padded), input_(std::move(input)) {}

    std::optional<Element> next() override {
      std::optional<Element> element = input_->next();
      if (element) element = padded_.pad(std::move(*element), number_++);
      return element;
    }

   private:
    const Padded& padded_;
    std::unique_ptr<Stream> input_;
    int64_t number_ = 0;
  };

  PaddedFields fields_;
  PaddedLength length_;
};

class Bucketed final : public Combinator {
 public:
  Bucketed(const Dataset& input, BucketOptions options)
      : Combinator(input),
        fields_("bucket_by_length", std::move(options.fields)),
        buckets_(std::move(options.buckets)),
        keeps_(options.remainder == Remainder::kKeep),
        drops_(options.longer == Longer::kDrop) {
    require(!buckets_.empty(), "bucket_by_length: requires at least one bucket, got none");
    int64_t last = 0;
    for (const Bucket& bucket : buckets_) {
      require(bucket.length > last,
              "bucket_by_length: a bucket must be longer than the one before it, {}, got {}", last,
              bucket.length);
      require(bucket.length <= kMaxPaddedLength,
              "bucket_by_length: a length must be at most {}, got {}", kMaxPaddedLength,
              bucket.length);
      require(bucket.batch >= 1,
              "bucket_by_length: a batch must have at least 1 element, got {} for length {}",
              bucket.batch, bucket.length);
      last = bucket.length;
    }
  }

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<Batches>(*this, input().open(pass));
  }
  std::optional<ElementSpecs> specs() const override { return std::nullopt; }
  ShapeVariation variation() const override {
    if (buckets_.size() > 1) return ShapeVariation::kBuckets;
    return keeps_ ? ShapeVariation::kLastBatch : ShapeVariation::kNo;
  }
  std::optional<int64_t> size() const override {
    const std::optional<int64_t> all = input().size();
    return all == kForever || all == 0 ? all : std::nullopt;
  }

 private:
  class Batches final : public Stream {
   public:
    Batches(const Bucketed& bucketed, std::unique_ptr<Stream> input)
        : bucketed_(bucketed),
          input_(std::move(input)),
          held_(bucketed.buckets_.size()),
          firsts_(held_.size()) {}

    std::optional<Element> next() override {
      while (!ended_) {
        std::optional<Element> element = input_->next();
        ended_ = !element;
        if (ended_) break;
        const std::optional<size_t> full = internal::call_for_element(
            "bucket_by_length", number_, [&] { return add(std::move(*element)); });
        ++number_;
        if (full) return internal::stack_elements(std::exchange(held_[*full], {}));
      }
      for (; bucketed_.keeps_ && left_ < held_.size(); ++left_) {
        if (!held_[left_].empty()) return internal::stack_elements(std::exchange(held_[left_], {}));
      }
      return std::nullopt;
    }

   private:
    /// Adds an element to its bucket. Returns the bucket if it is full.
    std::optional<size_t> add(Element element) {
      const std::vector<Bucket>& buckets = bucketed_.buckets_;
      const int64_t length = bucketed_.fields_.length_of(specs_of(element));
      const auto found = std::find_if(buckets.begin(), buckets.end(),
                                      [&](const Bucket& b) { return length <= b.length; });
      if (found == buckets.end() && bucketed_.drops_) return std::nullopt;
      require(found != buckets.end(),
              "bucket_by_length: an element must have a length of at most {}, got {}; drop it with "
              "Longer::kDrop, or cut it with map()",
              buckets.back().length, length);
      const auto bucket = static_cast<size_t>(found - buckets.begin());
      element = bucketed_.fields_.pad(std::move(element), [&](int64_t) { return found->length; });
      std::vector<Element>& held = held_[bucket];
      if (held.empty()) firsts_[bucket] = number_;
      if (!held.empty() && !internal::has_specs(element, specs_of(held[0]))) {
        fail(ErrorKind::kUsage,
             "bucket_by_length: element {} must be {} like element {}, got {}; give other axes one "
             "length",
             number_, to_string(specs_of(held[0])), firsts_[bucket], to_string(specs_of(element)));
      }
      held.push_back(std::move(element));
      return std::ssize(held) == found->batch ? std::optional(bucket) : std::nullopt;
    }

    const Bucketed& bucketed_;
    std::unique_ptr<Stream> input_;
    std::vector<std::vector<Element>> held_;  ///< Padded elements, by bucket.
    std::vector<int64_t> firsts_;             ///< Number of the first of them.
    int64_t number_ = 0;
    size_t left_ = 0;  ///< The next bucket whose smaller batch is returned at the end.
    bool ended_ = false;
  };

  PaddedFields fields_;
  std::vector<Bucket> buckets_;
  bool keeps_;
  bool drops_;
};

}  // namespace

Dataset Dataset::pad(int64_t length, std::vector<PaddedField> fields) const {
  require(length >= 1 && length <= kMaxPaddedLength, "pad: the length must be in [1, {}], got {}",
          kMaxPaddedLength, length);
  return Dataset(std::make_shared<const Padded>(*this, PaddedFields("pad", std::move(fields)),
                                                PaddedLength{length, false}));
}

Dataset Dataset::pad_to_multiple(int64_t multiple, std::vector<PaddedField> fields) const {
  require(multiple >= 1 && multiple <= kMaxPaddedLength,
          "pad_to_multiple: the multiple must be in [1, {}], got {}", kMaxPaddedLength, multiple);
  return Dataset(std::make_shared<const Padded>(
      *this, PaddedFields("pad_to_multiple", std::move(fields)), PaddedLength{multiple, true}));
}

Dataset Dataset::bucket_by_length(BucketOptions options) const {
  return Dataset(std::make_shared<const Bucketed>(*this, std::move(options)));
}

}  // namespace sluice::data
