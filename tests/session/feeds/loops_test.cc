// Loops from functions compute what their iterations do one after the other.

#include <gmock/gmock.h>

#include "feed_programs.h"
#include "sluice/interp/interpreter.h"
#include "sluice/transforms/autodiff.h"
#include "sluice/transforms/loops/loops.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;

const LoopBody kAdd = [](Tensor v, Tensor x) { return v + x; };

TEST(Loops, AddsElements) {
  for (const auto& [n, made, expected] :
       {std::tuple{20, INT64_MAX, 91.0f}, std::tuple{10, int64_t{10}, 46.0f}}) {
    Ir ir;
    Graph& main = ir.main_graph();
    const Infeed in = ir.infeed("x", {{"x", f32_of({4, 4})}});
    const Tensor one = filled(main, {4, 4}, 1);
    const D2hStream sum = main.host_store(ops::repeat(main, n, kAdd, {one}, in)[0], "sum");
    for (const int threads : {1, 2}) {
      Session session(ir, with(threads));
      session.bind_feed(in, std::make_shared<Counting>(10, made));
      EXPECT_EQ(all_equal(session.run()[sum]), expected);
    }
  }
}

TEST(Loops, FieldsGoByOrderAndByName) {
  Ir ir;
  const Infeed in = ir.infeed("pairs", {{"a", f32_of({2})}, {"b", f32_of({2})}});
  Graph& first = ir.entry_graph("ordered");
  const auto ordered = [](Tensor v, Tensor a, Tensor b) { return v + a + b; };
  const D2hStream sum =
      first.host_store(ops::repeat(first, 5, ordered, {filled(first, {2}, 0)}, in)[0], "sum");
  Graph& second = ir.entry_graph("named");
  const Tensor zero = filled(second, {2}, 0);
  const auto named = [](const LoopArguments& arguments) {
    const Tensor b = arguments["b"], a = arguments["a"];
    return Tensors{arguments[0] + a, arguments[1] + b};
  };
  const Tensors both = ops::repeat(second, 5, named, {zero, zero}, in);
  const D2hStream a = second.host_store(both[0], "a"), b = second.host_store(both[1], "b");
  Session session(ir, with(2));
  expect_sums_of_pairs(session, in, sum, a, b);
}

TEST(Loops, ASecondLoopGoesOn) {
  Ir ir;
  const Infeed in = ir.infeed("x", {{"x", f32_of({3})}});
  Graph& main = ir.main_graph();
  const Tensors once = ops::repeat(main, 5, kAdd, {filled(main, {3}, 0)}, in);
  const D2hStream out = main.host_store(ops::repeat(main, 5, kAdd, once, in)[0], "out");
  Session session(ir, with(1));
  session.bind_feed(in, std::make_shared<Counting>(2));
  EXPECT_EQ(all_equal(session.run()[out]), 5);
}

TEST(Loops, NoIterationsReadNothing) {
  Ir ir;
  const Infeed in = ir.infeed("x", {{"x", f32_of({4, 4})}});
  std::vector<D2hStream> out;
  for (const int64_t n : {0, 2}) {
    Graph& main = ir.entry_graph(std::to_string(n));
    out.push_back(
        main.host_store(ops::repeat(main, n, kAdd, {filled(main, {4, 4}, 0)}, in)[0], "sum"));
  }
  Session session(ir, with(2));
  session.bind_feed(in, std::make_shared<Counting>(10));
  std::vector<float> results;
  for (const size_t program : {0, 1, 1, 1}) {
    const HostTensors sums = session.run({}, program == 0 ? "0" : "2");
    results.push_back(all_equal(sums[out[program]]));
  }
  EXPECT_THAT(results, ElementsAre(0, 1, 5, 9));
}

TEST(Loops, TwoFeedsAdvanceApart) {
  Ir ir;
  const Infeed feeds[] = {ir.infeed("a", {{"x", f32_of({2})}}),
                          ir.infeed("b", {{"x", f32_of({2})}})};
  std::vector<D2hStream> out;
  for (const Infeed& feed : feeds) {
    Graph& main = ir.entry_graph(feed.name);
    out.push_back(
        main.host_store(ops::repeat(main, 5, kAdd, {filled(main, {2}, 0)}, feed)[0], "out"));
  }
  Session session(ir, with(1));
  session.bind_feed(feeds[0], std::make_shared<Counting>(20));
  session.bind_feed(feeds[1], std::make_shared<Counting>(3));
  std::vector<float> results;
  for (const size_t i : {0, 1, 0, 1})
    results.push_back(all_equal(session.run({}, feeds[i].name)[out[i]]));
  EXPECT_THAT(results, ElementsAre(10, 4, 35, 5));
}

