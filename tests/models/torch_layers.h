#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "sluice/base/safetensors.h"

/// The arrays of torch_layers.safetensors, which torch_layers.py computes with PyTorch.
namespace sluice::test {

inline constexpr const char* kFile = "tests/models/torch_layers.safetensors";
inline constexpr double kTolerance = 2e-6;

struct Stored {
  Stored() {
    for (NamedArray& a : read_safetensors_file(kFile, &metadata))
      arrays.emplace(a.name, std::move(a.array));
  }
  const HostTensor& operator[](const std::string& name) const { return arrays.at(name); }

  SafetensorsMetadata metadata;
  std::map<std::string, HostTensor> arrays;
};

/// Whether an array belongs to the state_dict of Net.
inline bool is_of_net(const std::string& name) {
  return !name.starts_with("loss.") && !name.starts_with("layer.") && !name.starts_with("tied.") &&
         name != "input" && name != "output";
}

/// Expects equal specs, and elements that differ by at most `tolerance` times the larger of 1 and
/// their magnitude.
inline void expect_close(const HostTensor& got, const HostTensor& want, const std::string& what,
                         double tolerance = kTolerance) {
  ASSERT_EQ(to_string(got.spec()), to_string(want.spec())) << what;
  const std::vector<double> a = got.to_doubles(), b = want.to_doubles();
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], tolerance * std::max(1.0, std::abs(b[i]))) << what << " " << i;
}

}  // namespace sluice::test
