#include "sluice/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/data/pipeline/node.h"

namespace sluice::data {

Element::Element(std::initializer_list<NamedArray> fields) {
  for (const NamedArray& field : fields) {
    arrays.push_back(field.array);
    names.push_back(field.name);
  }
  if (!names.empty()) internal::check_names(arrays.size(), names, "element");
}

const HostTensor& Element::operator[](size_t index) const {
  require(index < arrays.size(), "element: the index of an array must be in [0, {}), got {}",
          arrays.size(), index);
  return arrays[index];
}

HostTensor& Element::operator[](size_t index) {
  return const_cast<HostTensor&>(std::as_const(*this)[index]);
}

const HostTensor& Element::operator[](std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  const size_t index = std::distance(names.begin(), found);
  require(found != names.end() && index < arrays.size(),
          "element: the field must be one of [{}], got '{}'", fmt::join(names, ", "), name);
  return arrays[index];
}

HostTensor& Element::operator[](std::string_view name) {
  return const_cast<HostTensor&>(std::as_const(*this)[name]);
}

int64_t Element::bytes() const {
  int64_t sum = 0;
  for (const HostTensor& array : arrays) sum += static_cast<int64_t>(array.bytes().size());
  return sum;
}

ElementSpecs specs_of(const Element& element) {
  ElementSpecs specs;
  for (const HostTensor& array : element.arrays) specs.arrays.push_back(array.spec());
  specs.names = element.names;
  return specs;
}

std::string to_string(const ElementSpecs& specs) {
  std::string text;
  for (size_t i = 0; i < specs.arrays.size(); ++i) {
    if (i != 0) text += ", ";
    if (i < specs.names.size()) text += specs.names[i] + " ";
    text += to_string(specs.arrays[i]);
  }
  return text.empty() ? "no arrays" : text;
}

/// The members are destroyed from the last to the first: a stream ends before its node.
struct Iterator::State {
  std::shared_ptr<const internal::Node> node;
  std::unique_ptr<internal::Stream> stream;
};

Iterator::Iterator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Iterator::Iterator(Iterator&&) noexcept = default;
Iterator& Iterator::operator=(Iterator&&) noexcept = default;
Iterator::~Iterator() = default;

std::optional<Element> Iterator::next() {
  if (state_ == nullptr) return std::nullopt;
  try {
    std::optional<Element> element = state_->stream->next();
    if (element) {
      ++position_;
    } else {
      state_.reset();
    }
    return element;
  } catch (...) {
    state_.reset();
    throw;
  }
}

Iterator Dataset::iterate(uint64_t pass) const {
  auto state = std::make_unique<Iterator::State>();
  state->node = node_;
  state->stream = node_->open(pass);
  return Iterator(std::move(state));
}

std::optional<ElementSpecs> Dataset::element_specs() const { return node_->specs(); }
std::optional<int64_t> Dataset::size() const { return node_->size(); }

ElementSpecs check_static(const Dataset& dataset, std::string_view what) {
  std::optional<ElementSpecs> specs = dataset.element_specs();
  bool is_empty = dataset.size() == 0;
  if (!specs && !is_empty) {
    const std::optional<Element> first = dataset.iterate().next();
    is_empty = !first;
    if (first) specs = specs_of(*first);
  }
  require(!is_empty, "{}: must have elements, got none", what);
  const internal::ShapeVariation variation = dataset.node()->variation();
  require(
      variation != internal::ShapeVariation::kBuckets,
      "{}: all elements must have one shape, got buckets of several lengths; use one bucket, or "
      "pad(n)",
      what);
  require(
      variation == internal::ShapeVariation::kNo,
      "{}: all elements must have one shape, got {} and possibly a smaller last batch; drop the "
      "remainder with batch(n, Remainder::kDrop)",
      what, to_string(*specs));
  for (size_t i = 0; i < specs->arrays.size(); ++i) {
    const TensorSpec& spec = specs->arrays[i];
    const std::string array = fmt::format(
        "{}: {}", what,
        i < specs->names.size() ? "field '" + specs->names[i] + "'" : fmt::format("array {}", i));
    require(std::find(spec.shape.begin(), spec.shape.end(), 0) == spec.shape.end(),
            "{}: dimensions must be at least 1, got {}", array, to_string(spec));
    require_device_dtype(spec, array);
  }
  return *specs;
}

namespace internal {

Element Node::at(int64_t, uint64_t) const {
  SLUICE_CHECK(!"at() of a dataset that is not indexed");
  return {};
}

size_t Node::write_at(int64_t k, uint64_t pass, const ElementView& to) const {
  return copy_element(at(k, pass), k, to);
}

size_t copy_element(const Element& element, int64_t number, const ElementView& to) {
  const size_t n = element.arrays.size();
  bool is_right = n <= to.arrays.size() && element.names.empty() == to.names.empty();
  for (size_t i = 0; i < n && is_right; ++i) {
    is_right = element.arrays[i].spec() == to.arrays[i].spec &&
               (to.names.empty() || element.names[i] == to.names[i]);
  }
  if (!is_right) {
    ElementSpecs specs;
    for (const ArrayView& array : to.arrays) specs.arrays.push_back(array.spec);
    specs.names.assign(to.names.begin(), to.names.end());
    fail(ErrorKind::kUsage, "element {}: must be {} like the first one, got {}", number,
         to_string(specs), to_string(specs_of(element)));
  }
  for (size_t i = 0; i < n; ++i) {
    const auto from = element.arrays[i].bytes();
    if (!from.empty()) std::memcpy(to.arrays[i].data, from.data(), from.size());
  }
  return n;
}

Element stack_elements(std::vector<Element> elements) {
  Element stacked;
  stacked.names = elements[0].names;
  for (size_t i = 0; i < elements[0].arrays.size(); ++i) {
    std::vector<HostTensor> arrays;
    arrays.reserve(elements.size());
    for (Element& element : elements) arrays.push_back(std::move(element.arrays[i]));
    stacked.arrays.push_back(HostTensor::stack(arrays));
  }
  return stacked;
}

bool has_specs(const Element& element, const ElementSpecs& specs) {
  return element.names == specs.names &&
         std::equal(element.arrays.begin(), element.arrays.end(), specs.arrays.begin(),
                    specs.arrays.end(),
                    [](const HostTensor& array, const TensorSpec& s) { return array.spec() == s; });
}

void check_names(size_t arrays, const std::vector<std::string>& names, std::string_view what) {
  require(arrays != 0, "{}: an element must have at least one array, got none", what);
  require(names.empty() || names.size() == arrays,
          "{}: an element must have one name for each of {} arrays or no names, got {}", what,
          arrays, names.size());
  for (auto name = names.begin(); name != names.end(); ++name) {
    require(std::find(names.begin(), name, *name) == name,
            "{}: the fields must have different names, got '{}' twice", what, *name);
  }
}

void check_element(const Element& element, const std::optional<ElementSpecs>& specs) {
  check_names(element.arrays.size(), element.names, "element");
  if (!specs || has_specs(element, *specs)) return;
  fail(ErrorKind::kUsage, "element: must be {}, got {}", to_string(*specs),
       to_string(specs_of(element)));
}

}  // namespace internal
}  // namespace sluice::data
