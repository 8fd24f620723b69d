#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::report {

/// A tensor, named in the words of the model.
struct Place {
  /// "variables", "optimizer state", "accumulators", "gradients", "activations", …
  std::string kind = "others";
  std::string text = {};  ///< "fc.0.weight, first_order", "fc.1, gelu output (backward)".
};

/// Names the contents of a plan's buffers, remote entries and functions by their provenances. The
/// executable must outlive this object.
class Places {
 public:
  explicit Places(const exe::Executable& executable);

  Place of_variable(int32_t variable) const;
  Place of_remote(int32_t remote_buffer) const;
  /// A buffer of a function's frame.
  Place of_buffer(int32_t function, int32_t buffer) const;
  /// "program train", "fc.1 … fc.3, backward, a micro-batch of a loop". A function of a phase has
  /// the block's name: "fc.1 … fc.3 bwd, update, a row of a loop".
  std::string of_function(int32_t function) const;
  /// "fc.1 bwd" for a function that runs the forward or the backward part of one block, or of rows
  /// of equal blocks; empty for others.
  std::string part_of_function(int32_t function) const;
  /// The parts of a block that a step runs: "fc.1 bwd", or "fc.3 fwd, fc.3 bwd" for a phase that
  /// runs both. A loop over rows of blocks has an entry for each iteration, any other step at most
  /// one. Empty for a step of several blocks and for a step without a block.
  std::vector<std::string> parts_of_step(int32_t function, size_t step) const;
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
  /// The forward or the backward part of a block, or of rows of equal blocks.
  struct Part {
    std::string block;
    bool backward = false;
    bool operator==(const Part&) const = default;
  };
  /// Facts of a function.
  struct Facts {
    /// Provenances of its calls that differ in role or block.
    std::vector<Provenance> contexts;
    const exe::Step* loop = nullptr;  ///< The loop that calls it.
    std::set<int32_t> programs;       ///< Programs that run it.
    std::vector<std::string> modules;
    /// Roles and blocks of its kernels and those of its callees, relative to its call.
    std::vector<Provenance> work;
  };

  void find_contexts(int32_t function);
  void find_facts(int32_t function);
  void find_remotes(const std::vector<int32_t>& callees_first);
  /// Names of the rows of a block; null for a block that shares its functions with no other one.
  const std::vector<std::string>* rows_of(const std::string& block) const;
  /// Calls use(provenance) for its work in each context.
  template <typename Use>
  void each_work(int32_t function, const Use& use) const;
  bool does(int32_t function, std::initializer_list<OpRole> roles) const;
  /// In the order in which it begins them.
  std::vector<Part> parts_of(int32_t function) const;
  std::string texts_of(const std::vector<Part>& parts) const;
  std::string module_of(const Provenance& p) const;
  std::string phase_of(int32_t function, bool backward) const;
  Provenance of_value(int32_t function, exe::ValueId value) const;
  Place described(const Provenance& p) const;
  const Facts& facts(int32_t f) const { return facts_[static_cast<size_t>(f)]; }
  Facts& facts(int32_t f) { return facts_[static_cast<size_t>(f)]; }
  const exe::Function& function(int32_t f) const { return e_.functions[static_cast<size_t>(f)]; }

  const exe::Executable& e_;
  std::vector<Facts> facts_;                                ///< By function.
  std::vector<bool> trains_;                                ///< By program.
  std::vector<Place> remotes_;                              ///< By remote buffer.
  std::map<std::pair<int32_t, int64_t>, int32_t> entries_;  ///< Variables by buffer and entry.
};

}  // namespace sluice::report
