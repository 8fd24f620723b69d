#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/shape.h"

namespace sluice {

/// The value of one option, that is, of one field of an options struct.
using AttrValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<double>, DType>;

/// The options of an operator as data, in the order of the struct's fields. All operators share the
/// code that prints, parses, hashes and compares them.
struct Attrs {
  std::vector<std::pair<std::string, AttrValue>> items;
  bool operator==(const Attrs&) const = default;
};

/// Formats options as `name=value` pairs joined by ' ':
///
///   bool     true, false
///   int64    5
///   double   0.5 (always with '.' or 'e', the shortest text that reads back exactly), inf. or nan.
///   string   "…", with \", \\ and \n escaped
///   list     [1,2] of int64; [1.0,2.0] of double, where [.] is empty
///   dtype    its numpy name
std::string to_string(const Attrs& attrs);
/// Parses the text of to_string. Error{kUsage} quoting the wrong part for any other text.
Attrs parse_attrs(std::string_view text);

/// One stage of a sequence of operators that replaces an op or that one kernel runs. A stage has
/// one result.
template <typename OpRef>
struct OpStageOf {
  OpRef op{};  ///< Operator: its definition, or in a plan the name of its type.
  Attrs attrs;
  std::vector<int32_t> inputs;  ///< Operands of the sequence; ~s is the result of stage s.
  int32_t output = -1;  ///< Operand or result of the sequence; -1: only later stages read it.
  TensorSpec spec;      ///< Spec of the result; empty where it is inferred.
  bool operator==(const OpStageOf&) const = default;
};

/// One field of an options struct: `field("beta", &SwishOptions::beta)`.
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
AttrValue to_attr(const T& v) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, DType> ||
                std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<int64_t>> ||
                std::is_same_v<T, std::vector<double>>) {
    return v;
  } else if constexpr (std::is_same_v<T, Shape>) {
    return v.dims();
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(v);
  } else {  // integers and enums
    return static_cast<int64_t>(v);
  }
}
template <typename T>
void from_attr(const AttrValue& a, T& v) {
  if constexpr (std::is_same_v<T, Shape>) {
    v = Shape(std::get<std::vector<int64_t>>(a));
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, DType> ||
                       std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<int64_t>> ||
                       std::is_same_v<T, std::vector<double>>) {
    v = std::get<T>(a);
  } else if constexpr (std::is_floating_point_v<T>) {
    v = static_cast<T>(std::get<double>(a));
  } else {
    v = static_cast<T>(std::get<int64_t>(a));
  }
}
}  // namespace internal

/// Converts an options struct (with a static `fields` tuple) to data.
template <typename Struct>
Attrs to_attrs(const Struct& options) {
  Attrs attrs;
  std::apply(
      [&](const auto&... f) {
        (attrs.items.emplace_back(f.name, internal::to_attr(options.*(f.member))), ...);
      },
      Struct::fields);
  return attrs;
}

/// Converts data from `to_attrs` back to the options struct. Error{kUsage} if names or types
/// differ.
template <typename Struct>
Struct from_attrs(const Attrs& attrs) {
  Struct options;
  size_t i = 0;
  auto set = [&](const auto& f) {
    const bool given = i < attrs.items.size();
    const std::string_view found = given ? attrs.items[i].first : std::string_view("nothing");
    require(given && found == f.name, "options: the next field must be '{}', got '{}'", f.name,
            found);
    try {
      internal::from_attr(attrs.items[i].second, options.*(f.member));
    } catch (const std::bad_variant_access&) {
      fail(ErrorKind::kUsage, "options: field '{}' has the wrong type, got {}", f.name,
           to_string(Attrs{{attrs.items[i]}}));
    }
    ++i;
  };
  std::apply([&](const auto&... f) { (set(f), ...); }, Struct::fields);
  require(i == attrs.items.size(), "options: unknown field '{}'",
          i < attrs.items.size() ? attrs.items[i].first : "");
  return options;
}

/// The options struct of an operator without options.
struct NoOptions {
  static constexpr std::tuple<> fields{};
};

}  // namespace sluice
