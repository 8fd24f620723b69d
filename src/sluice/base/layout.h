#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// How a tensor's elements are arranged in a buffer: row-major in logical order, or a kind that a target defines, with
/// numbers as parameters ("panels", 32). All but targets and devices pass layouts on, compare and print them; only a target
/// knows which tensors may have a layout and the bytes that they take in it.
class Layout {
 public:
  /// Row-major.
  Layout() = default;
  /// `kind`: lower-case letters and underscores, not "row". Parameters: 0 or more.
  Layout(std::string_view kind, const std::vector<int64_t>& parameters);

  bool is_row_major() const { return text_.empty(); }
  /// "row", "panels".
  std::string_view kind() const;
  std::vector<int64_t> parameters() const;

  bool operator==(const Layout&) const = default;
  /// Any total order.
  auto operator<=>(const Layout&) const = default;

 private:
  friend std::string to_string(const Layout& layout);
  std::string text_;  ///< Empty: row-major.
};

/// "row", "panels32", "tiles16x8".
std::string to_string(const Layout& layout);
/// Error{kUsage} for another text.
Layout parse_layout(std::string_view text);

}  // namespace sluice
