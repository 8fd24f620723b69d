#include "sluice/interp/check_operator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sluice/interp/interpreter.h"
#include "sluice/interp/sample_inputs.h"
#include "sluice/ir/verify.h"
#include "sluice/ops/hyper_rules.h"
#include "sluice/ops/op.h"

namespace sluice {
namespace {

// Lists "(C1)", "(C2)", … as they occur in a documentation text.
std::vector<std::string> constraints_of(const std::string& doc) {
  std::vector<std::string> labels;
  for (size_t at = doc.find("(C"); at != std::string::npos; at = doc.find("(C", at + 1)) {
    const size_t end = doc.find_first_not_of("0123456789", at + 2);
    if (end != at + 2 && end != std::string::npos && doc[end] == ')') {
      labels.push_back(doc.substr(at, end + 1 - at));
    }
  }
  return labels;
}

// Relative error of one rounding to `dtype`.
double rounding(DType dtype) { return dtype == f16 ? 0x1p-10 : dtype == bf16 ? 0x1p-7 : 0; }

void require_near(const HostTensor& actual, const HostTensor& expected, double tolerance) {
  const auto a = actual.to_doubles();
  const auto e = expected.to_doubles();
  require(a.size() == e.size(), "must have {} elements, got {}", e.size(), a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const bool finite = std::isfinite(e[i]);
    const bool good = finite ? std::fabs(a[i] - e[i]) <= tolerance * std::max(1.0, std::fabs(e[i]))
                             : a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]));
    require(good, "element {} must be {}, got {}", i, e[i], a[i]);
  }
}

// Evaluates a gradient rule. The forward graph has the op. The inputs of the gradient graph are
// the values that the rule requests.
class RuleContext final : public GradContext {
 public:
  RuleContext(const OpDef& def, const Sample& sample, int wanted)
      : def_(def), attrs_(options_of(def, sample.options)), specs_(sample.inputs), wanted_(wanted) {
    forward_ = &ir_.create_empty_graph("forward");
    gradient_ = &ir_.create_empty_graph("gradient");
    for (const TensorSpec& s : specs_) ins_.push_back(forward_->input(s));
    outs_ = forward_->emit(def, {ins_.begin(), ins_.end()}, attrs_);
    for (const Tensor& t : outs_) out_specs_.push_back(t.spec());
  }

  OpView op() const override { return {def_, attrs_, specs_, out_specs_}; }
  Graph& graph() override { return *gradient_; }
  Tensor input(int i) override { return kept(ins_[static_cast<size_t>(i)]); }
  Tensor output(int i) override { return kept(outs_[static_cast<size_t>(i)]); }
  Tensor grad(int i) override {
    auto& t = grads_[i];
    if (t.valid()) return t;
    const TensorSpec& spec = out_specs_[static_cast<size_t>(i)];
    const bool is_zero = is_float(spec.dtype) && !has_grad(i);
    t = is_zero ? gradient_->constant(HostTensor(spec)) : gradient_->input(spec, "grad");
    return t;
  }
  bool has_grad(int i) const override { return seeds_->contains(i); }
  bool needs(int i) const override { return i == wanted_; }
  Tensor forward(const std::function<Tensor(const Tensors&, const Tensors&)>& f) override {
    return kept(f(ins_, outs_));
  }

