#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// Describes how the elements of a tensor are arranged in a buffer. A layout is row-major, or a
/// kind that a target defines, with integer parameters ("panels", 32). Only targets and devices
/// interpret a layout; other code copies, compares and prints it. A target decides which tensors
/// may have a layout, and how many bytes they take in it.
class Layout {
 public:
  /// Row-major.
  Layout() = default;
  /// Error{kUsage} unless `kind` consists of lower-case letters and underscores, is not "row", and
  /// every parameter is >= 0.
  Layout(std::string_view kind, const std::vector<int64_t>& parameters);

  bool is_row_major() const { return text_.empty(); }
  /// The kind without its parameters: "row", "panels".
  std::string_view kind() const;
  std::vector<int64_t> parameters() const;

  bool operator==(const Layout&) const = default;
  /// An arbitrary total order, for sorted containers.
  auto operator<=>(const Layout&) const = default;

 private:
  friend std::string to_string(const Layout& layout);
  std::string text_;  ///< Kind and parameters, "tiles16x8"; empty if row-major.
};

/// Formats a layout: "row", "panels32", "tiles16x8".
std::string to_string(const Layout& layout);
/// Parses the text of to_string. Error{kUsage} for any other text.
Layout parse_layout(std::string_view text);

}  // namespace sluice
