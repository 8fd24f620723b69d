#pragma once
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "sluice/base/safetensors.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// Returns the counterpart in PyTorch's module of each variable, in the order of the factories.
std::vector<TorchWeight> torch_weights(const nn::NamedVariableFactories& factories);

/// The tensors of one or several safetensors files.
class WeightFiles {
 public:
  /// Reads the indices of the files. `name` names all of them in errors. Error{kIo} if a file
  /// cannot be read. Error{kBadFile} if two files have a tensor of one name.
  WeightFiles(std::string name, const std::vector<std::string>& paths);
  explicit WeightFiles(const std::string& path) : WeightFiles(path, {path}) {}

  const std::string& name() const { return name_; }
  /// Returns the names of all tensors in ascending order, also of those with a dtype that Sluice
  /// lacks.
  std::vector<std::string> tensors() const;
  /// Whether the files have a tensor of this name and of a dtype that Sluice reads.
  bool has(const std::string& tensor) const { return tensors_.contains(tensor); }
  /// Return the spec and the bytes of a tensor. Error{kBadFile} without such a tensor.
  const TensorSpec& spec(const std::string& tensor) const { return find(tensor).tensor->spec; }
  HostTensor read(const std::string& tensor) const;

 private:
  struct Position {
    const SafetensorsReader* file;
    const SafetensorsTensor* tensor;
  };
  const Position& find(const std::string& tensor) const;

  std::string name_;
  std::deque<SafetensorsReader> files_;
  std::map<std::string, Position> tensors_;
  std::map<std::string, const SafetensorsReader*> foreign_;
};

/// The errors of load_named_weights() for a weight that is missing or has another shape. Reads the
/// indices of the files alone.
void check_named_weights(const Training& training, const std::vector<TorchWeight>& weights,
                         const WeightFiles& files);

/// Sets weights of a session on these programs from tensors of the files: load_torch_weights() with
/// other names. Weights that `weights` does not list keep their values. Returns the names of the
/// tensors that it does not list. Errors as for load_torch_weights().
std::vector<std::string> load_named_weights(Session& session, const Training& training,
                                            const std::vector<TorchWeight>& weights,
                                            const WeightFiles& files);
/// Writes weights to a file: save_torch_weights() with other names. A weight may have several.
void save_named_weights(Session& session, const Training& training,
                        const std::vector<TorchWeight>& weights, const std::string& path,
                        const std::map<std::string, std::string>& metadata = {});

}  // namespace sluice::train
