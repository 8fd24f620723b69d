#pragma once
#include <string>
#include <vector>

#include "sluice/base/safetensors.h"
#include "sluice/runtime/process_group.h"
#include "sluice/session/variables.h"

namespace sluice {

/// Implement Session::save(), load() and restore(); see their contracts.
void save_variables(const Variables& variables, runtime::Agreement& agreement,
                    const std::string& path, const SafetensorsMetadata& metadata);
std::vector<std::string> load_variables(Variables& variables, runtime::Agreement& agreement,
                                        const std::string& path);
void restore_variables(Variables& variables, const std::vector<NamedArray>& values);

}  // namespace sluice
