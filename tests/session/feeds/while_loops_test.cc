// Loops with a condition compute what their iterations do until it fails.

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "feed_programs.h"
#include "sluice/exe/text.h"
#include "sluice/interp/interpreter.h"
#include "sluice/transforms/loops/loops.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(WhileLoops, AddElementsAsTheDocumentDoes) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Infeed in = ir.infeed("x", {{"x", f32_of({4, 4})}});
  const auto below_20 = [](Tensor i, Tensor) { return ops::greater(20.0, i); };
  const auto add = [](Tensor i, Tensor v, Tensor x) { return Tensors{i + 1.0f, v + x}; };
  const Tensors start{main.scalar(0, f32), filled(main, {4, 4}, 1)};
  const D2hStream sum = main.host_store(ops::while_loop(main, below_20, add, start, in)[1], "sum");
  Graph& pairs = ir.entry_graph("pairs");
  const Infeed ab = ir.infeed("ab", {{"a", f32_of({4, 4})}, {"b", f32_of({4, 4})}});
  const auto add_both = [](Tensor i, Tensor v, Tensor a, Tensor b) {
    return Tensors{i + 1.0f, v + a + b};
  };
  const Tensors zero{pairs.scalar(0, f32), filled(pairs, {4, 4}, 1)};
  const D2hStream both =
      pairs.host_store(ops::while_loop(pairs, below_20, add_both, zero, ab)[1], "both");
  for (const int threads : {1, 2}) {
    Session session(ir, with(threads));
    session.bind_feed(in, std::make_shared<Counting>(10));
    EXPECT_EQ(all_equal(session.run()[sum]), 91);
    session.bind_feed(ab, std::make_shared<Counting>(3, INT64_MAX, [](size_t f, int64_t i) {
                        return f == 0 ? static_cast<float>(i) : static_cast<float>(i + 10) / 2;
                      }));
    EXPECT_EQ(all_equal(session.run({}, "pairs")[both]), 129.5);
  }
}

// Adds elements to a carried value while it is below the variable `limit`.
struct Bounded {
  explicit Bounded(int64_t max) {
    limit = main.variable(f32_of({}), Initializer::constant(0), "limit");
    const Tensors last = ops::while_loop(
        main, [this](Tensor v) { return ops::greater(limit, v); },
        [this](Tensor v, Tensor x) {
          main.enqueue(taken, Tensors{x});
          return v + x;
        },
        {main.scalar(0, f32)}, in, max);
    sum = main.host_store(last[0], "sum");
  }
  Ir ir;
  Graph& main = ir.main_graph();
  Infeed in = ir.infeed("x", {{"x", f32_of({})}});
  Outfeed taken = ir.outfeed("taken", {{"x", f32_of({})}});
  Tensor limit;
  D2hStream sum;
};

