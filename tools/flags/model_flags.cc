#include "tools/flags/model_flags.h"

#include <fmt/format.h>

#include <limits>

#include "tools/flags/flags.h"

namespace sluice::tool {
namespace {

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const models::Model& m : models::all_models()) names.emplace_back(m.name);
  return names;
}

}  // namespace

std::string defaults_of_models(std::string_view flag, std::string_view usual) {
  std::vector<std::string> texts;
  for (const models::Model& m : models::all_models()) {
    for (const models::Default& d : m.defaults) {
      if (d.flag == flag && d.text != usual) texts.push_back(fmt::format("{}: {}", m.name, d.text));
    }
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::vector<models::Default> model_defaults(const ToolOptions& o) {
  std::vector<models::Default> defaults;
  for (const models::Default& d : models::find_model(o.model.name).defaults) {
    if (d.flag == "--device-iterations" && (o.phased() || o.train.steps)) continue;
    if (d.flag == "--offload" && !o.trains) continue;  // Only training has tensors to move.
    defaults.push_back(d);
  }
  return defaults;
}

void add_model(Flags flags, ToolOptions& o) {
  flags.group(kModelGroup)
      .value("model", "MODEL",
             {fmt::format("Use this model: {}", fmt::join(model_names(), ", ")), "mnist"},
             [&o](const std::string& text) {
               require_one_of("model", text, model_names());
               o.model.name = text;
             });
  flags.integer<int64_t, int64_t>("--layers", o.model.sizes.layers, 1, 100000,
                                  {"Set the number of linear layers", "4"});
  flags.integer<int64_t, int64_t>(
      "--width", o.model.sizes.width, 1, kMost,
      {"Set the features of hidden layers; channels in resnet18", "512"});
}

void add_dropout(Flags flags, ToolOptions& o) {
  flags.group(kModelGroup, Common::kNo)
      .value("--dropout", "P", {"Drop hidden features with probability P while training", "0"},
             [&o](const std::string& text) {
               o.model.sizes.dropout = parse_real("--dropout", text);
               require(o.model.sizes.dropout >= 0 && static_cast<float>(o.model.sizes.dropout) < 1,
                       "--dropout: must be a float32 from 0 to below 1, got '{}'", text);
             });
}

}  // namespace sluice::tool