  // Returns the gradient of input `wanted` for these inputs and output gradients. Returns an
  // empty value if the rule does not return a gradient.
  std::optional<HostTensor> run(const std::vector<HostTensor>& inputs,
                                const std::map<int, HostTensor>& seeds) {
    seeds_ = &seeds;
    const Tensors result = def_.grad(*this);
    leaves_formula_ = result.empty() && def_.formula != nullptr;
    if (leaves_formula_) return std::nullopt;
    require(result.size() == specs_.size(), "the gradient rule must return {} tensors, got {}",
            specs_.size(), result.size());
    const Tensor wanted = result.at(static_cast<size_t>(wanted_));
    if (!wanted.valid()) return std::nullopt;
    const TensorSpec& spec = specs_[static_cast<size_t>(wanted_)];
    require(to_string(wanted.spec()) == to_string(spec),
            "the gradient of input {} must be {}, got {}", wanted_, to_string(spec),
            to_string(wanted.spec()));
    gradient_->add_output(wanted);
    for (const auto& [t, in_gradient] : kept_) {
      // Inputs are not made outputs: their values are known. After an in-place update a handle
      // would show the new value.
      if (std::find(ins_.begin(), ins_.end(), t) == ins_.end()) forward_->add_output(t);
    }
    verify(ir_);
    Interpreter interpreter(ir_, Precision::kDouble);
    const auto extra = interpreter.evaluate(*forward_, inputs);
    std::vector<HostTensor> arguments;
    for (const Tensor& in : gradient_->inputs()) {
      for (const auto& [i, t] : grads_) {
        if (t != in) continue;
        require(seeds.contains(i), "output {} has no gradient: it is not floating point", i);
        arguments.push_back(seeds.at(i));
      }
      size_t next_extra = 0;
      for (const auto& [t, in_gradient] : kept_) {
        const auto position = std::find(ins_.begin(), ins_.end(), t);
        const bool is_input = position != ins_.end();
        if (in_gradient == in) {
          arguments.push_back(is_input ? inputs[static_cast<size_t>(position - ins_.begin())]
                                       : extra[next_extra]);
        }
        next_extra += !is_input;
      }
    }
    return interpreter.evaluate(*gradient_, arguments)[0];
  }
  // Whether the rule left the gradient to the formula, which gradients_test checks.
  bool leaves_formula() const { return leaves_formula_; }

 private:
  Tensor kept(const Tensor& t) {
    for (const auto& [forward, in_gradient] : kept_) {
      if (forward == t) return in_gradient;
    }
    kept_.emplace_back(t, gradient_->input(t.spec(), "kept"));
    return kept_.back().second;
  }

  const OpDef& def_;
  Attrs attrs_;
  std::vector<TensorSpec> specs_;
  std::vector<TensorSpec> out_specs_;
  int wanted_;
  Ir ir_;
  Graph* forward_;
  Graph* gradient_;
  Tensors ins_;
  Tensors outs_;
  std::map<int, Tensor> grads_;
  std::vector<std::pair<Tensor, Tensor>> kept_;
  const std::map<int, HostTensor>* seeds_ = nullptr;
  bool leaves_formula_ = false;
};

HostTensor random_like(const Shape& shape, uint64_t draw) {
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = uniform(draw, static_cast<int64_t>(i), -1, 1);
  return HostTensor::of<double>(shape, f64, values);
}

