#pragma once
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "sluice/train/cut/test_networks.h"
#include "sluice/train/pipeline/schedule.h"

/// For tests: the strategies of a network and the locations of its tensors.
namespace sluice::train {

struct Way {
  std::string name;
  Options step = {};
  size_t more_devices = 0;
};

// Every strategy for a network of `blocks` blocks, with tensors on the device and in remote memory.
// kSome leaves out most combinations of locations with the strategies of one device.
enum class Ways { kAll, kSome };
inline std::vector<Way> ways(Ways which = Ways::kAll, size_t blocks = 3) {
  std::vector<Way> all;
  for (const TensorLocations& where : locations()) {
    for (const Strategy& strategy : {Strategy(resident()), Strategy(phased())})
      all.push_back({"resident or phased", {.strategy = strategy, .locations = where}});
  }
  if (which == Ways::kSome) {
    const std::vector<Way> every = std::exchange(all, {});
    for (const size_t i : {0, 3, 6, 9, 12, 13}) all.push_back(every[i]);
  }
  const auto add = [&](std::string name, const Strategy& strategy, TensorLocations where = {}) {
    all.push_back({std::move(name), {.strategy = strategy, .locations = where}, blocks - 1});
  };
  add("sharded", ShardedExecution{});
  for (const Schedule schedule :
       {Schedule::kGrouped, Schedule::kInterleaved, Schedule::kSequential, Schedule::kAuto})
    add(std::string(to_string(schedule)), PipelinedExecution{{}, schedule});
  add("pipelined, all remote", PipelinedExecution{}, locations().back());
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].step.recompute.all = i % 2 == 1;
    all[i].step.io_mode = std::array{IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}[i % 3];
    if (i % 3 > 0) all[i].step.locations.min_elements_sharded = 2;
    all[i].name += " " + std::to_string(i);
  }
  all[0].step.locations.min_elements_sharded = nn::kNeverShard;
  return all;
}

// Returns the first way, which the others are compared with, and the ways whose number is `number`
// modulo `parts`.
inline std::vector<Way> share(const std::vector<Way>& all, size_t parts, size_t number) {
  std::vector<Way> some{all[0]};
  for (size_t w = 1; w < all.size(); ++w) {
    if (w % parts == number % parts) some.push_back(all[w]);
  }
  return some;
}

// The options of a way with the reductions of others.
inline Options with_reductions_of(Options way, const Options& options) {
  way.accumulate = options.accumulate;
  way.learning_rate = options.learning_rate;
  way.accumulation_reduction = options.accumulation_reduction;
  way.replica_reduction = options.replica_reduction;
  way.accumulator_dtype = options.accumulator_dtype;
  way.gradient_hook = options.gradient_hook;
  way.max_grad_norm = options.max_grad_norm;
  way.freeze = options.freeze;
  way.ema_decay = options.ema_decay;
  return way;
}

}  // namespace sluice::train
