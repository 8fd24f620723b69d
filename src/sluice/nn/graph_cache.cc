#include "sluice/nn/graph_cache.h"

#include "sluice/base/error.h"

namespace sluice::nn {

GraphCache::GraphCache() = default;
GraphCache::GraphCache(const GraphCache&) = default;
GraphCache::GraphCache(GraphCache&&) noexcept = default;
GraphCache& GraphCache::operator=(const GraphCache&) = default;
GraphCache& GraphCache::operator=(GraphCache&&) noexcept = default;
GraphCache::~GraphCache() = default;

size_t GraphCache::size() const { return made_.size(); }

const GraphCache::Made* GraphCache::find(const std::string& key) const {
  const auto found = made_.find(key);
  return found == made_.end() ? nullptr : &found->second;
}

const GraphCache::Made& GraphCache::add(std::string key, Made made) {
  return made_.emplace(std::move(key), std::move(made)).first->second;
}

namespace internal {

std::string describe(const TensorSpec& spec) {
  return fmt::format("{} {}", to_string(spec), to_string(spec.meta_shape));
}

std::string describe(const NamedInput& input) {
  return fmt::format("{} {} {}", input.name, describe(input.spec), static_cast<int>(input.pass));
}

std::string describe_real(double value) { return fmt::format("{}", value); }

}  // namespace internal
}  // namespace sluice::nn
