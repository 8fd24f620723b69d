#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "sluice/base/host_tensor.h"
#include "sluice/base/rng.h"

namespace sluice {

/// A variable's first value, as a rule: evaluated in chunks by logical index, so that a variable of any size can be
/// planned without existing.
class Initializer {
 public:
  enum class Kind : uint8_t { kConstant, kNormal, kTruncatedNormal, kUniform, kArray, kFile };

  static Initializer constant(double value);
  /// mean + deviation · standard normal.
  static Initializer normal(double mean, double deviation);
  /// The same, redrawn beyond two deviations.
  static Initializer truncated_normal(double mean, double deviation);
  static Initializer uniform(double low, double high);
  static Initializer array(HostTensor value);
  /// `elements` of the variable's dtype, row-major, at byte `offset` of a file.
  static Initializer file(std::string path, int64_t offset);

  Kind kind() const { return kind_; }
  /// This initializer with the key of a random one set; others are unchanged.
  Initializer keyed(Seed key) const;
  /// The array of kind kArray; null otherwise.
  const HostTensor* value() const { return array_.get(); }

  /// Writes elements [begin, begin + count) of a variable of `spec` to `out`. Error{kUsage} for an
  /// array or constant that `spec` does not take, Error{kIo} for a file that cannot be read.
  void fill(const TensorSpec& spec, int64_t begin, int64_t count, std::span<std::byte> out) const;
  /// The whole value.
  HostTensor evaluate(const TensorSpec& spec) const;
  /// "normal(0, 0.02)".
  std::string text() const;

 private:
  Kind kind_ = Kind::kConstant;
  double a_ = 0;
  double b_ = 0;
  Seed key_;
  std::shared_ptr<const HostTensor> array_;
  std::string path_;
  int64_t offset_ = 0;
};

}  // namespace sluice
