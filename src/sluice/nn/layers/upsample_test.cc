#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/nn/layers.h"

namespace sluice::nn {
namespace {

TEST(Upsample, HasTheSizesThatAreAskedFor) {
  Ir ir;
  const auto shape = [&](const UpsampleOptions& options, const Shape& x) {
    return create_graph(ir, Upsample(options), f32_spec(x)).second.graph().outputs()[0].shape();
  };
  EXPECT_EQ(shape({.scale = {2}}, {1, 2, 3, 4}), (Shape{1, 2, 6, 8}));
  EXPECT_EQ(shape({.scale = {1.7, 0.5}}, {1, 2, 3, 5}), (Shape{1, 2, 5, 2}));
  EXPECT_EQ(shape({.size = {7}}, {1, 2, 3, 4}), (Shape{1, 2, 7, 7}));
  EXPECT_EQ(shape({.size = {4, 5, 6}, .mode = ops::Interpolation::kLinear}, {1, 2, 2, 3, 4}),
            (Shape{1, 2, 4, 5, 6}));
  EXPECT_EQ(shape({.size = {2}, .mode = ops::Interpolation::kLinear}, {3, 2, 5}), (Shape{3, 2, 2}));
  EXPECT_NE(Upsample({.scale = {2}}).cache_key(), Upsample({.size = {2}}).cache_key());
}

TEST(Upsample, RefusesOtherOptionsAndShapes) {
  Ir ir;
  const auto build = [&](const UpsampleOptions& options, const Shape& x) {
    return [&ir, options, x] { create_graph(ir, Upsample(options), f32_spec(x)); };
  };
  expect_refused({
      {"nothing", [] { Upsample({}); }, "Upsample: must have a size or a scale, got none"},
      {"both", [] { Upsample({.size = {2}, .scale = {2}}); },
       "Upsample: must have a size or a scale, got both"},
      {"size",
       [] {
         Upsample({.size = {2, 0}});
       },
       "Upsample: a size must be at least 1, got 0"},
      {"scale", [] { Upsample({.scale = {-1}}); },
       "Upsample: a scale must be positive and finite, got -1"},
      {"corners", [] { Upsample({.scale = {2}, .align_corners = true}); },
       "Upsample: align_corners must be false for the nearest elements, got true; use kLinear"},
      {"no spatial axis", build({.scale = {2}}, {2, 3}),
       "Upsample: x must have a batch, channels and 1 to 3 spatial axes, got 'x' (2, 3) float32"},
      {"three sizes", build({.size = {2, 2, 2}}, {1, 1, 4, 4}),
       "Upsample: size must have one number for all 2 spatial axes or one for each, got 3"},
      {"two scales", build({.scale = {2, 2}}, {1, 1, 4}),
       "Upsample: scale must have one number for all 1 spatial axes or one for each, got 2"},
      {"no element", build({.scale = {0.1}}, {1, 1, 4}),
       "interpolate: size 0 must be at least 1, got 0"},
      {"too many", build({.scale = {1e9}}, {1, 1, 4}),
       "Upsample: axis 2 must get at most 2^24 elements, got 4000000000"},
  });
}

}  // namespace
}  // namespace sluice::nn
