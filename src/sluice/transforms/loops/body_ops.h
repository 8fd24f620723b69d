#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/transforms/loops/loops.h"

/// Parts of loops from functions that repeat() and while_loop() share.
namespace sluice {

/// Returns the names of fields, separated by commas.
std::string names_of(const std::vector<FeedField>& fields);

/// Returns "1 tensor", "2 tensors".
std::string counted(size_t count, std::string_view thing);

/// The ops that are added to a graph while the functions of a loop run. `loop`: name of the loop,
/// for errors.
class BodyOps {
 public:
  BodyOps(Graph& graph, std::string_view loop)
      : graph_(graph), loop_(loop), first_(graph.ops().end_id()), outputs_(graph.outputs()) {}

  OpIndex first() const { return first_; }
  /// Whether an added op reads one of the tensors, or it is a result.
  bool read(const Tensors& tensors, const Tensors& results) const;
  /// Error{kUsage} if the functions have added outputs to the graph.
  void check_outputs() const;
  /// Removes the added ops and outputs.
  void remove() const;

 private:
  Graph& graph_;
  std::string_view loop_;
  const OpIndex first_;
  const Tensors outputs_;
};

/// The arguments of a loop from functions.
struct LoopRequest {
  std::string_view loop;        ///< "repeat".
  std::string_view trips_name;  ///< "n".
  Graph& graph;
  int64_t trips = 0;
  const Tensors& inputs;
  const std::optional<Infeed>& infeed;

  /// Error{kUsage} for trips outside [0, 2^31), and inputs or an infeed of another graph or Ir.
  void check() const;
  /// Error{kUsage} unless `results` are new values of the inputs, with their specs.
  void check_results(const Tensors& results) const;
  /// Runs the body on the carried `values` and on the next element of the infeed. Returns its
  /// checked results. Error{kUsage} if it reads no field of the infeed.
  Tensors run(const LoopBody& body, const Tensors& values) const;
};

}  // namespace sluice