TEST(Loops, ReplicasSumTheirElements) {
  for (const int64_t n : {5, 20}) {
    Ir ir(2);
    Graph& main = ir.main_graph();
    const Infeed in = ir.infeed("x", {{"x", f32_of({4, 4})}});
    const Outfeed sums = ir.outfeed("sums", {{"sum", f32_of({4, 4})}});
    const auto body = [&](Tensor v, Tensor x) {
      const Tensor sum = ops::replicated_all_reduce(v + x);
      main.enqueue(sums, Tensors{sum});
      return sum;
    };
    const D2hStream last =
        main.host_store(ops::repeat(main, n, body, {filled(main, {4, 4}, 0)}, in)[0], "last");
    Session session(ir, with(2));
    session.bind_feed(in, std::make_shared<Counting>(3));
    const auto queue = std::make_shared<data::OutfeedQueue>();
    session.bind_feed(sums, queue);
    const float v = all_equal(session.run()[last]);
    const HostTensor all = queue->dequeue()[0].array;
    EXPECT_EQ(all.shape(), Shape({n, 2, 4, 4}));
    if (n != 5) continue;
    EXPECT_EQ(v, 48);
    const float expected[] = {1, 4, 11, 23, 48};
    for (size_t i = 0; i < 5 * 2 * 16; ++i) EXPECT_EQ(all.as<float>()[i], expected[i / 32]);
  }
}

TEST(Loops, EightReplicasFillFieldsByName) {
  Ir ir(8);
  Graph& main = ir.main_graph();
  const Infeed in = ir.infeed("x", {{"x", f32_of({4, 4})}});
  const Outfeed out = ir.outfeed("out", {{"x", f32_of({4, 4})}, {"y", f32_of({1})}});
  const Tensor y = filled(main, {1}, 3);
  ops::repeat(
      main, 40,
      [&](Tensor x) {
        main.enqueue(out, {{"y", y}, {"x", x}});
      },
      {}, in);
  Session session(ir, with(2));
  session.bind_feed(in, std::make_shared<Counting>(10));
  const auto queue = std::make_shared<data::OutfeedQueue>();
  session.bind_feed(out, queue);
  session.run();
  const auto fields = queue->dequeue();
  EXPECT_EQ(fields[0].array.shape(), Shape({40, 8, 4, 4}));
  EXPECT_EQ(fields[1].array.shape(), Shape({40, 8, 1}));
}

// Programs of a loop over a feed, as one loop or unrolled.
enum class LoopForm { kLoop, kUnrolled };
enum class LoopProgram { kSums, kNested, kSubgraph, kDevices, kRemote, kTraining };

struct Program {
  Program(LoopProgram kind, LoopForm form, int replicas) : form(form), ir(replicas) {
    x = ir.infeed("x", {{"x", f32_of({3, 4})}, {"y", f32_of({3, 4})}});
    sums = ir.outfeed("sums", {{"sum", f32_of({3, 4})}});
    w = main.variable(f32_of({3, 4}), Initializer::constant(0.5), "w");
    const Tensor v = filled(main, {3, 4}, 0.25f);
    build(kind, v);
    last = main.host_store(main_result, "last");
  }

  Tensors loop(Graph& graph, int64_t n, const LoopBody& body, const Tensors& inputs,
               const std::optional<Infeed>& feed) const {
    if (form == LoopForm::kLoop) return ops::repeat(graph, n, body, inputs, feed);
    Tensors values = inputs;
    for (int64_t i = 0; i < n; ++i) {
      const Tensors fields = feed ? graph.dequeue(*feed) : Tensors{};
      values = body(LoopArguments(values, fields, feed, "loop"));
    }
    return values;
  }

  Tensor mixed(Tensor v) const {
    return ir.replication() > 1 ? ops::replicated_all_reduce(v) * 0.5f : v;
  }

