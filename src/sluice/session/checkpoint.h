#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "sluice/base/safetensors.h"
#include "sluice/runtime/process_group.h"
#include "sluice/session/session.h"
#include "sluice/session/variables.h"

namespace sluice {

/// A name, or a pattern with one `*`.
struct NamePattern {
  std::string before;
  std::string after;
  bool has_star = false;
};

/// LoadOptions::names, applied to the tensors of one file.
class NewNames {
 public:
  /// Error{kUsage} for patterns that are not as described there.
  explicit NewNames(const std::map<std::string, std::string>& names);
  /// Returns the path of the variable that a tensor sets; empty if the tensor is left out.
  /// Error{kUsage} if two patterns match its name, and no name without `*`.
  std::string operator()(const std::string& name);
  /// Error{kUsage} if a name matched no tensor of the file at `path`.
  void require_all_used(const std::string& path) const;

 private:
  struct Entry {
    std::string name;
    NamePattern from;
    NamePattern to;
    bool is_used = false;
  };
  std::vector<Entry> entries_;
};

/// The tensors of a file for some variables.
struct FileMatch {
  std::vector<const SafetensorsTensor*> tensors;  ///< One for each variable; null: not in the file.
  LoadResult result;
};

/// Returns the tensors of `file` that set `variables`, whose names are their paths. `path` is that
/// of the file, for errors. Error{kBadFile} for a tensor of another spec than its variable. With
/// LoadOptions::strict, also for a missing variable among the first `required`. Error{kUsage} as
/// for Session::load().
FileMatch match_file(const SafetensorsReader& file, const std::string& path,
                     std::span<const NamedSpec> variables, const LoadOptions& options = {},
                     size_t required = SIZE_MAX);

/// Implement Session::save(), load() and restore(); see their contracts.
void save_variables(const Variables& variables, runtime::Agreement& agreement,
                    const std::string& path, const SafetensorsMetadata& metadata);
LoadResult load_variables(Variables& variables, runtime::Agreement& agreement,
                          const std::string& path, const LoadOptions& options);
void restore_variables(Variables& variables, const std::vector<NamedArray>& values);

}  // namespace sluice
