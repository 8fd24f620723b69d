#include <fmt/format.h>

#include <string>
#include <vector>

#include "sluice/ops/basic.h"
#include "sluice/transforms/loops/body_ops.h"
#include "sluice/transforms/loops/repeat_last_ops.h"

namespace sluice {

LoopArguments::LoopArguments(Tensors carried, Tensors fields, std::optional<Infeed> infeed,
                             std::string_view loop)
    : arguments_(std::move(carried)),
      carried_(arguments_.size()),
      infeed_(std::move(infeed)),
      loop_(loop) {
  arguments_.insert(arguments_.end(), fields.begin(), fields.end());
}

std::string LoopArguments::describe() const {
  std::string text = counted(carried_, "carried value");
  if (infeed_) {
    const size_t fields = infeed_->fields.size();
    text += fmt::format(" and {} of infeed '{}' ({})", counted(fields, "field"), infeed_->name,
                        names_of(infeed_->fields));
  }
  return text;
}

const Tensor& LoopArguments::operator[](size_t i) const {
  require(i < size(), "{}: an argument of the body must be below {}, got {}; it has {}", loop_,
          size(), i, describe());
  return arguments_[i];
}

const Tensor& LoopArguments::operator[](std::string_view field) const {
  require(infeed_.has_value(),
          "{}: field '{}' must belong to an infeed, got none; pass an infeed to the loop", loop_,
          field);
  for (size_t i = 0; i < infeed_->fields.size(); ++i) {
    if (infeed_->fields[i].name == field) return arguments_[carried_ + i];
  }
  fail(ErrorKind::kUsage, "{}: a field of infeed '{}' must be one of {}, got '{}'", loop_,
       infeed_->name, names_of(infeed_->fields), field);
}

void LoopArguments::require_count(size_t count) const {
  require(count == size(), "{}: the body must have {}, got {}: the arguments are {}", loop_,
          counted(size(), "parameter"), count, describe());
}

namespace ops {

Tensors repeat(Graph& graph, int64_t n, const LoopBody& body, const Tensors& inputs,
               const std::optional<Infeed>& infeed, std::source_location where) {
  const LoopRequest request{"repeat", "n", graph, n, inputs, infeed};
  request.check();
  const BodyOps added(graph, request.loop);
  try {
    std::vector<transforms::CarriedValue> carried;
    Tensors values;
    for (const Tensor& t : inputs) {
      values.push_back(identity({t, where}, t.name()));
      carried.push_back({.first = t, .before = values.back(), .after = {}});
    }
    const Tensors results = request.run(body, values);
    added.check_outputs();
    if (n == 0) {
      added.remove();
      Tensors copies;
      for (const Tensor& t : inputs) copies.push_back(identity({t, where}, t.name()));
      return copies;
    }
    for (size_t k = 0; k < results.size(); ++k) carried[k].after = results[k];
    return transforms::repeat_last_ops(graph, added.first(), n, carried, {}, where);
  } catch (...) {
    added.remove();
    throw;
  }
}

}  // namespace ops
}  // namespace sluice
