// Variables of groups and in shards, in device and remote memory. The host sees whole tensors.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "replicas_util.h"
#include "sluice/exe/executable.h"
#include "sluice/exe/memory_needs.h"

namespace sluice::test {
namespace {

/// y = x + the group's offset + the gathered shard; a run changes the offset and the shard.
struct VariableProgram {
  explicit VariableProgram(VariableLocation location = {}) : ir(4) {
    Graph& main = ir.main_graph();
    in = ir.h2d_stream(f32_spec({5}), "x");
    VariableInfo offset;
    offset.path = "offset";
    offset.group = ir.replica_grouping(2, 2);
    offset.initializer = Initializer::normal(0, 1).keyed({1, 1});
    by_group = main.variable(f32_spec({5}), offset, "offset");
    VariableInfo shard;
    shard.path = "shard";
    shard.shard = 2;
    shard.group = ir.replica_grouping(1, 2);
    shard.initializer = Initializer::normal(0, 1).keyed({2, 2});
    const TensorSpec spec{{3}, f32, {5}};
    if (location.remote()) {
      buffer = ir.remote_buffer(spec, 3);
      shard.location = {buffer.id, location.entry};
    }
    sharded = main.variable(spec, shard, "shard");
    const Tensor x = main.host_load(in);
    const Tensor own = location.remote() ? main.remote_load(buffer, location.entry) : sharded;
    const Tensor whole = ops::replicated_all_gather(own, 0, ir.replica_grouping(1, 2));
    out = main.host_store(x + by_group + whole, "y");
    ops::scaled_add_(by_group, ops::replicated_all_reduce(x, ops::CollectiveOp::kMean,
                                                          ir.replica_grouping(2, 2)));
    const Tensor mine = ops::replicated_reduce_scatter(
        x, ops::CollectiveOp::kAdd, ir.replica_grouping(1, 2), ops::Sharding::kReplicated);
    ops::scaled_add_(own, mine);
    if (location.remote()) main.remote_store(buffer, location.entry, own);
  }

