#pragma once
#include <cstdint>

#include "sluice/cpu/isa.h"

namespace sluice::cpu {

/// C = op(A)·op(B), or C += op(A)·op(B), in f32. op(A) is m × k, op(B) is k × n, C is m × n; all
/// row-major, where a leading dimension counts the elements from one stored row to the next. C
/// overlaps neither A nor B. Sizes may be 0.
struct GemmArgs {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const float* a = nullptr;
  int64_t lda = 0;
  bool trans_a = false;  ///< A is stored as k × m.
  const float* b = nullptr;
  int64_t ldb = 0;
  bool trans_b = false;  ///< B is stored as n × k.
  float* c = nullptr;
  int64_t ldc = 0;
  bool accumulate = false;  ///< C += instead of C =.
};

/// Computes the rows and columns of C in the given ranges; calls for disjoint ranges may run at
/// once, each with a workspace of its own.
///
/// Bits: an element of op(A)·op(B) is the chain s ← fma(aᵢₖ, bₖⱼ, s) for ascending k from s = +0,
/// whatever the ranges, the strides and the instruction set. For C += the finished chain is added
/// once to C.
void gemm(const GemmArgs& args, int64_t row_begin, int64_t row_end, int64_t col_begin,
          int64_t col_end, float* workspace, Isa isa = current_isa());

/// Bytes of workspace (64-byte aligned) that any call of gemm() with these sizes and flags needs;
/// pointers and leading dimensions are not read.
int64_t gemm_workspace_bytes(const GemmArgs& args);

/// How C is cut into tasks of gemm(): blocks of `rows` × `cols`, the last ones smaller.
struct GemmGrid {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_blocks = 0;
  int64_t col_blocks = 0;
  int64_t tasks() const { return row_blocks * col_blocks; }
};

/// A cut into at most `most` tasks (>= 1), each worth handing over to another thread; from the
/// sizes alone.
GemmGrid gemm_grid(const GemmArgs& args, int64_t most);

namespace internal {
/// gemm() on one instruction set (gemm.isa.cc).
template <Isa kIsa>
void gemm_on(const GemmArgs& args, int64_t row_begin, int64_t row_end, int64_t col_begin,
             int64_t col_end, float* workspace);

/// The blocking all instruction sets share: rows and depth of the packed block of A, columns of the
/// panel of B.
inline constexpr int64_t kRowBlock = 112;
inline constexpr int64_t kDepthBlock = 256;
inline constexpr int64_t kPanel = 32;
inline constexpr int64_t kSlack =
    16;  ///< Floats that whole-vector stores may write past the packed A.
}  // namespace internal

}  // namespace sluice::cpu
