#include "sluice/train/run/finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "sluice/base/numbers/number_text.h"
#include "sluice/base/numbers/slices.h"
#include "sluice/ir/ir.h"
#include "sluice/ir/op_def.h"
#include "sluice/ir/variable.h"

namespace sluice::train {
namespace {

constexpr int64_t kCheckedPart = 1 << 16;  // Elements of a variable that are read together.

// T: the type in which `dtype` is stored.
template <typename T>
double element(DType dtype, std::span<const std::byte> bytes, size_t i) {
  T stored;
  std::memcpy(&stored, bytes.data() + i * sizeof(T), sizeof(T));
  if constexpr (std::is_same_v<T, uint16_t>)
    return static_cast<double>(dtype == f16 ? half_to_float(stored) : bfloat_to_float(stored));
  else
    return static_cast<double>(stored);
}

double element(DType dtype, std::span<const std::byte> bytes, size_t i) {
  return visit_storage(dtype, [&]<typename T>(T) { return element<T>(dtype, bytes, i); });
}

// Returns the first of some elements for which `matches(value)` holds.
template <typename Matches>
std::optional<size_t> find_element(DType dtype, std::span<const std::byte> bytes,
                                   const Matches& matches) {
  if (!is_float(dtype)) return std::nullopt;
  std::optional<size_t> found;
  visit_storage(dtype, [&]<typename T>(T) {
    for (size_t i = 0; i < bytes.size() / sizeof(T) && !found; ++i) {
      if (matches(element<T>(dtype, bytes, i))) found = i;
    }
  });
  return found;
}

// Whether all elements are finite: the exponent of none has all bits. Without branches, so that the
// compiler vectorises it; find_element() then says which one is not.
template <typename Bits>
bool have_finite_exponents(std::span<const std::byte> bytes, Bits exponent) {
  bool found = false;
  for (size_t i = 0; i + sizeof(Bits) <= bytes.size(); i += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i, sizeof bits);
    found |= (bits & exponent) == exponent;
  }
  return !found;
}

bool all_finite(DType dtype, std::span<const std::byte> bytes) {
  if (dtype == f32) return have_finite_exponents<uint32_t>(bytes, 0x7f800000);
  if (dtype == f16) return have_finite_exponents<uint16_t>(bytes, 0x7c00);
  if (dtype == bf16) return have_finite_exponents<uint16_t>(bytes, 0x7f80);
  return false;  // Not known.
}

bool is_not_finite(double value) { return !std::isfinite(value); }
bool is_nan(double value) { return std::isnan(value); }

void check_elements(std::string_view what, DType dtype, std::span<const std::byte> bytes,
                    int64_t begin, std::optional<int64_t> updates) {
  if (all_finite(dtype, bytes)) return;
  const auto found = find_element(dtype, bytes, is_not_finite);
  if (!found) return;
  const std::string after = updates ? fmt::format(" after {} updates", *updates) : "";
  const std::string remedy = updates.value_or(0) > 0 ? "; a smaller learning rate may help" : "";
  fail(ErrorKind::kDiverged, "{} must be finite, got {} in element {}{}; it is not saved{}", what,
       number_text(element(dtype, bytes, *found)), begin + static_cast<int64_t>(*found), after,
       remedy);
}

void check_variable(const Session& session, const Tensor& variable, std::string_view what,
                    std::optional<int64_t> updates) {
  const TensorSpec spec = host_spec(variable.spec(), *variable.graph().info(variable).variable);
  std::vector<std::byte> part;
  for (int64_t begin = 0; begin < spec.elements(); begin += kCheckedPart) {
    const int64_t count = std::min(kCheckedPart, spec.elements() - begin);
    part.resize(static_cast<size_t>(count * size_of(spec.dtype)));
    session.read_chunk(variable, begin, count, part);
    check_elements(what, spec.dtype, part, begin, updates);
  }
}

// The rule of labels of the losses of a program.
struct LabelRule {
  int64_t classes = 0;
  std::optional<int64_t> ignored;
  bool operator==(const LabelRule&) const = default;
};

// Returns the rule of an op with the inputs `labels` and scores of all classes.
std::optional<LabelRule> label_rule(const Graph& graph, const Op& op) {
  if (op.def->inputs.size() < 2 || op.def->inputs[1].name != "labels" || op.inputs.size() < 2)
    return std::nullopt;
  const TensorSpec scores = graph.spec(op.inputs[0].tensor);
  const TensorSpec labels = graph.spec(op.inputs[1].tensor);
  if (scores.shape.rank() != labels.shape.rank() + 1) return std::nullopt;
  LabelRule rule{scores.shape[scores.shape.rank() - 1], std::nullopt};
  bool ignores = false;
  for (const auto& [name, value] : op.attrs.items) {
    if (name == "has_ignore_index") ignores = std::get<bool>(value);
    if (name == "ignore_index") rule.ignored = std::get<int64_t>(value);
  }
  if (!ignores) rule.ignored.reset();
  return rule;
}

// Returns the rule that all losses of a program share.
std::optional<LabelRule> label_rule(const Ir& ir) {
  std::optional<LabelRule> found;
  for (const GraphId g : ir.graph_ids()) {
    for (const Op& op : ir.graph(g).ops()) {
      const std::optional<LabelRule> rule = label_rule(ir.graph(g), op);
      if (!rule) continue;
      if (found && *found != *rule) return std::nullopt;
      found = rule;
    }
  }
  return found;
}

// A label that is neither a class nor ignored.
struct WrongLabel {
  size_t index = 0;
  int32_t label = 0;
  int64_t classes = 0;
};

std::optional<WrongLabel> find_wrong_label(std::span<const int32_t> labels, int64_t classes,
                                           std::optional<int64_t> ignored) {
  for (size_t i = 0; i < labels.size(); ++i) {
    const bool is_class = labels[i] >= 0 && labels[i] < classes;
    if (!is_class && ignored != labels[i]) return WrongLabel{i, labels[i], classes};
  }
  return std::nullopt;
}

// Returns the row of the dataset that is row `row` of the item that a loader returned last.
int64_t row_of_dataset(const data::BatchLoader& loader, int64_t row) {
  const data::LoaderOptions& options = loader.options();
  const int64_t index = (loader.position() - 1) * options.batch + row;
  const int64_t samples = loader.samples().value_or(data::kForever);
  if (options.shuffle == data::Shuffle::kNo || samples == data::kForever) return index;
  std::vector<uint32_t> order(static_cast<size_t>(samples));
  data::shuffled_order(options.seed, loader.epoch(), order);
  return at(order, index);
}

int64_t row_of_element(const HostTensor& array, size_t i) {
  return static_cast<int64_t>(i) * array.shape()[0] / array.elements();
}

std::string name_of_field(const data::Element& item, size_t field) {
  return item.names.empty() ? fmt::format("{}", field) : fmt::format("'{}'", item.names[field]);
}

}  // namespace

