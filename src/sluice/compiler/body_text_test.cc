#include "sluice/compiler/body_text.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/compiler/test_bodies.h"
#include "sluice/ops/op.h"

namespace sluice::compiler {
namespace {

void expect_same(const Node& a, const Node& b) {
  EXPECT_EQ(a.what, b.what);
  EXPECT_EQ(a.def, b.def);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.in_specs, b.in_specs);
  EXPECT_EQ(a.outputs, b.outputs);
  EXPECT_EQ(a.out_specs, b.out_specs);
  EXPECT_EQ(a.ties, b.ties);
  EXPECT_EQ(a.origin, b.origin);
  EXPECT_EQ(a.provenance, b.provenance);
  EXPECT_EQ(a.device, b.device);
}

void expect_same(const Body& a, const Body& b) {
  EXPECT_EQ(a.graph, b.graph);
  EXPECT_EQ(a.role, b.role);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.device, b.device);
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.params, b.params);
  EXPECT_EQ(a.results, b.results);
  EXPECT_EQ(a.variables, b.variables);
  EXPECT_EQ(a.index_params, b.index_params);
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (const NodeId n : a.nodes.ids()) expect_same(a.nodes[n], b.nodes[n]);
}

// Parses a body. Expects that its text is parsed to the same body, and written identically again.
Body round_trip(std::string_view text) {
  const Body body = parse_body(text);
  const std::string written = to_text(body);
  const Body again = parse_body(written);
  expect_same(body, again);
  EXPECT_EQ(written, to_text(again));
  return body;
}

TEST(BodyText, RoundTripsWhatABodyHasBesideNodes) {
  const Body body = round_trip(R"(
    body "a body" loop_body device 3 graph 7
      index_param 0 4
      index_param ?
      param %0 f32(2,3) name "x" 2 layout panels32 "the x" last %4
      param %1 i32()
      variable 2 %2 f32(4)of(8)
      constant 1 %3 u32()
      undefined -1 %5 f32(0,2)
      copy in %0 out %4 f32(2,3)
      results %- %4
      last 2 %2
    end)");
  EXPECT_EQ(body.role, Role::kLoopBody);
  EXPECT_EQ(body.graph, 7);
  EXPECT_EQ(body.index_params,
            (std::vector<std::optional<IndexRange>>{IndexRange{0, 4}, std::nullopt}));
  EXPECT_EQ(body.params[0], (BodyParam{"the x", ValueIndex(0), ValueIndex(4)}));
  EXPECT_EQ(body.values[ValueIndex(0)].layout, parse_layout("panels32"));
  EXPECT_EQ(body.values[ValueIndex(2)].spec.meta_shape, Shape({8}));
  EXPECT_EQ(body.values[ValueIndex(5)].source, BodyValue::Source::kUndefined);
  EXPECT_EQ(body.results, ids<ValueIndex>({-1, 4}));
}

TEST(BodyText, RoundTripsKernels) {
  const Body body = round_trip(R"(
    body main entry
      param %0 f32(2,3)
      param %1 f32(3,2)
      kernel ReduceSum in %0 out %2 f32()
        attrs axes=[0,1]
      kernel MatMul in %0 %1 out %3 f32(2,2) name "y" 1 %- as f32(2,2) origin 5 where "a \"b\" c"
        stage MatMul f32(2,2) to -1 from 0 1
        stage ReduceSum f32() to 2 from -1
        stage_attrs axes=[1]
      kernel PrintTensor prints in %3 as f32(4) device 2
      view in %3 out %4 f32(4) as f32(2,2)
    end)");
  EXPECT_EQ(to_string(body.nodes[NodeId(0)].as<Node::Kernel>()->attrs).find("axes=[0,1]"), 0U);
  EXPECT_EQ(body.nodes[NodeId(1)].as<Node::Kernel>()->stages[1].inputs, std::vector<int32_t>{~0});
  EXPECT_EQ(body.nodes[NodeId(1)].outputs[1], kNone);
  EXPECT_TRUE(body.nodes[NodeId(2)].as<Node::Kernel>()->prints);
  EXPECT_EQ(body.nodes[NodeId(2)].in_specs[0].shape, Shape({4}));
  EXPECT_EQ(body.nodes[NodeId(2)].device, 2);
}

// The pass "conversions" adds a stage to a single op on panels, which keeps its attributes.
TEST(BodyText, RoundTripsAttributesBesideStages) {
  const Body body = round_trip(R"(
    body main entry
      param %0 f32(2,3)
      kernel ReduceSum in %0 out %1 f32(2)
        stage ReduceSum f32(2) to 1 from 0
        attrs axes=[1]
    end)");
  EXPECT_FALSE(body.nodes[NodeId(0)].as<Node::Kernel>()->attrs.items.empty());
}

