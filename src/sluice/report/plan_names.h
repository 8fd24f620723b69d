#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "sluice/exe/budget/memory_contents.h"
#include "sluice/exe/executable.h"

namespace sluice::report {

/// Names the functions and steps of a plan by the provenances of their ops. The executable must
/// outlive this object.
class PlanNames {
 public:
  explicit PlanNames(const exe::Executable& executable);

  /// The names of buffers, variables and remote buffers.
  const exe::MemoryContents& contents() const { return contents_; }
  /// "program train", "fc.1 … fc.3, backward, a micro-batch of a loop". A function of a phase has
  /// the block's name: "fc.1 … fc.3 bwd, update, a row of a loop".
  std::string of_function(exe::FunctionId function) const;
  /// "fc.1 bwd" for a function that runs the forward or the backward part of one block, or of rows
  /// of equal blocks; empty for others.
  std::string part_of_function(exe::FunctionId function) const;
  /// The parts of a block that a step runs: "fc.1 bwd", or "fc.3 fwd, fc.3 bwd" for a phase that
  /// runs both. A loop over rows of blocks has an entry for each iteration, any other step at most
  /// one. Empty for a step of several blocks and for a step without a block.
  std::vector<std::string> parts_of_step(exe::FunctionId function, size_t step) const;
  /// The forward and backward parts of the blocks of a program that trains, in the order in which
  /// they begin: "fc.0 fwd", "fc.1 … fc.3 fwd", …, "fc.0 bwd".
  std::vector<std::string> blocks_of_program(int32_t program) const;
  /// Whether loops over micro-batches run a block at a time.
  bool has_phases() const { return !e_.origins.rows_of_blocks.empty(); }
  /// Returns the provenance of a step in an activation whose call has the provenance `call`.
  Provenance of_step(const exe::Step& step, const Provenance& call) const;
  /// The part that a kernel with this provenance runs; empty: none.
  std::string part_of_kernel(const exe::Step& step, const Provenance& provenance) const;

 private:
  /// Facts of a function.
  struct Facts {
    const exe::Step* loop = nullptr;  ///< The loop that calls it.
    std::vector<std::string> modules;
    /// Roles and blocks of its kernels and those of its callees, relative to its call.
    std::vector<Provenance> work;
  };

  void find_facts(exe::FunctionId function);
  /// Calls use(provenance) for its work in each of its calls.
  template <typename Use>
  void each_work(exe::FunctionId function, const Use& use) const;
  bool does(exe::FunctionId function, std::initializer_list<OpRole> roles) const;
  /// The part that an op of this provenance belongs to; empty: none.
  std::string part_of(const Provenance& provenance) const;
  /// In the order in which the function begins them.
  std::vector<std::string> parts_of(exe::FunctionId function) const;
  Provenance first_call(exe::FunctionId function) const;
  const Facts& facts(exe::FunctionId f) const { return facts_[f]; }
  Facts& facts(exe::FunctionId f) { return facts_[f]; }
  const exe::Function& function(exe::FunctionId f) const { return e_.functions[f]; }

  const exe::Executable& e_;
  const exe::MemoryContents contents_;
  Ids<exe::FunctionId, Facts> facts_;
};

}  // namespace sluice::report
