#pragma once
#include <functional>
#include <memory>

#include "bench/figure.h"
#include "sluice/sluice.h"

namespace sluice::bench {

/// Keeps a result alive by storing one of its elements.
void keep(const Tensor& t);

/// A program of one operator, and arrays for copies that touch as many bytes.
class OneOperator {
 public:
  /// `build` adds the operator, which touches `held` bytes of memory, to the main graph.
  OneOperator(const std::function<void(Graph& main)>& build, int64_t held, int threads);

  /// Times the program and copies, each for about `seconds`, twice. The limit is the time that a
  /// memcpy needs to read and write `moved` bytes.
  Round measure(Machine& machine, double moved, double seconds);

 private:
  Ir ir_;
  int threads_;
  std::unique_ptr<Session> session_;
  Binding binding_;
  HostTensor first_;
  int64_t copied_;
  Memory from_, to_;
};

}  // namespace sluice::bench
