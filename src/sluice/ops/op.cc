#include "sluice/ops/op.h"

#include <algorithm>
#include <unordered_map>

#include "sluice/ir/builtin.h"
#include "sluice/ops/registered_ops.h"

namespace sluice::ops {

const OpDef* find_op_of_library(std::string_view type) {
  static const auto table = [] {
    std::unordered_map<std::string_view, const OpDef*> t;
    for (const OpDef* def : all_ops()) t.emplace(def->type, def);
    for (const OpDef* def :
         {&builtin::init(), &builtin::host_load(), &builtin::host_store(), &builtin::remote_load(),
          &builtin::remote_store(), &builtin::call(), &builtin::loop(), &builtin::branch()}) {
      t.emplace(def->type, def);
    }
    return t;
  }();
  const auto found = table.find(type);
  return found == table.end() ? nullptr : found->second;
}

const OpDef* find_op(std::string_view type) {
  const OpDef* const def = find_op_of_library(type);
  return def != nullptr ? def : find_registered_op(type);
}

Tensors emit(const OpDef& def, const std::vector<TensorArg>& inputs, Attrs attrs,
             EmitOptions options) {
  require(!inputs.empty(), "{}: requires at least one operand, got none", def.name);
  return inputs[0].tensor.graph().emit(def, inputs, std::move(attrs), std::move(options));
}

std::vector<TensorArg> at_call(std::vector<TensorArg> ts, const std::source_location& where) {
  if (!ts.empty()) ts[0].where = where;
  return ts;
}

BroadcastIndex::BroadcastIndex(const Shape& in, const Shape& out)
    : dims_(out.dims()), strides_(out.dims().size(), 0), same_(in == out) {
  const auto own = in.strides();
  std::transform(own.begin(), own.end(), in.begin(), strides_.end() - in.rank(),
                 [](int64_t stride, int64_t size) { return size == 1 ? 0 : stride; });
}

int64_t BroadcastIndex::operator()(int64_t flat) const {
  if (same_) return flat;
  int64_t index = 0;
  for (size_t i = dims_.size(); i-- > 0;) {
    index += flat % dims_[i] * strides_[i];
    flat /= dims_[i];
  }
  return index;
}

}  // namespace sluice::ops
