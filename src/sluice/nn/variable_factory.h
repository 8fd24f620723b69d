#pragma once
#include <cstdint>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "sluice/ir/ir.h"
#include "sluice/nn/named_tensors.h"

namespace sluice::nn {

/// Rules for the first value of a variable. Random rules get their key when the variable is
/// created.
inline Initializer zeros() { return Initializer::constant(0); }
inline Initializer ones() { return Initializer::constant(1); }
inline Initializer constant(double value) { return Initializer::constant(value); }
/// Normal distribution with this mean and standard deviation.
inline Initializer normal(double mean, double deviation) {
  return Initializer::normal(mean, deviation);
}
/// Normal distribution; values beyond two standard deviations are drawn again.
inline Initializer truncated_normal(double mean, double deviation) {
  return Initializer::truncated_normal(mean, deviation);
}
inline Initializer uniform(double low, double high) { return Initializer::uniform(low, high); }
inline Initializer array(HostTensor value) { return Initializer::array(std::move(value)); }

/// How training changes a variable.
enum class Role {
  kWeight,       ///< An optimizer updates it by its gradient.
  kRunning,      ///< Without a gradient: values that the model computes update it
                 ///< (Builder::update_running).
  kState,        ///< State of an optimizer: the update of another variable changes it.
  kAccumulator,  ///< Collects the gradients of another variable.
};

/// Numbers of elements of the input that one element of the output reads, and of elements of the
/// output that read one element of the input. Both are at least 1.
struct Fans {
  int64_t in = 1;
  int64_t out = 1;
};
/// Returns the fans of the weight (channels_out, channels_in / groups, taps…) of a convolution:
/// PyTorch's numbers, also for the weight (channels_in, channels_out / groups, taps…) of a
/// transposed one. Error{kUsage} for fewer than two axes.
Fans conv_fans(const Shape& weight);
/// Uniform in ±1/√fan_in: PyTorch's first weights and biases of linear layers and convolutions.
Initializer fan_in_uniform(int64_t fan_in);
/// Keep the variance through layers whose activation scales the deviation by 1/gain: √2 is for
/// ReLU. `fan` is Fans::in to keep the variance of activations, Fans::out to keep that of gradients
/// (He et al., 2015). The deviation is gain/√fan.
Initializer he_uniform(int64_t fan, double gain = std::numbers::sqrt2);
Initializer he_normal(int64_t fan, double gain = std::numbers::sqrt2);
/// Balance the variance of activations and that of gradients (Glorot and Bengio, 2010). The
/// deviation is gain·√(2/(fans.in + fans.out)).
Initializer xavier_uniform(Fans fans, double gain = 1);
Initializer xavier_normal(Fans fans, double gain = 1);
/// A (semi-)orthogonal matrix (Initializer::orthogonal) with the first axis of `shape` as its rows,
/// the product of the others as its columns. Error{kUsage} for fewer than two axes.
Initializer orthogonal(const Shape& shape, double gain = 1);

/// A variable of a layer and its counterpart in the state_dict of PyTorch's module.
struct TorchName {
  std::string_view variable;  ///< Name in the layer.
  std::string_view name;      ///< Name in PyTorch's module.
  bool transposed = false;    ///< PyTorch stores a matrix with its axes exchanged.
};

/// Creates any number of variables of one spec, with the same rule for the first value.
class VariableFactory {
 public:
  /// Error{kUsage} if the first value is an array whose shape or dtype is not the one that the host
  /// sees (host_spec).
  VariableFactory(TensorSpec spec, Initializer initializer, Pass pass = Pass::kByValue,
                  std::optional<ReplicaGrouping> group = {});

  const TensorSpec& spec() const { return spec_; }
  const Initializer& initializer() const { return initializer_; }
  /// How the variable is passed to the graph that declared it.
  Pass pass() const { return pass_; }
  const std::optional<ReplicaGrouping>& group() const { return group_; }
  Role role() const { return role_; }
  const std::string& owner() const { return owner_; }  ///< See owned_by().
  /// Returns a factory of the variable as a running variable.
  VariableFactory running() const;
  /// Returns a factory of state or of an accumulator of the variable `owner`. `owner` is its key in
  /// the tree of this factory; empty: the prefix of InitOptions is its path.
  VariableFactory owned_by(std::string owner, Role role = Role::kState) const;
  /// The counterpart in PyTorch's module; absent: the variable has the same name and form there.
  const std::optional<TorchName>& torch() const { return torch_; }
  void set_torch(const TorchName& name) { torch_ = name; }
  /// Returns a factory of the variable cut into `chunks` shards, one for each replica of a group.
  /// Its spec is that of a shard. Returns a copy if `chunks` is 0 or the variable is already
  /// sharded. Error{kUsage} for a scalar.
  VariableFactory sharded(int chunks) const;
  /// Returns a factory of the variable as state of the variable `other`, whose spec is `spec`. It
  /// has the role kState and the group of `other`. If `other` is a shard of the same shape, so is
  /// the state.
  VariableFactory as_state_of(const TensorSpec& spec, const VariableInfo& other) const;

