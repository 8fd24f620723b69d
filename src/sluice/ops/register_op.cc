#include "sluice/ops/register_op.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <mutex>

#include "sluice/ops/elementwise.h"
#include "sluice/ops/registered_ops.h"

namespace sluice::ops {
namespace {

// The registered operators; entries never move.
struct Registered {
  std::mutex mutex;
  std::deque<OpDef> defs;
};
Registered& registered() {
  static Registered* const all = new Registered;  // Read by threads that end after main().
  return *all;
}

bool is_identifier(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

void check_pair(const OpDef& def, const char* what, int input, int output) {
  require(input >= 0 && input < std::ssize(def.inputs) && output >= 0 &&
              output < std::ssize(def.outputs),
          "register_op: {} of {} must name one of {} inputs and one of {} outputs, got ({}, {})",
          what, def.type, def.inputs.size(), def.outputs.size(), input, output);
}

void check_fields(const OpDef& def) {
  require(is_identifier(def.type) && is_identifier(def.name),
          "register_op: type and name must be identifiers, got '{}' and '{}'", def.type, def.name);
  // functor_type() removes this suffix to find the functor of an in-place operator.
  require(!def.type.ends_with("Inplace"),
          "register_op: a type must not end with 'Inplace', got '{}'", def.type);
  require(!def.outputs.empty(), "register_op: {} requires at least one output, got none", def.type);
  require(def.infer != nullptr && def.reference_float != nullptr && def.reference_double != nullptr,
          "register_op: {} requires infer, reference_float and reference_double", def.type);
  require(!def.has(kStructural) && !def.has(kCollective),
          "register_op: {} must be neither structural nor a collective", def.type);
  require((def.host_kernel.run == nullptr) == (def.host_kernel.rows == nullptr),
          "register_op: host_kernel of {} requires both functions or none", def.type);
  require(def.map == nullptr || (def.has(kElementwise) && def.outputs.size() == 1),
          "register_op: a map requires one output and the trait kElementwise; {} has {} outputs",
          def.type, def.outputs.size());
  require(def.map == nullptr || (def.inputs.size() <= kMaxMapInputs && !def.variadic),
          "register_op: a map has at most {} inputs; {} has {}", kMaxMapInputs, def.type,
          def.variadic ? "any number" : fmt::format("{}", def.inputs.size()));
  require(!def.has(kView), "register_op: {} must not be a view; reshape() makes views", def.type);
  for (const Alias& alias : def.aliases) check_pair(def, "aliases", alias.input, alias.output);
  for (const auto& [input, output] : def.may_coincide)
    check_pair(def, "may_coincide", input, output);
}

const Attrs& options_of(const OpDef& def, const Attrs& given) {
  return given.items.empty() ? def.options : given;
}

void check_samples(const OpDef& def) {
  for (const Sample& sample : def.samples) {
    const auto made = def.infer(OpView(def, options_of(def, sample.options), sample.inputs));
    require(made.size() == def.outputs.size(),
            "register_op: infer of {} must return {} specs on its samples, got {}", def.type,
            def.outputs.size(), made.size());
  }
  for (const MustFail& bad : def.must_fail) {
    try {
      def.infer(OpView(def, options_of(def, bad.options), bad.inputs));
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kUsage &&
          std::string_view(e.what()).find(bad.constraint) != std::string_view::npos)
        continue;
      fail(ErrorKind::kUsage,
           "register_op: an input of must_fail of {} must be refused by {}, got '{}'", def.type,
           bad.constraint, e.what());
    }
    fail(ErrorKind::kUsage,
         "register_op: an input of must_fail of {} must be refused by {}, but was accepted",
         def.type, bad.constraint);
  }
}

}  // namespace

const OpDef& register_op(OpDef def) {
  check_fields(def);
  check_samples(def);
  const std::string type = def.type;
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  const bool taken = find_op_of_library(type) != nullptr ||
                     std::any_of(all.defs.begin(), all.defs.end(),
                                 [&](const OpDef& other) { return other.type == type; });
  require(!taken, "register_op: there is an operator of type '{}' already", type);
  return all.defs.emplace_back(std::move(def));
}

const OpDef* find_registered_op(std::string_view type) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  const auto found = std::find_if(all.defs.begin(), all.defs.end(),
                                  [&](const OpDef& def) { return def.type == type; });
  return found == all.defs.end() ? nullptr : &*found;
}

namespace internal {

OpDef complete_elementwise(OpDef d) {
  const size_t n = d.inputs.size();
  d.outputs = {"y"};
  d.traits = kElementwise;
  for (size_t i = 0; i < n; ++i) d.may_coincide.emplace_back(static_cast<int>(i), 0);
  d.infer = elementwise::infer_float;
  d.flops_per_element = static_cast<double>(n);
  d.doc += n == 1 ? " (C1) Floating point."
                  : " (C1) Floating point. (C2) One dtype. (C3) Shapes broadcast.";
  const auto specs = [n](const TensorSpec& first, const TensorSpec& others) {
    std::vector<TensorSpec> all(n, others);
    all[0] = first;
    return all;
  };
  const TensorSpec half{Shape{3, 5}, f16, {}};
  for (const Shape& shape : {Shape{}, Shape{17}, Shape{3, 5}, Shape{0, 4}})
    d.samples.push_back({.inputs = specs(f32_spec(shape), f32_spec(shape))});
  d.samples.push_back({.inputs = specs(half, half), .gradient = false});
  d.must_fail = {{"(C1)", specs(i32_spec({2}), i32_spec({2})), {}}};
  if (n > 1) {
    d.samples.push_back({.inputs = specs(f32_spec({2, 1, 33}), f32_spec({5, 1}))});
    d.must_fail.push_back({"(C2)", specs(f32_spec({3, 5}), half), {}});
    d.must_fail.push_back({"(C3)", specs(f32_spec({2, 3}), f32_spec({2})), {}});
  }
  return d;
}

}  // namespace internal
}  // namespace sluice::ops
