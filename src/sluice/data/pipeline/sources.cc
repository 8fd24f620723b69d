// The sources in memory: arrays and functions.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "sluice/base/numbers/slices.h"
#include "sluice/data/pipeline/node.h"
#include "sluice/data/samples.h"

namespace sluice::data {
namespace {

using internal::call_for_element;
using internal::ElementView;
using internal::Node;
using internal::NumberedStream;
using internal::Stream;

class Tensors final : public Node {
 public:
  explicit Tensors(Element whole) : whole_(std::move(whole)) {
    internal::check_names(whole_.arrays.size(), whole_.names, "from_tensors");
    specs_.names = whole_.names;
    for (const HostTensor& array : whole_.arrays) {
      const Shape& shape = array.shape();
      require(!shape.empty(), "from_tensors: an array must have a first axis, got a scalar");
      require(shape[0] == whole_.arrays[0].shape()[0],
              "from_tensors: all first axes must be {} like that of the first array, got {}",
              whole_.arrays[0].shape()[0], to_string(shape));
      specs_.arrays.push_back({Shape({shape.begin() + 1, shape.end()}), array.dtype(), {}});
    }
  }

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<NumberedStream>(*this, *size(), pass);
  }
  std::optional<ElementSpecs> specs() const override { return specs_; }
  std::optional<int64_t> size() const override { return whole_.arrays[0].shape()[0]; }

  std::optional<int64_t> indexed() const override { return size(); }
  Element at(int64_t k, uint64_t) const override {
    Element element;
    element.names = specs_.names;
    element.arrays.reserve(specs_.arrays.size());
    for (size_t i = 0; i < specs_.arrays.size(); ++i) {
      HostTensor& array = element.arrays.emplace_back(specs_.arrays[i]);
      const auto from = row(k, i);
      std::copy(from.begin(), from.end(), array.bytes().begin());
    }
    return element;
  }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const override {
    const size_t n = specs_.arrays.size();
    bool is_right = n <= to.arrays.size() && specs_.names.empty() == to.names.empty();
    for (size_t i = 0; i < n && is_right; ++i) is_right = to.arrays[i].spec == specs_.arrays[i];
    if (!is_right) return Node::write_at(k, pass, to);  // Reports the difference.
    for (size_t i = 0; i < n; ++i) {
      const auto from = row(k, i);
      if (!from.empty()) std::memcpy(to.arrays[i].data, from.data(), from.size());
    }
    return n;
  }

 private:
  std::span<const std::byte> row(int64_t k, size_t array) const {
    const HostTensor& whole = whole_.arrays[array];
    return Slices(whole.bytes(), whole.shape()[0])[k];
  }

  Element whole_;
  ElementSpecs specs_;
};

class Function final : public Node {
 public:
  Function(int64_t n, std::function<Element(int64_t)> f, std::optional<ElementSpecs> specs)
      : n_(n), f_(std::move(f)), specs_(std::move(specs)) {
    require(n >= 0, "from_function: the number of elements must be at least 0, got {}", n);
    require(f_ != nullptr, "from_function: the function must be callable, got an empty one");
    if (specs_) internal::check_names(specs_->arrays.size(), specs_->names, "from_function");
  }

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<NumberedStream>(*this, n_, pass);
  }
  std::optional<ElementSpecs> specs() const override { return specs_; }
  std::optional<int64_t> size() const override { return n_; }
  std::optional<int64_t> indexed() const override { return n_; }
  Element at(int64_t k, uint64_t) const override {
    return call_for_element("from_function", k, [&] {
      Element element = f_(k);
      internal::check_element(element, specs_);
      return element;
    });
  }

 private:
  int64_t n_;
  std::function<Element(int64_t)> f_;
  std::optional<ElementSpecs> specs_;
};

class Generated final : public Node {
 public:
  Generated(std::function<Generator()> make, std::optional<ElementSpecs> specs)
      : make_(std::move(make)), specs_(std::move(specs)) {
    require(make_ != nullptr, "from_generator: the function must be callable, got an empty one");
    if (specs_) internal::check_names(specs_->arrays.size(), specs_->names, "from_generator");
  }

  std::unique_ptr<Stream> open(uint64_t) const override { return std::make_unique<Calls>(*this); }
  std::optional<ElementSpecs> specs() const override { return specs_; }
  std::optional<int64_t> size() const override { return std::nullopt; }

 private:
  class Calls final : public Stream {
   public:
    explicit Calls(const Generated& generated) : generated_(generated) {}

    std::optional<Element> next() override {
      if (ended_) return std::nullopt;
      // Make the stream here, not in open(), so that an error of make() is the error of element 0.
      std::optional<Element> element = call_for_element("from_generator", number_++, [&] {
        if (!stream_) {
          stream_ = generated_.make_();
          require(stream_ != nullptr,
                  "from_generator: the stream must be callable, got an empty one");
        }
        std::optional<Element> made = stream_();
        if (made) internal::check_element(*made, generated_.specs_);
        return made;
      });
      ended_ = !element;
      return element;
    }

   private:
    const Generated& generated_;
    Generator stream_;
    int64_t number_ = 0;
    bool ended_ = false;
  };

  std::function<Generator()> make_;
  std::optional<ElementSpecs> specs_;
};

}  // namespace

Dataset from_tensors(Element whole) {
  return Dataset(std::make_shared<const Tensors>(std::move(whole)));
}

Dataset from_samples(Samples samples) {
  Element whole;  // A list of initializers would copy the arrays.
  whole.names = {"input", "labels"};
  whole.arrays.push_back(std::move(samples.images));
  whole.arrays.push_back(std::move(samples.labels));
  return from_tensors(std::move(whole));
}

Dataset from_function(int64_t n, std::function<Element(int64_t)> f,
                      std::optional<ElementSpecs> specs) {
  return Dataset(std::make_shared<const Function>(n, std::move(f), std::move(specs)));
}

Dataset from_generator(std::function<Generator()> make, std::optional<ElementSpecs> specs) {
  return Dataset(std::make_shared<const Generated>(std::move(make), std::move(specs)));
}

}  // namespace sluice::data
