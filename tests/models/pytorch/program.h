#pragma once
#include <deque>
#include <vector>

#include "../pytorch_samples.h"

/// The stored samples and their programs.
namespace sluice::test {

constexpr uint64_t kWeights = 16;  // Number of y's weights among the hashed tensors of a line.

std::vector<std::string> split(const std::string& text, char separator);

/// Reads pytorch_samples.csv.
std::vector<Line> read_lines();

/// Dtypes of a program's inputs.
struct Precision {
  DType rounding = f32;   // Floating-point inputs are rounded to this dtype,
  DType dtype = f32;      // then cast to that of the computation.
  bool gradients = true;  // Whether gradients are computed.
};

/// A program that computes the outputs of a sample, and the gradients of the projection of its
/// floating-point outputs.
class Program {
 public:
  using Arrays = std::vector<HostTensor>;

  explicit Program(const Line& line, const Precision& precision = {});

  Arrays interpreted() const;
  Arrays executed() const;

 private:
  void store(const Tensor& t) { stored_.push_back(ir_.main_graph().host_store(t, "out")); }

  template <typename Collection>
  Arrays results(const Collection& arrays) const {
    Arrays all;
    for (const D2hStream& s : stored_) all.push_back(arrays[s]);
    return all;
  }

  Ir ir_;
  std::deque<HostTensor> values_;
  std::vector<StreamInput> inputs_;  // Views of values_.
  std::vector<D2hStream> stored_;
};

}  // namespace sluice::test
