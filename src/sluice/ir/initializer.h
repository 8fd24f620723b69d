#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/host_tensor.h"
#include "sluice/base/rng.h"

namespace sluice {

/// A rule for the first value of a variable. InitialValue evaluates it in chunks by logical index,
/// so a variable of any size can be planned without being allocated.
class Initializer {
 public:
  enum class Rule : uint8_t {
    kConstant,
    kNormal,
    kTruncatedNormal,
    kUniform,
    kOrthogonal,
    kArray,
    kFile
  };
  /// Maximum number of elements of an orthogonal matrix. It is evaluated as a whole.
  static constexpr int64_t kMaxOrthogonal = int64_t{1} << 24;

  static Initializer constant(double value);
  /// mean + deviation · standard normal.
  static Initializer normal(double mean, double deviation);
  /// normal(), but values beyond two deviations are drawn again.
  static Initializer truncated_normal(double mean, double deviation);
  static Initializer uniform(double low, double high);
  /// Each rows·columns consecutive elements are a matrix. Its rows or its columns, whichever are
  /// fewer, are orthogonal and have the length `gain`. It is gain·Q of a QR decomposition of normal
  /// numbers (of the transpose, if rows < columns) with a positive diagonal of R (Saxe et al.,
  /// 2013). Error{kUsage} if a size is below 1 or if the matrix has over kMaxOrthogonal elements.
  static Initializer orthogonal(int64_t rows, int64_t columns, double gain);
  static Initializer array(HostTensor value);
  /// Elements of the dtype of the variable, in row-major order, from byte `offset` of a file on.
  static Initializer file(std::string path, int64_t offset);

  Rule kind() const { return kind_; }
  /// Returns a copy with the random key `key`. An initializer that is not random does not change.
  Initializer keyed(Seed key) const;
  /// Returns a copy whose elements [begin, end) are 0, such as the row of a table for padding.
  Initializer zeroed(int64_t begin, int64_t end) const;
  /// Returns the array of kind kArray; null for other kinds.
  const HostTensor* value() const { return array_.get(); }

  /// Returns the whole value of a variable of `spec`. Errors are those of InitialValue.
  HostTensor evaluate(const TensorSpec& spec) const;
  /// Returns the text of the rule: "normal(0, 0.02)".
  std::string text() const;

 private:
  friend class InitialValue;
  std::vector<double> orthogonal_matrix(int64_t nth) const;
  std::string rule_text() const;

  Rule kind_ = Rule::kConstant;
  double a_ = 0;
  double b_ = 0;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  Seed key_;
  std::shared_ptr<const HostTensor> array_;
  std::string path_;
  int64_t offset_ = 0;
  int64_t zeros_begin_ = 0;  ///< Elements [zeros_begin_, zeros_end_) are 0.
  int64_t zeros_end_ = 0;
};

/// Evaluates a rule for one variable, in parts. Holds at most one orthogonal matrix.
class InitialValue {
 public:
  /// Error{kUsage} if the rule's array has another spec than `spec`, if the dtype cannot hold its
  /// constant, or if its orthogonal matrices do not fill the variable.
  InitialValue(Initializer rule, TensorSpec spec);
  /// Writes elements [begin, begin + count) of the variable to `out`. Error{kIo} for a file that
  /// cannot be read.
  void fill(int64_t begin, int64_t count, std::span<std::byte> out);

 private:
  void fill_by_rule(int64_t begin, int64_t count, std::span<std::byte> out);
  double at(int64_t index);

  Initializer rule_;
  TensorSpec spec_;
  int64_t nth_ = -1;  ///< Number of the matrix in matrix_.
  std::vector<double> matrix_;
};

}  // namespace sluice
