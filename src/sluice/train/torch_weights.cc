#include <algorithm>
#include <map>

#include "sluice/base/hash.h"
#include "sluice/base/numbers/slices.h"
#include "sluice/base/safetensors.h"
#include "sluice/runtime/process_group.h"
#include "sluice/session/session.h"
#include "sluice/train/run/finite.h"
#include "sluice/train/torch_names.h"

namespace sluice::train {
namespace {

// Returns the shape with its last two axes exchanged.
Shape swapped(const Shape& shape) {
  std::vector<int64_t> dims(shape.begin(), shape.end());
  std::swap(dims[dims.size() - 2], dims[dims.size() - 1]);
  return Shape(std::move(dims));
}

// Returns a copy of a tensor with its last two axes exchanged.
HostTensor transposed(const HostTensor& t) {
  HostTensor result({swapped(t.shape()), t.dtype(), {}});
  const Slices from(t.bytes(), t.elements());
  const Slices elements(result.bytes(), t.elements());
  const int64_t rows = t.shape()[t.shape().rank() - 2];
  const int64_t columns = t.shape()[t.shape().rank() - 1];
  for (int64_t i = 0; i < t.elements(); ++i) {
    const int64_t matrix = i / (rows * columns), row = i / columns % rows, column = i % columns;
    const int64_t to = (matrix * columns + column) * rows + row;
    std::ranges::copy(from[i], elements[to].begin());
  }
  return result;
}

// Returns the value of a weight's handle for its tensor of the file.
HostTensor read_weight(const SafetensorsReader& file, const std::string& path,
                       const SafetensorsTensor& tensor, const TorchWeight& weight,
                       const TensorSpec& spec) {
  const Shape shape = weight.transposed ? swapped(spec.shape) : spec.shape;
  if (tensor.spec.shape != shape || !is_float(tensor.spec.dtype)) {
    fail(ErrorKind::kBadFile, "{}: '{}' must be {} of floating point, got {}", path, weight.name,
         to_string(shape), to_string(tensor.spec));
  }
  HostTensor value(tensor.spec);
  file.read(tensor, 0, value.bytes());
  value = value.cast(spec.dtype);
  return weight.transposed ? transposed(value) : value;
}

}  // namespace

std::vector<TorchWeight> torch_weights(const nn::NamedVariableFactories& factories) {
  std::vector<TorchWeight> weights;
  factories.for_each([&](const std::string& key, const nn::VariableFactory& factory) {
    TorchWeight w{.path = key, .name = key};
    if (const auto& torch = factory.torch()) {
      const size_t module = key.rfind('.') + 1;  // npos + 1 is 0: the outermost module.
      w.name = key.substr(0, module) + std::string(torch->name);
      w.transposed = torch->transposed;
    }
    weights.push_back(std::move(w));
  });
  return weights;
}

std::vector<std::string> load_torch_weights(Session& session, const Training& training,
                                            const std::string& path) {
  const SafetensorsReader file(path);
  std::map<std::string, const SafetensorsTensor*> tensors;
  for (const SafetensorsTensor& t : file.index().tensors) tensors.emplace(t.name, &t);
  std::vector<std::pair<Tensor, HostTensor>> values;
  Digest digest;
  for (const TorchWeight& weight : training.torch_weights) {
    const auto found = tensors.find(weight.name);
    if (found == tensors.end()) {
      file.index().refuse_foreign(weight.name, path);
      fail(ErrorKind::kBadFile, "{}: weight '{}' is missing", path, weight.name);
    }
    const Tensor& variable = training.variables[weight.path];
    const TensorSpec spec = host_spec(variable.spec(), *variable.graph().info(variable).variable);
    values.emplace_back(variable, read_weight(file, path, *found->second, weight, spec));
    digest.add(values.back().second.bytes());
    tensors.erase(found);
  }
  session.agreement().require_same("values in " + path, digest.hex());
  session.write(values);
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : tensors) unknown.push_back(name);
  for (const ForeignTensor& t : file.index().foreign) unknown.push_back(t.name);
  return unknown;
}

void save_torch_weights(Session& session, const Training& training, const std::string& path,
                        const std::map<std::string, std::string>& metadata) {
  check_finite(session, training);
  std::vector<NamedArray> arrays;
  for (const TorchWeight& weight : training.torch_weights) {
    HostTensor value = session.read(training.variables[weight.path]);
    arrays.push_back({weight.name, weight.transposed ? transposed(value) : std::move(value)});
  }
  if (session.agreement().rank() == 0) write_safetensors_file(path, arrays, metadata);
  session.agreement().any(false);  // A barrier: the others return after the file is written.
}

}  // namespace sluice::train
