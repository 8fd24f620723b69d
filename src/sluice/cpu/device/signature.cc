#include "sluice/cpu/device/signature.h"

#include <algorithm>

#include "sluice/cpu/layout/layouts.h"
#include "sluice/exe/words.h"
#include "sluice/ops/op.h"

namespace sluice::cpu {
namespace {

template <typename... Args>
void check(bool good, const exe::Kernel& k, fmt::format_string<Args...> format, Args&&... args) {
  if (good) return;
  fail(ErrorKind::kBadFile, "executable: kernel {} ({}): {}", k.key, k.op,
       fmt::format(format, std::forward<Args>(args)...));
}

bool alike(const TensorSpec& a, const TensorSpec& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

// Returns the number of inputs. Checks that the inputs precede the outputs.
size_t inputs_of(const exe::Kernel& k) {
  size_t inputs = 0;
  while (inputs < k.operands.size() && k.operands[inputs].access == exe::Access::kRead) ++inputs;
  for (size_t i = inputs; i < k.operands.size(); ++i) {
    check(k.operands[i].access == exe::Access::kWrite, k,
          "operands must be inputs that are read, then outputs that are written, got operand {} {}",
          i, k.operands[i].access == exe::Access::kRead ? "read after an output" : "updated");
  }
  return inputs;
}

void check_counts(const exe::Kernel& k, size_t inputs, size_t outputs, size_t scalars) {
  const size_t ins = inputs_of(k);
  const size_t outs = k.operands.size() - ins;
  check(ins == inputs && outs == outputs && k.scalars.size() == scalars && k.stages.empty(), k,
        "must have {} inputs, {} outputs, {} scalars and 0 stages, got {}, {}, {} and {}", inputs,
        outputs, scalars, ins, outs, k.scalars.size(), k.stages.size());
}

// Requires the options of `def`: the same names in the same order, with values of the same types.
void check_options(const OpDef& def, const Attrs& attrs) {
  const auto& must = def.options.items;
  const auto& has = attrs.items;
  bool alike = has.size() == must.size();
  for (size_t i = 0; alike && i < has.size(); ++i)
    alike = has[i].first == must[i].first && has[i].second.index() == must[i].second.index();
  if (alike) return;
  fail(ErrorKind::kBadFile,
       "executable: options of {} must have the names and types of '{}', got '{}'", def.type,
       to_string(def.options), to_string(attrs));
}

// Returns the specs of the results that an operator computes from `inputs`.
std::vector<TensorSpec> results_of(const exe::Kernel& k, const std::string& type,
                                   const Attrs& attrs, const std::vector<TensorSpec>& inputs) {
  const OpDef* def = ops::find_op(type);
  require(def != nullptr, "executable: there is no operator '{}'", type);
  check(!def->has(Trait::kCollective), k, "operator must not be a collective, got {}", type);
  const size_t min = def->inputs.size() - (def->variadic ? 1 : 0);
  check_options(*def, attrs);
  check(inputs.size() == def->inputs.size() || (def->variadic && inputs.size() >= min), k,
        "inputs of {} must be {}{}, got {}", type, min, def->variadic ? " or more" : "",
        inputs.size());
  try {
    return def->infer(OpView(*def, attrs, inputs));
  } catch (const Error& e) {
    check(false, k, "inputs are invalid for {}: {}", type, e.what());
    throw;
  }
}

void check_result(const exe::Kernel& k, const TensorSpec& there, const TensorSpec& made) {
  check(alike(there, made), k, "result must be {}, got {}", to_string(made), to_string(there));
}

// Requires this op, or the ops of all stages joined by '+', with these options.
void check_op(const exe::Kernel& k, std::string_view op, const Attrs& attrs) {
  check(k.op == op && k.attrs == attrs, k,
        "operator must be {} with options '{}', got {} with '{}'", op, to_string(attrs), k.op,
        to_string(k.attrs));
}

void check_stages(const exe::Kernel& k) {
  const size_t inputs = inputs_of(k);
  std::string op;
  for (const exe::Stage& stage : k.stages) op += (op.empty() ? "" : "+") + stage.op;
  check_op(k, op, k.stages.size() == 1 ? k.stages[0].attrs : Attrs{});
  std::vector<int> makers(k.operands.size(), 0);
  for (const exe::Stage& stage : k.stages) {
    std::vector<TensorSpec> specs;
    for (const int32_t i : stage.inputs) {
      check(i < static_cast<int32_t>(inputs), k,
            "stages must read inputs or earlier stages, got output {}", i);
      specs.push_back(i < 0 ? at(k.stages, ~i).spec : at(k.operands, i).spec);
    }
    const std::vector<TensorSpec> made = results_of(k, stage.op, stage.attrs, specs);
    check(made.size() == 1, k, "stage {} must have 1 result, got {}", stage.op, made.size());
    check_result(k, stage.spec, made[0]);
    if (stage.output < 0) continue;
    ++at(makers, stage.output);
    check_result(k, at(k.operands, stage.output).spec, stage.spec);
  }
  for (size_t o = inputs; o < makers.size(); ++o)
    check(makers[o] == 1, k, "operand {} must be the result of 1 stage, got {}", o, makers[o]);
}

void check_copy(const exe::Kernel& k) {
  check_op(k, "Copy", {});
  check_counts(k, 1, 1, 0);
  const exe::Operand& from = k.operands[0];
  const exe::Operand& to = k.operands[1];
  const Layout a = parse_layout(from.layout);
  const Layout b = parse_layout(to.layout);
  // A copy that materializes a view may change the shape; the number of elements stays the same.
  const bool same_elements =
      to.spec.dtype == from.spec.dtype && to.spec.elements() == from.spec.elements();
  const bool rows = a.is_row_major() && b.is_row_major();
  if (!rows || !same_elements) check_result(k, to.spec, from.spec);
  const bool converts =
      may_have(from.spec, a) && may_have(from.spec, b) && (a.is_row_major() || b.is_row_major());
  check(a == b || converts, k,
        "layouts of {} must be equal, or row and another one that the tensor may have, got '{}' "
        "and '{}'",
        to_string(from.spec), from.layout, to.layout);
}

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

// Returns the (input, output) pairs where the op updates the input in place to compute the output.
Pairs updates_of(const exe::Kernel& k, int32_t inputs) {
  Pairs pairs;
  for (const exe::Stage& stage : k.stages) {
    const OpDef* def = ops::find_op(stage.op);
    for (const Alias& a : def->aliases) pairs.emplace_back(at(stage.inputs, a.input), stage.output);
  }
  const OpDef* def = k.stages.empty() ? ops::find_op(k.op) : nullptr;
  if (def == nullptr) return pairs;
  for (const Alias& a : def->aliases) pairs.emplace_back(a.input, inputs + a.output);
  return pairs;
}

// Checks the operands: one updated operand, or one input and one output, according to `def`.
void check_operands(const exe::Collective& c, const OpDef& def) {
  const auto has = [&](size_t i, exe::Access access) { return c.operands[i].access == access; };
  const bool right = def.aliases.empty() ? c.operands.size() == 2 && has(0, exe::Access::kRead) &&
                                               has(1, exe::Access::kWrite)
                                         : c.operands.size() == 1 && has(0, exe::Access::kUpdate);
  std::string got;
  for (const exe::Operand& o : c.operands)
    got += (got.empty() ? "" : ", ") + std::string(exe::word(o.access));
  require(right, "executable: access to the operands of {} must be '{}', got '{}'", c.op,
          def.aliases.empty() ? "read, write" : "update", got);
  for (const auto& [in, out] : c.may_coincide) {
    const auto& pairs = def.may_coincide;
    require(std::find(pairs.begin(), pairs.end(), std::pair<int, int>(in, out - 1)) != pairs.end(),
            "executable: operands {} and {} of {} must not coincide: it may write one before it "
            "reads the other",
            in, out, c.op);
  }
}

}  // namespace

void check_signature(const exe::Kernel& k) {
  for (size_t i = 0; i < k.operands.size(); ++i) {
    const exe::Operand& o = k.operands[i];
    const int64_t bytes = buffer_bytes(o.spec, parse_layout(o.layout));
    check(o.bytes == bytes, k, "operand {} ({} '{}') must have {} bytes, got {}", i,
          to_string(o.spec), o.layout, bytes, o.bytes);
    check(o.layout == "row" || k.key == "cpu.fused" || k.key == "cpu.copy", k,
          "layout of operand {} must be 'row', got '{}'", i, o.layout);
  }
  if (k.key == "cpu.copy") return check_copy(k);
  if (k.key == "cpu.index") {
    check_op(k, "Index", {});
    check_counts(k, 0, 1, 1);
    return check(k.operands[0].spec.bytes() == 4, k, "result must have 4 bytes, got {}",
                 to_string(k.operands[0].spec));
  }
  if (k.key == "cpu.fused") {
    check(k.scalars.empty(), k, "must have 0 scalars, got {}", k.scalars.size());
    return check_stages(k);
  }
  const size_t inputs = inputs_of(k);
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < inputs; ++i) specs.push_back(k.operands[i].spec);
  const std::vector<TensorSpec> made = results_of(k, k.op, k.attrs, specs);
  check_counts(k, inputs, made.size(), 0);
  for (size_t o = 0; o < made.size(); ++o) check_result(k, k.operands[inputs + o].spec, made[o]);
}

void check_choice(const exe::Kernel& k, const KernelChoice& made_for) {
  const auto ins = static_cast<int32_t>(inputs_of(k));
  Pairs allowed = updates_of(k, ins);
  for (const auto& [in, out] : made_for.may_coincide) allowed.emplace_back(in, ins + out);
  for (const auto& pair : k.may_coincide) {
    // A kernel reads a single element before it writes the result.
    const exe::Operand& out = at(k.operands, pair.second);
    if (out.spec.elements() == 1) continue;
    check(std::find(allowed.begin(), allowed.end(), pair) != allowed.end(), k,
          "operands {} and {} must not coincide: it may write one before it reads the other",
          pair.first, pair.second);
  }
  check(k.tasks == made_for.tasks, k, "tasks must be {}, got {}", made_for.tasks, k.tasks);
  check(k.workspace_bytes >= made_for.workspace_bytes, k,
        "workspace must be at least {} bytes, got {}", made_for.workspace_bytes, k.workspace_bytes);
  const auto at = [](const std::vector<int64_t>& list, size_t i) {
    return list.empty() ? 0 : list[i];
  };
  for (size_t i = 0; i < k.operands.size(); ++i) {
    const int64_t stride = at(made_for.task_stride, i);
    const int64_t pitch = at(made_for.task_pitch, i);
    const exe::Operand& o = k.operands[i];
    check(o.task_stride == stride && o.task_pitch == pitch, k,
          "operand {}: tasks must be {} bytes apart (pitch {}), got {} (pitch {})", i, stride,
          pitch, o.task_stride, o.task_pitch);
  }
}

void check_signature(const exe::Collective& c, const exe::ReplicaGroup& group) {
  const OpDef* const def = ops::find_op(c.op);
  require(def != nullptr && def->has(Trait::kCollective),
          "executable: operator of a collective step must be a collective, got '{}'", c.op);
  check_operands(c, *def);
  check_options(*def, c.attrs);
  const TensorSpec& x = c.operands.front().spec;
  const TensorSpec& y = c.operands.back().spec;
  const std::vector<TensorSpec> inputs{x};
  const auto made = def->infer(OpView(*def, c.attrs, inputs));
  bool same_group = true;
  for (const auto& [name, value] : c.attrs.items) {
    if (name == "size") same_group &= std::get<int64_t>(value) == group.size;
    if (name == "stride") same_group &= std::get<int64_t>(value) == group.stride;
  }
  require(same_group,
          "executable: options of {} must match the group (size {}, stride {}), got '{}'", c.op,
          group.size, group.stride, to_string(c.attrs));
  require(made[0] == y, "executable: result of {} of {} must be {}, got {}", c.op, to_string(x),
          to_string(made[0]), to_string(y));
}

}  // namespace sluice::cpu
