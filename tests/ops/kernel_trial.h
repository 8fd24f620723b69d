#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "sluice/cpu/device/select_kernel.h"
#include "sluice/cpu/simd/kernel_test_util.h"
#include "sluice/interp/run_op.h"

/// Runs one kernel of the CPU under guard pages and compares it with the reference kernel.
namespace sluice::cpu {

using Bytes = GuardedBuffer<std::byte>;

/// An op with operands of given dtypes.
struct Case {
  const OpDef* def = nullptr;
  Attrs attrs;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  const Sample* sample = nullptr;
  bool random_bits = true;  ///< Some elements have random bits, so NaN and infinity are frequent.

  OpView view() const { return OpView(*def, attrs, inputs, outputs); }
  std::string text() const {
    std::string s = def->type;
    for (const TensorSpec& spec : inputs) s += " " + to_string(spec);
    return s + " -> " + to_string(outputs[0]) + " {" + to_string(attrs) + "}";
  }
};

inline const CpuKernel& kernel_of(const OpView& op) {
  if (const CpuKernel* const kernel = select_kernel(op)) return *kernel;
  ADD_FAILURE() << "no kernel for " << op.def().type;
  return kernel_list().back();
}

/// Returns numbers from the sample's domain; some elements may have random bits.
inline HostTensor draw(const Case& c, size_t i, std::mt19937& random) {
  const TensorSpec& spec = c.inputs[i];
  if (i < c.sample->values.size() && c.sample->values[i]) {
    return is_float(spec.dtype) ? c.sample->values[i]->cast(spec.dtype) : *c.sample->values[i];
  }
  const auto [low, high] = c.sample->domain;
  std::uniform_real_distribution<> domain(low, high);
  std::vector<double> values(static_cast<size_t>(spec.elements()));
  for (double& v : values) {
    v = domain(random);
    if (spec.dtype == boolean) v = v < 0.5;
    if (is_integer(spec.dtype) && spec.dtype != i32) v = std::fabs(v);
  }
  HostTensor t = HostTensor::of<double>(spec.shape, f64, values).cast(spec.dtype);
  // Random bits could make invalid booleans.
  if (spec.dtype == boolean || !c.random_bits) return t;
  for (size_t at = 0; at < t.bytes().size(); ++at) {
    if (random() % 16 == 0) t.bytes()[at] = static_cast<std::byte>(random());
  }
  return t;
}

/// Returns the index of the first element whose bits differ, unless both are NaN. Returns -1 if
/// there is none.
inline int64_t first_difference(const HostTensor& a, const HostTensor& b) {
  const auto size = static_cast<size_t>(size_of(a.dtype()));
  for (int64_t i = 0; i < a.elements(); ++i) {
    const size_t at = static_cast<size_t>(i) * size;
    if (std::memcmp(a.bytes().data() + at, b.bytes().data() + at, size) == 0) continue;
    if (!is_float(a.dtype())) return i;
    float x, y;
    if (a.dtype() == f32) {
      x = a.as<float>()[static_cast<size_t>(i)];
      y = b.as<float>()[static_cast<size_t>(i)];
    } else {
      const auto widen = a.dtype() == f16 ? half_to_float : bfloat_to_float;
      x = widen(a.as<uint16_t>()[static_cast<size_t>(i)]);
      y = widen(b.as<uint16_t>()[static_cast<size_t>(i)]);
    }
    if (!std::isnan(x) || !std::isnan(y)) return i;
  }
  return -1;
}

/// Runs the case's kernel with its tasks in random order, and checks the results.
class Trial {
 public:
  Trial(const Case& c, std::mt19937& random) : case_(c), random_(random) {
    for (size_t i = 0; i < c.inputs.size(); ++i) values_.push_back(draw(c, i, random));
    want_ = run_op(*c.def, c.attrs, c.inputs, values_, Precision::kFloat);
  }

