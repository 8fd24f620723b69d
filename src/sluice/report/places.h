#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::report {

/// Kind of tensor that bytes hold.
enum class Holding : uint8_t {
  kUnknown,
  kVariable,
  kState,
  kAccumulator,
  kGradient,
  kActivation,
  kStream,
  kConstant
};

/// "variables", "optimizer state", …
std::string_view word(Holding holding);

/// A tensor, named in the words of the model.
struct Place {
  Holding kind = Holding::kUnknown;
  std::string text;  ///< "fc.0.weight, first_order", "fc.1, gelu output (backward)".
};

/// Compares digits by the number that they spell: "fc.9" comes before "fc.10".
struct NaturalLess {
  bool operator()(const std::string& a, const std::string& b) const;
};

/// Names the contents of a plan's buffers, remote entries and functions. It follows variables
/// through loads, collectives, calls and kernels. Names that the plan lacks come from the names of
/// its values. The executable must outlive this object.
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
  /// "fc.1 bwd" for a function that runs the forward or the backward part of one block, or of equal
  /// blocks in a row; empty for others. Defined in block_phases.cc.
  std::string part_of_function(int32_t function) const;
  /// The parts of a block that a step runs: "fc.1 bwd", or "fc.3 fwd, fc.3 bwd" for a phase that
  /// runs both. A loop over equal blocks in a row has an entry for each turn, any other step at
  /// most one. Empty for a step of several blocks and for a step without a block. Defined in
  /// block_phases.cc.
  std::vector<std::string> parts_of_step(int32_t function, size_t step) const;
  /// Whether a tensor belongs to a part of a block. Defined in block_phases.cc.
  bool is_of_block(const std::string& tensor) const;
  /// The forward and backward parts of the blocks of a program that trains, in the order in which
  /// they begin: "fc.0 fwd", "fc.1 … fc.3 fwd", …, "fc.0 bwd".
  std::vector<std::string> blocks_of_program(int32_t program) const;
  /// Whether loops over micro-batches run a block at a time.
  bool has_phases() const { return serialised_; }
  /// Whether a function is the body of a loop over rows of remote buffers.
  bool is_row(int32_t function) const;

 private:
  using Names = std::set<std::string, NaturalLess>;

  struct Content {
    Holding kind = Holding::kUnknown;
    Names paths;       ///< Variables, without the name of a state.
    Names modules;     ///< Modules that make or use it.
    std::string what;  ///< "first_order", "gelu output".
    std::string note;  ///< "gathered".
    bool backward = false;
  };

  /// Phases of training that a function takes part in.
  struct Phases {
    bool forward = false, backward = false, update = false;
  };

  /// The forward or the backward ops of a block (nn/block.h), or of equal blocks in a row.
  struct BlockPhase {
    std::string block;  ///< The first one.
    bool backward = false;
    auto operator<=>(const BlockPhase&) const = default;
  };
  struct BlockRows {
    Names names;      ///< The blocks that variables are named after.
    size_t rows = 1;  ///< Number of blocks in the row.
  };

  Content content_of_variable(const std::string& path) const;
  std::string module_of(const std::string& path) const;
  static void merge(const Content& from, Content& to);
  void visit(int32_t f, size_t s);
  void visit_issue(int32_t f, size_t s, const exe::Issue& issue);
  void visit_call(int32_t f, size_t s, const exe::Call& call);
  void visit_work(int32_t f, size_t s, const std::vector<exe::Operand>& operands, bool collective);
  void name_accumulators(int32_t f, size_t s, const std::vector<exe::Operand>& operands);
  Content made_by(const exe::Step& step, const exe::Operand& result, const Content& inputs) const;
  Content* at(int32_t f, size_t s, const exe::Address& address);
  void find_programs(const std::vector<int32_t>& callers_first);
  void find_update_graphs();
  template <typename Found>
  bool has_transfer(int32_t function, const Found& found) const;
  std::string turn_of(int32_t function) const;
  void find_phases(const std::vector<int32_t>& callees_first);
  void add_phases(const exe::Step& step, Phases& phases);
  std::string phase_of(int32_t f, bool backward) const;
  /// Defined in block_phases.cc.
  void name_blocks();
  std::optional<BlockPhase> block_phase_of(const std::string& graph) const;
  void find_block_phases(const std::vector<int32_t>& callees_first);
  std::vector<BlockPhase> written_phases(const exe::Kernel& kernel) const;
  std::vector<BlockPhase> block_phases_of(const exe::Step& step) const;
  void find_blocks_of_modules();
  void add_block_phases(int32_t f, size_t s);
  void add_rows(const BlockPhase& phase, const Content& content);
  std::string block_text(const std::string& block) const;
  std::string text_of(const BlockPhase& phase) const;
  std::string block_phases_text(int32_t f) const;
  Place place_of(const Content& content, const std::string& phase) const;

  const exe::Executable& e_;
  std::set<std::string> variables_;  ///< Their paths.
  std::vector<Content> variable_contents_;
  std::vector<Content> remotes_;
  std::vector<std::vector<Content>> frames_;  ///< By function and buffer.
  std::vector<std::vector<Content>> params_;  ///< By function and parameter.
  /// Buffers by function and offset.
  std::vector<std::map<int64_t, std::vector<int32_t>>> starts_;
  std::vector<std::map<int64_t, int32_t>> variables_at_;  ///< By arena and offset.
  /// Variables by remote buffer and entry.
  std::map<std::pair<int32_t, int64_t>, int32_t> entries_;
  std::set<std::string> update_graphs_;
  std::vector<Phases> phases_;  ///< Phases of each function.
  bool serialised_ = false;
  std::map<std::string, BlockRows> blocks_;  ///< By name of the first block of a row.
  std::map<std::string, std::string> blocks_of_modules_;
  /// The different parts that a function runs, in the order in which it begins them.
  struct BlockPhases {
    std::vector<BlockPhase> order;
    std::set<BlockPhase> known;
    void add(const BlockPhase& phase) {
      if (known.insert(phase).second) order.push_back(phase);
    }
  };
  std::vector<BlockPhases> block_phases_;    ///< By function.
  std::vector<std::set<int32_t>> programs_;  ///< Programs that run a function.
  std::vector<int64_t> trips_;  ///< Trips of the loop around a function; 0 outside loops.
};

}  // namespace sluice::report
