// Tests the checks of a run's arguments: streams, shapes and dtypes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../support/mlp.h"
#include "sluice/interp/interpreter.h"

namespace sluice::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Streams : public testing::Test {
 protected:
  std::string refused(const std::vector<StreamInput>& inputs, const std::string& entry = "train") {
    return error_of(ErrorKind::kUsage, [&] { session.run(inputs, entry); });
  }

  MlpProgram p{{.layers = 1}};
  Batch batch{p.options, 0};
  Session session{p.ir, {.device = cpu_device({.threads = 1})}};
};

TEST_F(Streams, Missing) {
  EXPECT_THAT(refused({{p.image, batch.image}}),
              AllOf(HasSubstr("Missing input: labels"), HasSubstr("given: image")));
  EXPECT_THAT(refused({}), HasSubstr("expects: image, labels"));
}

TEST_F(Streams, Unknown) {
  EXPECT_THAT(
      refused({{p.image, batch.image}, {p.labels, batch.labels}, {p.eval_image, batch.image}}),
      HasSubstr("Unexpected input: eval_image"));
  Ir other;
  const H2dStream foreign = other.h2d_stream(p.image.spec, "image");
  EXPECT_THAT(refused({{foreign, batch.image}, {p.labels, batch.labels}}), HasSubstr("another Ir"));
  const HostTensors results =
      session.run({{p.image, batch.image}, {p.labels, batch.labels}}, "train");
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { results[p.logits]; }), HasSubstr("logits"));
}

TEST_F(Streams, GivenTwice) {
  EXPECT_THAT(refused({{p.image, batch.image}, {p.image, batch.image}, {p.labels, batch.labels}}),
              HasSubstr("'image' is given twice"));
}

TEST_F(Streams, WrongShapeOrDtype) {
  const HostTensor longer(f32_spec({p.options.batch + 1, p.options.width}));
  EXPECT_THAT(refused({{p.image, longer}, {p.labels, batch.labels}}),
              AllOf(HasSubstr("image"), HasSubstr("(9, 24)"), HasSubstr("(8, 24)")));
  EXPECT_THAT(refused({{p.image, batch.image}, {p.labels, batch.labels.cast(f32)}}),
              AllOf(HasSubstr("labels"), HasSubstr("int32"), HasSubstr("float32")));
}

// As in calls of models, the samples are the first axis, and the others may be divided otherwise.
TEST_F(Streams, AnEntryMayHaveOtherAxesAfterTheFirst) {
  Session other(p.ir, {.device = cpu_device({.threads = 1})});
  const HostTensor images = batch.image.reshaped({p.options.batch, 2, p.options.width / 2});
  const HostTensor labels = batch.labels.reshaped({p.options.batch, 1});
  const HostTensors got = session.run({{p.image, images}, {p.labels, labels}}, "train");
  const HostTensors want = other.run({{p.image, batch.image}, {p.labels, batch.labels}}, "train");
  EXPECT_TRUE(got[p.loss].same_bits(want[p.loss]));
  // With the axis of a single entry, too.
  const HostTensor stacked = HostTensor::stack({images});
  session.run({{p.image, stacked}, {p.labels, labels}}, "train");
  for (const Shape& shape :
       {Shape({p.options.width, p.options.batch}), Shape({p.options.batch * p.options.width}),
        Shape({1, 1, p.options.batch, p.options.width})})
    EXPECT_THAT(refused({{p.image, batch.image.reshaped(shape)}, {p.labels, batch.labels}}),
                HasSubstr("image"));
}

TEST_F(Streams, OneEntryMayHaveAnAxis) {
  const HostTensor images = HostTensor::stack({batch.image});
  const HostTensor labels = HostTensor::stack({batch.labels});
  const std::vector<StreamInput> inputs{{p.image, images}, {p.labels, labels}};
  Interpreter interpreter(p.ir);
  EXPECT_TRUE(
      session.run(inputs, "train")[p.loss].same_bits(interpreter.run(inputs, "train")[p.loss]));
  const HostTensor twice = HostTensor::stack({batch.image, batch.image});
  EXPECT_THAT(refused({{p.image, twice}, {p.labels, labels}}),
              AllOf(HasSubstr("uses 1 entries"), HasSubstr("(2, 8, 24)")));
}

TEST_F(Streams, UnknownEntry) {
  EXPECT_THAT(refused({}, "main"), AllOf(HasSubstr("main"), HasSubstr("train"), HasSubstr("eval")));
}

