#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "sluice/data/pipeline/node.h"

namespace sluice::data::internal {

/// A node with known specs whose elements are made one by one by their index.
class IndexedNode : public Node {
 public:
  IndexedNode(ElementSpecs specs, int64_t rows) : specs_(std::move(specs)), rows_(rows) {}

  std::unique_ptr<Stream> open(uint64_t pass) const final {
    return std::make_unique<Rows>(*this, pass);
  }
  std::optional<ElementSpecs> specs() const final { return specs_; }
  std::optional<int64_t> size() const final { return rows_; }
  std::optional<int64_t> indexed() const final { return rows_; }

 protected:
  const ElementSpecs& known_specs() const { return specs_; }
  /// Whether `to` begins with arrays of these specs and may have their names.
  bool fits(const ElementView& to) const {
    const size_t n = specs_.arrays.size();
    if (n > to.arrays.size() || specs_.names.empty() != to.names.empty()) return false;
    for (size_t i = 0; i < n; ++i) {
      if (to.arrays[i].spec != specs_.arrays[i]) return false;
    }
    return true;
  }
  /// Returns an element of zeros.
  Element blank() const {
    Element element;
    element.names = specs_.names;
    element.arrays.reserve(specs_.arrays.size());
    for (const TensorSpec& spec : specs_.arrays) element.arrays.emplace_back(spec);
    return element;
  }

 private:
  class Rows final : public Stream {
   public:
    Rows(const IndexedNode& node, uint64_t pass) : node_(node), pass_(pass) {}

    std::optional<Element> next() override {
      if (row_ == node_.rows_) return std::nullopt;
      return node_.at(row_++, pass_);
    }

   private:
    const IndexedNode& node_;
    uint64_t pass_;
    int64_t row_ = 0;
  };

  ElementSpecs specs_;
  int64_t rows_;
};

}  // namespace sluice::data::internal
