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

/// One field of an options struct, with the contract of the member. The struct lists its fields in
/// a static function that passes them on:
///
///     static auto fields(auto&& use) {
///       return use(field("alpha", &EluOptions::alpha, "The limit at -∞ is -alpha."));
///     }
///
/// Attributes store an enum as its number. Front ends show the words of its values. A function next
/// to the enum returns them, in the order of the values:
///
///     constexpr std::string_view words_of(LossReduction) { return "mean,sum,none"; }
template <typename Struct, typename Member>
struct Field {
  const char* name;
  Member Struct::*member;
  const char* doc;
  bool required = false;
};
template <typename Struct, typename Member>
constexpr Field<Struct, Member> field(const char* name, Member Struct::*member,
                                      const char* doc = "") {
  return {name, member, doc};
}
/// A field that a caller must give, because its default is no useful value.
template <typename Struct, typename Member>
constexpr Field<Struct, Member> required_field(const char* name, Member Struct::*member,
                                               const char* doc) {
  return {name, member, doc, true};
}

/// A field of an options struct as data, for front ends.
struct FieldInfo {
  std::string_view name;
  std::string_view words;  ///< Words of an enum's values 0, 1, …, "mean,sum,none"; empty: no enum.
  std::string_view doc;    ///< Contract of the member; may be empty.
  bool required = false;   ///< Whether a caller must give it.
};

/// Returns word `index` of "mean,sum,none".
std::string_view word_at(std::string_view words, int64_t index);
/// Returns the index of a word. Error{kUsage} "`what`: must be mean, sum or none, got 'avg'" for
/// any other text.
int64_t index_of_word(std::string_view words, std::string_view word, std::string_view what);
/// Returns the value of an enum with words_of() that has this word. Errors: as index_of_word().
template <typename Enum>
Enum from_word(std::string_view word, std::string_view what) {
  return static_cast<Enum>(index_of_word(words_of(Enum{}), word, what));
}

namespace internal {

template <typename T>
concept Whole = !std::is_same_v<T, bool> && !std::is_same_v<T, DType> &&
                (std::is_integral_v<T> || std::is_enum_v<T>);

template <typename Struct, typename Member>
FieldInfo info_of(const Field<Struct, Member>& f) {
  FieldInfo info{f.name, {}, f.doc, f.required};
  if constexpr (requires { words_of(Member{}); }) info.words = words_of(Member{});
  return info;
}

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

/// Converts an options struct (with a static `fields` tuple) to data.
template <typename Struct>
Attrs to_attrs(const Struct& options) {
  internal::AttrWriter writer;
  Struct::fields([&](const auto&... f) { (writer.add(f.name, options.*(f.member)), ...); });
  return std::move(writer.attrs);
}

/// Describes the fields of an options struct, in the order of to_attrs().
template <typename Struct>
std::vector<FieldInfo> describe_fields() {
  std::vector<FieldInfo> infos;
  Struct::fields([&](const auto&... f) { (infos.push_back(internal::info_of(f)), ...); });
  return infos;
}

/// Converts data from `to_attrs` back to the options struct. Error{kUsage} if names or types
/// differ.
template <typename Struct>
Struct from_attrs(const Attrs& attrs) {
  Struct options;
  internal::AttrReader reader(attrs);
  Struct::fields([&](const auto&... f) { (reader.read(f.name, options.*(f.member)), ...); });
  reader.finish();
  return options;
}

/// The options struct of an operator without options.
struct NoOptions {
  static auto fields(auto&& use) { return use(); }
};

}  // namespace sluice