double dot(const HostTensor& a, const HostTensor& b) {
  const auto x = a.to_doubles();
  const auto y = b.to_doubles();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

HostTensor moved(const HostTensor& x, const HostTensor& direction, double step) {
  HostTensor y = x;
  for (size_t i = 0; i < y.as<double>().size(); ++i)
    y.as<double>()[i] += step * direction.as<double>()[i];
  return y;
}

// Operand arrays of a kernel call.
struct KernelCall {
  KernelCall(const OpDef& def, const Sample& sample)
      : attrs(options_of(def, sample.options)),
        specs(sample.inputs),
        out_specs(def.infer(OpView(def, attrs, specs))),
        view(def, attrs, specs, out_specs) {
    for (const HostTensor& t : draw_inputs(sample))
      arrays.push_back(to_working(t, Precision::kFloat));
    for (const TensorSpec& s : out_specs) {
      arrays.emplace_back(TensorSpec{s.shape, working_dtype(s.dtype, Precision::kFloat), {}});
    }
  }
  HostTensor& output(size_t o) { return arrays[specs.size() + o]; }
  // Runs the kernel. For each pair (i, o), output `o` has the address of input `i`.
  std::vector<HostTensor> run(const std::vector<std::pair<int, int>>& shared) {
    std::vector<HostTensor*> operands;
    for (HostTensor& t : arrays) operands.push_back(&t);
    for (const auto& [i, o] : shared) {
      operands[specs.size() + static_cast<size_t>(o)] = operands[static_cast<size_t>(i)];
    }
    run_kernel(view, operands, Precision::kFloat);
    std::vector<HostTensor> outputs;
    for (size_t o = 0; o < out_specs.size(); ++o)
      outputs.push_back(operands[specs.size() + o]->reshaped(out_specs[o].shape));
    return outputs;
  }

  Attrs attrs;
  std::vector<TensorSpec> specs;
  std::vector<TensorSpec> out_specs;
  OpView view;
  std::vector<HostTensor> arrays;
};

// Calls check(sample, options) for each sample of an operator. Errors name the sample.
template <typename Check>
void each_sample(const OpDef& def, const Check& check) {
  for (const Sample& sample : def.samples) {
    try {
      check(sample, options_of(def, sample.options));
    } catch (const Error& e) {
      fail(e.kind(), "sample {}:\n  {}", describe(def, sample), e.what());
    }
  }
}

void has_description(const OpDef& def) {
  require(!def.samples.empty(), "there must be samples, got none");
  require(!def.doc.empty(), "there must be a doc, got none");
  require(def.infer != nullptr && def.reference_float != nullptr && def.reference_double != nullptr,
          "infer, reference_float and reference_double must exist");
  require(ops::find_op(def.type) == &def, "type {} must be that of one operator", def.type);
}

void infers_what_graphs_have(const OpDef& def) {
  each_sample(def, [&](const Sample& sample, const Attrs& attrs) {
    Ir ir;
    Graph& graph = ir.create_empty_graph("sample");
    std::vector<TensorArg> inputs;
    for (const TensorSpec& s : sample.inputs) inputs.emplace_back(graph.input(s));
    const Tensors outputs = graph.emit(def, inputs, attrs);
    const auto specs = def.infer(OpView(def, attrs, sample.inputs));
    require(outputs.size() == specs.size(), "must have {} outputs, got {}", specs.size(),
            outputs.size());
    for (size_t i = 0; i < specs.size(); ++i)
      require(outputs[i].spec() == specs[i], "output {} must be {}, got {}", i, to_string(specs[i]),
              to_string(outputs[i].spec()));
    verify(ir);
  });
}

void float_agrees_with_double(const OpDef& def) {
  each_sample(def, [&](const Sample& sample, const Attrs& attrs) {
    const auto inputs = draw_inputs(sample);
    const auto actual = run_op(def, attrs, sample.inputs, inputs, Precision::kFloat);
    const auto expected = run_op(def, attrs, sample.inputs, inputs, Precision::kDouble);
    for (size_t i = 0; i < actual.size(); ++i) {
      require(actual[i].shape() == expected[i].shape(), "output {} must be {}, got {}", i,
              to_string(expected[i].shape()), to_string(actual[i].shape()));
      require_near(actual[i], expected[i], sample.tolerance + rounding(actual[i].dtype()));
    }
  });
}

void writes_every_element(const OpDef& def) {
  each_sample(def, [&](const Sample& sample, const Attrs&) {
    KernelCall a(def, sample);
    KernelCall b(def, sample);
    std::vector<std::pair<int, int>> shared;
    for (const Alias& alias : def.aliases) shared.emplace_back(alias.input, alias.output);
    for (size_t o = 0; o < a.out_specs.size(); ++o) {
      if (a.output(o).dtype() == boolean) continue;  // Booleans may only be 0 or 1.
      std::memset(a.output(o).bytes().data(), 0x11, a.output(o).bytes().size());
      std::memset(b.output(o).bytes().data(), 0x22, b.output(o).bytes().size());
    }
    const auto x = a.run(shared);
    const auto y = b.run(shared);
    for (size_t o = 0; o < x.size(); ++o)
      require(x[o].same_bits(y[o]), "every element of output {} must be written", o);
  });
}

void coincides_as_declared(const OpDef& def) {
  auto pairs = def.may_coincide;
  for (const Alias& alias : def.aliases) pairs.emplace_back(alias.input, alias.output);
  for (const auto& [i, o] : pairs) {
    bool tried = false;
    each_sample(def, [&, i = i, o = o](const Sample& sample, const Attrs&) {
      if (static_cast<size_t>(i) >= sample.inputs.size()) return;
      KernelCall apart(def, sample);
      const size_t bytes = apart.arrays[static_cast<size_t>(i)].bytes().size();
      if (bytes != apart.output(static_cast<size_t>(o)).bytes().size()) return;
      KernelCall together(def, sample);
      const auto x = apart.run({});
      const auto y = together.run({{i, o}});
      for (size_t k = 0; k < x.size(); ++k)
        require(x[k].same_bits(y[k]),
                "output {} must have the same bits if output {} overwrites input {}", k, o, i);
      tried = true;
    });
    require(tried, "a sample must have an input {} and an output {} of equal size", i, o);
  }
}

void refuses_what_constraints_exclude(const OpDef& def) {
  std::set<std::string> covered;
  for (const MustFail& bad : def.must_fail) {
    const bool bare = !bad.constraint.starts_with('(');
    const std::string constraint = bare ? "(" + bad.constraint + ")" : bad.constraint;
    std::string text = "nothing was thrown";
    ErrorKind kind = ErrorKind::kInternal;
    try {
      def.infer(OpView(def, options_of(def, bad.options), bad.inputs));
    } catch (const Error& e) {
      text = e.what();
      kind = e.kind();
    }
    require(kind == ErrorKind::kUsage && text.find(constraint) != text.npos &&
                text.find(def.name) != text.npos,
            "an input of must_fail must be refused with an error that names {} and {}, got '{}'",
            def.name, constraint, text);
    covered.insert(constraint);
  }
  for (const std::string& constraint : constraints_of(def.doc))
    require(covered.contains(constraint), "must_fail must have an input for {}", constraint);
}

void writes_options_as_text(const OpDef& def) {
  std::vector<Attrs> all{def.options};
  for (const Sample& sample : def.samples) all.push_back(options_of(def, sample.options));
  for (const Attrs& attrs : all)
    require(parse_attrs(to_string(attrs)) == attrs, "options must be read as they are written: {}",
            to_string(attrs));
}

// Runs the kernels of a registered operator on each sample of f32: the map on
// broadcast operands, and the parts of the host kernel from the last to the first.
void kernels_have_the_bits_of_the_reference(const OpDef& def) {
  each_sample(def, [&](const Sample& sample, const Attrs&) {
    KernelCall call(def, sample);
    for (const std::vector<TensorSpec>* specs : {&call.specs, &call.out_specs})
      for (const TensorSpec& s : *specs)
        if (is_float(s.dtype) && s.dtype != f32) return;
    const std::vector<HostTensor> want = call.run({});
    const auto compare = [&](const char* kernel) {
      for (size_t o = 0; o < want.size(); ++o)
        require(call.output(o).reshaped(want[o].shape()).same_bits(want[o]),
                "{} must compute the bits of reference_float in output {}", kernel, o);
    };
    if (def.host_kernel.run != nullptr) {
      KernelCall parts(def, sample);
      std::vector<void*> operands;
      for (HostTensor& t : parts.arrays) operands.push_back(t.bytes().data());
      const KernelArgs args(parts.view, operands);
      const Shape& y = parts.out_specs[0].shape;
      const int64_t rows = y.empty() ? 1 : y[0];
      const int64_t step = def.host_kernel.rows(parts.view);
      require(step >= 1, "a part of host_kernel must have at least 1 row, got {}", step);
      for (int64_t part = (rows + step - 1) / step; part-- > 0;)
        def.host_kernel.run(args, part * step, std::min(rows, (part + 1) * step));
      std::swap(call.arrays, parts.arrays);
      compare("host_kernel");
      std::swap(call.arrays, parts.arrays);
    }
    if (def.map == nullptr) return;
    std::vector<double> hypers;
    for (const ops::Hyper& h : ops::hypers_of(call.view)) hypers.push_back(h.value);
    hypers.resize(std::max<size_t>(hypers.size(), kMaxMapHypers));
    std::vector<HostTensor> broadcast;
    std::vector<MapInput> inputs;
    for (size_t i = 0; i < call.specs.size(); ++i) {
      const ops::BroadcastIndex at(call.specs[i].shape, call.out_specs[0].shape);
      HostTensor& x = broadcast.emplace_back(TensorSpec{call.out_specs[0].shape, f32, {}});
      for (size_t e = 0; e < x.as<float>().size(); ++e)
        x.as<float>()[e] =
            call.arrays[i].as<float>()[static_cast<size_t>(at(static_cast<int64_t>(e)))];
    }
    for (const HostTensor& x : broadcast) inputs.push_back({x.as<float>().data()});
    const auto y = call.output(0).as<float>();
    const MapOutput output{y.data()};
    if (!y.empty())
      def.map(hypers.data(), inputs.data(), &output, 1, static_cast<int64_t>(y.size()));
    compare("map");
  });
}

// Checks the gradients of all inputs of a sample if the first `results` outputs have gradients.
// Returns whether there was one.
bool check_gradients(const OpDef& def, const Sample& sample, const Attrs& attrs, size_t results) {
  constexpr double kStep = 1e-5;
  bool checked = false;
  std::vector<HostTensor> inputs;
  for (const HostTensor& t : draw_inputs(sample))
    inputs.push_back(to_working(t, Precision::kDouble));
  std::map<int, HostTensor> seeds;
  const auto outputs = run_op(def, attrs, sample.inputs, inputs, Precision::kDouble);
  if (results == 1 && outputs.size() == 1) return false;  // Checked with all results.
  for (size_t o = 0; o < std::min(results, outputs.size()); ++o) {
    if (is_float(outputs[o].dtype()))
      seeds.emplace(static_cast<int>(o), random_like(outputs[o].shape(), 100 + o));
  }
  const auto objective = [&](const std::vector<HostTensor>& x) {
    const auto y = run_op(def, attrs, sample.inputs, x, Precision::kDouble);
    double sum = 0;
    for (const auto& [o, seed] : seeds) sum += dot(seed, y[static_cast<size_t>(o)]);
    return sum;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_float(sample.inputs[i].dtype)) continue;
    RuleContext rule(def, sample, static_cast<int>(i));
    const auto gradient = rule.run(inputs, seeds);
    if (rule.leaves_formula()) continue;
    if (!gradient.has_value()) {
      require(def.zero_gradient(static_cast<int>(i)), "input {} must have a gradient", i);
      continue;
    }
    checked = true;
    const HostTensor direction = random_like(inputs[i].shape(), 200 + i);
    auto raised = inputs;
    auto lowered = inputs;
    raised[i] = moved(inputs[i], direction, kStep);
    lowered[i] = moved(inputs[i], direction, -kStep);
    const double expected = (objective(raised) - objective(lowered)) / (2 * kStep);
    const double actual = dot(*gradient, direction);
    require(std::fabs(actual - expected) <= 1e-6 * std::max(1.0, std::fabs(expected)),
            "the gradient of input {} must have the derivative {} in a direction, got {}", i,
            expected, actual);
  }
  return checked;
}

