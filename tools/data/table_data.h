#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "tools/data/user_data.h"

namespace sluice::tool {

/// Loads the samples of a CSV file for load_user_data(), with the schema of the weights or one that
/// it infers.
std::shared_ptr<const UserData> load_table(const std::string& path, const DataChoice& choice);

/// Loads the inputs of a CSV file for load_inputs().
std::shared_ptr<const UserData> load_table_inputs(const std::string& path, const DataChoice& choice,
                                                  int64_t elements);

}  // namespace sluice::tool
