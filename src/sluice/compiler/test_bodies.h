#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/compiler/body_text.h"
#include "sluice/compiler/verify_body.h"

namespace sluice::compiler {

/// Ids of these numbers.
template <typename I>
std::vector<I> ids(std::initializer_list<int32_t> numbers) {
  return std::vector<I>(numbers.begin(), numbers.end());
}

/// A target for tests of passes. The test sets its answers.
struct TestTarget : Target {
  std::set<std::string> fused;  ///< Stages that one kernel can run: "MatMul+Add".
  bool panels = false;  ///< Whether elementwise ops run on panels, also in the kernels of `fused`.
  /// The layout in which an op reads operand `i` fastest.
  std::function<Layout(const FusedOp&, int)> wish = [](const FusedOp&, int) { return Layout{}; };
  std::function<KernelChoice(const OpView&)> kernel = [](const OpView& op) {
    return KernelChoice{.key = "test." + op.def().type, .may_coincide = coinciding_operands(op)};
  };

  std::string kind() const override { return "test"; }
  std::string isa() const override { return "none"; }
  KernelChoice choose(const OpView& op) const override { return kernel(op); }
  bool fuses(const FusedOp& op) const override {
    std::string name;
    bool elementwise = true;
    bool rows = true;
    for (const OpStage& stage : op.stages) {
      name += (name.empty() ? "" : "+") + stage.op->type;
      elementwise = elementwise && stage.op->has(Trait::kElementwise);
    }
    for (const Layout& layout : op.layouts) rows = rows && layout == Layout{};
    return op.stages.size() > 1 ? fused.contains(name) && (rows || panels)
                                : rows || (panels && elementwise) || fused.contains(name);
  }
  bool has_layouts(const TensorSpec& spec) const override {
    return spec.shape.rank() == 2 && spec.dtype == f32;
  }
  int64_t buffer_bytes(const TensorSpec& spec, const Layout&) const override {
    return spec.bytes();
  }
  bool fuses_in_all_layouts(const FusedOp& op) const override {
    return fuses(op.with_layout(parse_layout("panels32")));
  }
  Layout preferred_layout(const FusedOp& op, int operand) const override {
    return wish(op, operand);
  }
  KernelChoice choose_fused(const FusedOp& op) const override {
    return {.key = "test.fused" + std::to_string(op.stages.size())};
  }
  KernelChoice copy(const TensorSpec&, const Layout& from, const Layout& to) const override {
    return {.key = "test.copy " + to_string(from) + " " + to_string(to)};
  }
};

/// A program for tests of passes, from the text of its bodies, and a context with test devices.
/// Entry bodies become the program's entries. A variable has the spec of the values that name it.
/// Constant i is the scalar `numbers[i]`. Stream 0 is an input of the program, stream 1 an output.
struct TestProgram {
  explicit TestProgram(std::string_view text, const std::vector<int32_t>& numbers = {},
                       int devices = 1) {
    ir.h2d_stream({{4}, f32, {}}, "in");
    ir.d2h_stream({{4}, f32, {}}, "out");
    for (int d = 0; d < devices; ++d) options.devices.push_back({.target = target});
    for (const int32_t number : numbers) {
      auto data = std::make_shared<HostTensor>(HostTensor::of<int32_t>({}, i32, {number}));
      program.constants.push_back({std::to_string(number), std::move(data)});
    }
    program.bodies = parse_bodies(text);
    for (size_t b = 0; b < program.bodies.size(); ++b) {
      const Body& body = program.bodies[b];
      if (body.is_entry()) program.entries.push_back({body.name, {BodyId(b)}});
      for (const BodyValue& v : body.values) {
        if (v.source != BodyValue::Source::kVariable) continue;
        const exe::VariableId index(v.index);
        if (!program.variables.contains(index))
          program.variables.resize(static_cast<size_t>(index) + 1);
        program.variables[index] = {std::make_shared<VariableInfo>(), v.spec, v.tensor, 0, {}};
      }
    }
  }

  Body& body(int32_t id = 0) { return program.body(BodyId(id)); }
  const Body& body(int32_t id = 0) const { return program.body(BodyId(id)); }
  std::string text() const { return to_text(program); }
  /// Verifies the program. Expects its bodies and their numbers to equal those of a text.
  void expect(std::string_view expected) const {
    verify(program, "of the test");
    EXPECT_EQ(text(), to_text(TestProgram(expected).program));
  }

  std::shared_ptr<TestTarget> target = std::make_shared<TestTarget>();
  CompileOptions options;
  Ir ir;
  Program program{ir};
  Context context{options};
};

}  // namespace sluice::compiler
