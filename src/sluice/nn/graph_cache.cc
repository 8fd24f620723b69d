#include "sluice/nn/graph_cache.h"

namespace sluice::nn::internal {

std::string describe(const TensorSpec& spec) {
  return fmt::format("{} {}", to_string(spec), to_string(spec.meta_shape));
}

std::string describe(const NamedInput& input) {
  return fmt::format("{} {} {}", input.name, describe(input.spec), static_cast<int>(input.pass));
}

}  // namespace sluice::nn::internal
