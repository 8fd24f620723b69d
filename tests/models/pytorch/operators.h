#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../pytorch_samples.h"

/// Programs of Sluice for the samples of pytorch_operators.py, by operator.
namespace sluice::test {

/// A call of an operator of PyTorch: its tensors and its options by name. The first is `x`.
class Call {
 public:
  using List = std::vector<int64_t>;

  Call(const Line& line, const Tensors& inputs) : line_(line) {
    for (size_t i = 0; i < line.inputs.size(); ++i) in_[line.inputs[i].name] = inputs.at(i);
  }

  const Line& line() const { return line_; }
  bool has(const std::string& name) const { return in_.contains(name); }
  const Tensor& operator[](const std::string& name) const { return in_.at(name); }
  const Tensor& x() const { return in_.at("x"); }

  /// Returns a list of tensors: x0, x1, … or x, x1, ….
  Tensors tensors() const {
    Tensors all;
    for (const LineInput& input : line_.inputs) all.push_back(in_.at(input.name));
    return all;
  }

  bool given(const std::string& name) const { return find(name) != nullptr; }
  double number(const std::string& name, double otherwise) const {
    const AttrValue* value = find(name);
    if (value == nullptr) return otherwise;
    if (const auto* integer = std::get_if<int64_t>(value)) return static_cast<double>(*integer);
    if (const auto* flag = std::get_if<bool>(value)) return *flag ? 1 : 0;
    return std::get<double>(*value);
  }
  int64_t integer(const std::string& name, int64_t otherwise) const {
    return static_cast<int64_t>(number(name, static_cast<double>(otherwise)));
  }
  bool flag(const std::string& name, bool otherwise = false) const {
    return number(name, otherwise ? 1 : 0) != 0;
  }
  /// Returns whether an option is the bool `false`.
  bool is_false(const std::string& name) const {
    const AttrValue* value = find(name);
    return value != nullptr && *value == AttrValue(false);
  }
  std::string text(const std::string& name) const {
    const AttrValue* value = find(name);
    const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
    return text == nullptr ? "" : *text;
  }
  /// Returns a list option; one number is a list of it, and an absent option is empty.
  List list(const std::string& name) const {
    const AttrValue* value = find(name);
    if (value == nullptr) return {};
    if (const auto* one = std::get_if<int64_t>(value)) return {*one};
    const auto* list = std::get_if<List>(value);
    return list == nullptr ? List{} : *list;
  }

  /// Returns the axis that option `name` names, counted from the front.
  int64_t axis(const std::string& name, int64_t otherwise) const {
    return from_front(integer(name, otherwise), x().rank());
  }
  static int64_t from_front(int64_t axis, int64_t rank) {
    return axis < 0 ? axis + std::max<int64_t>(rank, 1) : axis;
  }

  /// Returns f(x, t), where t is the tensor or the number `name`.
  template <typename F>
  Tensor with(const std::string& name, const F& f, double otherwise = 0) const {
    return has(name) ? f(x(), in_.at(name)) : f(x(), number(name, otherwise));
  }

 private:
  const AttrValue* find(const std::string& name) const {
    for (const auto& [key, value] : line_.options.items) {
      if (key == name) return &value;
    }
    return nullptr;
  }

  const Line& line_;
  std::map<std::string, Tensor> in_;
};

/// Builds the outputs of a call.
using Build = std::function<Tensors(const Call&)>;
using BuildTable = std::map<std::string, Build>;

/// Makes a Build of a function that returns a tensor or several.
template <typename F>
Build row(F f) {
  if constexpr (std::is_convertible_v<std::invoke_result_t<F, const Call&>, Tensors>) {
    return f;
  } else {
    return [f](const Call& c) { return Tensors{f(c)}; };
  }
}

/// Makes a Build of a function of x.
inline Build unary(Tensor (*f)(TensorArg)) {
  return row([f](const Call& c) { return f(c.x()); });
}

/// Makes a Build of a function of x and the tensor or number `other`.
template <typename F>
Build binary(F f) {
  return row([f](const Call& c) { return c.with("other", f); });
}

BuildTable elementwise_operators();
BuildTable row_operators();
BuildTable movement_operators();
BuildTable loss_operators();

/// Returns the function that builds samples of operator `name`, or null.
inline const Build* find_build(const std::string& name) {
  static const BuildTable all = [] {
    BuildTable merged = elementwise_operators();
    for (BuildTable table : {row_operators(), movement_operators(), loss_operators()})
      merged.merge(table);
    return merged;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

/// Builds a sample of one operator.
class OperatorSample : public nn::Module {
 public:
  OperatorSample(const Line& line, const Build& build) : line_(line), build_(build) {}
  Tensors build(nn::Builder&, const Tensors& inputs) const { return build_(Call(line_, inputs)); }

 private:
  const Line& line_;
  const Build& build_;
};

}  // namespace sluice::test