TEST(WhileLoops, UnreadElementsStayForTheNextRun) {
  const Bounded p(8);
  for (const int threads : {1, 2}) {
    Session session(p.ir, with(threads));
    session.bind_feed(p.in, std::make_shared<Counting>(1000));
    const auto numbers = std::make_shared<Numbers>();
    session.bind_feed(p.taken, numbers);
    std::vector<float> sums;
    // Reads 0, 1, 2, then nothing, then 3, 4, then at most eight elements.
    for (const float limit : {2.5f, 0.0f, 7.0f, 1000.0f}) {
      session.write(p.limit, HostTensor::of<float>({}, f32, {limit}));
      sums.push_back(session.run()[p.sum].as<float>()[0]);
    }
    EXPECT_THAT(sums, ElementsAre(3, 0, 7, 5 + 6 + 7 + 8 + 9 + 10 + 11 + 12));
    EXPECT_THAT(numbers->field(0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
  }
}

TEST(WhileLoops, AnEndOfDataNamesTheElementsAskedFor) {
  const Bounded p(INT32_MAX);
  Session session(p.ir, with(1));
  session.bind_feed(p.in, std::make_shared<Counting>(1000, 5));
  session.bind_feed(p.taken, std::make_shared<Numbers>());
  session.write(p.limit, HostTensor::of<float>({}, f32, {3}));
  session.run();  // Reads 0, 1, 2.
  session.write(p.limit, HostTensor::of<float>({}, f32, {100}));
  EXPECT_THAT(error_text(ErrorKind::kUsage, [&] { session.run(); }),
              HasSubstr("feed 'x': requested 6 elements, produced 5"));
}

// Programs of two loops with a condition, whose numbers of iterations depend on elements and on the
// variable `limit`.
enum class WhileKind { kSums, kNested, kInRepeat, kSubgraph, kDevices, kRemote, kSwap };
constexpr WhileKind kAll[] = {WhileKind::kSums,     WhileKind::kNested,  WhileKind::kInRepeat,
                              WhileKind::kSubgraph, WhileKind::kDevices, WhileKind::kRemote,
                              WhileKind::kSwap};

struct WhileProgram {
  WhileProgram(WhileKind kind, int replicas) : ir(replicas) {
    w = main.variable(f32_of({3, 4}), Initializer::constant(0.5), "w");
    limit = main.variable(f32_of({}), Initializer::constant(0), "limit");
    const Tensors zero{main.scalar(0, f32), filled(main, {3, 4}, 0.25f)};
    Tensor v = loop(kind, main, zero)[1];
    ops::copy_var_update_(w, ops::tanh(w + v));
    v = loop(kind, main, {main.scalar(0, f32), v * w})[1];
    last = main.host_store(mixed(v) + w, "last");
  }

  Tensor mixed(Tensor v) const {
    return ir.replication() > 1 ? ops::replicated_all_reduce(v) * 0.5f : v;
  }

  Tensors run(Graph& g, const LoopBody& body, const Tensors& from, int64_t max = 9) const {
    const auto goes_on = [this](const LoopArguments& in) { return ops::greater(limit, in[0]); };
    return ops::while_loop(g, goes_on, body, from, x, max);
  }

  Tensors step(Graph& g, Tensor i, Tensor v, Tensor a, Tensor b) const {
    const Tensor sum = ops::tanh(mixed(v * 0.75f + a * b));
    ops::copy_var_update_(w, ops::tanh(w + sum * 0.5f));
    g.enqueue(sums, Tensors{sum});
    // The count grows by an amount in the data, equally on all replicas.
    return {i + ops::mean(mixed(a * a)) + 0.5f, sum + w * 0.25f};
  }

  Graph& inner() {
    return ir.create_graph(
        "inner",
        [&](Graph& g, Tensor u, Tensor c) {
          return ops::while_loop(
              g, [](Tensor t) { return ops::greater(8.0, ops::sum(t * t)); },
              [&](Tensor t) { return t + mixed(c * c) + 0.25f; }, {u}, {}, 5);
        },
        f32_of({3, 4}), f32_of({3, 4}));
  }

  Tensors remote(Graph& graph, const Tensors& inputs) {
    const RemoteBuffer rows = ir.remote_buffer(f32_of({3, 4}), 4);
    for (int64_t i = 0; i < 4; ++i) graph.remote_store(rows, i, w);
    const auto body = [&](Tensor i, Tensor v, Tensor a, Tensor b) {
      const Tensor row = graph.remote_load(rows, 1);
      graph.remote_store(rows, 2, row * a + v);
      graph.remote_store(rows, 1, v - b);
      return step(graph, i, v + row, a, b);
    };
    const Tensors made = run(graph, body, inputs, 5);
    return {made[0], made[1] + graph.remote_load(rows, 1) - graph.remote_load(rows, 2)};
  }

  Tensors loop(WhileKind kind, Graph& graph, const Tensors& inputs) {
    const auto plain = [&](Tensor i, Tensor v, Tensor a, Tensor b) {
      return step(graph, i, v, a, b);
    };
    switch (kind) {
      case WhileKind::kSums:
        return run(graph, plain, inputs);
      case WhileKind::kNested:
        return run(
            graph,
            [&](Tensor i, Tensor v, Tensor a, Tensor b) {
              graph.enqueue(sums, Tensors{a});
              const Tensors inner = run(graph, plain, {i, v + a}, 3);
              return Tensors{inner[0] + 0.25f, inner[1] * b};
            },
            inputs);
      case WhileKind::kInRepeat:
        return ops::repeat(
            graph, 3,
            [&](Tensor i, Tensor v) {
              const Tensors inner = run(graph, plain, {i, v}, 4);
              return Tensors{inner[0] * 0.5f, inner[1] + w};
            },
            inputs);
      case WhileKind::kSubgraph:
        return run(
            graph,
            [&](Tensor i, Tensor v, Tensor a, Tensor b) {
              return step(graph, i, ops::call(graph, inner(), {mixed(v), a})[0], a, b);
            },
            inputs);
      case WhileKind::kDevices:
        return run(
            graph,
            [&](Tensor i, Tensor v, Tensor a, Tensor b) {
              Tensor there;
              {
                const DeviceScope on(graph, 1);
                there = mixed(v + a) * 0.5f;
              }
              return step(graph, i, there * b - w, a, b);
            },
            inputs);
      case WhileKind::kRemote:
        return remote(graph, inputs);
      case WhileKind::kSwap:
        return run(graph,
                   [&](Tensor i, Tensor v, Tensor u, Tensor a, Tensor b) {
                     Tensors next = step(graph, i, v, a, b);
                     return Tensors{next[0], u, v};
                   },
                   {inputs[0], inputs[1], inputs[1] * 2.0f});
    }
    return {};
  }

  Ir ir;
  Graph& main = ir.main_graph();
  Infeed x = ir.infeed("x", {{"x", f32_of({3, 4})}, {"y", f32_of({3, 4})}});
  Outfeed sums = ir.outfeed("sums", {{"sum", f32_of({3, 4})}});
  Tensor w, limit;
  D2hStream last;
};

HostTensor scalar(float v) { return HostTensor::of<float>({}, f32, {v}); }

// The last value, w, and what was enqueued, of each run.
Arrays run_in_session(const WhileProgram& p, Session& session, const std::vector<float>& limits) {
  session.bind_feed(p.x, std::make_shared<Counting>(1000, INT64_MAX, element));
  const auto queue = std::make_shared<data::OutfeedQueue>();
  session.bind_feed(p.sums, queue);
  session.write(p.w, HostTensor::of<float>({3, 4}, f32, std::vector<float>(12, 0.5f)));
  Arrays arrays;
  for (const float limit : limits) {
    session.write(p.limit, scalar(limit));
    arrays.push_back(floats(session.run()[p.last]));
    arrays.push_back(floats(session.read(p.w)));
    arrays.push_back(queue->size() == 0 ? std::vector<float>{} : floats(queue->dequeue()[0].array));
  }
  return arrays;
}

// Gives the interpreter as many elements as the session has read: one for each that it enqueued.
// The interpreter refuses another number.
Arrays run_in_interpreter(const WhileProgram& p, const std::vector<float>& limits,
                          const Arrays& expected) {
  const int replicas = p.ir.replication();
  Arrays arrays;
  Interpreter interpreter(p.ir);
  int64_t read = 0;  // Elements that earlier runs have read.
  for (const float limit : limits) {
    const auto elements = static_cast<int64_t>(expected[arrays.size() + 2].size()) / 12;
    std::vector<HostTensor> fields;
    for (size_t f = 0; f < 2; ++f) {
      HostTensor all(f32_of(entries_shape({3, 4}, elements / replicas, replicas)));
      for (int64_t i = 0; i < elements; ++i) {
        for (float& v : all.as<float>().subspan(static_cast<size_t>(i) * 12, 12))
          v = element(f, (read + i) % 1000);
      }
      fields.push_back(std::move(all));
    }
    interpreter.write(p.limit, scalar(limit));
    const auto out = interpreter.run({{p.x.streams[0], fields[0]}, {p.x.streams[1], fields[1]}});
    arrays.push_back(floats(out[p.last]));
    arrays.push_back(floats(interpreter.read(p.w)));
    std::vector<float> sums;
    for (const HostTensor& entry : out.entries(p.sums.streams[0])) {
      const auto values = floats(entry);
      sums.insert(sums.end(), values.begin(), values.end());
    }
    arrays.push_back(sums);
    read += elements;
  }
  return arrays;
}

// SLUICE_EXITS sets the number of runs.
int runs() {
  const char* text = std::getenv("SLUICE_EXITS");
  return text == nullptr ? 6 : std::atoi(text);
}

void expect_parses_back(const exe::Executable& plan) {
  const std::string text = exe::to_text(plan);
  EXPECT_THAT(text, HasSubstr(" exit "));
  EXPECT_EQ(exe::to_text(exe::parse_text(text, "plan")), text);
}

// Each kind runs on one thread and on two.
TEST(WhileLoops, HaveTheBitsOfTheInterpreterAtRandomExits) {
  std::mt19937 random(5);
  for (const WhileKind kind : kAll) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(fmt::format("kind {}, {} replicas", static_cast<int>(kind), replicas));
      const WhileProgram p(kind, replicas);
      std::vector<float> limits{0, 3};
      for (int i = 2; i < runs(); ++i) limits.push_back(static_cast<float>(random() % 80) / 10);
      Session session(p.ir, with(1 + (static_cast<int>(kind) + replicas) % 2, 2));
      expect_parses_back(session.executable());
      const Arrays made = run_in_session(p, session, limits);
      for (const auto& array : made) {
        for (const float v : array) ASSERT_TRUE(std::isfinite(v));
      }
      EXPECT_TRUE(run_in_interpreter(p, limits, made) == made);
    }
  }
}

