#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/data/dataset.h"

namespace sluice::data::internal {

/// One pass over the elements of a node. One thread at a time uses it. After an exception it is
/// only destroyed. It refers to its node, which outlives it.
class Stream {
 public:
  Stream() = default;
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Returns the next element, or nothing at the end. May be called again at the end.
  virtual std::optional<Element> next() = 0;
};

/// Memory for the arrays of an element.
struct ElementView {
  std::span<const ArrayView> arrays;
  std::span<const std::string> names;  ///< One for each array, or empty for a tuple.

  ElementView from(size_t first) const {
    return {arrays.subspan(first), names.empty() ? names : names.subspan(first)};
  }
};

/// The differences that combinators make between the shapes of elements, in ascending order.
enum class ShapeVariation : uint8_t {
  kNo,
  kLastBatch,  ///< The last element of a pass may have a smaller first axis.
  kBuckets,    ///< Each bucket of bucket_by_length() has a shape.
};

/// A source or a combinator: what a Dataset describes. Immutable, except for the memory of cache().
class Node {
 public:
  Node() = default;
  virtual ~Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  virtual std::unique_ptr<Stream> open(uint64_t pass) const = 0;
  virtual std::optional<ElementSpecs> specs() const = 0;
  virtual std::optional<int64_t> size() const = 0;
  /// Whether the shapes of elements may differ, also if specs() are unknown.
  virtual ShapeVariation variation() const {
    const std::optional<ElementSpecs> known = specs();
    return known && !known->is_static ? ShapeVariation::kLastBatch : ShapeVariation::kNo;
  }

  /// If at() can make each element without those before it, returns the number of elements, or
  /// kForever if the dataset never ends. Otherwise returns nothing. All passes have this number of
  /// elements. cache() may read a pass here.
  virtual std::optional<int64_t> indexed() const { return std::nullopt; }
  /// Makes element `k` in [0, indexed()) of a pass. Several threads may call it at once.
  virtual Element at(int64_t k, uint64_t pass) const;
  /// Writes element k of a pass to the first arrays of `to`. Returns their number. Error{kUsage}
  /// unless the element has their specs and names.
  virtual size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const;
  /// Whether an EpochMap computes the elements, so that each pass has elements of its own.
  virtual bool varies_by_epoch() const { return false; }
};

/// Elements 0 to n - 1 of a pass of an indexed node.
class NumberedStream final : public Stream {
 public:
  NumberedStream(const Node& node, int64_t n, uint64_t pass) : node_(node), n_(n), pass_(pass) {}

  std::optional<Element> next() override {
    if (n_ != kForever && number_ == n_) return std::nullopt;
    return node_.at(number_++, pass_);
  }

 private:
  const Node& node_;
  int64_t n_;
  uint64_t pass_;
  int64_t number_ = 0;
};

/// A node with one input. It has the specs and size of the input unless a subclass changes them.
class Combinator : public Node {
 public:
  explicit Combinator(const Dataset& input) : input_(input.node()) {}
  std::optional<ElementSpecs> specs() const override { return input_->specs(); }
  std::optional<int64_t> size() const override { return input_->size(); }
  ShapeVariation variation() const override { return input_->variation(); }
  bool varies_by_epoch() const override { return input_->varies_by_epoch(); }

 protected:
  const Node& input() const { return *input_; }

 private:
  std::shared_ptr<const Node> input_;
};

/// Returns the maximum variation of the datasets.
ShapeVariation variation_of(const std::vector<Dataset>& datasets);

/// Calls f() for element `number` of a pass. Notes the number in its Error, and converts any other
/// exception into Error{kUsage}. `what` names the caller, for example "map".
template <typename F>
auto call_for_element(std::string_view what, int64_t number, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (Error& e) {
    e.note(fmt::format("{} computed element {}", what, number));
    throw;
  } catch (const std::exception& e) {
    fail(ErrorKind::kUsage, "{}: the function for element {} must not throw, got the exception: {}",
         what, number, e.what());
  } catch (...) {
    fail(ErrorKind::kUsage, "{}: the function for element {} must not throw, got an exception",
         what, number);
  }
}

/// Whether the arrays and names of an element have these specs.
bool has_specs(const Element& element, const ElementSpecs& specs);
/// Requires that an element which a user's function returned is complete, and has `specs` if they
/// are given.
void check_element(const Element& element, const std::optional<ElementSpecs>& specs);
/// Copies an element to the first arrays of `to`. Returns their number. Error{kUsage} naming the
/// element's `number` unless it has their specs and names.
size_t copy_element(const Element& element, int64_t number, const ElementView& to);
/// Joins elements of equal specs along a new first axis.
Element stack_elements(std::vector<Element> elements);
/// Requires `arrays` >= 1 arrays, and one name for each array, all different, or no names.
void check_names(size_t arrays, const std::vector<std::string>& names, std::string_view what);

/// A user's map with its stated specs. One of the functions is not empty.
struct CheckedMap {
  Dataset::Map f = {};
  Dataset::EpochMap epoch_f = {};
  Seed key = {};  ///< The key of an EpochMap's random numbers.
  std::optional<ElementSpecs> specs = {};

  /// Maps element `number` of a pass.
  Element operator()(Element element, int64_t number, uint64_t pass) const {
    return call_for_element("map", number, [&] {
      Element result =
          f ? f(std::move(element)) : epoch_f(std::move(element), context_of(number, pass));
      check_element(result, specs);
      return result;
    });
  }
  ElementContext context_of(int64_t number, uint64_t pass) const {
    return {.epoch = static_cast<int64_t>(pass),
            .index = number,
            .key = fold(fold(key, pass), static_cast<uint64_t>(number))};
  }
};

/// Checks the arguments of map() or parallel_map(), whose name is `what`.
CheckedMap checked_map(std::string_view what, Dataset::Map f, std::optional<ElementSpecs> specs);
CheckedMap checked_map(std::string_view what, Dataset::EpochMap f, MapOptions options);

}  // namespace sluice::data::internal
