#include "sluice/models/model.h"

#include <algorithm>
#include <string>

#include "sluice/base/error.h"

namespace sluice::models {

const Model& find_model(std::string_view name) {
  const std::vector<Model>& all = all_models();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Model& m) { return m.name == name; });
  if (found != all.end()) return *found;
  std::string names;
  for (const Model& m : all) names += (names.empty() ? "" : ", ") + std::string(m.name);
  fail(ErrorKind::kUsage, "model: must be one of {}, got '{}'", names, name);
}

}  // namespace sluice::models