  Ir ir;
  H2dStream in;
  D2hStream out;
  Tensor by_group, sharded;
  RemoteBuffer buffer;
};

TEST(ReplicaVariables, AreReadAndWrittenWhole) {
  const HostTensor x = drawn({4, 5}, f32, 9);
  const std::string folder = std::filesystem::temp_directory_path();
  for (const char* const where : {"device", "host", "file"}) {
    SCOPED_TRACE(where);
    const bool remote = std::string(where) != "device";
    const VariableProgram p(remote ? VariableLocation{1, 2} : VariableLocation{});
    const auto check = [&](int threads, const std::shared_ptr<runtime::ProcessGroup>& group) {
      Interpreter fresh(p.ir);
      Session session(p.ir, {.device = cpu_device({.threads = threads}),
                             .group = group,
                             .remote = std::string(where) == "file" ? "file:" + folder : "host"});
      EXPECT_EQ(session.read(p.by_group).shape(), (Shape{2, 5}));
      EXPECT_EQ(session.read(p.sharded).shape(), (Shape{2, 5}));
      for (int step = 0; step < 2; ++step) {
        const Collected want = fresh.run({{p.in, x}});
        EXPECT_TRUE(session.run({{p.in, x}})[p.out].same_bits(want[p.out]));
        EXPECT_TRUE(session.read(p.by_group).same_bits(fresh.read(p.by_group)));
        EXPECT_TRUE(session.read(p.sharded).same_bits(fresh.read(p.sharded)));
        const HostTensor given = drawn({2, 5}, f32, 10);
        for (const Tensor& v : {p.by_group, p.sharded}) {
          fresh.write(v, given);
          session.write(v, given);
        }
      }
      HostTensor part(f32_spec({4}));
      session.read_chunk(p.sharded, 3, 4, part.bytes());
      const HostTensor all = session.read(p.sharded);
      for (size_t i = 0; i < 4; ++i) EXPECT_EQ(part.as<float>()[i], all.as<float>()[3 + i]);
      // A tier holds the entries of all replicas.
      if (remote) {
        int64_t bytes = 0;
        for (const exe::Arena& a : session.executable().arenas)
          bytes += a.kind == exe::ArenaKind::kTier ? a.bytes : 0;
        EXPECT_EQ(exe::memory_needs(session.executable())[1].tier_bytes, 4 * bytes);
      }
    };
    for (const int threads : {1, 2}) check(threads, nullptr);
    for_each_group(4, [&](const auto& group) { check(1, group); });
  }
}

TEST(ReplicaVariables, AreRestoredWhole) {
  const VariableProgram p;
  Session session(p.ir, {.device = cpu_device()});
  const auto inputs = session.expected_inputs();
  ASSERT_EQ(inputs.size(), 1u);
  EXPECT_EQ(inputs[0].second, f32_spec({4, 5}));
  std::vector<NamedArray> before;
  session.each_variable([&](const std::string& path, HostTensor value) {
    before.push_back({path, std::move(value)});
  });
  session.run({{p.in, drawn({4, 5}, f32, 9)}});
  EXPECT_FALSE(session.read(p.sharded).same_bits(before[1].array));
  session.restore(before);
  EXPECT_TRUE(session.read(p.by_group).same_bits(before[0].array));
  EXPECT_TRUE(session.read(p.sharded).same_bits(before[1].array));
}

TEST(ReplicaVariables, FilesHoldWholeTensors) {
  const VariableProgram p;
  const HostTensor x = drawn({4, 5}, f32, 9);
  const auto check = [&](const std::string& name,
                         const std::shared_ptr<runtime::ProcessGroup>& group) {
    const std::string path = std::filesystem::temp_directory_path() / name;
    Session one(p.ir, {.device = cpu_device(), .group = group});
    one.run({{p.in, x}});
    one.save(path);
    Session two(p.ir, {.device = cpu_device(), .group = group});
    EXPECT_TRUE(two.load(path).empty());
    EXPECT_TRUE(two.read(p.sharded).same_bits(one.read(p.sharded)));
    EXPECT_TRUE(two.run({{p.in, x}})[p.out].same_bits(one.run({{p.in, x}})[p.out]));
    if (group == nullptr || group->rank() == 0) std::filesystem::remove(path);
  };
  check(fmt::format("sluice_variables_{}.safetensors", ::getpid()), nullptr);
  for_each_group(4, [&](const auto& group) {
    check(fmt::format("sluice_variables_of_{}.safetensors", group->size()), group);
  });
}

TEST(ReplicaVariables, BeginAsWithoutReplicas) {
  const auto first = [](int replicas, int shards) {
    Ir ir(replicas);
    VariableInfo info;
    info.path = "w";
    info.shard = shards;
    info.initializer = Initializer::normal(0, 1).keyed({3, 4});
    TensorSpec spec = f32_spec({3, 5});
    if (shards > 0) spec = {{(15 + shards - 1) / shards}, f32, {3, 5}};
    const Tensor w = ir.main_graph().variable(spec, info, "w");
    ir.main_graph().host_store(w, "out");
    return Session(ir, {.device = cpu_device()}).read(w);
  };
  const HostTensor want = first(1, 0);
  for (const int replicas : {2, 4}) {
    for (const int shards : {0, 2, 4}) {
      if (shards > replicas) continue;
      EXPECT_TRUE(first(replicas, shards).same_bits(want)) << replicas << " " << shards;
    }
  }
}

TEST(ReplicaVariables, OfGroupsWithoutAStride) {
  Ir ir(4);
  VariableInfo info;
  info.group = ir.replica_grouping_from_assignments({0, 1, 1, 0});
  info.initializer = Initializer::array(HostTensor::of<float>({2, 1}, f32, {3, 4}));
  const Tensor v = ir.main_graph().variable(f32_spec({1}), info, "v");
  const D2hStream out = ir.main_graph().host_store(v, "out");
  Session session(ir, {.device = cpu_device()});
  EXPECT_TRUE(session.run()[out].same_bits(HostTensor::of<float>({4, 1}, f32, {3, 4, 4, 3})));
  session.write(v, HostTensor::of<float>({2, 1}, f32, {5, 6}));
  EXPECT_TRUE(session.run()[out].same_bits(HostTensor::of<float>({4, 1}, f32, {5, 6, 6, 5})));
}

TEST(ReplicaVariables, RefuseWrongShards) {
  Ir ir(4);
  const auto add = [&](const TensorSpec& spec, int shard, const ReplicaGrouping& group) {
    return [&ir, spec, shard, group] {
      VariableInfo info;
      info.shard = shard;
      info.group = group;
      ir.main_graph().variable(spec, info, "v");
    };
  };
  const ReplicaGrouping all = ir.replica_grouping();
  const auto expect = [](const std::function<void()>& f, const std::string& text) {
    try {
      f();
      ADD_FAILURE() << "no error: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUsage);
      EXPECT_THAT(e.what(), testing::HasSubstr(text));
    }
  };
  expect(add({{3}, f32, {12}}, 3, all),
         "must be positive and divide the 4 replicas of a group, got 3 chunks");
  expect(add({{3}, f32, {12}}, 4, ir.replica_grouping(1, 2)),
         "must be positive and divide the 2 replicas of a group, got 4 chunks");
  expect(add({{4}, f32, {12}}, 4, all),
         "must be one of 4 chunks of its meta_shape (12,), got (4,) float32");
  expect(add(f32_spec({3}), 4, all), "must be one of 4 chunks");
  expect(add(f32_spec({3}), 0, ReplicaGrouping::make(2, 1, 2)),
         "groups must be of the 4 replicas of the program, got 2");
  const VariableProgram p;
  Session other(p.ir, {.device = cpu_device()});
  expect(
      [&] {
        other.run({{p.in, drawn({5}, f32, 1)}});
      },
      "the program uses 1 entries of (5,) in each of 4 replicas, so the array must be (4, 5), "
      "got (5,)");
  expect([&] { other.write(p.sharded, drawn({5}, f32, 1)); },
         "variable 'shard': the array must be (2, 5), got (5,)");
}

}  // namespace
}  // namespace sluice::test
