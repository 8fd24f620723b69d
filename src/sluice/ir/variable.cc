#include "sluice/ir/variable.h"

#include <algorithm>

namespace sluice {
namespace {

const Shape& logical_shape(const TensorSpec& spec, const VariableInfo& info) {
  return info.shard > 0 ? spec.meta_shape : spec.shape;
}

}  // namespace

TensorSpec host_spec(const TensorSpec& spec, const VariableInfo& info) {
  const Shape& shape = logical_shape(spec, info);
  if (!info.group || info.group->groups() == 1) return {shape, spec.dtype, {}};
  std::vector<int64_t> dims{info.group->groups()};
  dims.insert(dims.end(), shape.begin(), shape.end());
  return {Shape(std::move(dims)), spec.dtype, {}};
}

HostPart host_part(const TensorSpec& spec, const VariableInfo& info, int replica) {
  const int64_t whole = logical_shape(spec, info).elements();
  const int64_t begin = info.group ? info.group->group_of(replica) * whole : 0;
  if (info.shard == 0) return {begin, whole};
  const int member = info.group ? info.group->member_of(replica) : replica;
  const int64_t chunk = spec.elements();
  const int64_t at = std::min(member % info.shard * chunk, whole);
  return {begin + at, std::min(chunk, whole - at)};
}

}  // namespace sluice