TEST(BodyText, RoundTripsCallsAndWhatMovesData) {
  const Body body = round_trip(R"(
    body main entry
      param %0 f32(4)
      param %1 i32()
      call 3 before 2 updated 1 index it index (p0+3) in %0 %1 out %2 f32(4) %3 i32() tie 1 %1
      loop trips 5 carried 1 1 index it in %2 out %5 f32(4)
      branch 1 2 then 1 before 4 in %1 %5 %5 out %6 f32(4)
      transfer HostLoad stream_in 1 io order 2 out %7 f32(4)
      transfer RemoteStore remote_store 1 io_overlapped at -1 queue 1 token 3 index (p0%4) in %7
      wait RemoteStore queue 1 token 3 in %7
      index ((it*4)+1) out %8 i32()
      send 0 message 1 in %7
      receive 1 message 2 out %9 f32(4)
      collective ReplicatedAllReduce group 1 in %9 out %10 f32(4)
        attrs op="max"
    end)");
  EXPECT_EQ(body.nodes[NodeId(0)].as<Node::Call>()->results, 1);
  EXPECT_EQ(body.nodes[NodeId(0)].as<Node::Call>()->updated, std::vector<int32_t>{1});
  EXPECT_EQ(body.nodes[NodeId(1)].as<Node::Loop>()->results, 1);
  EXPECT_EQ(body.nodes[NodeId(2)].as<Node::Branch>()->transfers_before, 4);
  EXPECT_EQ(body.nodes[NodeId(4)].as<Node::Transfer>()->token, 3);
}

TEST(BodyText, RoundTripsRotations) {
  const Body body = round_trip(R"(
    body main entry
      param %0 f32(4)
      loop trips 5 carried 3 rotates 0:2 rotates 1:0 1 index it in %0 %0 %0 out %1 f32(4) %2 f32(4) %3 f32(4)
    end)");
  EXPECT_EQ(body.nodes[NodeId(0)].as<Node::Loop>()->rotates, (std::vector<int32_t>{2, 0, -1}));
}

TEST(BodyText, NamesMayHoldAnyCharacter) {
  Body body;
  body.name = "two\nlines\t\"and\\quotes\" # no comment";
  expect_same(body, parse_body(to_text(body)));
}

TEST(BodyText, AttributesOfStagesMayHoldQuotes) {
  Body body = parse_body(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
        stage Neg f32(4) to 1 from 0
    end)");
  body.nodes[NodeId(0)].as<Node::Kernel>()->stages[0].attrs.items.push_back(
      {"text", std::string(" ")});
  expect_same(body, parse_body(to_text(body)));
}

TEST(BodyText, ABodyWithoutANumberGetsTheNext) {
  const auto bodies = parse_bodies(R"(
    body a entry
    end
    body d function number 3
    end
    body e function
    end
    body b function number 1
    end)");
  ASSERT_EQ(bodies.size(), 5U);
  EXPECT_EQ(bodies[0].name, "a");
  EXPECT_EQ(bodies[1].name, "b");
  EXPECT_EQ(bodies[2].name, "");
  EXPECT_EQ(bodies[3].name, "d");
  EXPECT_EQ(bodies[4].name, "e");
}

TEST(BodyText, TheTextOfAProgramParses) {
  const TestProgram p(R"(
    body main entry
      param %0 f32(4)
      call 2 in %0 out %1 f32(4)
      results %1
    end
    body unused function
    end
    body f function
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      results %1
    end)");
  const auto again = parse_bodies(p.text());
  ASSERT_EQ(again.size(), 3U);
  EXPECT_TRUE(again[1].name.empty()) << "no entry reaches it";
  expect_same(again[0], p.body(0));
  expect_same(again[2], p.body(2));
}

Refusal refused(const std::string& name, const std::string& lines, const std::string& part) {
  return {name, [=] { parse_body("body main entry\n" + lines + "\nend"); }, part,
          ErrorKind::kBadFile};
}

TEST(BodyText, RefusesBadTextsAndNamesTheLine) {
  const auto whole = [](const std::string& text, const std::string& part) {
    return Refusal{text, [=] { parse_body(text); }, part, ErrorKind::kBadFile};
  };
  expect_refused({
      whole("", "body:0: the text is empty"),
      whole("body main", "body:1: role is missing"),
      whole("body main starter", "body:1: role must be one of "),
      whole("body main entry\n", "body:1: the text ends before 'end'"),
      whole("body main entry\nend\nview", "body:3: the text must end after 'end'"),
      whole("body main entry\nend of it", "body:2: the end of the line expected, found 'of'"),
      refused("kind", "view\nwiew in %0", "receive or collective, got 'wiew'"),
      refused("operator", "kernel Nope", "body:2: there is no operator 'Nope'"),
      refused("spec", "view out %0 f33(2)", "body:2: "),
      refused("value", "view in 0", "body:2: the end of the line expected, found '0'"),
      refused("pair", "view in %0>%1", "body:2: must be one value, got '%0>%1'"),
      refused("large", "param %2000000 f32()",
              "body:2: the number of a value must be 0 to 1048576, got 2000000"),
      refused("layout", "param %0 f32() layout 9tiles", "body:2: "),
      refused("attrs", "kernel Neg\nattrs what", "body:3: "),
      refused("stage", "view\nstage Neg f32() to 0 from 0",
              "body:3: attributes must follow a kernel or a collective, and stages a kernel"),
      refused("no node", "attrs axes=[0]", "body:2: this line must follow a node"),
      refused("stage_attrs", "kernel Neg\nstage_attrs a=1",
              "body:3: this line must follow a stage"),
      refused("collective", "collective - group 0",
              "body:2: a collective requires an operator, got '-'"),
      refused("effect", "transfer - fax 0 io", "body:2: kind of transfer must be one of "),
  });
}

}  // namespace
}  // namespace sluice::compiler