  void build(LoopProgram kind, const Tensor& v) {
    const auto one = [&](auto body) { main_result = loop(main, 7, body, {v}, x)[0]; };
    switch (kind) {
      case LoopProgram::kSums:
        return one([&](Tensor t, Tensor a, Tensor b) {
          const Tensor sum = mixed(t * 0.75f + a * b);
          ops::add_(w, sum * w);
          main.enqueue(sums, Tensors{sum});
          return sum + w;
        });
      case LoopProgram::kNested:
        return one([&](Tensor t, Tensor a, Tensor b) {
          const Tensor inner = loop(
              main, 3,
              [&](Tensor u, Tensor c, Tensor d) {
                ops::scaled_add_(w, c, 1, 0.125);
                main.enqueue(sums, Tensors{mixed(u)});
                return u * 0.5f + b * d;
              },
              {t + a}, x)[0];
          return inner * w;
        });
      case LoopProgram::kSubgraph: {
        Graph& g = ir.create_graph(
            "g",
            [&](Graph& graph, Tensor total, Tensor t) {
              const auto body = [&](Tensor u, Tensor a, Tensor b) {
                ops::add_(total, a);
                graph.enqueue(sums, Tensors{total});
                return mixed(u + b * total);
              };
              return loop(graph, 4, body, {t}, x)[0];
            },
            NamedInput{"total", f32_of({3, 4}), Pass::kByReference}, f32_of({3, 4}));
        return one([&](Tensor t, Tensor a, Tensor b) {
          return ops::call(main, g, {w, t + a})[0] * b;
        });
      }
      case LoopProgram::kDevices:
        return one([&](Tensor t, Tensor a, Tensor b) {
          Tensor there;
          {
            const DeviceScope on(main, 1);
            there = mixed(t + a) * 0.5f;
          }
          ops::add_(w, there);
          main.enqueue(sums, Tensors{w});
          return there * b - w;
        });
      case LoopProgram::kRemote: {
        const RemoteBuffer rows = ir.remote_buffer(f32_of({3, 4}), 8);
        for (int64_t i = 0; i < 8; ++i) main.remote_store(rows, i, w);
        const auto body = [&, rows](Tensor n, Tensor t, Tensor a, Tensor b) {
          const Tensor next = n + main.scalar(1, i32);
          const Tensor row = main.remote_load(rows, n);
          main.remote_store(rows, next, row * a + t);
          main.enqueue(sums, Tensors{row});
          return Tensors{next, mixed(t + row * b)};
        };
        main_result = loop(main, 7, body, {main.scalar(0, i32), v}, x)[1];
        return;
      }
      case LoopProgram::kTraining: {
        Graph& loss = ir.create_graph(
            "loss",
            [](Graph&, Tensor weight, Tensor a, Tensor b) {
              const Tensor error = ops::tanh(weight * a) - b;
              return ops::mean(error * error);
            },
            w, f32_of({3, 4}), f32_of({3, 4}));
        return one([&](Tensor t, Tensor a, Tensor b) {
          const auto step = transforms::value_and_grad(loss, {w, a, b});
          ops::scaled_add_(w, mixed(step.grads[0]), 1, -0.5);
          main.enqueue(sums, Tensors{w});
          return t + step.value;
        });
      }
    }
  }

  LoopForm form;
  Ir ir;
  Graph& main = ir.main_graph();
  Infeed x;
  Outfeed sums;
  Tensor w;
  Tensor main_result;
  D2hStream last;
};

// Returns the arrays of each run: the last value, w, and what was enqueued.
Arrays run_in_session(const Program& p, int threads, int runs) {
  Session session(p.ir, with(threads, 2));
  session.bind_feed(p.x, std::make_shared<Counting>(1000, INT64_MAX, element));
  const auto queue = std::make_shared<data::OutfeedQueue>();
  session.bind_feed(p.sums, queue);
  Arrays arrays;
  for (int run = 0; run < runs; ++run) {
    arrays.push_back(floats(session.run()[p.last]));
    arrays.push_back(floats(session.read(p.w)));
    arrays.push_back(floats(queue->dequeue()[0].array));
  }
  return arrays;
}

Arrays run_in_interpreter(const Program& p, int64_t elements) {
  const int replicas = p.ir.replication();
  std::vector<HostTensor> fields;
  for (size_t f = 0; f < 2; ++f) {
    HostTensor all(f32_of(entries_shape({3, 4}, elements, replicas)));
    for (int64_t i = 0; i < elements * replicas; ++i) {
      for (float& v : all.as<float>().subspan(static_cast<size_t>(i) * 12, 12)) v = element(f, i);
    }
    fields.push_back(std::move(all));
  }
  Interpreter interpreter(p.ir);
  const auto out = interpreter.run({{p.x.streams[0], fields[0]}, {p.x.streams[1], fields[1]}});
  Arrays arrays{floats(out[p.last]), floats(interpreter.read(p.w)), {}};
  for (const HostTensor& entry : out.entries(p.sums.streams[0])) {
    const auto values = floats(entry);
    arrays[2].insert(arrays[2].end(), values.begin(), values.end());
  }
  return arrays;
}

TEST(Loops, HaveTheBitsOfTheirIterationsAndOfTheInterpreter) {
  for (const LoopProgram kind :
       {LoopProgram::kSums, LoopProgram::kNested, LoopProgram::kSubgraph, LoopProgram::kDevices,
        LoopProgram::kRemote, LoopProgram::kTraining}) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(fmt::format("kind {}, {} replicas", static_cast<int>(kind), replicas));
      const Program looped(kind, LoopForm::kLoop, replicas),
          flat(kind, LoopForm::kUnrolled, replicas);
      EXPECT_LT(looped.ir.graph(GraphId(0)).ops().size(), flat.ir.graph(GraphId(0)).ops().size());
      const int threads = 1 + (static_cast<int>(kind) + replicas) % 2;
      const Arrays expected = run_in_session(flat, 3 - threads, 3);
      EXPECT_EQ(run_in_session(looped, threads, 3), expected);
      const int64_t elements = kind == LoopProgram::kNested     ? 28
                               : kind == LoopProgram::kSubgraph ? 35
                                                                : 7;
      EXPECT_EQ(run_in_interpreter(looped, elements),
                Arrays(expected.begin(), expected.begin() + 3));
    }
  }
}

}  // namespace
}  // namespace sluice::test
