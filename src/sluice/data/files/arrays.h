#pragma once
#include <string>
#include <vector>

namespace sluice::data {

/// Returns the names of the arrays in a file of from_npz(), in the order of the file. Errors as
/// from_npz().
std::vector<std::string> npz_names(const std::string& path);
/// Returns the names of the tensors in a file of from_safetensors(), or in the first file of a
/// folder. Tensors of other dtypes are left out. Errors as from_safetensors().
std::vector<std::string> safetensors_names(const std::string& path);

}  // namespace sluice::data
