#include "tools/data/saved_sizes.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "sluice/base/system/folder.h"
#include "sluice/train/checkpoints/checkpoints.h"
#include "tools/flags/flag_table.h"
#include "tools/flags/help.h"

namespace sluice::tool {
namespace {

using Metadata = std::map<std::string, std::string>;

constexpr std::string_view kDropout = "--dropout";  // It may change from run to run.

std::string key_of(std::string_view flag) { return "sluice." + std::string(flag.substr(2)); }

const Option<ToolOptions>& option_of(std::string_view flag) {
  const auto& options = flag_table().options;
  const auto found = std::find_if(options.begin(), options.end(),
                                  [&](const auto& option) { return flag_of(option) == flag; });
  SLUICE_CHECK(found != options.end());
  return *found;
}

// Calls `f(flag, option)` for each size that the model saves.
template <typename F>
void for_saved_sizes(const ModelOptions& m, F f) {
  const models::Model& model = models::find_model(m.name);
  if (!model.saves_sizes) return;
  for (const std::string_view flag : model.sizes) {
    if (flag != kDropout) f(std::string(flag), option_of(flag));
  }
}

Metadata metadata_of_weights(const ModelOptions& m) {
  const std::string file = m.weights + m.torch_weights;
  if (file.empty() || !models::find_model(m.name).saves_sizes) return {};
  return SafetensorsReader(file).index().metadata;
}

}  // namespace

Metadata sizes_metadata(const ModelOptions& m) {
  ToolOptions o;
  o.model.sizes = m.sizes;
  Metadata metadata;
  for_saved_sizes(m, [&](const std::string& flag, const Option<ToolOptions>& option) {
    metadata[key_of(flag)] = option.print(o);
  });
  return metadata;
}

void use_checkpoint(ToolOptions& o) {
  std::string& weights = o.model.weights;
  if (weights.empty() || !sys::is_folder(weights)) return;
  const std::vector<std::string> names = sys::names_in(weights);
  if (std::none_of(names.begin(), names.end(), [](const std::string& name) {
        return name.starts_with("step-") || name == "run.json";
      }))
    return;
  const std::vector<train::CheckpointInfo> all = train::inspect_checkpoints(weights);
  const auto whole = std::find_if(all.begin(), all.end(),
                                  [](const train::CheckpointInfo& c) { return c.damage.empty(); });
  if (whole == all.end())
    fail(ErrorKind::kNoCheckpoint, "--weights: {} must have a whole checkpoint, got {}: {}",
         weights, all.front().path, all.front().damage);
  require(whole->parts == 1,
          "--weights: {} must have one file of variables, got {}; resume it and --save one file",
          whole->path, whole->parts);
  weights = whole->path + "/model-00001-of-00001.safetensors";
  if (o.output.speaks()) sys::print_stderr("weights of {}\n", whole->path);
}

bool is_checkpoint(const ModelOptions& m) { return sys::exists(m.weights + "/."); }

bool has_saved_sizes(const ModelOptions& m) {
  const Metadata metadata = metadata_of_weights(m);
  bool all = !metadata.empty();
  for_saved_sizes(m, [&](const std::string& flag, const Option<ToolOptions>&) {
    all = all && metadata.contains(key_of(flag));
  });
  return all;
}

void read_saved_sizes(const CLI::App& command, ToolOptions& o) {
  if (!has_saved_sizes(o.model)) return;
  const std::string file = o.model.weights + o.model.torch_weights;
  const Metadata metadata = metadata_of_weights(o.model);
  for_saved_sizes(o.model, [&](const std::string& flag, const Option<ToolOptions>& option) {
    const std::string& saved = metadata.at(key_of(flag));
    const std::string set = option.print(o);
    const CLI::Option* const given = command.get_option_no_throw(flag);
    require(given == nullptr || given->count() == 0 || set == saved,
            "{}: must be {}, that of {}, got {}; leave it out", flag, saved, file, set);
    try {
      option.read(o, {saved});
    } catch (const Error& e) {
      fail(ErrorKind::kBadFile, "{}: {} {}", file, key_of(flag), e.what());
    }
  });
  const auto tensors = std::ssize(SafetensorsReader(file).index().tensors);
  if (o.model.sizes.blocks > tensors)
    fail(ErrorKind::kBadFile, "{}: sluice.blocks must be at most its tensors, {}, got {}", file,
         tensors, o.model.sizes.blocks);
}

}  // namespace sluice::tool
