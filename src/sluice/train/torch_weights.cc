#include "sluice/train/torch_weights.h"

#include <algorithm>
#include <set>

#include "sluice/base/hash.h"
#include "sluice/base/numbers/slices.h"
#include "sluice/runtime/process_group.h"
#include "sluice/session/session.h"
#include "sluice/train/run/finite.h"
#include "sluice/train/run/load_weights.h"

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

TensorSpec spec_of(const Training& training, const TorchWeight& weight) {
  const Tensor& variable = training.variables[weight.path];
  return host_spec(variable.spec(), *variable.graph().info(variable).variable);
}

void check_weight(const WeightFiles& files, const TorchWeight& weight, const TensorSpec& spec) {
  const Shape shape = weight.transposed ? swapped(spec.shape) : spec.shape;
  const TensorSpec& found = files.spec(weight.name);
  if (found.shape != shape || !is_float(found.dtype)) {
    fail(ErrorKind::kBadFile, "{}: '{}' must be {} of floating point, got {}", files.name(),
         weight.name, to_string(shape), to_string(found));
  }
}

// Returns the value of a weight's handle for its tensor of the files.
HostTensor read_weight(const WeightFiles& files, const TorchWeight& weight,
                       const TensorSpec& spec) {
  check_weight(files, weight, spec);
  const HostTensor value = files.read(weight.name).cast(spec.dtype);
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

WeightFiles::WeightFiles(std::string name, const std::vector<std::string>& paths)
    : name_(std::move(name)) {
  const auto refuse_second = [&](const std::string& tensor, const std::string& path) {
    if (!tensors_.contains(tensor) && !foreign_.contains(tensor)) return;
    fail(ErrorKind::kBadFile, "{}: tensor '{}' must be in one file, got it again in {}", name_,
         tensor, path);
  };
  for (const std::string& path : paths) {
    const SafetensorsReader& file = files_.emplace_back(path);
    for (const SafetensorsTensor& t : file.index().tensors) {
      refuse_second(t.name, path);
      tensors_.emplace(t.name, Position{&file, &t});
    }
    for (const ForeignTensor& t : file.index().foreign) {
      refuse_second(t.name, path);
      foreign_.emplace(t.name, &file);
    }
  }
}

std::vector<std::string> WeightFiles::tensors() const {
  std::vector<std::string> names;
  for (const auto& [name, position] : tensors_) names.push_back(name);
  for (const auto& [name, file] : foreign_) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

const WeightFiles::Position& WeightFiles::find(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  if (found != tensors_.end()) return found->second;
  const auto foreign = foreign_.find(tensor);
  if (foreign != foreign_.end()) foreign->second->index().refuse_foreign(tensor, name_);
  fail(ErrorKind::kBadFile, "{}: weight '{}' is missing", name_, tensor);
}

HostTensor WeightFiles::read(const std::string& tensor) const {
  const Position& position = find(tensor);
  HostTensor value(position.tensor->spec);
  position.file->read(*position.tensor, 0, value.bytes());
  return value;
}

void check_named_weights(const Training& training, const std::vector<TorchWeight>& weights,
                         const WeightFiles& files) {
  for (const TorchWeight& weight : weights) check_weight(files, weight, spec_of(training, weight));
}

std::vector<std::string> load_named_weights(Session& session, const Training& training,
                                            const std::vector<TorchWeight>& weights,
                                            const WeightFiles& files) {
  std::vector<std::string> unknown = files.tensors();
  std::set<std::string> read;
  std::vector<std::pair<Tensor, HostTensor>> values;
  Digest digest;
  for (const TorchWeight& weight : weights) {
    values.emplace_back(training.variables[weight.path],
                        read_weight(files, weight, spec_of(training, weight)));
    digest.add(values.back().second.bytes());
    read.insert(weight.name);
  }
  session.agreement().require_same("values in " + files.name(), digest.hex());
  session.write(values);
  start_averages(session, training, [](const std::string&) { return true; });
  std::erase_if(unknown, [&](const std::string& name) { return read.contains(name); });
  return unknown;
}

void save_named_weights(Session& session, const Training& training,
                        const std::vector<TorchWeight>& weights, const std::string& path,
                        const std::map<std::string, std::string>& metadata) {
  check_finite(session, training);
  std::vector<NamedArray> arrays;
  for (const TorchWeight& weight : weights) {
    HostTensor value = session.read(training.variables[weight.path]);
    arrays.push_back({weight.name, weight.transposed ? transposed(value) : std::move(value)});
  }
  if (session.agreement().rank() == 0) write_safetensors_file(path, arrays, metadata);
  session.agreement().any(false);  // A barrier: the others return after the file is written.
}

std::vector<std::string> load_torch_weights(Session& session, const Training& training,
                                            const std::string& path) {
  return load_named_weights(session, training, training.torch_weights, WeightFiles(path));
}

void save_torch_weights(Session& session, const Training& training, const std::string& path,
                        const std::map<std::string, std::string>& metadata) {
  save_named_weights(session, training, training.torch_weights, path, metadata);
}

}  // namespace sluice::train
