// As fusion_test.cc, for products that read and write strided matrices.

#include "fusion_program.h"
#include "sluice/ops/ops.h"

namespace sluice::test {
namespace {

class Products : public Fusion {};

constexpr int64_t kBatch = 2, kLength = 5, kHeads = 3, kSize = 4, kWidth = kHeads * kSize;

Tensor heads_of(const Tensor& t) {
  return ops::transpose(ops::reshape(t, {kBatch, kLength, kHeads, kSize}), {0, 2, 1, 3});
}

// Returns the kernels that begin with a StridedMatMul.
int strided_products(const Effect& effect) {
  int count = 0;
  for (const auto& [name, kernels] : effect.ops)
    count += name.starts_with("StridedMatMul") ? kernels : 0;
  return count;
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor scores = ops::matmul(heads_of(q), heads_of(k), kByTransposed) * 0.5;
  const Tensor merged =
      ops::transpose(ops::matmul(ops::softmax(scores), heads_of(v)), {0, 2, 1, 3});
  return ops::reshape(merged, {kBatch * kLength, kWidth});
}

TEST_F(Products, HeadsOfAttentionAreReadAndWrittenInPlace) {
  const Tensor qkv = input({kBatch * kLength, kWidth}) * 2.0;
  const Tensors parts = ops::split(ops::matmul(qkv, variable({kWidth, 3 * kWidth}, "w")),
                                   {kWidth, kWidth, kWidth}, 1);
  show(ops::matmul(attention(parts[0], parts[1], parts[2]), variable({kWidth, kWidth}, "out")));
  const Effect effect = check();
  EXPECT_EQ(strided_products(effect), 2);
  EXPECT_EQ(effect.ops.count("Transpose") + effect.ops.count("Split"), 0u);
}

TEST_F(Products, TheGradientsOfAttentionMoveNothingButTheirSum) {
  differentiate(
      {input({kBatch * kLength, kWidth}), variable({kWidth, 3 * kWidth}, "w")},
      [](const Tensors& t) {
        const Tensors parts = ops::split(ops::matmul(t[0], t[1]), {kWidth, kWidth, kWidth}, 1);
        return Tensors{attention(parts[0], parts[1], parts[2])};
      });
  const Effect effect = check();
  EXPECT_EQ(strided_products(effect), 6);
  EXPECT_EQ(effect.ops.count("Transpose"), 0u);
}

TEST_F(Products, ATransposedWeightIsReadInPlaceBeforeItsUpdate) {
  const Tensor w = variable({7, 9}, "w"), x = input({4, 9});
  const Tensor y = ops::matmul(x, ops::transpose(w, {1, 0}));
  show(y);
  ops::scaled_add_(w, ops::matmul(ops::transpose(y, {1, 0}), x), 1.0, -0.1);
  const Effect effect = check();
  EXPECT_EQ(effect.ops.count("Transpose"), 0u);
}

TEST_F(Products, AReaderAfterTheUpdateReadsACopy) {
  const Tensor w = variable({7, 9}, "w"), x = input({4, 9});
  const Tensor old = ops::transpose(w, {1, 0});
  ops::scaled_add_(w, input({7, 9}), 1.0, -0.1);
  show(ops::matmul(x, old));
  check();
}

TEST_F(Products, HalvesAreReadInPlace) {
  const auto half = [](const Tensor& t) { return ops::cast(t, f16); };
  const Tensor a = half(input({2, 5, 3, 4})), b = half(input({2, 6, 3, 4}));
  const Tensor y = ops::matmul(ops::transpose(a, {0, 2, 1, 3}), ops::transpose(b, {0, 2, 3, 1}));
  show(ops::cast(ops::transpose(y, {0, 2, 1, 3}), f32));
  const Effect effect = check();
  EXPECT_EQ(effect.ops.at("StridedMatMul"), 1);
}

TEST_F(Products, SlicesAndSharedMatricesAreReadInPlace) {
  const Tensor a = input({4, 6, 8}), b = input({3, 8, 2, 5});
  const Tensor rows = ops::slice(a, {1, 1, 0}, {4, std::nullopt, 8}, {1, 2, 1});
  const Tensor columns = ops::transpose(b, {0, 2, 1, 3});
  show(ops::matmul(ops::reshape(rows, {3, 1, 3, 8}), columns));
  const Effect effect = check();
  EXPECT_EQ(effect.ops.at("StridedMatMul"), 1);
  EXPECT_EQ(effect.ops.count("Slice") + effect.ops.count("Transpose"), 0u);
}

// A transpose of another shape of the result is no transpose of its matrices.
TEST_F(Products, AnotherShapeOfTheResultIsTransposedAfterwards) {
  const Tensor y = ops::matmul(input({2, 3, 5, 4}), input({2, 3, 4, 6}));
  show(ops::transpose(ops::reshape_(y, {6, 5, 6}), {0, 2, 1}));
  const Tensor z = ops::matmul(input({3, 5, 4}), input({3, 4, 6}));
  show(ops::transpose(ops::reshape_(z, {3, 5, 3, 2}), {3, 0, 1, 2}));
  check();
}

// gemm() reads no rows from the last one on, so the slice is made, but not the transpose.
TEST_F(Products, WhatNoKernelReadsInPlaceIsCopied) {
  const Tensor a = input({3, 6, 8}), b = input({3, 8, 2, 5});
  const Tensor rows =
      ops::reshape(ops::slice(a, {0, 5, 0}, {3, std::nullopt, 8}, {1, -2, 1}), {3, 1, 3, 8});
  show(ops::matmul(rows, ops::transpose(b, {0, 2, 1, 3})));
  const Effect effect = check();
  EXPECT_EQ(effect.ops.at("StridedMatMul"), 1);
  EXPECT_EQ(effect.ops.at("Slice"), 1);
  EXPECT_EQ(effect.ops.count("Transpose"), 0u);
}

TEST_F(Products, OfSeveralMatricesBySeveralHaveEpilogues) {
  const Tensor x = input({4, 5, 9}), w = variable({4, 9, 7}, "w");
  const Tensor y = ops::relu(ops::matmul(x, w) + variable({4, 1, 7}, "bias"));
  show(ops::matmul(y, variable({4, 6, 7}, "v"), kByTransposed) * 0.5 + input({4, 5, 6}));
  const Effect effect = check();
  EXPECT_EQ(effect.fused, 2);
  EXPECT_EQ(effect.ops.size(), 2u) << "epilogues are kernels of their own";
}

// Rows longer than a panel are finished before stages on rows begin.
TEST_F(Products, ScoresAreScaledMaskedAndNormalizedByTheirProduct) {
  for (const int64_t keys : {5, 40}) {
    const Tensor scores = ops::matmul(input({2, 3, 6, 4}), input({2, 3, keys, 4}), kByTransposed);
    show(ops::softmax(scores * 0.5 + input({6, keys})));
  }
  const Effect effect = check();
  EXPECT_EQ(effect.fused, 2);
  EXPECT_EQ(effect.max, 4);
  EXPECT_EQ(effect.ops.size(), 1u) << "a product and its softmax are two kernels";
}

}  // namespace
}  // namespace sluice::test
