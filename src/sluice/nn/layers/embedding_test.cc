#include <gtest/gtest.h>

#include <cmath>

#include "sluice/base/test_refusals.h"
#include "sluice/interp/interpreter.h"
#include "sluice/nn/layers.h"
#include "sluice/nn/test_util.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/transpose.h"

namespace sluice::nn {
namespace {

HostTensor first_table(const NamedVariableFactories& factories) {
  Ir ir;
  const Tensor v = factories.init(ir.main_graph(), {.seed = 5})["weight"];
  return v.graph().info(v).variable->initializer.evaluate(v.spec());
}

TEST(Embedding, HasStandardNormalRowsAndZerosForThePadding) {
  Ir ir;
  const auto [factories, graph] =
      create_graph(ir, Embedding(300, 50, {.padding_index = -2}), i32_spec({1}));
  const HostTensor table = first_table(factories);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < table.elements(); ++i) {
    const double x = static_cast<double>(at(table.as<float>(), i));
    if (i / 50 == 298) {
      EXPECT_EQ(x, 0) << i;
    }
    sum += x;
    squares += x * x;
  }
  const double count = 299.0 * 50;
  EXPECT_NEAR(sum / count, 0, 0.03);
  EXPECT_NEAR(squares / count, 1, 0.04);
  const auto [plain, p] = create_graph(ir, Embedding(300, 50), i32_spec({1}));
  EXPECT_NE(first_table(plain).as<float>()[298 * 50], 0);
}

TEST(Embedding, TakesIndicesOfAnyShape) {
  Ir ir;
  const auto result = [&](const TensorSpec& indices, const EmbeddingOptions& options) {
    const auto [factories, graph] = create_graph(ir, Embedding(5, 3, options), indices);
    return to_string(graph.graph().outputs()[0].spec());
  };
  EXPECT_EQ(result(i32_spec({}), {}), "(3,) float32");
  EXPECT_EQ(result(i32_spec({}), {.padding_index = 1}), "(3,) float32");
  EXPECT_EQ(result({{2, 4}, u32, {}}, {.padding_index = 1}), "(2, 4, 3) float32");
  EXPECT_EQ(result({{0}, u32, {}}, {.padding_index = 1, .dtype = f16}), "(0, 3) float16");
  EXPECT_NE(Embedding(5, 3).cache_key(), Embedding(5, 3, {.padding_index = 0}).cache_key());
  EXPECT_NE(Embedding(5, 3).cache_key(), Embedding(5, 3, {.dtype = bf16}).cache_key());
}

TEST(Embedding, IndicesOutsideOfTheTableGiveNaN) {
  for (const EmbeddingOptions& options : {EmbeddingOptions{}, {.padding_index = 1}}) {
    Ir ir;
    const auto [factories, graph] = create_graph(ir, Embedding(2, 2, options), i32_spec({4}));
    const HostTensor indices = HostTensor::of<int32_t>({4}, i32, {1, -1, 2, 0});
    const HostTensor table = HostTensor::of<float>({2, 2}, f32, {3, 4, 5, 6});
    const HostTensor y = Interpreter(ir).evaluate(graph.graph(), {indices, table})[0];
    for (size_t i = 0; i < 8; ++i) {
      const float value = y.as<float>()[i];
      if (i / 2 == 1 || i / 2 == 2) {
        EXPECT_TRUE(std::isnan(value)) << i;
      } else {
        // The row of the padding has the values of the table, also where they are not 0.
        EXPECT_EQ(value, table.as<float>()[(i / 2 == 0 ? 2 : 0) + i % 2]) << i;
      }
    }
  }
}

TEST(Embedding, RefusesOtherRowsAndIndices) {
  Ir ir;
  expect_refused({
      {"rows", [] { Embedding(0, 3); },
       "Embedding: rows and width must be at least 1, got 0 and 3"},
      {"width", [] { Embedding(3, 0); },
       "Embedding: rows and width must be at least 1, got 3 and 0"},
      {"padding", [] { Embedding(3, 1, {.padding_index = 3}); },
       "Embedding: padding_index must be in [-3, 3), got 3"},
      {"padding from the end", [] { Embedding(3, 1, {.padding_index = -4}); },
       "Embedding: padding_index must be in [-3, 3), got -4"},
      {"indices", [&] { create_graph(ir, Embedding(3, 1), f32_spec({2})); },
       "Embedding: indices must be int32 or uint32, got (2,) float32"},
  });
}

// Its output projection reads the table of its tokens.
class TiedModel : public Module {
 public:
  explicit TiedModel(std::string key) : key_(std::move(key)) {}
  Tensor build(Builder& b, Tensor tokens) const {
    const Tensor x = tokens_(b, tokens);
    return ops::matmul(x, ops::transpose(b.variable(key_)));
  }

 private:
  std::string key_;
  Child<Embedding> tokens_{*this, "tokens", 5, 3};
};

class Outer : public Module {
 public:
  Tensor build(Builder& b, Tensor tokens) const { return inner_(b, tokens); }

 private:
  Child<TiedModel> inner_{*this, "inner", "tokens.weight"};
};

TEST(Builder, ReturnsTheVariablesOfItsModule) {
  Ir ir;
  const auto [factories, graph] = create_graph(ir, TiedModel("tokens.weight"), i32_spec({4}));
  EXPECT_EQ(factories.keys_flat(), (std::vector<std::string>{"tokens.weight"}));
  EXPECT_EQ(graph.graph().inputs().size(), 2u);
  EXPECT_EQ(graph.graph().outputs()[0].shape(), (Shape{4, 5}));
  // The name begins at the module that asks.
  EXPECT_EQ(create_graph(ir, Outer(), i32_spec({4})).first.keys_flat(),
            (std::vector<std::string>{"inner.tokens.weight"}));
  const auto asks = [&](const std::string& key) {
    return [&ir, key] { create_graph(ir, TiedModel(key), i32_spec({4})); };
  };
  expect_refused({
      {"other name", asks("tokens.table"), "must have a variable 'tokens.table', got none; build "},
      {"module", asks("tokens"), "must have a variable 'tokens', got none"},
      {"path of the model", asks("inner.tokens.weight"),
       "must have a variable 'inner.tokens.weight', got none"},
  });
}

}  // namespace
}  // namespace sluice::nn
