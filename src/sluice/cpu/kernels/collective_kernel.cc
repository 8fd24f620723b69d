#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/layout/memory.h"
#include "sluice/cpu/simd/conversions.h"
#include "sluice/ops/collectives.h"
#include "sluice/ops/combine.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kCollectiveBlock = 1024;  // Elements of a buffer on the stack.
constexpr int64_t kGrain = 64;              // Parts begin at multiples of 64 elements or bytes.

// Elements or bytes [begin, end).
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
};

// Cuts the span into `parts` and returns part number `part`.
Span cut(const Span& all, int64_t part, int64_t parts) {
  const int64_t n = all.end - all.begin;
  const int64_t each = round_up(ceil_div(n, parts), kGrain);
  return {all.begin + std::min(n, part * each), all.begin + std::min(n, (part + 1) * each)};
}

// Combines elements [at, at + n) of all members' inputs and stores the n results in `out`.
// Floating-point elements of any dtype are combined in f32.
using CombineFn = void (*)(const runtime::DeviceAddress* inputs, int64_t members, int64_t at,
                           int64_t n, std::byte* out);

// Computes to[i] = f(to[i], x[i]). The loop over a whole block has a constant length, so that the
// compiler vectorizes it.
template <typename E, typename F>
void for_block(E* __restrict to, const E* __restrict x, int64_t n, F&& f) {
  if (n == kCollectiveBlock) {
    for (int64_t i = 0; i < kCollectiveBlock; ++i) to[i] = f(to[i], x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = f(to[i], x[i]);
  }
}

// Computes to[i] = f(to[i]).
template <typename E, typename F>
void for_block(E* to, int64_t n, F&& f) {
  if (n == kCollectiveBlock) {
    for (int64_t i = 0; i < kCollectiveBlock; ++i) to[i] = f(to[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = f(to[i]);
  }
}

template <typename Combine, typename E>
void combine(const runtime::DeviceAddress* inputs, int64_t members, int64_t at, int64_t n,
             std::byte* out) {
  E* const result = reinterpret_cast<E*>(out);
  const auto x = [&](int64_t member) {
    return reinterpret_cast<const E*>(pointer_to(inputs[member])) + at;
  };
  for_block(result, x(0), n, [](E, E value) { return Combine::begin(value); });
  for (int64_t j = 1; j < members; ++j)
    for_block(result, x(j), n, [](E so_far, E value) { return Combine::next(so_far, value); });
  const auto count = static_cast<E>(members);
  for_block(result, n, [=](E all) { return Combine::end(all, count); });
}

template <typename Combine, DType kDType>
void combine_narrow(const runtime::DeviceAddress* inputs, int64_t members, int64_t at, int64_t n,
                    std::byte* out) {
  alignas(64) float result[kCollectiveBlock];
  alignas(64) float x[kCollectiveBlock];
  const WidenFn widen = widen_kernel(kDType);
  const int64_t offset = at * size_of(kDType);
  widen(pointer_to(inputs[0]) + offset, x, n);
  for_block(result, x, n, [](float, float value) { return Combine::begin(value); });
  for (int64_t j = 1; j < members; ++j) {
    widen(pointer_to(inputs[j]) + offset, x, n);
    for_block(result, x, n, [](float so_far, float v) { return Combine::next(so_far, v); });
  }
  const auto count = static_cast<float>(members);
  for_block(result, n, [=](float all) { return Combine::end(all, count); });
  narrow_kernel(kDType)(result, out, n);
}

CombineFn combine_fn(const std::string& op, DType dtype) {
  CombineFn found = nullptr;
  visit_element<float>(dtype, [&]<typename E>(E) {
    ops::visit_combine<E>(op, [&]<typename Combine>(Combine) {
      if constexpr (std::is_same_v<E, float>) {
        found = dtype == f16    ? combine_narrow<Combine, DType::kF16>
                : dtype == bf16 ? combine_narrow<Combine, DType::kBF16>
                                : combine<Combine, float>;
      } else {
        found = combine<Combine, E>;
      }
    });
  });
  return found;
}

struct AllReduce {
  CombineFn combine;
  int64_t members;
  int64_t elements;
  int64_t width;
};

// Combines the member's share of the elements and writes it to the outputs of all members.
void run_all_reduce(const void* state, const runtime::CollectiveBlock& b) {
  const auto& k = *static_cast<const AllReduce*>(state);
  alignas(64) std::byte result[kCollectiveBlock * 4];
  const Span span = cut(cut({0, k.elements}, b.member, k.members), b.part, b.parts);
  for (int64_t at = span.begin; at < span.end; at += kCollectiveBlock) {
    const int64_t n = std::min(kCollectiveBlock, span.end - at);
    k.combine(b.inputs, k.members, at, n, result);
    for (int64_t j = 0; j < k.members; ++j) {
      std::byte* const out = pointer_to(b.outputs[j]);
      if (out != nullptr) std::copy_n(result, n * k.width, out + at * k.width);
    }
  }
}

runtime::ByteRange share_of_all_reduce(const void* state, int64_t member) {
  const auto& k = *static_cast<const AllReduce*>(state);
  const Span span = cut({0, k.elements}, member, k.members);
  return {span.begin * k.width, span.end * k.width};
}

runtime::ByteRange no_bytes(const void*, int64_t) { return {}; }

struct ReduceScatter {
  CombineFn combine;  // Null: copy the member's own elements.
  int64_t members;
  int64_t elements;
  int64_t chunk;
  int64_t width;
};

void run_reduce_scatter(const void* state, const runtime::CollectiveBlock& b) {
  const auto& k = *static_cast<const ReduceScatter*>(state);
  const Span span = cut({0, k.chunk}, b.part, b.parts);
  const int64_t first = b.member * k.chunk;
  // Elements from `end` on are padding and become zero.
  const int64_t end = std::clamp(k.elements - first, span.begin, span.end);
  std::byte* const out = pointer_to(b.outputs[b.member]);
  const int64_t copied = (end - span.begin) * k.width;
  if (k.combine == nullptr && copied > 0) {
    std::copy_n(pointer_to(b.inputs[b.member]) + (first + span.begin) * k.width, copied,
                out + span.begin * k.width);
  }
  for (int64_t at = span.begin; k.combine != nullptr && at < end; at += kCollectiveBlock) {
    k.combine(b.inputs, k.members, first + at, std::min(kCollectiveBlock, end - at),
              out + at * k.width);
  }
  std::fill_n(out + end * k.width, (span.end - end) * k.width, std::byte{0});
}

runtime::ByteRange read_by_reduce_scatter(const void* state, int64_t member) {
  const auto& k = *static_cast<const ReduceScatter*>(state);
  if (k.combine == nullptr) return {};
  const auto byte = [&](int64_t m) { return std::min(k.elements, m * k.chunk) * k.width; };
  return {byte(member), byte(member + 1)};
}

// Describes interleaved blocks of bytes. Block b of the gathered tensor belongs to member
// b mod `members`; a slice keeps the blocks of one member.
struct Blocks {
  int64_t members;
  int64_t bytes;  // Bytes of a block.
  int64_t whole;  // Bytes of the result.
  int64_t input;  // Bytes of a member's operand.
};

// Calls f(block, offset in the block, offset in the result, bytes) for each piece of the result
// that this worker's part contains.
template <typename F>
void for_each_piece(const Blocks& k, const runtime::CollectiveBlock& b, F&& f) {
  const Span span = cut({0, k.whole}, b.part, b.parts);
  for (int64_t at = span.begin; at < span.end;) {
    const int64_t inside = at % k.bytes;
    const int64_t n = std::min(k.bytes - inside, span.end - at);
    f(at / k.bytes, inside, at, n);
    at += n;
  }
}

void run_all_gather(const void* state, const runtime::CollectiveBlock& b) {
  const auto& k = *static_cast<const Blocks*>(state);
  for_each_piece(k, b, [&](int64_t block, int64_t inside, int64_t at, int64_t n) {
    const std::byte* const from = pointer_to(b.inputs[block % k.members]);
    std::copy_n(from + block / k.members * k.bytes + inside, n,
                pointer_to(b.outputs[b.member]) + at);
  });
}

runtime::ByteRange read_by_all_gather(const void* state, int64_t) {
  const auto& k = *static_cast<const Blocks*>(state);
  return {0, k.input};
}

void run_slice(const void* state, const runtime::CollectiveBlock& b) {
  const auto& k = *static_cast<const Blocks*>(state);
  const std::byte* const from = pointer_to(b.inputs[b.member]);
  std::byte* const to = pointer_to(b.outputs[b.member]);
  for_each_piece(k, b, [&](int64_t block, int64_t inside, int64_t at, int64_t n) {
    const int64_t whole_block = block * k.members + b.member;
    std::copy_n(from + whole_block * k.bytes + inside, n, to + at);
  });
}

// Returns the bytes of the axes from `axis` on.
int64_t bytes_from_axis(const TensorSpec& spec, int64_t axis) {
  int64_t bytes = size_of(spec.dtype);
  for (int64_t a = axis; a < spec.shape.rank(); ++a) bytes *= spec.shape[static_cast<int>(a)];
  return bytes;
}

}  // namespace

runtime::BoundCollective bind_collective(const exe::Collective& c, const exe::ReplicaGroup& group) {
  const OpDef* const def = ops::find_op(c.op);
  const TensorSpec& x = c.operands.front().spec;
  const TensorSpec& y = c.operands.back().spec;
  const int64_t members = group.size;
  const int64_t width = size_of(x.dtype);
  if (def == &ops::replicated_reduce_scatter_def()) {
    const auto o = from_attrs<ops::ReduceScatterOptions>(c.attrs);
    const CombineFn combine = o.op == "local" ? nullptr : combine_fn(o.op, x.dtype);
    return {run_reduce_scatter,
            std::make_shared<ReduceScatter>(
                ReduceScatter{combine, members, x.elements(), y.elements(), width}),
            read_by_reduce_scatter, no_bytes};
  }
  if (def == &ops::replicated_all_gather_def()) {
    const auto axis = from_attrs<ops::AllGatherOptions>(c.attrs).axis;
    return {
        run_all_gather,
        std::make_shared<Blocks>(Blocks{members, bytes_from_axis(x, axis), y.bytes(), x.bytes()}),
        read_by_all_gather, no_bytes};
  }
  if (def == &ops::replicated_slice_def()) {
    const auto axis = from_attrs<ops::ReplicatedSliceOptions>(c.attrs).axis;
    return {run_slice,
            std::make_shared<Blocks>(
                Blocks{members, bytes_from_axis(x, axis) / members, y.bytes(), x.bytes()}),
            no_bytes, no_bytes};
  }
  const auto o = from_attrs<ops::AllReduceOptions>(c.attrs);
  return {run_all_reduce,
          std::make_shared<AllReduce>(
              AllReduce{combine_fn(o.op, x.dtype), members, x.elements(), width}),
          share_of_all_reduce, share_of_all_reduce};
}

}  // namespace sluice::cpu
