#include "sluice/ir/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sluice/base/reduce.h"
#include "sluice/base/sys.h"

namespace sluice {
namespace {

// Returns truncated normal number `index`. Each attempt draws two numbers from another random
// stream, until one is within two deviations. No two elements use the same random words.
float truncated(Seed key, uint64_t index) {
  for (uint64_t attempt = 0;; ++attempt) {
    const auto words = philox(key, index, 1 + attempt);
    for (const float x : {to_normal(words[0], words[1]), to_normal(words[2], words[3])}) {
      if (std::abs(x) <= 2.0f) return x;
    }
  }
}

}  // namespace

Initializer Initializer::constant(double value) {
  Initializer i;
  i.a_ = value;
  return i;
}

Initializer Initializer::normal(double mean, double deviation) {
  Initializer i;
  i.kind_ = Rule::kNormal;
  i.a_ = mean;
  i.b_ = deviation;
  return i;
}

Initializer Initializer::truncated_normal(double mean, double deviation) {
  Initializer i = normal(mean, deviation);
  i.kind_ = Rule::kTruncatedNormal;
  return i;
}

Initializer Initializer::uniform(double low, double high) {
  require(low <= high, "uniform: low {} is above high {}", low, high);
  Initializer i = normal(low, high);
  i.kind_ = Rule::kUniform;
  return i;
}

Initializer Initializer::orthogonal(int64_t rows, int64_t columns, double gain) {
  require(rows >= 1 && columns >= 1 && rows <= kMaxOrthogonal / columns,
          "orthogonal: a matrix must have 1 to {} elements, got {} x {}; use another initializer "
          "for larger ones",
          kMaxOrthogonal, rows, columns);
  Initializer i;
  i.kind_ = Rule::kOrthogonal;
  i.a_ = gain;
  i.rows_ = rows;
  i.columns_ = columns;
  return i;
}

Initializer Initializer::array(HostTensor value) {
  Initializer i;
  i.kind_ = Rule::kArray;
  i.array_ = std::make_shared<const HostTensor>(std::move(value));
  return i;
}

Initializer Initializer::file(std::string path, int64_t offset) {
  require(offset >= 0, "initializer: file offset {} is negative", offset);
  Initializer i;
  i.kind_ = Rule::kFile;
  i.path_ = std::move(path);
  i.offset_ = offset;
  return i;
}

Initializer Initializer::keyed(Seed key) const {
  Initializer i = *this;
  i.key_ = key;
  return i;
}

Initializer Initializer::zeroed(int64_t begin, int64_t end) const {
  require(0 <= begin && begin <= end,
          "initializer: zeros must be elements [begin, end), got [{}, "
          "{})",
          begin, end);
  Initializer i = *this;
  i.zeros_begin_ = begin;
  i.zeros_end_ = end;
  return i;
}

// Modified Gram-Schmidt, each vector twice, so that rounding leaves the vectors orthogonal. The
// vectors are columns of the normal matrix, or its rows where these are fewer.
std::vector<double> Initializer::orthogonal_matrix(int64_t nth) const {
  const int64_t size = rows_ * columns_;
  const int64_t count = std::min(rows_, columns_);
  const int64_t length = std::max(rows_, columns_);
  const auto element = [&](int64_t v, int64_t i) {
    return rows_ < columns_ ? v * columns_ + i : i * columns_ + v;
  };
  std::vector<double> vectors(static_cast<size_t>(size));
  for (int64_t v = 0; v < count; ++v) {
    double* const x = vectors.data() + v * length;
    for (int64_t i = 0; i < length; ++i) {
      const auto index = static_cast<uint64_t>(nth * size + element(v, i));
      x[i] = static_cast<double>(random_normal(key_, index));
    }
    for (int64_t earlier = 0; earlier < 2 * v; ++earlier) {
      const double* const y = vectors.data() + earlier % v * length;
      const auto dot = canonical_sum<double>(length, [&](int64_t i) { return x[i] * y[i]; });
      for (int64_t i = 0; i < length; ++i) x[i] -= dot * y[i];
    }
    const auto square = canonical_sum<double>(length, [&](int64_t i) { return x[i] * x[i]; });
    for (int64_t i = 0; i < length; ++i) x[i] /= std::sqrt(square);
  }
  std::vector<double> matrix(vectors.size());
  for (int64_t v = 0; v < count; ++v) {
    const double* const x = vectors.data() + v * length;
    for (int64_t i = 0; i < length; ++i) at(matrix, element(v, i)) = a_ * x[i];
  }
  return matrix;
}

HostTensor Initializer::evaluate(const TensorSpec& spec) const {
  HostTensor t(spec);
  InitialValue(*this, spec).fill(0, spec.elements(), t.bytes());
  return t;
}

std::string Initializer::text() const {
  if (zeros_begin_ == zeros_end_) return rule_text();
  return fmt::format("{} with zeros in [{}, {})", rule_text(), zeros_begin_, zeros_end_);
}

std::string Initializer::rule_text() const {
  switch (kind_) {
    case Rule::kConstant:
      return fmt::format("constant({})", a_);
    case Rule::kNormal:
      return fmt::format("normal({}, {})", a_, b_);
    case Rule::kTruncatedNormal:
      return fmt::format("truncated_normal({}, {})", a_, b_);
    case Rule::kUniform:
      return fmt::format("uniform({}, {})", a_, b_);
    case Rule::kOrthogonal:
      return fmt::format("orthogonal({}, {}, {})", rows_, columns_, a_);
    case Rule::kArray:
      return "array";
    case Rule::kFile:
      return fmt::format("file({}, {})", path_, offset_);
  }
  return "";
}

InitialValue::InitialValue(Initializer rule, TensorSpec spec)
    : rule_(std::move(rule)), spec_(std::move(spec)) {
  const HostTensor* const array = rule_.value();
  require(array == nullptr || (array->shape() == spec_.shape && array->dtype() == spec_.dtype),
          "initializer: the array must be {} like the variable, got {}", to_string(spec_),
          array == nullptr ? "" : to_string(array->spec()));
  const Initializer::Rule kind = rule_.kind_;
  require(kind != Initializer::Rule::kConstant || can_store(spec_.dtype, rule_.a_),
          "initializer: a constant must be {} to be {}, got {}", taken_by(spec_.dtype),
          name_of(spec_.dtype), rule_.a_);
  require(kind != Initializer::Rule::kOrthogonal ||
              spec_.elements() % (rule_.rows_ * rule_.columns_) == 0,
          "initializer: the elements of a variable must be a multiple of those of its orthogonal "
          "matrices, {} x {}, got {}",
          rule_.rows_, rule_.columns_, to_string(spec_));
}

double InitialValue::at(int64_t index) {
  const auto i = static_cast<uint64_t>(index);
  const Initializer& r = rule_;
  switch (r.kind_) {
    case Initializer::Rule::kNormal:
      return r.a_ + r.b_ * static_cast<double>(random_normal(r.key_, i));
    case Initializer::Rule::kTruncatedNormal:
      return r.a_ + r.b_ * static_cast<double>(truncated(r.key_, i));
    case Initializer::Rule::kUniform:
      return r.a_ + (r.b_ - r.a_) * static_cast<double>(random_unit(r.key_, i));
    case Initializer::Rule::kOrthogonal: {
      const int64_t size = r.rows_ * r.columns_;
      if (nth_ != index / size) {
        nth_ = index / size;
        matrix_ = r.orthogonal_matrix(nth_);
      }
      return sluice::at(matrix_, index % size);
    }
    default:
      return r.a_;
  }
}

void InitialValue::fill(int64_t begin, int64_t count, std::span<std::byte> out) {
  const int64_t width = size_of(spec_.dtype);
  SLUICE_CHECK(begin >= 0 && count >= 0 && begin + count <= spec_.elements());
  SLUICE_CHECK(static_cast<int64_t>(out.size()) == count * width);
  fill_by_rule(begin, count, out);
  const int64_t first = std::max(begin, rule_.zeros_begin_);
  const int64_t last = std::min(begin + count, rule_.zeros_end_);
  if (first < last)
    std::memset(out.data() + (first - begin) * width, 0,
                static_cast<size_t>((last - first) * width));
}

void InitialValue::fill_by_rule(int64_t begin, int64_t count, std::span<std::byte> out) {
  const int64_t width = size_of(spec_.dtype);
  if (const HostTensor* const array = rule_.value()) {
    if (count > 0) std::memcpy(out.data(), array->bytes().data() + begin * width, out.size());
    return;
  }
  if (rule_.kind_ == Initializer::Rule::kFile) {
    const auto file = sys::open_for_read(rule_.path_);
    sys::read_exactly(file, rule_.path_, rule_.offset_ + begin * width, out);
    return;
  }
  visit_storage(spec_.dtype, [&]<typename T>(T) {
    T* p = reinterpret_cast<T*>(out.data());
    for (int64_t i = 0; i < count; ++i) {
      const double value = at(begin + i);
      if (spec_.dtype == f16) {
        p[i] = static_cast<T>(float_to_half(static_cast<float>(value)));
      } else if (spec_.dtype == bf16) {
        p[i] = static_cast<T>(float_to_bfloat(static_cast<float>(value)));
      } else {
        p[i] = static_cast<T>(value);
      }
    }
  });
}

}  // namespace sluice
