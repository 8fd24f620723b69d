#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/exe/memory_needs.h"

namespace sluice::exe {

/// Adds an item to a list that does not have it.
template <typename T>
void add_once(std::vector<T>& list, const T& item) {
  for (const T& known : list) {
    if (known == item) return;
  }
  list.push_back(item);
}

/// Adds a provenance to a list without one of the same role and block.
void add_work(std::vector<Provenance>& list, const Provenance& provenance);

/// Returns "fc.1 … fc.3": the first and the last of several names.
std::string range_of(const std::vector<std::string>& names);

/// Names the contents of a plan's memory by their provenances. Errors and reports share these
/// names. The executable must outlive this object.
class MemoryContents {
 public:
  explicit MemoryContents(const Executable& executable);

  Contents of_variable(VariableId variable) const;
  Contents of_constant(ConstantId constant) const;
  Contents of_remote(BufferId remote_buffer) const;
  /// A buffer of a function's frame.
  Contents of_buffer(FunctionId function, size_t buffer) const;
  /// An arena that does not hold tensors: "channel slots".
  static Contents of_arena(ArenaKind kind);
  /// The provenance of the first tensor that a buffer holds, in the first call of its function.
  Provenance provenance_of(FunctionId function, size_t buffer) const;
  /// Provenances of the calls of a function that differ in role or block.
  const std::vector<Provenance>& calls_of(FunctionId function) const;
  /// "fc.1": the module of an op, or its block if it is outside all modules. The modules of rows of
  /// equal blocks are those rows: "fc.1 … fc.3".
  std::string module_of(const Provenance& provenance) const;
  /// Names of the rows of a block; null for a block that shares its functions with no other one.
  const std::vector<std::string>* rows_of(const std::string& block) const;

 private:
  /// Contents of all entries of a remote buffer.
  struct Remote {
    std::string kind = Contents().kind;
    std::vector<std::string> names;
    bool has_variables = false;
  };

  void add(BufferId remote_buffer, const Contents& contents);
  Provenance of_value(FunctionId function, ValueId value) const;
  Contents described(const Provenance& provenance) const;
  const Step* maker_of(FunctionId function, size_t buffer) const;
  const Function& function(FunctionId f) const { return e_.functions[f]; }

  const Executable& e_;
  Ids<FunctionId, std::vector<Provenance>> calls_;
  Ids<BufferId, Remote> remotes_;
  std::map<std::pair<BufferId, int64_t>, VariableId> entries_;  ///< Indexed by buffer and entry.
};

}  // namespace sluice::exe
