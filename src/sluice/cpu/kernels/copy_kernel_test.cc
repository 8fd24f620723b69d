// Tests copies and conversions between layouts. Every element must be copied, and each task must
// touch only the bytes that its KernelChoice declares.

#include <gtest/gtest.h>

#include <cstring>

#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/layout/layouts.h"
#include "sluice/cpu/simd/kernel_test_util.h"

namespace sluice::cpu {
namespace {

using Buffer = GuardedBuffer<float>;

std::byte* bytes_of(Buffer& b) { return reinterpret_cast<std::byte*>(b.data()); }

bool promised(const KernelChoice& choice, size_t operand, int64_t at, int64_t task) {
  if (choice.task_stride.empty() || choice.task_stride[operand] == 0) return true;
  const int64_t stride = choice.task_stride[operand];
  const int64_t pitch = choice.task_pitch[operand];
  const int64_t in_row = pitch == 0 ? at : at % pitch;
  return in_row >= task * stride && in_row < (task + 1) * stride;
}

/// Checks one copy and returns its number of tasks.
int64_t check_copy(const TensorSpec& spec, const Layout& from, const Layout& to) {
  const KernelChoice choice = choose_copy_kernel(spec, from, to);
  const runtime::BoundKernel kernel = bind_copy_kernel(spec, from, to);
  std::vector<float> values(static_cast<size_t>(spec.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 1;
  std::vector<float> result(values.size(), 0.0f);
  const auto side = spec.elements() % 2 == 0 ? Buffer::Against::kBegin : Buffer::Against::kEnd;
  Buffer whole(buffer_elements(spec, from), side), all(buffer_elements(spec, to), side);
  write_elements(spec, from, bytes_of(whole), 0, std::as_bytes(std::span(values)));
  for (int64_t task = 0; task < choice.tasks; ++task) {
    Buffer in(whole.size(), side), out(all.size(), side);
    std::memset(in.data(), 0xff, static_cast<size_t>(in.size()) * 4);
    std::memset(out.data(), 0xff, static_cast<size_t>(out.size()) * 4);
    for (int64_t i = 0; i < in.size(); ++i) {
      if (promised(choice, 0, i * 4, task)) in[i] = whole[i];
    }
    std::byte* const operands[] = {bytes_of(in), bytes_of(out)};
    kernel.run(kernel.state.get(), {operands, nullptr, nullptr}, task);
    for (int64_t i = 0; i < out.size(); ++i) {
      if (promised(choice, 1, i * 4, task)) {
        all[i] = out[i];
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), 0xffffffffu)
            << "task " << task << " writes " << i;
      }
    }
  }
  read_elements(spec, to, bytes_of(all), 0, std::as_writable_bytes(std::span(result)));
  EXPECT_EQ(result, values) << to_string(spec) << ", " << to_string(from) << " to "
                            << to_string(to);
  return choice.tasks;
}

TEST(CopyKernel, BringsEveryElement) {
  int64_t max = 0;
  for (const int64_t rows : {1, 7, 64, 1000}) {
    for (const int64_t cols : {1, 16, 17, 33, 100, 512}) {
      for (const int64_t panel : {16, 32}) {
        max = std::max(max, check_copy(f32_spec({rows, cols}), {}, in_panels(panel)));
        max = std::max(max, check_copy(f32_spec({rows, cols}), in_panels(panel), {}));
        check_copy(f32_spec({rows, cols}), in_panels(panel), in_panels(panel));
      }
      check_copy(f32_spec({rows, cols}), {}, {});
    }
  }
  EXPECT_GT(max, 8);
}

TEST(CopyKernel, BringsEveryElementOfAWeight) {
  int64_t max = 0;
  for (const int64_t out : {1, 10, 17, 64, 300}) {
    for (const Shape& shape : {Shape{out, 1, 5, 5}, Shape{out, 20, 3}, Shape{out, 33, 2, 1, 3}}) {
      max = std::max(max, check_copy(f32_spec(shape), {}, in_taps()));
      max = std::max(max, check_copy(f32_spec(shape), in_taps(), {}));
      check_copy(f32_spec(shape), in_taps(), in_taps());
    }
  }
  EXPECT_GT(max, 2);
}

TEST(CopyKernel, NewPaddingIsZero) {
  const TensorSpec spec = f32_spec({3, 5});
  std::vector<float> in(15, 2.0f), out(3 * 16, NAN);
  std::byte* const operands[] = {reinterpret_cast<std::byte*>(in.data()),
                                 reinterpret_cast<std::byte*>(out.data())};
  const runtime::BoundKernel kernel = bind_copy_kernel(spec, {}, in_panels(16));
  kernel.run(kernel.state.get(), {operands, nullptr, nullptr}, 0);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i % 16 < 5 ? 2.0f : 0.0f);
}

}  // namespace
}  // namespace sluice::cpu
