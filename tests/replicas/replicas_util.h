#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sluice/interp/interpreter.h"
#include "sluice/sluice.h"
#include "sluice/target/target.h"
#include "thread_group.h"

namespace sluice::test {

/// Returns an array of random values for a number: normal floating point, small integers.
inline HostTensor drawn(const Shape& shape, DType dtype, uint32_t number) {
  HostTensor values = Initializer::normal(0, 2).keyed({17, number}).evaluate({shape, f32, {}});
  for (float& x : values.as<float>()) {
    if (dtype == boolean) x = x > 0;
    if (dtype == u32 || dtype == u8) x = std::fabs(x) * 100;
    if (dtype == i32) x *= 1000;
  }
  return values.cast(dtype);
}

/// Returns all groupings of `replicas` replicas that have one stride.
inline std::vector<ReplicaGrouping> groupings(int replicas) {
  std::vector<ReplicaGrouping> all;
  for (int size = 1; size <= replicas; ++size) {
    for (int stride = 1; stride * size <= replicas; ++stride) {
      if (replicas % (stride * size) != 0 || (size == 1 && stride > 1)) continue;
      all.push_back(ReplicaGrouping::make(replicas, stride, size));
    }
  }
  return all;
}

/// The group of processes that mpirun started; null in a program without mpirun.
inline std::shared_ptr<runtime::ProcessGroup>& launched_group() {
  static std::shared_ptr<runtime::ProcessGroup> group;
  return group;
}

/// Calls `process` in each process of every group that can share `replicas` replicas. These are
/// groups of threads, or the one group that mpirun started. Replicas of devices with queues run in
/// one process.
inline void for_each_group(
    int replicas, const std::function<void(std::shared_ptr<runtime::ProcessGroup>)>& process) {
  if (const auto& group = launched_group()) {
    if (replicas % group->size() == 0) process(group);
    return;
  }
  if (cpu_device().target->is_queued()) return;
  for (int processes = 2; processes <= replicas; ++processes) {
    if (replicas % processes == 0) for_each_process(processes, process);
  }
}

/// Output streams of a program and their names in failures.
using Outputs = std::vector<std::pair<std::string, D2hStream>>;

/// Whether replicas of one process run with one, two and three threads and interleaved, or once.
enum class Orders : uint8_t { kAll, kOne };

/// Checks that compiled runs compute the bits of the interpreter, in groups of processes and in
/// one.
inline void expect_the_interpreters_bits(const Ir& ir,
                                         const std::vector<std::pair<H2dStream, HostTensor>>& in,
                                         const Outputs& outputs, Orders orders) {
  std::vector<StreamInput> inputs;
  for (const auto& [stream, array] : in) {
    inputs.push_back({stream, array});
  }
  Interpreter interpreter(ir);
  const Collected want = interpreter.run(inputs);
  const auto compare = [&](const HostTensors& got, const std::string& how) {
    int wrong = 0;
    for (const auto& [name, stream] : outputs) {
      if (got[stream].same_bits(want[stream]) || ++wrong > 8) continue;
      ADD_FAILURE() << how << ": " << name;
    }
  };
  for_each_group(ir.replication(), [&](const auto& group) {
    const int threads = 1 + ir.replication() / group->size();
    Session session(ir, {.device = cpu_device({.threads = threads}), .group = group});
    for (int run = 0; run < 2; ++run) {
      compare(session.run(inputs),
              fmt::format("process {} of {}, run {}", group->rank(), group->size(), run));
    }
  });
  if (launched_group() != nullptr) return;
  for (const int threads : {2, 1, 3}) {
    Session session(ir, {.device = cpu_device({.threads = threads})});
    EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
    compare(session.run(inputs), fmt::format("{} threads", threads));
    if (orders == Orders::kOne) return;
    if (threads == 3) continue;
    HostTensors got = session.run(inputs);
    std::vector<StreamOutput> arrays;
    std::vector<HostTensor> memory;
    for (const auto& [name, stream] : outputs) memory.push_back(HostTensor(got[stream].spec()));
    for (size_t i = 0; i < outputs.size(); ++i) arrays.push_back({outputs[i].second, memory[i]});
    Binding binding = session.bind(inputs, arrays);
    for (uint64_t seed = 1; seed < 3; ++seed) {
      session.run_interleaved(binding, seed);
      for (size_t i = 0; i < outputs.size(); ++i) {
        EXPECT_TRUE(memory[i].same_bits(got[outputs[i].second]))
            << outputs[i].first << ", order " << seed;
      }
    }
  }
}

}  // namespace sluice::test
