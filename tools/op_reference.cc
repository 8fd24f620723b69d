// Prints the operator reference as Markdown, from the operators' own definitions.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sluice/cpu/device/cpu.h"
#include "sluice/exe/executable.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/op.h"

namespace sluice {
namespace {

/// "A. (C1) B. (C2) C." as the text before the first constraint and a list of the constraints.
struct Description {
  std::string text;
  std::vector<std::string> constraints;

  explicit Description(const std::string& doc) {
    size_t at = doc.find("(C");
    text = doc.substr(0, at);
    while (at != std::string::npos) {
      const size_t next = doc.find("(C", at + 1);
      constraints.push_back(doc.substr(at, next == std::string::npos ? next : next - at));
      at = next;
    }
  }
};

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string operands(const OpDef& def) {
  std::string text;
  for (size_t i = 0; i < def.inputs.size(); ++i) {
    const InputDef& input = def.inputs[i];
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", input.name);
    if (def.variadic && i + 1 == def.inputs.size()) text += " (any number)";
    if (input.mode == Mode::kUpdate) text += " (updated)";
    if (input.mode == Mode::kWrite) text += " (overwritten)";
  }
  std::string results;
  for (size_t i = 0; i < def.outputs.size(); ++i) {
    results += fmt::format("{}`{}`", results.empty() ? "" : ", ", def.outputs[i]);
    for (const Alias& a : def.aliases) {
      if (a.output == static_cast<int>(i)) {
        results += fmt::format(" (in the storage of `{}`)", at(def.inputs, a.input).name);
      }
    }
  }
  return text + " → " + results;
}

std::string options(const OpDef& def) {
  std::string text;
  for (const auto& item : def.options.items) {
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", to_string(Attrs{{item}}));
  }
  return text.empty() ? "none" : text;
}

std::string gradient(const OpDef& def) {
  if (def.grad != nullptr || def.formula != nullptr) {
    std::string text = "yes";
    for (const InputDef& input : def.inputs) {
      if (input.zero_gradient) text += fmt::format("; that of {} is 0 by definition", input.name);
    }
    return text;
  }
  return def.has(Trait::kZeroGradient) ? "0 by definition" : "none: autodiff refuses the operator";
}

/// Returns the key of the kernel that runs a sample on the CPU, with another dtype for its f32
/// operands; "" if the operator refuses it or there is nothing to compute.
std::string kernel_of(const OpDef& def, const Sample& sample, DType dtype) {
  std::vector<TensorSpec> inputs = sample.inputs;
  for (TensorSpec& t : inputs) {
    if (t.dtype == f32) t.dtype = dtype;
  }
  const Attrs& attrs = sample.options.items.empty() ? def.options : sample.options;
  try {
    const std::vector<TensorSpec> outputs = def.infer(OpView(def, attrs, inputs));
    for (const TensorSpec& t : outputs) {
      if (t.elements() == 0) return "";
    }
    return cpu::make_target()->choose(OpView(def, attrs, inputs, outputs)).key;
  } catch (const Error&) {
    return "";
  }
}

/// Why some or all samples of an operator run on its reference kernel.
const std::map<std::string_view, std::string_view> kReferenceReasons = {
    {"increment_mod", "a counter has one element"},
    {"increment_mod_", "a counter has one element"},
    {"logsum", "kept and reduced axes alternate, or a lane has no or more than 65,536 elements"},
    {"logsumexp", "kept and reduced axes alternate, or a lane has no or more than 65,536 elements"},
    {"max_pool_taps", "a window has more than 64 rows or columns"},
    {"maximum", "more than two operands differ in shape"},
    {"minimum", "more than two operands differ in shape"},
    {"onehot_grad", "two sums in the order of the indices"},
    {"print_tensor", "it writes text"},
    {"reduce_prod_grad", "each element needs the product of all others"},
    {"roi_align", "each box has its own samples"},
    {"roi_align_grad", "boxes overlap, and their order decides"},
    {"scatter_reduce", "the order of the indices decides"},
    {"strided_matmul", "neither rows nor columns are contiguous, or are read backwards"}};

/// "f32, i32: `cpu.cast`; u8: reference": the kernels of the samples, by the dtype of the first
/// operand. Error{kUsage} if one is the reference and kReferenceReasons does not say why.
std::string kernels(const OpDef& def) {
  if (def.has(Trait::kView)) return "none: a view";
  if (def.has(Trait::kCollective)) return "kernels of collectives";
  std::map<std::string, std::vector<std::string>> dtypes_of;
  for (const DType dtype : {f32, f16, bf16, i32, u32, u8, boolean}) {
    std::set<std::string> keys;
    for (const Sample& sample : def.samples) {
      const bool is_float = sample.inputs.empty() || sample.inputs[0].dtype == f32;
      if (!is_float && sample.inputs[0].dtype != dtype) continue;
      if (sluice::is_float(dtype) != is_float) continue;
      const std::string key = kernel_of(def, sample, dtype);
      if (key.empty()) continue;
      keys.insert(exe::is_reference_kernel(key) ? "reference" : fmt::format("`{}`", key));
    }
    if (!keys.empty())
      dtypes_of[fmt::format("{}", fmt::join(keys, " or "))].push_back(std::string(name_of(dtype)));
  }
  std::string text;
  for (const auto& [keys, dtypes] : dtypes_of)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", fmt::join(dtypes, ", "), keys);
  if (text.find("reference") == std::string::npos) return text;
  const auto reason = kReferenceReasons.find(def.name);
  require(reason != kReferenceReasons.end(),
          "{}: runs on its reference kernel, but kReferenceReasons does not say why", def.name);
  return fmt::format("{} ({})", text, reason->second);
}

void print(const OpDef& def) {
  const Description description(def.doc);
  fmt::print("## {}\n\n{}\n\n", def.name, trimmed(description.text));
  for (const std::string& constraint : description.constraints)
    fmt::print("- {}\n", trimmed(constraint));
  if (!description.constraints.empty()) fmt::print("\n");
  fmt::print("| | |\n|---|---|\n");
  fmt::print("| type | `{}` |\n", def.type);
  fmt::print("| operands | {} |\n", operands(def));
  fmt::print("| options | {} |\n", options(def));
  fmt::print("| gradient | {} |\n", gradient(def));
  fmt::print("| kernels on the CPU | {} |\n\n", kernels(def));
}

void print_all() {
  std::vector<const OpDef*> all = ops::all_ops();
  std::sort(all.begin(), all.end(),
            [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
  fmt::print("# Operators\n\n");
  fmt::print(
      "Made from the operators' definitions by `tools/op_reference.cc`. Functions are in namespace "
      "`sluice::ops`; options "
      "are shown with their defaults. A constraint's label, such as (C1), starts the message of "
      "the error that refuses an "
      "operand. Kernels are those that run the samples of the definition, by the dtype of the "
      "first "
      "operand: a reference kernel is the definition itself, which is slow; the reason is in "
      "parentheses.\n\n");
  for (const OpDef* def : all) fmt::print("[{}](#{}) ", def->name, def->name);
  fmt::print(
      "\n\nAutodiff differentiates operators and their gradients, any number of times. A gradient "
      "that is 0 by definition ends there. A gradient that would pass another operator without one "
      "is an error that names the operator. These have none:");
  for (const OpDef* def : all) {
    const bool floating = def->grad == nullptr && def->formula == nullptr;
    if (floating && !def->has(Trait::kZeroGradient)) fmt::print(" [{}](#{})", def->name, def->name);
  }
  fmt::print("\n\n");
  for (const OpDef* def : all) print(*def);
}

}  // namespace
}  // namespace sluice

int main() {
  sluice::print_all();
  return 0;
}
