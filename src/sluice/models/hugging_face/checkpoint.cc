#include "sluice/models/hugging_face/checkpoint.h"

#include <filesystem>
#include <set>

#include "sluice/base/error.h"
#include "sluice/base/sys.h"

namespace sluice::models {
namespace {

constexpr std::string_view kIndexSuffix = ".index.json";

// Whether a name from an index is that of a file in the folder of the index.
bool is_plain_file(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

train::WeightFiles open_index(const std::string& path) {
  const nlohmann::json index = read_json_object(path);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty())
    fail(ErrorKind::kBadFile, "{}: must have a 'weight_map' of names of tensors to files", path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_file(file.get_ref<const std::string&>())) {
      fail(ErrorKind::kBadFile, "{}: the file of '{}' must be one of the same folder, got {}", path,
           tensor, file.dump(-1, ' ', true));
    }
    files.insert((folder / file.get_ref<const std::string&>()).string());
  }
  train::WeightFiles weights(path, {files.begin(), files.end()});
  const std::vector<std::string> tensors = weights.tensors();
  for (const auto& [tensor, file] : map->items()) {
    if (!std::ranges::binary_search(tensors, tensor))
      fail(ErrorKind::kBadFile, "{}: tensor '{}' is missing from its files", path, tensor);
  }
  return weights;
}

bool is_folder(const std::string& path) { return sys::exists(path + "/."); }

}  // namespace

nlohmann::json read_json_object(const std::string& path) {
  const std::vector<std::byte> bytes = sys::read_file(path);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) fail(ErrorKind::kBadFile, "{}: must be a JSON object", path);
  return json;
}

train::WeightFiles open_checkpoint(const std::string& path) {
  if (is_folder(path)) {
    const std::filesystem::path folder(path);
    const std::string whole = (folder / "model.safetensors").string();
    const std::string index = whole + std::string(kIndexSuffix);
    return sys::exists(index) ? open_index(index) : train::WeightFiles(whole);
  }
  return path.ends_with(kIndexSuffix) ? open_index(path) : train::WeightFiles(path);
}

std::string config_path(const std::string& path) {
  std::filesystem::path folder(path);
  if (!is_folder(path)) folder = folder.parent_path();
  return (folder / "config.json").string();
}

}  // namespace sluice::models
