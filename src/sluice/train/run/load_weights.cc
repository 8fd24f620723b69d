#include "sluice/train/run/load_weights.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sluice/base/hash.h"
#include "sluice/base/safetensors.h"
#include "sluice/runtime/process_group.h"

namespace sluice::train {
namespace {

constexpr int64_t kWeightChunk = 1 << 20;  // Elements of a variable that are read together.

using TensorIndex = std::map<std::string, const SafetensorsTensor*>;

TensorIndex index_of(const SafetensorsReader& file) {
  TensorIndex index;
  for (const SafetensorsTensor& t : file.index().tensors) index.emplace(t.name, &t);
  return index;
}

const VariableInfo& variable_of(const Tensor& t) { return *t.graph().info(t).variable; }

// Returns the path of the first variable that a file lacks, or an empty string.
std::string missing(const nn::NamedTensors& variables, const TensorIndex& file) {
  std::string first;
  variables.for_each([&](const std::string&, const Tensor& t) {
    const std::string& path = variable_of(t).path;
    if (first.empty() && !file.contains(path)) first = path;
  });
  return first;
}

using Matches = std::vector<std::pair<Tensor, const SafetensorsTensor*>>;

// Returns the tensor of each variable.
Matches matches_of(const Training& training, const TensorIndex& index, const std::string& path) {
  if (const std::string lacks = missing(training.variables, index); !lacks.empty())
    fail(ErrorKind::kBadFile, "{}: variable '{}' is missing", path, lacks);
  Matches found;
  training.variables.for_each([&](const std::string&, const Tensor& t) {
    const VariableInfo& variable = variable_of(t);
    const TensorSpec spec = host_spec(t.spec(), variable);
    const SafetensorsTensor& tensor = *index.at(variable.path);
    if (tensor.spec.shape != spec.shape || tensor.spec.dtype != spec.dtype)
      fail(ErrorKind::kBadFile, "{}: '{}' must be {}, got {}", path, variable.path, to_string(spec),
           to_string(tensor.spec));
    found.emplace_back(t, &tensor);
  });
  return found;
}

}  // namespace

void check_weights(const Training& training, const std::string& path) {
  const SafetensorsReader file(path);
  matches_of(training, index_of(file), path);
}

std::vector<std::string> load_weights(Session& session, const Training& training,
                                      const std::string& path) {
  const SafetensorsReader file(path);
  TensorIndex index = index_of(file);
  const Matches found = matches_of(training, index, path);
  Digest digest;
  std::vector<std::byte> part;
  for (const auto& [variable, tensor] : found) {
    const int64_t elements = tensor->spec.elements(), width = size_of(tensor->spec.dtype);
    for (int64_t begin = 0; begin < elements; begin += kWeightChunk) {
      part.resize(static_cast<size_t>(std::min(kWeightChunk, elements - begin) * width));
      file.read(*tensor, begin * width, part);
      if (session.agreement().size() > 1) digest.add(part);
      session.write_chunk(variable, begin, part);
    }
    index.erase(tensor->name);
  }
  session.agreement().require_same("values in " + path, digest.hex());
  training.state.for_each(
      [&](const std::string&, const Tensor& t) { index.erase(variable_of(t).path); });
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : index) unknown.push_back(name);
  return unknown;
}

void require_state(const Training& training, const std::string& path) {
  const SafetensorsReader file(path);
  const TensorIndex index = index_of(file);
  const std::string lacks = missing(training.state, index);
  if (lacks.empty() || !missing(training.variables, index).empty()) return;
  fail(ErrorKind::kBadFile,
       "{}: must have the optimizer's state '{}', got the weights alone; load_weights() "
       "(--fresh-optimizer) starts the state anew",
       path, lacks);
}

}  // namespace sluice::train
