#pragma once
#include <array>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "sluice/cpu/simd/vector_kernels.h"
#include "sluice/ops/update_functors.h"

/// Sequences of elementwise stages that one loop computes, with intermediate results in registers.
/// Other sequences run stage by stage on a block in the L1 cache, which costs an update of large
/// variables a quarter of its time: memory waits while stages compute.
namespace sluice::cpu {

/// A stage of a loop. It applies functor F to operands of the loop (their indices) or results of
/// earlier stages (~index). `kStored`: the loop stores the result; else only the loop may read it.
template <typename F, bool kStored, int... kFrom>
struct LoopStage {
  using Functor = F;
  static constexpr bool kIsStored = kStored;
  static constexpr std::array<int, sizeof...(kFrom)> kInputs = {kFrom...};

  template <typename V>
  static V apply(const F& f, const V* operands, const V* results) {
    return f((kFrom >= 0 ? operands[kFrom] : results[~kFrom])...);
  }
};

/// The functors of a loop. They are copied as bytes, so this is no std::tuple.
template <typename... Stages>
struct LoopFunctors {};
template <typename Stage, typename... Stages>
struct LoopFunctors<Stage, Stages...> {
  typename Stage::Functor first;
  LoopFunctors<Stages...> rest;

  void set(const void* const* functors) {
    first = *static_cast<const typename Stage::Functor*>(*functors);
    if constexpr (sizeof...(Stages) > 0) rest.set(functors + 1);
  }
  template <typename V>
  void run(const V* operands, V* results, int stage) const {
    results[stage] = Stage::apply(first, operands, results);
    if constexpr (sizeof...(Stages) > 0) rest.run(operands, results, stage + 1);
  }
};

/// A loop is a functor for map_kernel() with one output for each stored result.
template <typename... Stages>
struct Loop {
  static constexpr int kStages = sizeof...(Stages);
  static constexpr int kOutputs = (0 + ... + Stages::kIsStored);
  static consteval int operands() {
    int count = 0;
    const auto see = [&](const auto& inputs) {
      for (const int from : inputs) count = from >= count ? from + 1 : count;
    };
    (see(Stages::kInputs), ...);
    return count;
  }

  /// Floats between an element and those to prefetch: the operands are larger than the caches.
  static constexpr int64_t kPrefetched = 128;

  LoopFunctors<Stages...> functors;

  template <typename V, typename... More>
  requires(1 + sizeof...(More) == static_cast<size_t>(operands())) std::array<V, kOutputs>
  operator()(V first, More... more) const {
    const V values[] = {first, more...};
    V results[kStages];
    functors.run(values, results, 0);
    return stored_results(results, std::make_index_sequence<kOutputs>{});
  }

 private:
  // Returns the stage of each output.
  static consteval std::array<size_t, kOutputs> stored_stages() {
    constexpr bool kIsStored[] = {Stages::kIsStored...};
    std::array<size_t, kOutputs> stages{};
    for (size_t s = 0, to = 0; s < kStages; ++s) {
      if (kIsStored[s]) stages[to++] = s;
    }
    return stages;
  }
  template <typename V, size_t... kOutput>
  static std::array<V, kOutputs> stored_results(const V* results, std::index_sequence<kOutput...>) {
    return {results[stored_stages()[kOutput]]...};
  }
};

/// Adam: (m, g, v, w), with decoupled weight decay or not. Stores m, v and w.
template <typename Updater>
using AdamLoop = Loop<LoopStage<ops::functor::AccumulateMovingAverage, true, 0, 1>,
                      LoopStage<ops::functor::AccumulateMovingAverageSquare, true, 2, 1>, Updater,
                      LoopStage<ops::functor::ScaledAdd, true, 3, ~2>>;
using PlainAdamLoop = AdamLoop<LoopStage<ops::functor::AdamUpdater, false, ~0, ~1>>;
using DecayAdamLoop = AdamLoop<LoopStage<ops::functor::AdamUpdaterDecay, false, ~0, ~1, 3>>;
/// Momentum: (m, g, w). Stores m and w.
using MomentumLoop = Loop<LoopStage<ops::functor::ScaledAdd, true, 0, 1>,
                          LoopStage<ops::functor::ScaledAdd, true, 2, ~0>>;

using Loops = std::tuple<PlainAdamLoop, DecayAdamLoop, MomentumLoop>;

/// A type of Loops.
struct LoopType {
  struct Stage {
    std::string_view type, variant;  ///< kType and kVariant of the functor.
    bool stored = false;
    std::span<const int> inputs;
  };
  static constexpr size_t kMaxStages = 4, kMaxOutputs = 3;
  /// Bytes of the functors of a loop.
  static constexpr size_t kMaxBytes = 64;

  std::vector<Stage> stages;
  int operands = 0;
  /// Makes the functor of the loop at `to` from the functors of its stages.
  void (*make)(const void* const* functors, void* to) = nullptr;
  MapFn kernel = nullptr;
};

/// Returns all loops, with kernels for the instruction set of this process.
std::span<const LoopType> loop_types();

}  // namespace sluice::cpu
