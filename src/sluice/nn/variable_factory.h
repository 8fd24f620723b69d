#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "sluice/ir/ir.h"
#include "sluice/nn/named_tensors.h"

namespace sluice::nn {

/// Rules for the first value of a variable. Random ones get their key when the variable is made.
inline Initializer zeros() { return Initializer::constant(0); }
inline Initializer ones() { return Initializer::constant(1); }
inline Initializer constant(double value) { return Initializer::constant(value); }
/// mean + deviation · standard normal.
inline Initializer normal(double mean, double deviation) {
  return Initializer::normal(mean, deviation);
}
/// The same, redrawn beyond two deviations.
inline Initializer truncated_normal(double mean, double deviation) {
  return Initializer::truncated_normal(mean, deviation);
}
inline Initializer uniform(double low, double high) { return Initializer::uniform(low, high); }
inline Initializer array(HostTensor value) { return Initializer::array(std::move(value)); }

/// A variable that is still to be made: what it is and how its first value comes about. Makes any
/// number of variables.
class VariableFactory {
 public:
  /// Error{kUsage} if an array given as first value is not as the host sees the variable
  /// (host_spec).
  VariableFactory(TensorSpec spec, Initializer initializer, Pass pass = Pass::kByValue,
                  std::optional<ReplicaGrouping> group = {});

  const TensorSpec& spec() const { return spec_; }
  const Initializer& initializer() const { return initializer_; }
  /// How the graph that asked for the variable takes it.
  Pass pass() const { return pass_; }
  const std::optional<ReplicaGrouping>& group() const { return group_; }
  /// The same variable in so many chunks, of which each replica of a group holds one: its spec is
  /// a shard's. Itself for 0, and if it is sharded already. Error{kUsage} for a scalar.
  VariableFactory sharded(int chunks) const;
  /// The same variable beside another, whose state it is: of its groups and, if it has the shape of
  /// the shard that the other is, a shard like it.
  VariableFactory beside(const TensorSpec& spec, const VariableInfo& other) const;

  /// An input of `graph` for such a variable.
  Tensor create_input(Graph& graph, std::string name) const;
  /// A variable of entry graph `main`. `path` is its wrapper-free place in the model; the `nth`
  /// variable made for it (0 first) has that path with "#nth", and a first value that is a function
  /// of (seed, path, nth, element).
  Tensor create_variable(Graph& main, std::string name, const std::string& path, uint64_t seed,
                         int64_t nth, const Home& home = {}) const;

 private:
  TensorSpec spec_;
  Initializer initializer_;
  Pass pass_;
  std::optional<ReplicaGrouping> group_;
  int shard_ = 0;  ///< Chunks; 0: whole.
};

/// "<sluice::nn::VariableFactory object at 0x7ffc5d1e4a20>".
std::string to_string(const VariableFactory& factory);

struct InitOptions {
  std::string prefix;  ///< Goes before every name and path: "prefix.key". Empty: none.
  uint64_t seed = 0;   ///< Of random first values.
};

/// Remote buffers by dotted name.
class NamedRemoteBuffers : public BasicDotTree<RemoteBuffer, NamedRemoteBuffers> {};

namespace internal {

/// How many variables of a program, whatever the entry, have been made for each path.
class PathCounts {
 public:
  explicit PathCounts(const Ir& ir);
  int64_t operator[](std::string_view path) const;
  /// Counts a variable that was made since.
  void add(const Tensor& variable);

 private:
  std::unordered_map<std::string_view, int64_t> counts_;  ///< Keys lie in the variables.
};

}  // namespace internal

/// Variable factories by dotted name.
class NamedVariableFactories : public BasicDotTree<VariableFactory, NamedVariableFactories> {
 public:
  /// Makes a variable of entry graph `main` for each factory, in alphabetical order of dotted keys,
  /// and returns them in that order under the factories' keys. May be called again for further
  /// variables. Error{kUsage} if `main` is a subgraph.
  NamedTensors init(Graph& main, const InitOptions& options = {}) const;
  /// The same with the count of the program's variables at hand, for many calls.
  NamedTensors init(Graph& main, const InitOptions& options, internal::PathCounts& made) const;
  /// The same for variables that live in entry `entry` of the buffers under their keys
  /// (nn/remote.h); ops reach them through load_remote(). A buffer of shards makes the variable
  /// one. Error{kUsage} for a factory without a buffer.
  NamedTensors init_remote(Graph& main, const NamedRemoteBuffers& buffers, int64_t entry,
                           const InitOptions& options = {}) const;
  NamedTensors init_remote(Graph& main, const NamedRemoteBuffers& buffers, int64_t entry,
                           const InitOptions& options, internal::PathCounts& made) const;
  /// Tensors of zeros made by ops of `graph` (any graph), in insertion order.
  NamedTensors init_zero(Graph& graph) const;

 private:
  template <typename Make>
  NamedTensors init_at(Graph& main, const InitOptions& options, internal::PathCounts& made,
                       const Make& make) const;
};

}  // namespace sluice::nn