TEST_F(Streams, BoundOutputsAreChecked) {
  const std::vector<StreamInput> inputs{{p.image, batch.image}, {p.labels, batch.labels}};
  HostTensor loss(p.loss.spec);
  HostTensor wide(f32_spec({2}));
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { session.bind(inputs, {}, "train"); }),
              HasSubstr("Missing output: loss"));
  EXPECT_THAT(error_of(ErrorKind::kUsage,
                       [&] {
                         session.bind(inputs, {{p.loss, wide}}, "train");
                       }),
              HasSubstr("loss"));
  EXPECT_THAT(error_of(ErrorKind::kUsage,
                       [&] {
                         session.bind(inputs, {{p.loss, loss}, {p.logits, wide}}, "train");
                       }),
              HasSubstr("Unexpected output: logits"));
}

TEST_F(Streams, ABindingIsForItsSession) {
  HostTensor loss(p.loss.spec);
  Session other(p.ir, {.device = cpu_device({.threads = 1})});
  Binding b =
      other.bind({{p.image, batch.image}, {p.labels, batch.labels}}, {{p.loss, loss}}, "train");
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { session.run_into(b); }),
              HasSubstr("not made by this session"));
  Binding none;
  error_of(ErrorKind::kUsage, [&] { session.run_into(none); });
  error_of(ErrorKind::kUsage, [&] { session.run_interleaved(none, 1); });
}

TEST_F(Streams, ARefusedRunChangesNothing) {
  const auto before = all_bytes(session);
  refused({{p.image, batch.image}});
  EXPECT_EQ(all_bytes(session), before);
}

TEST(StreamEntries, AreALeadingAxis) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({2}), "in");
  const D2hStream out = ir.d2h_stream(f32_spec({2}), "out");
  for (int i = 0; i < 3; ++i) main.host_store(out, main.host_load(in) * static_cast<double>(i + 1));
  Session session(ir, {.device = cpu_device({.threads = 1})});
  const HostTensor three = HostTensor::of<float>({3, 2}, f32, {1, 2, 3, 4, 5, 6});
  const HostTensors results = session.run({{in, three}});
  EXPECT_TRUE(results[out].same_bits(HostTensor::of<float>({3, 2}, f32, {1, 2, 6, 8, 15, 18})));
  EXPECT_THAT(error_of(ErrorKind::kUsage,
                       [&] {
                         session.run({{in, HostTensor(f32_spec({2}))}});
                       }),
              AllOf(HasSubstr("3 entries"), HasSubstr("(3, 2)")));
}

TEST(StreamEntries, ABranchMayNotUseThem) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({2}), "in");
  Graph& load = ir.create_empty_graph("load");
  load.add_output(load.host_load(in));
  const Tensor yes = main.constant(HostTensor::of<bool>({}, boolean, {true}));
  main.host_store(ops::conditional(main, yes, load, load, {}, {})[0], "out");
  EXPECT_THAT(error_of(ErrorKind::kUsage, [&] { Session session(ir, {.device = cpu_device()}); }),
              AllOf(HasSubstr("stream 'in'"), HasSubstr("conditional")));
}

TEST(EmptyTensors, RunLikeOthers) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(f32_spec({0, 3}), "in");
  const Tensor x = main.host_load(in);
  const Tensor w = main.variable(f32_spec({3, 0}), Initializer::constant(1), "w");
  Graph& body = ir.create_graph(
      "body", [](Graph&, Tensor t) { return ops::relu(t + 1.0); }, f32_spec({0, 3}));
  const Tensor y = ops::repeat(main, body, 3, {ops::call(main, body, {x})[0]})[0];
  const D2hStream empty = main.host_store(ops::concat({y, x}), "empty");
  const D2hStream product = main.host_store(ops::matmul(w, x), "product");  // Sums of zero terms.
  const D2hStream sum = main.host_store(ops::sum(y), "sum");
  ops::add_(w, w);
  Session session(ir, {.device = cpu_device({.threads = 2})});
  const HostTensors r = session.run({{in, HostTensor(in.spec)}});
  EXPECT_EQ(r[empty].shape(), (Shape{0, 3}));
  EXPECT_EQ(r[product].to_doubles(), std::vector<double>(9, 0.0));
  EXPECT_EQ(r[sum].to_doubles(), std::vector<double>{0.0});
  EXPECT_EQ(session.read(w).elements(), 0);
}

}  // namespace
}  // namespace sluice::test
