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

/// An options struct (with a static `fields` tuple) as data.
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

/// The options struct that `to_attrs` made `attrs` from; Error{kUsage} if names or types differ.
template <typename Struct>
Struct from_attrs(const Attrs& attrs) {
  Struct options;
  size_t i = 0;
  auto set = [&](const auto& f) {
    require(i < attrs.items.size() && attrs.items[i].first == f.name,
            "options: field '{}' expected", f.name);
    try {
      internal::from_attr(attrs.items[i].second, options.*(f.member));
    } catch (const std::bad_variant_access&) {
      fail(ErrorKind::kUsage, "options: field '{}' has the wrong type", f.name);
    }
    ++i;
  };
  std::apply([&](const auto&... f) { (set(f), ...); }, Struct::fields);
  require(i == attrs.items.size(), "options: unknown field '{}'",
          i < attrs.items.size() ? attrs.items[i].first : "");
  return options;
}

/// Options of operators that have none.
struct NoOptions {
  static constexpr std::tuple<> fields{};
};

}  // namespace sluice