void check_finite_value(std::string_view path, DType dtype, std::span<const std::byte> bytes,
                        int64_t begin, std::optional<int64_t> updates) {
  check_elements(fmt::format("variable '{}'", path), dtype, bytes, begin, updates);
}

void check_finite(const Session& session, const Training& training,
                  std::optional<int64_t> updates) {
  training.variables.for_each([&](const std::string& path, const Tensor& variable) {
    check_variable(session, variable, fmt::format("variable '{}'", path), updates);
  });
  training.state.for_each([&](const std::string& path, const Tensor& variable) {
    check_variable(session, variable, fmt::format("optimizer state '{}'", path), updates);
  });
  training.averages.for_each([&](const std::string& path, const Tensor& variable) {
    check_variable(session, variable, fmt::format("average '{}{}'", kAveragePrefix, path), updates);
  });
}

std::string reason_of_loss(const Ir& ir, const data::BatchLoader& loader, const data::Element& item,
                           const HostTensor* first, std::span<const ClassLabels> labels,
                           int64_t update) {
  std::vector<ClassLabels> checked(labels.begin(), labels.end());
  if (const auto rule = first != nullptr ? label_rule(ir) : std::nullopt)
    checked = {{first, rule->classes, rule->ignored}};
  for (const ClassLabels& l : checked) {
    if (const auto wrong = find_wrong_label(l.labels->as<int32_t>(), l.classes, l.ignore_index)) {
      return fmt::format("; label {} in row {} is outside 0..{}", wrong->label,
                         row_of_dataset(loader, row_of_element(*l.labels, wrong->index)),
                         wrong->classes - 1);
    }
  }
  for (size_t f = 0; f < item.arrays.size(); ++f) {
    const HostTensor& array = item.arrays[f];
    const auto found = find_element(array.dtype(), array.bytes(), is_not_finite);
    if (!found) continue;
    return fmt::format("; field {} in row {} is {}", name_of_field(item, f),
                       row_of_dataset(loader, row_of_element(array, *found)),
                       number_text(element(array.dtype(), array.bytes(), *found)));
  }
  return update == 0 ? "" : "; a smaller learning rate may help";
}

std::string reason_of_row(const data::Element& inputs, int64_t row,
                          std::span<const ClassLabels> labels) {
  for (const ClassLabels& l : labels) {
    const Slices all(l.labels->as<int32_t>(), l.labels->shape()[0]);
    if (const auto wrong = find_wrong_label(all[row], l.classes, l.ignore_index))
      return fmt::format("; label {} is outside 0..{}", wrong->label, wrong->classes - 1);
  }
  for (size_t f = 0; f < inputs.arrays.size(); ++f) {
    const HostTensor& array = inputs.arrays[f];
    if (array.shape().rank() == 0 || array.shape()[0] <= row) continue;
    const auto own = Slices(array.bytes(), array.shape()[0])[row];
    if (const auto wrong = find_element(array.dtype(), own, is_not_finite))
      return fmt::format("; its field {} has {}", name_of_field(inputs, f),
                         number_text(element(array.dtype(), own, *wrong)));
  }
  return "";
}

void check_finite_rows(std::string_view name, const HostTensor& prediction,
                       const PredictedRows& rows, std::span<const ClassLabels> labels) {
  if (prediction.elements() == 0 || rows.count == 0) return;
  const auto counted = Slices(prediction.bytes(), prediction.shape()[0]).range(0, rows.count);
  const auto found = find_element(prediction.dtype(), counted, is_nan);
  if (!found) return;
  const int64_t row = row_of_element(prediction, *found);
  fail(ErrorKind::kDiverged, "prediction '{}' in row {} is nan{}", name, rows.first + row,
       reason_of_row(rows.inputs, row + rows.offset, labels));
}

}  // namespace sluice::train