void differentiates(const OpDef& def) {
  if (def.grad == nullptr) return;
  bool checked = false;
  each_sample(def, [&](const Sample& sample, const Attrs& attrs) {
    if (!sample.gradient) return;
    // A rule may be one for the first result only.
    for (const size_t results : {SIZE_MAX, size_t{1}})
      checked = check_gradients(def, sample, attrs, results) || checked;
  });
  require(checked || def.has(Trait::kZeroGradient), "a sample must check the gradient");
}

void formula_computes_the_op(const OpDef& def) {
  if (def.formula == nullptr) return;
  each_sample(def, [&](const Sample& sample, const Attrs& attrs) {
    std::vector<HostTensor> inputs;
    for (const HostTensor& t : draw_inputs(sample))
      inputs.push_back(to_working(t, Precision::kDouble));
    Ir ir;
    Graph& graph = ir.create_empty_graph("formula");
    Tensors operands;
    for (const TensorSpec& s : sample.inputs) operands.push_back(graph.input(s));
    const auto specs = def.infer(OpView(def, attrs, sample.inputs));
    graph.set_outputs(def.formula(OpView(def, attrs, sample.inputs, specs), operands));
    const auto expected = run_op(def, attrs, sample.inputs, inputs, Precision::kDouble);
    const auto actual = Interpreter(ir, Precision::kDouble).evaluate(graph, inputs);
    require(actual.size() == expected.size(), "the formula must have {} outputs, got {}",
            expected.size(), actual.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      require(graph.outputs()[i].spec() == specs[i], "output {} of the formula must be {}, got {}",
              i, to_string(specs[i]), to_string(graph.outputs()[i].spec()));
      // The constants of a formula are rounded to the dtype.
      require_near(actual[i], expected[i], 1e-6 + 4 * rounding(specs[i].dtype));
    }
  });
}

constexpr std::array kChecks{
    OperatorCheck{"description", has_description},
    OperatorCheck{"shape rule", infers_what_graphs_have},
    OperatorCheck{"accuracy", float_agrees_with_double},
    OperatorCheck{"results", writes_every_element},
    OperatorCheck{"coinciding operands", coincides_as_declared},
    OperatorCheck{"constraints", refuses_what_constraints_exclude},
    OperatorCheck{"options", writes_options_as_text},
    OperatorCheck{"kernels", kernels_have_the_bits_of_the_reference},
    OperatorCheck{"gradient", differentiates},
    OperatorCheck{"formula", formula_computes_the_op},
};

}  // namespace

std::span<const OperatorCheck> operator_checks() { return kChecks; }

void check_operator(const OpDef& def) {
  for (const OperatorCheck& check : kChecks) {
    try {
      check.run(def);
    } catch (const Error& e) {
      fail(ErrorKind::kUsage, "check_operator: {} of {}: {}", check.name, def.type, e.what());
    }
  }
}

}  // namespace sluice