TEST(WhileLoops, RefuseConditionsThatReplicasMayDecideApart) {
  const auto compile_with = [](const std::function<Tensor(Ir&, Tensor, Tensor)>& condition) {
    return [=] {
      Ir ir(2);
      Graph& main = ir.main_graph();
      const Infeed in = ir.infeed("x", {{"x", f32_of({})}});
      const Tensor own = main.variable(
          f32_of({}),
          VariableInfo{.initializer = Initializer::constant(1), .group = ir.replica_grouping(1, 1)},
          "own");
      ops::while_loop(
          main, [&](Tensor v) { return condition(ir, v, own); },
          [](Tensor v, Tensor x) { return v + x; }, {main.scalar(0, f32)}, in, 4);
      Session session(ir, with(1));
    };
  };
  expect_refused({
      {"stream", compile_with([](Ir&, Tensor v, Tensor) { return ops::greater(3.0, v); }),
       "the condition 'goes_on' must be equal on all replicas, got one that depends on stream "
       "'x.x'; reduce it with a collective over all replicas"},
      {"variable of each replica",
       compile_with([](Ir&, Tensor, Tensor own) { return ops::greater(3.0, own); }),
       "got one that depends on variable 'own'"},
      {"group of one", compile_with([](Ir& ir, Tensor v, Tensor) {
         return ops::greater(3.0, ops::replicated_all_reduce(v, ops::CollectiveOp::kAdd,
                                                             ir.replica_grouping(1, 1)));
       }),
       "got one that depends on stream 'x.x'"},
  });
  EXPECT_NO_THROW(compile_with(
      [](Ir&, Tensor v, Tensor) { return ops::greater(3.0, ops::replicated_all_reduce(v)); })());
}

