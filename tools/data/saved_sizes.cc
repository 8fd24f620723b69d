#include "tools/data/saved_sizes.h"

#include <algorithm>
#include <string_view>

#include "sluice/base/error.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
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
