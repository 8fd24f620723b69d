// Compares vector kernels with the reference kernels on each sample of each operator, with
// floating-point operands in every dtype. They must have the same bits on every instruction set,
// and touch only the bytes that the kernel's choice allows.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernel_trial.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/op.h"
#include "sluice/ops/slice.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kMaxElements = 40000;
constexpr std::string_view kReference = "cpu.reference";

Shape larger(const Shape& shape) {
  std::vector<int64_t> dims;
  for (const int64_t d : shape) dims.push_back(d > 1 ? d * 31 + 1 : d);
  return Shape(dims);
}

/// Makes cases from a sample: with its own dtypes, with each dtype and with mixed dtypes, small and
/// large.
std::vector<Case> cases_of(const OpDef& def, const Sample& sample) {
  std::vector<Case> cases;
  const DType dtypes[] = {f32, f16, bf16};
  for (const bool large : {false, true}) {
    if (large && !sample.values.empty()) continue;
    for (int choice = 0; choice < 8; ++choice) {
      Case c{&def,
             sample.options.items.empty() ? def.options : sample.options,
             sample.inputs,
             {},
             &sample};
      int64_t elements = 0;
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        TensorSpec& spec = c.inputs[i];
        const auto number = static_cast<size_t>(choice);
        if (is_float(spec.dtype) && choice > 0)
          spec.dtype = dtypes[choice <= 3 ? number - 1 : (i * (number % 2 + 1) + number) % 3];
        if (large) spec.shape = larger(spec.shape);
        elements = std::max(elements, spec.elements());
      }
      if (elements > kMaxElements) continue;
      try {
        c.outputs = def.infer(OpView(def, c.attrs, c.inputs));
      } catch (const Error&) {
        continue;  // The op does not accept this mix of dtypes.
      }
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

TEST(VectorOps, HaveTheBitsOfTheReferenceInEveryDtype) {
  std::mt19937 random(21);
  std::set<std::string> run;
  for (const OpDef* def : ops::all_ops()) {
    for (const Sample& sample : def->samples) {
      for (const Case& c : cases_of(*def, sample)) {
        if (kernel_of(c.view()).key == kReference) continue;
        Trial trial(c, random);
        for (const Isa isa : tested_isas()) {
          set_isa(isa);
          for (const bool coincide : {false, true}) {
            const std::string wrong = trial.run(coincide);
            ASSERT_EQ(wrong, "") << to_string(isa) << " " << c.text();
          }
        }
        for (const TensorSpec& s : c.inputs)
          run.insert(std::string(def->type) + " " + std::string(name_of(s.dtype)));
      }
    }
  }
  set_isa(detect_isa());
  for (const char* op :
       {"Add",     "Gelu",       "ReduceSum", "Softmax",        "AdamUpdater", "Cast",
        "Slice",   "Transpose",  "Expand",    "Concat",         "Split",       "SliceGrad",
        "Greater", "Dropout",    "Where",     "ReduceMeanGrad", "MaxPool",     "MatMul",
        "Conv",    "GatherGrad", "CumSum",    "BatchNorm"}) {
    for (const char* dtype : {" float32", " float16", " bfloat16"})
      EXPECT_TRUE(run.contains(std::string(op) + dtype)) << op << dtype;
  }
}

// The slices of samples are too small for several tasks.
TEST(VectorOps, ALargeSliceIsCutIntoTasks) {
  std::mt19937 random(22);
  const OpDef& def = ops::slice_def();
  const ops::SliceOptions options{.starts = {3}, .sizes = {70001}, .steps = {1}};
  const Sample sample;
  for (const DType dtype : {f32, bf16}) {
    Case c{&def, to_attrs(options), {{Shape{70010}, dtype, {}}}, {}, &sample};
    c.outputs = def.infer(c.view());
    EXPECT_EQ(kernel_of(c.view()).key, "cpu.move");
    EXPECT_GT(choose_kernel(kernel_of(c.view()), c.view()).tasks, 2);
    EXPECT_EQ(Trial(c, random).run(false), "") << c.text();
  }
}

// Ops that run vectorised in f32 must also do so in f16 and bf16.
TEST(VectorOps, RunHalvesWhereTheyRunFloats) {
  for (const OpDef* def : ops::all_ops()) {
    for (const Sample& sample : def->samples) {
      const std::vector<Case> cases = cases_of(*def, sample);
      std::string_view key;
      for (const Case& c : cases) {
        const bool in_f32 = std::all_of(c.inputs.begin(), c.inputs.end(),
                                        [](const TensorSpec& s) { return s.dtype == f32; }) &&
                            c.outputs[0].dtype == f32;
        if (in_f32) key = kernel_of(c.view()).key;
      }
      for (const Case& c : cases) {
        if (key.empty() || key == kReference) continue;
        EXPECT_NE(kernel_of(c.view()).key, kReference) << c.text();
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cpu
