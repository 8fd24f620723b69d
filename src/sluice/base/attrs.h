#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/shape.h"

namespace sluice {

/// The value of an option: what an options struct's fields are made of.
using AttrValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<double>, DType>;

/// An operator's options as data, in the order of the struct's fields: printed, parsed, hashed and compared alike.
struct Attrs {
  std::vector<std::pair<std::string, AttrValue>> items;
  bool operator==(const Attrs&) const = default;
};

/// `name=value` pairs joined by ' ': bool true|false, int64 5, double 0.5 (always with '.', 'e', inf or nan; shortest
/// text that reads back exactly), string "…" with \" and \\, lists [1,2] (int) and [1.0,2.0] (double; empty: [.]),
/// dtype by name.
std::string to_string(const Attrs& attrs);
/// Parses that text; Error{kUsage} naming the place otherwise.
Attrs parse_attrs(std::string_view text);

/// One of the ops that run one after the other in place of an op, or in one kernel. Each has one result.
template <typename OpRef>
struct OpStageOf {
  OpRef op{};  ///< Its operator: a definition, or the name of its type in a plan.
  Attrs attrs;
  std::vector<int32_t> inputs;  ///< Operands of the whole; ~s is the result of stage s.
  int32_t output =
      -1;  ///< Operand or result of the whole that it makes; -1: only later stages read it.
  TensorSpec spec;  ///< Spec of its result; empty where it is inferred.
  bool operator==(const OpStageOf&) const = default;
};

/// One field of an options struct: `field("beta", &SwishOptions::beta)`. The struct lists its fields
/// in a static function that passes them on:
///
///     static auto fields(auto&& use) { return use(field("beta", &SwishOptions::beta)); }
template <typename Struct, typename Member>
struct Field {
  const char* name;
  Member Struct::*member;
};
template <typename Struct, typename Member>
constexpr Field<Struct, Member> field(const char* name, Member Struct::*member) {
  return {name, member};
}

namespace internal {

template <typename T>
concept Whole = !std::is_same_v<T, bool> && !std::is_same_v<T, DType> &&
                (std::is_integral_v<T> || std::is_enum_v<T>);

/// Appends the fields of an options struct to attributes.
struct AttrWriter {
  Attrs attrs;
  void add(const char* name, bool value);
  void add(const char* name, int64_t value);
  void add(const char* name, double value);
  void add(const char* name, const std::string& value);
  void add(const char* name, const std::vector<int64_t>& value);
  void add(const char* name, const std::vector<double>& value);
  void add(const char* name, DType value);
  void add(const char* name, const Shape& value) { add(name, value.dims()); }
  template <Whole T>
  void add(const char* name, T value) {
    add(name, static_cast<int64_t>(value));
  }
};

/// Reads attributes as the fields of an options struct, in their order.
class AttrReader {
 public:
  explicit AttrReader(const Attrs& attrs) : attrs_(attrs) {}
  void read(const char* name, bool& value);
  void read(const char* name, int64_t& value);
  void read(const char* name, double& value);
  void read(const char* name, std::string& value);
  void read(const char* name, std::vector<int64_t>& value);
  void read(const char* name, std::vector<double>& value);
  void read(const char* name, DType& value);
  void read(const char* name, Shape& value);
  template <Whole T>
  void read(const char* name, T& value) {
    int64_t number = 0;
    read(name, number);
    value = static_cast<T>(number);
  }
  /// Requires that no attribute is left.
  void finish() const;

 private:
  template <typename T>
  void take(const char* name, T& value);

  const Attrs& attrs_;
  size_t next_ = 0;
};

}  // namespace internal

/// Returns an options struct as data.
template <typename Struct>
Attrs to_attrs(const Struct& options) {
  internal::AttrWriter writer;
  Struct::fields([&](const auto&... f) { (writer.add(f.name, options.*(f.member)), ...); });
  return std::move(writer.attrs);
}

/// Returns the options struct that `to_attrs` made `attrs` from. Error{kUsage} if names or types
/// differ.
template <typename Struct>
Struct from_attrs(const Attrs& attrs) {
  Struct options;
  internal::AttrReader reader(attrs);
  Struct::fields([&](const auto&... f) { (reader.read(f.name, options.*(f.member)), ...); });
  reader.finish();
  return options;
}

/// Options of operators that have none.
struct NoOptions {
  static auto fields(auto&& use) { return use(); }
};

}  // namespace sluice
