#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "sluice/base/host_tensor.h"
#include "sluice/base/rng.h"

namespace sluice {

/// A rule for the first value of a variable. It is evaluated in chunks by logical index, so a
/// variable of any size can be planned without being allocated.
class Initializer {
 public:
  enum class Kind : uint8_t { kConstant, kNormal, kTruncatedNormal, kUniform, kArray, kFile };

  static Initializer constant(double value);
  /// mean + deviation · standard normal.
  static Initializer normal(double mean, double deviation);
  /// normal(), but values beyond two deviations are drawn again.
  static Initializer truncated_normal(double mean, double deviation);
  static Initializer uniform(double low, double high);
  static Initializer array(HostTensor value);
  /// Elements of the dtype of the variable, in row-major order, from byte `offset` of a file on.
  static Initializer file(std::string path, int64_t offset);

  Kind kind() const { return kind_; }
  /// Returns a copy with the random key `key`. An initializer that is not random does not change.
  Initializer keyed(Seed key) const;
  /// Returns the array of kind kArray; null for other kinds.
  const HostTensor* value() const { return array_.get(); }

  /// Writes elements [begin, begin + count) of a variable of `spec` to `out`. Error{kUsage} if the
  /// array has another spec, or if the dtype cannot hold the constant. Error{kIo} for a file that
  /// cannot be read.
  void fill(const TensorSpec& spec, int64_t begin, int64_t count, std::span<std::byte> out) const;
  /// Returns the whole value of a variable of `spec`.
  HostTensor evaluate(const TensorSpec& spec) const;
  /// Returns the text of the rule: "normal(0, 0.02)".
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