  /// Creates an input of `graph` for a variable of this factory.
  Tensor create_input(Graph& graph, std::string name) const;
  /// Creates a variable of entry graph `main`. `path` is the dotted path of the variable in the
  /// model, without wrapper modules. `nth` counts the variables created for this path, from 0; from
  /// 1 on, "#nth" is appended to the path. A random first value depends on seed, path, nth and
  /// element.
  /// `prefix` is that of InitOptions.
  Tensor create_variable(Graph& main, std::string name, const std::string& path, uint64_t seed,
                         int64_t nth, const VariableLocation& location = {},
                         const std::string& prefix = "") const;

 private:
  TensorSpec spec_;
  Initializer initializer_;
  Pass pass_;
  std::optional<ReplicaGrouping> group_;
  std::optional<TorchName> torch_;
  int shard_ = 0;  ///< Number of shards; 0: whole.
  Role role_ = Role::kWeight;
  std::string owner_;
};

/// Returns "<sluice::nn::VariableFactory object at 0x7ffc5d1e4a20>".
std::string to_string(const VariableFactory& factory);

struct InitOptions {
  std::string prefix = {};  ///< Prefix of every name and path: "prefix.key". Empty: no prefix.
  uint64_t seed = 0;        ///< Seed of random first values.
};

/// Remote buffers by dotted name.
class NamedRemoteBuffers : public BasicDotTree<RemoteBuffer, NamedRemoteBuffers> {};

namespace internal {

/// Counts the variables of a program for each path, over all entries.
class PathCounts {
 public:
  explicit PathCounts(const Ir& ir);
  int64_t operator[](std::string_view path) const;
  /// Counts a variable that was created after this object.
  void add(const Tensor& variable);

 private:
  std::unordered_map<std::string_view, int64_t> counts_;  ///< Keys refer to the variables' paths.
};

}  // namespace internal

/// Variable factories by dotted name.
class NamedVariableFactories : public BasicDotTree<VariableFactory, NamedVariableFactories> {
 public:
  /// Creates a variable of entry graph `main` for each factory, in alphabetical order of dotted
  /// keys. Returns the variables in that order under the factories' keys. Each call creates new
  /// variables. Error{kUsage} if `main` is a subgraph.
  NamedTensors init(Graph& main, const InitOptions& options = {}) const;
  /// Creates variables like init(), but updates `made` instead of counting the program's variables
  /// again. This is faster for many calls.
  NamedTensors init(Graph& main, const InitOptions& options, internal::PathCounts& made) const;
  /// Creates variables that are stored in entry `entry` of the buffers under the same keys
  /// (nn/remote.h). Ops read them with load_remote(). If the buffer holds shards, the variable is
  /// sharded. Error{kUsage} if a factory has no buffer.
  NamedTensors init_remote(Graph& main, const NamedRemoteBuffers& buffers, int64_t entry,
                           const InitOptions& options = {}) const;
  NamedTensors init_remote(Graph& main, const NamedRemoteBuffers& buffers, int64_t entry,
                           const InitOptions& options, internal::PathCounts& made) const;
  /// Emits ops in `graph` (any graph) that create tensors of zeros. Returns them in insertion
  /// order.
  NamedTensors init_zero(Graph& graph) const;
  /// Returns the tensors whose factories here have a role: the weights among the variables of a
  /// module, or among the named arguments of its graph. Ignores keys without a factory.
  NamedTensors select(const NamedTensors& tensors, Role role) const;

 private:
  template <typename Make>
  NamedTensors init_at(Graph& main, const InitOptions& options, internal::PathCounts& made,
                       const Make& make) const;
};

}  // namespace sluice::nn
