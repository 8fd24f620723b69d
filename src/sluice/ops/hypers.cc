#include "sluice/ops/hypers.h"

#include <algorithm>

#include "sluice/ops/hyper_rules.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    names.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(text.size(), comma + 1));
  }
  return names;
}

int fixed_inputs(const OpView& op) {
  return static_cast<int>(op.def().inputs.size()) - (op.def().variadic ? 1 : 0);
}

}  // namespace

std::vector<Hyper> hypers_of(const OpView& op) {
  std::vector<Hyper> hypers;
  std::vector<std::string> operands;
  for (const auto& [name, value] : op.attrs().items) {
    if (const auto* number = std::get_if<double>(&value)) hypers.push_back({name, -1, *number});
    if (name == "operands") operands = split_names(std::get<std::string>(value));
  }
  int position = fixed_inputs(op);
  for (const std::string& name : operands) {
    const auto hyper =
        std::find_if(hypers.begin(), hypers.end(), [&](const Hyper& h) { return h.name == name; });
    require(hyper != hypers.end() && hyper->operand < 0,
            "{} (C3): option operands: must name hyperparameters, each at most once, got '{}'",
            op.def().name, name);
    require(position < op.inputs(), "{} (C3): hyperparameter '{}' requires an operand, got none",
            op.def().name, name);
    hyper->operand = position++;
  }
  return hypers;
}

void require_hypers(const OpView& op, std::string_view constraint) {
  int count = 0;
  for (const Hyper& h : hypers_of(op)) {
    if (h.operand < 0) continue;
    ++count;
    const TensorSpec& t = op.input(h.operand);
    const std::string what =
        fmt::format("{} {}: hyperparameter {}", op.def().name, constraint, h.name);
    require_float(t, what);
    require(t.shape.empty(), "{} must have shape (), got {}", what, to_string(t));
  }
  const int expected = fixed_inputs(op) + count;
  require(op.inputs() == expected,
          "{} {}: must have {} operands, {} of them hyperparameters, got {}", op.def().name,
          constraint, expected, count, op.inputs());
}

}  // namespace sluice::ops