// Compiles a loop that adds what `load` reads.
std::string refusal(Ir ir, const std::function<Tensor(Graph&)>& load) {
  Graph& main = ir.main_graph();
  ops::while_loop(
      main, [](Tensor v) { return ops::greater(3.0, v); }, [&](Tensor v) { return v + load(main); },
      {main.scalar(0, f32)}, {}, 4);
  return error_text(ErrorKind::kUsage, [&] { Session session(ir, with(1)); });
}

TEST(WhileLoops, RefuseFixedStreams) {
  Ir ir;
  const H2dStream fixed = ir.h2d_stream(f32_of({}), "fixed");
  EXPECT_THAT(refusal(ir, [&](Graph& g) { return g.host_load(fixed); }),
              HasSubstr("a loop with a condition must use feeds, got stream 'fixed', which has a "
                        "fixed number of entries"));
}

// The program reads both fields equally often, but an exit would leave one behind the other.
TEST(WhileLoops, RefuseUnequalFields) {
  Ir ir;
  const Infeed in = ir.infeed("in", {{"a", f32_of({})}, {"b", f32_of({})}});
  Graph& main = ir.main_graph();
  ops::repeat(main, 4, [&] { main.host_store(main.host_load(in.streams[1]), "b"); });
  EXPECT_THAT(refusal(ir, [&](Graph& g) { return g.host_load(in.streams[0]); }),
              HasSubstr("must load all fields equally often, got 'in.a' 1, 'in.b' 0"));
}

}  // namespace
}  // namespace sluice::test
