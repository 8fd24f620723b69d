#include "sluice/nn/layers/common.h"

namespace sluice::nn::internal {

Initializer weight_init(WeightInit init, const Shape& shape, const Fans& fans) {
  constexpr double kDeviation = 0.02;
  switch (init) {
    case WeightInit::kTruncatedNormal:
      return truncated_normal(0, kDeviation);
    case WeightInit::kNormal:
      return normal(0, kDeviation);
    case WeightInit::kHe:
      return he_normal(fans.in);
    case WeightInit::kHeFanOut:
      return he_normal(fans.out);
    case WeightInit::kHeUniform:
      return he_uniform(fans.in);
    case WeightInit::kXavier:
      return xavier_normal(fans);
    case WeightInit::kXavierUniform:
      return xavier_uniform(fans);
    case WeightInit::kOrthogonal:
      return orthogonal(shape);
    case WeightInit::kUniform:
      return fan_in_uniform(fans.in);
  }
  fail(ErrorKind::kInternal, "layer: unknown weight init {}", static_cast<int>(init));
}

Initializer bias_init(WeightInit init, int64_t fan_in) {
  return init == WeightInit::kUniform ? fan_in_uniform(fan_in) : zeros();
}

std::vector<int64_t> axis_list(std::string_view layer, std::string_view option,
                               const std::vector<int64_t>& list, int axes, Ends ends) {
  const auto count = static_cast<size_t>(axes);
  if (list.size() == 1) return std::vector<int64_t>(count, list[0]);
  const bool fits = list.empty() || list.size() == count ||
                    (ends == Ends::kMayDiffer && list.size() == 2 * count);
  require(fits, "{}: {} must have one number for all {} spatial axes or one for each{}, got {}",
          layer, option, axes, ends == Ends::kMayDiffer ? ", or for each start and each end" : "",
          list.size());
  return list;
}

void require_spatial(std::string_view layer, const Tensor& x, int axes) {
  require(x.rank() == axes + 2,
          "{}: x must have a batch, channels and {} spatial ax{}, got '{}' {}", layer, axes,
          axes == 1 ? "is" : "es", x.name(), to_string(x.spec()));
}

}  // namespace sluice::nn::internal
