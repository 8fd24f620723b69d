#include "sluice/nn/named_tensors.h"

#include <algorithm>
#include <unordered_map>

#include "sluice/base/error.h"
#include "sluice/nn/dot_tree.h"

namespace sluice::nn {

template class BasicDotTree<Tensor, NamedTensors>;

Tensors NamedTensors::tensors() const {
  Tensors result = values_flat();
  std::stable_sort(result.begin(), result.end(),
                   [](const Tensor& a, const Tensor& b) { return a.name() < b.name(); });
  return result;
}

NamedTensors NamedTensors::remap(const TensorMap& mapping) const {
  std::unordered_map<Tensor, Tensor> partner;
  for (const auto& [from, to] : mapping) partner.emplace(from, to);
  NamedTensors result;
  for_each([&](const std::string& key, const Tensor& t) {
    const auto found = partner.find(t);
    require(found != partner.end(), "remap: '{}' ({}) has no partner in the mapping", key,
            to_string(t));
    result.merge(key, found->second);
  });
  return result;
}

std::string table(const NamedTensors& tensors) {
  size_t width = 0;
  tensors.for_each(
      [&](const std::string& key, const Tensor&) { width = std::max(width, key.size()); });
  std::string text;
  tensors.for_each([&](const std::string& key, const Tensor& t) {
    text += fmt::format("{}{:<{}}  {}", text.empty() ? "" : "\n", key, width, to_string(t));
  });
  return text;
}

std::string to_string(const Tensors& tensors) {
  std::string text;
  for (const Tensor& t : tensors) text += (text.empty() ? "" : ", ") + to_string(t);
  return tensors.size() == 1 ? "(" + text + ",)" : "(" + text + ")";
}

}  // namespace sluice::nn
