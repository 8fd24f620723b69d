#include "sluice/data/window/indexed_rows.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/base/numbers/slices.h"
#include "sluice/data/draw.h"
#include "sluice/data/window/indexed_node.h"

namespace sluice::data {
namespace {

using internal::ElementView;
using internal::IndexedNode;
using internal::Node;

int64_t rows_of(const Dataset& dataset) {
  const std::optional<int64_t> rows = dataset.node()->indexed();
  SLUICE_CHECK(rows && dataset.element_specs());
  return *rows;
}

class ChosenRows final : public IndexedNode {
 public:
  ChosenRows(const Dataset& all, RowOrder order, int64_t begin, int64_t end)
      : IndexedNode(*all.element_specs(), end - begin),
        all_(all.node()),
        order_(std::move(order)),
        begin_(begin) {}

  Element at(int64_t k, uint64_t pass) const override { return all_->at(row(k), pass); }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const override {
    return all_->write_at(row(k), pass, to);
  }

 private:
  int64_t row(int64_t k) const { return sluice::at(*order_, begin_ + k); }

  std::shared_ptr<const Node> all_;
  RowOrder order_;
  int64_t begin_;
};

class RenamedRows final : public IndexedNode {
 public:
  RenamedRows(const Dataset& all, ElementSpecs specs)
      : IndexedNode(std::move(specs), rows_of(all)),
        all_(all.node()),
        own_names_(all.element_specs()->names) {}

  Element at(int64_t k, uint64_t pass) const override {
    Element element = all_->at(k, pass);
    element.names = known_specs().names;
    return element;
  }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const override {
    const bool is_right =
        to.names.size() >= known_specs().names.size() &&
        std::equal(known_specs().names.begin(), known_specs().names.end(), to.names.begin());
    if (!is_right) return Node::write_at(k, pass, to);  // Reports the difference.
    return all_->write_at(k, pass, {to.arrays.first(known_specs().names.size()), own_names_});
  }

 private:
  std::shared_ptr<const Node> all_;
  std::vector<std::string> own_names_;
};

class JoinedRows final : public IndexedNode {
 public:
  JoinedRows(const std::vector<Dataset>& datasets, ElementSpecs specs, std::vector<int64_t> ends)
      : IndexedNode(std::move(specs), ends.back()), ends_(std::move(ends)) {
    for (const Dataset& dataset : datasets) datasets_.push_back(dataset.node());
  }

  Element at(int64_t k, uint64_t pass) const override {
    const auto [dataset, row] = find(k);
    return dataset->at(row, pass);
  }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const override {
    const auto [dataset, row] = find(k);
    return dataset->write_at(row, pass, to);
  }

 private:
  std::pair<const Node*, int64_t> find(int64_t k) const {
    const auto i =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), k) - ends_.begin());
    return {datasets_[i].get(), i == 0 ? k : k - ends_[i - 1]};
  }

  std::vector<std::shared_ptr<const Node>> datasets_;
  std::vector<int64_t> ends_;  ///< For each dataset: the rows of all datasets up to it.
};

}  // namespace

RowOrder shuffled_rows(uint64_t seed, int64_t count) {
  require(count >= 0 && count <= std::numeric_limits<uint32_t>::max(),
          "shuffle: must have at most {} rows, got {}", std::numeric_limits<uint32_t>::max(),
          count);
  std::vector<uint32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0u);
  const Seed start{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
  const Seed key = fold(fold(start, "shuffle"), uint64_t{0});
  uint64_t draws = 0;
  for (size_t left = order.size(); left > 0; --left)
    std::swap(order[random_below(key, draws++, static_cast<uint32_t>(left))], order[left - 1]);
  std::reverse(order.begin(), order.end());
  return std::make_shared<const std::vector<uint32_t>>(std::move(order));
}

Dataset choose_rows(const Dataset& all, RowOrder order, int64_t begin, int64_t end) {
  SLUICE_CHECK(0 <= begin && begin <= end && end <= std::ssize(*order));
  return Dataset(std::make_shared<const ChosenRows>(all, std::move(order), begin, end));
}

Dataset with_names(const Dataset& all, std::vector<std::string> names) {
  ElementSpecs specs = *all.element_specs();
  SLUICE_CHECK(names.size() == specs.arrays.size());
  specs.names = std::move(names);
  return Dataset(std::make_shared<const RenamedRows>(all, std::move(specs)));
}

Dataset join_rows(const std::vector<Dataset>& datasets) {
  SLUICE_CHECK(!datasets.empty());
  if (datasets.size() == 1) return datasets[0];
  std::vector<int64_t> ends;
  for (const Dataset& dataset : datasets) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + rows_of(dataset));
    SLUICE_CHECK(dataset.element_specs() == datasets[0].element_specs());
  }
  return Dataset(std::make_shared<const JoinedRows>(datasets, *datasets[0].element_specs(), ends));
}

Dataset hold_rows(const Dataset& all) {
  const int64_t rows = rows_of(all);
  const ElementSpecs specs = *all.element_specs();
  Element whole;
  whole.names = specs.names;
  for (const TensorSpec& spec : specs.arrays) {
    std::vector<int64_t> dims{rows};
    dims.insert(dims.end(), spec.shape.begin(), spec.shape.end());
    whole.arrays.emplace_back(TensorSpec{Shape(std::move(dims)), spec.dtype, {}});
  }
  std::vector<ArrayView> views(specs.arrays.size());
  for (int64_t k = 0; k < rows; ++k) {
    for (size_t i = 0; i < views.size(); ++i)
      views[i] = {specs.arrays[i], Slices(whole.arrays[i].bytes(), rows)[k].data()};
    all.node()->write_at(k, 0, {views, specs.names});
  }
  return from_tensors(std::move(whole));
}

}  // namespace sluice::data