  /// Returns a description of the first error, or an empty string. With `coincide`, outputs use the
  /// memory of inputs where the kernel allows it.
  std::string run(bool coincide) {
    const CpuKernel& kernel = kernel_of(case_.view());
    const KernelChoice choice = choose_kernel(kernel, case_.view());
    const auto bound = bind_kernel(
        kernel,
        std::make_shared<OpRecord>(OpRecord{case_.def, case_.attrs, case_.inputs, case_.outputs}));
    assign_addresses(coincide);
    if (std::string wrong = check_strides(choice); !wrong.empty()) return wrong;
    std::vector<int64_t> order(static_cast<size_t>(choice.tasks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const int64_t task : order) {
      Bytes workspace((choice.workspace_bytes + 63) / 64 * 64);
      std::memset(workspace.data(), 0xff, static_cast<size_t>(workspace.size()));
      const std::vector<HostTensor> before = outputs();
      {
        const FlushToZero flush;
        bound.run(bound.state.get(), {addresses_.data(), workspace.data(), nullptr}, task);
      }
      if (std::string wrong = check_promise(choice, task, before); !wrong.empty()) return wrong;
    }
    const std::vector<HostTensor> have = outputs();
    for (size_t o = 0; o < have.size(); ++o) {
      const int64_t at = first_difference(have[o], want_[o]);
      if (at >= 0) {
        const auto e = static_cast<size_t>(at);
        return fmt::format("output {}, element {}: want {}, got {}", o, at,
                           want_[o].to_doubles()[e], have[o].to_doubles()[e]);
      }
    }
    return "";
  }

 private:
  const TensorSpec& spec(size_t i) const {
    return i < case_.inputs.size() ? case_.inputs[i] : case_.outputs[i - case_.inputs.size()];
  }
  size_t operands() const { return case_.inputs.size() + case_.outputs.size(); }

  void assign_addresses(bool coincide) {
    buffers_.clear();
    addresses_.clear();
    for (size_t i = 0; i < operands(); ++i) {
      const auto side = random_() % 2 == 0 ? Bytes::Against::kBegin : Bytes::Against::kEnd;
      buffers_.push_back(
          std::make_unique<Bytes>(spec(i).elements() * size_of(spec(i).dtype), side));
      Bytes& b = *buffers_.back();
      std::memset(b.data(), 0xff, static_cast<size_t>(b.size()));
      if (i < values_.size())
        std::memcpy(b.data(), values_[i].bytes().data(), static_cast<size_t>(b.size()));
      addresses_.push_back(b.data());
    }
    const size_t inputs = case_.inputs.size();
    for (const Alias& a : case_.def->aliases)
      addresses_[inputs + static_cast<size_t>(a.output)] = addresses_[static_cast<size_t>(a.input)];
    if (!coincide || !case_.def->aliases.empty()) return;
    const auto pairs = coinciding_operands(case_.view());
    if (pairs.empty()) return;
    const auto [in, out] = pairs[random_() % pairs.size()];
    addresses_[inputs + static_cast<size_t>(out)] = addresses_[static_cast<size_t>(in)];
  }

  std::vector<HostTensor> outputs() const {
    std::vector<HostTensor> result;
    for (size_t i = case_.inputs.size(); i < operands(); ++i) {
      HostTensor& t = result.emplace_back(spec(i));
      std::memcpy(t.bytes().data(), addresses_[i], t.bytes().size());
    }
    return result;
  }

  // Each operand that is cut has one part per task, and no part is empty.
  std::string check_strides(const KernelChoice& choice) const {
    for (size_t i = 0; i < choice.task_stride.size(); ++i) {
      const int64_t stride = choice.task_stride[i];
      const int64_t pitch = choice.task_pitch.empty() ? 0 : choice.task_pitch[i];
      const int64_t bytes = pitch > 0 ? pitch : spec(i).elements() * size_of(spec(i).dtype);
      if (stride == 0 || choice.tasks == 1) continue;
      if (stride * (choice.tasks - 1) >= bytes || stride * choice.tasks < bytes)
        return fmt::format("operand {}: {} tasks of {} bytes", i, choice.tasks, stride);
    }
    return "";
  }

  std::string check_promise(const KernelChoice& choice, int64_t task,
                            const std::vector<HostTensor>& before) const {
    if (choice.task_stride.empty() || choice.tasks == 1) return "";
    for (size_t o = 0; o < before.size(); ++o) {
      const size_t operand = case_.inputs.size() + o;
      const int64_t stride = choice.task_stride[operand];
      const int64_t pitch = choice.task_pitch.empty() ? 0 : choice.task_pitch[operand];
      const auto old = before[o].bytes();
      if (stride == 0) continue;
      for (size_t at = 0; at < old.size(); ++at) {
        const auto in_row = static_cast<int64_t>(at) % (pitch > 0 ? pitch : INT64_MAX);
        if (in_row / stride != task && addresses_[operand][at] != old[at])
          return fmt::format("task {} writes outside its part of output {}", task, o);
      }
    }
    return "";
  }

  const Case& case_;
  std::mt19937& random_;
  std::vector<HostTensor> values_;
  std::vector<HostTensor> want_;
  std::vector<std::unique_ptr<Bytes>> buffers_;
  std::vector<std::byte*> addresses_;
};

}  // namespace sluice::cpu
