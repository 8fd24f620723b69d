#include "sluice/ir/initializer.h"

#include <cmath>
#include <cstring>

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
  i.kind_ = Kind::kNormal;
  i.a_ = mean;
  i.b_ = deviation;
  return i;
}

Initializer Initializer::truncated_normal(double mean, double deviation) {
  Initializer i = normal(mean, deviation);
  i.kind_ = Kind::kTruncatedNormal;
  return i;
}

Initializer Initializer::uniform(double low, double high) {
  require(low <= high, "uniform: low {} is above high {}", low, high);
  Initializer i = normal(low, high);
  i.kind_ = Kind::kUniform;
  return i;
}

Initializer Initializer::array(HostTensor value) {
  Initializer i;
  i.kind_ = Kind::kArray;
  i.array_ = std::make_shared<const HostTensor>(std::move(value));
  return i;
}

Initializer Initializer::file(std::string path, int64_t offset) {
  require(offset >= 0, "initializer: file offset {} is negative", offset);
  Initializer i;
  i.kind_ = Kind::kFile;
  i.path_ = std::move(path);
  i.offset_ = offset;
  return i;
}

Initializer Initializer::keyed(Seed key) const {
  Initializer i = *this;
  i.key_ = key;
  return i;
}

void Initializer::fill(const TensorSpec& spec, int64_t begin, int64_t count,
                       std::span<std::byte> out) const {
  const int64_t width = size_of(spec.dtype);
  SLUICE_CHECK(begin >= 0 && count >= 0 && begin + count <= spec.elements());
  SLUICE_CHECK(static_cast<int64_t>(out.size()) == count * width);
  if (kind_ == Kind::kArray) {
    require(array_->shape() == spec.shape && array_->dtype() == spec.dtype,
            "initializer: the array must be {} like the variable, got {}", to_string(spec),
            to_string(array_->spec()));
    if (count > 0) std::memcpy(out.data(), array_->bytes().data() + begin * width, out.size());
    return;
  }
  if (kind_ == Kind::kFile) {
    const auto file = sys::open_for_read(path_);
    sys::read_exactly(file, path_, offset_ + begin * width, out);
    return;
  }
  require(kind_ != Kind::kConstant || takes(spec.dtype, a_),
          "initializer: a constant must be {} to be {}, got {}", taken_by(spec.dtype),
          name_of(spec.dtype), a_);
  visit_storage(spec.dtype, [&]<typename T>(T) {
    T* p = reinterpret_cast<T*>(out.data());
    for (int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<uint64_t>(begin + i);
      double value = a_;
      if (kind_ == Kind::kNormal) value = a_ + b_ * static_cast<double>(random_normal(key_, index));
      if (kind_ == Kind::kTruncatedNormal)
        value = a_ + b_ * static_cast<double>(truncated(key_, index));
      if (kind_ == Kind::kUniform)
        value = a_ + (b_ - a_) * static_cast<double>(random_unit(key_, index));
      if (spec.dtype == f16) {
        p[i] = static_cast<T>(float_to_half(static_cast<float>(value)));
      } else if (spec.dtype == bf16) {
        p[i] = static_cast<T>(float_to_bfloat(static_cast<float>(value)));
      } else {
        p[i] = static_cast<T>(value);
      }
    }
  });
}

HostTensor Initializer::evaluate(const TensorSpec& spec) const {
  HostTensor t(spec);
  fill(spec, 0, spec.elements(), t.bytes());
  return t;
}

std::string Initializer::text() const {
  switch (kind_) {
    case Kind::kConstant:
      return fmt::format("constant({})", a_);
    case Kind::kNormal:
      return fmt::format("normal({}, {})", a_, b_);
    case Kind::kTruncatedNormal:
      return fmt::format("truncated_normal({}, {})", a_, b_);
    case Kind::kUniform:
      return fmt::format("uniform({}, {})", a_, b_);
    case Kind::kArray:
      return "array";
    case Kind::kFile:
      return fmt::format("file({}, {})", path_, offset_);
  }
  return "";
}

}  // namespace sluice
