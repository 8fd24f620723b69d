#pragma once
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>

/// Index types. An index into one table is not an index into another: the compiler refuses it.
namespace sluice {

/// Index into a table, of a type of its own for each `Tag`. It is made explicitly from an integer
/// and converts to its integer; it never converts to another Id. It costs as much as an integer.
///
///     using ValueId = Id<struct ValueTag>;
///     Ids<ValueId, Value> values;
///     const Value& value = values[operand.value];  // values[operand.arena] does not compile
template <typename Tag, typename Integer = int32_t>
class Id {
 public:
  /// The invalid id, -1.
  constexpr Id() = default;
  template <std::integral T>
  constexpr explicit Id(T value) : value_(static_cast<Integer>(value)) {}

  constexpr bool valid() const { return value_ >= 0; }
  constexpr Integer value() const { return value_; }
  constexpr operator Integer() const { return value_; }  // NOLINT: implicit
  /// A valid id may be 0, so an id is not a condition.
  explicit operator bool() const = delete;

  constexpr Id& operator++() {
    ++value_;
    return *this;
  }
  constexpr Id operator++(int) { return Id(value_++); }
  friend constexpr bool operator==(Id, Id) = default;
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  Integer value_ = -1;
};

/// Ids of different tables are not compared.
template <typename A, typename I, typename B, typename J>
requires(!std::same_as<A, B>) bool operator==(Id<A, I>, Id<B, J>) = delete;
template <typename A, typename I, typename B, typename J>
requires(!std::same_as<A, B>) bool operator<=>(Id<A, I>, Id<B, J>) = delete;

}  // namespace sluice

/// Hashes an id as its integer.
template <typename Tag, typename Integer>
struct std::hash<sluice::Id<Tag, Integer>> {
  size_t operator()(sluice::Id<Tag, Integer> id) const { return static_cast<size_t>(id.value()); }
};
