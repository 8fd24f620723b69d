#include "sluice/train/phases/row_loop.h"

#include <algorithm>
#include <array>

#include "sluice/ir/call.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/ops/arithmetic.h"

namespace sluice::train {
namespace {

// A loop with fewer iterations costs more at its boundary than it saves.
constexpr int64_t kMinTrips = 2;

using nn::NamedTensors;

bool stores(const RowLoop& loop) {
  return std::any_of(loop.tensors.begin(), loop.tensors.end(),
                     [](const RowTensor& t) { return t.stored; });
}

class Rows {
 public:
  Rows(Graph& main, const RowLoop& loop, const NamedTensors& invariants)
      : main_(main), loop_(loop), trips_(loop.rows.looped), invariants_(invariants) {}

  NamedTensors in_line(NamedTensors values, int64_t first, int64_t end) const {
    for (int64_t number = first; number < end; ++number)
      values = one_by_one(main_, row(number), values, invariants_);
    return values;
  }

  NamedTensors plain(const NamedTensors& values) const {
    return repeat(trips_, 1, {values}, {}, [&](const Inside& in) -> Trees {
      return {one_by_one(in.graph, row(in, 0), in.carried[0], in.invariants)};
    })[0];
  }

  // Lk loads and Ck computes row k. {} is the loop; steps joined by | overlap.
  // L0; { Lk+1 | Ck }; Cn-1.
  NamedTensors loads_ahead(const NamedTensors& values) const {
    const NamedTensors first = load(main_, row(0));
    const Trees end = repeat(trips_ - 1, 1, {values, first}, {}, [&](const Inside& in) -> Trees {
      const NamedTensors next = load(in.graph, row(in, 1));
      return {run(in.graph, row(in, 0), in.carried[1], in.carried[0], in.invariants), next};
    });
    return run(main_, row(trips_ - 1), end[1], end[0], invariants_);
  }

  // Sk stores row k.
  // L0; C0 | L1; S0 | C1 | L2; { Sk-1 | Ck | Lk+1 }; Sn-2 | Cn-1; Sn-1.
  // Three sets of tensors rotate: one is stored, one is used and one is loaded. A loop body of
  // three rows ends with each set in the role that it began with, so that no tensor is copied.
  NamedTensors delayed_stores(NamedTensors values) const {
    const int64_t n = trips_;
    Trees sets{load(main_, row(0)), {}, {}};
    values = run(main_, row(0), sets[0], values, invariants_);
    sets[1] = load(main_, row(1));
    store(main_, row(0), sets[0]);
    values = run(main_, row(1), sets[1], values, invariants_);
    sets[2] = load(main_, row(2));
    const auto in_main = [this](int64_t number) { return row(number); };
    int64_t next = 2;  // The next row to run; it is already loaded into set next % 3.
    const int64_t rounds = (n - 1 - next) / kSets;
    if (rounds >= kMinTrips) {
      values = repeat(rounds, kSets, {values}, sets, [&](const Inside& in) -> Trees {
        NamedTensors carried = in.carried[0];
        for (int64_t k = 0; k < kSets; ++k) {
          const auto in_body = [&](int64_t number) { return row(in, number, kSets); };
          carried = run_one_of_three(in.graph, in_body, next + k, in.sets, carried, in.invariants);
        }
        return {carried};
      })[0];
      next += rounds * kSets;
    }
    for (; next < n - 1; ++next)
      values = run_one_of_three(main_, in_main, next, sets, values, invariants_);
    store(main_, row(n - 2), set(sets, n - 2));
    values = run(main_, row(n - 1), set(sets, n - 1), values, invariants_);
    store(main_, row(n - 1), set(sets, n - 1));
    return values;
  }

 private:
  using Trees = std::vector<NamedTensors>;
  // Tensors of the loop's body. `sets` are by-reference inputs of the body.
  struct Inside {
    Graph& graph;
    Tensor iteration;
    Trees carried;
    Trees sets;
    NamedTensors invariants;
  };

  static constexpr int64_t kSets = 3;

  static const NamedTensors& set(const Trees& sets, int64_t number) {
    return at(sets, number % kSets);
  }

  // A row, and its number relative to that of the loop whose body has it (Provenance::at).
  struct RemoteRow {
    RemoteEntry entry;
    int64_t offset = 0;
  };

  NamedTensors load(Graph& g, const RemoteRow& row) const {
    NamedTensors loaded;
    for (const RowTensor& t : loop_.tensors) {
      const Graph::ProvenanceScope of(g, {.variable = t.variable, .at = {.row = row.offset}});
      loaded.merge(t.key, g.remote_load(t.buffer, row.entry, t.name));
    }
    return loaded;
  }
  void reload(Graph& g, const RemoteRow& row, const NamedTensors& over) const {
    for (const RowTensor& t : loop_.tensors) {
      const Graph::ProvenanceScope of(g, {.variable = t.variable, .at = {.row = row.offset}});
      g.remote_load_(t.buffer, row.entry, over[t.key]);
    }
  }
  NamedTensors run(Graph& g, const RemoteRow& row, const NamedTensors& loaded,
                   const NamedTensors& values, const NamedTensors& invariants) const {
    const Graph::ProvenanceScope of(g, {.at = {.row = row.offset}});
    return loop_.run(g, row.entry, loaded, values, invariants);
  }
  void store(Graph& g, const RemoteRow& row, const NamedTensors& loaded) const {
    for (const RowTensor& t : loop_.tensors) {
      const Graph::ProvenanceScope of(g, {.variable = t.variable, .at = {.row = row.offset}});
      if (t.stored) g.remote_store(t.buffer, row.entry, loaded[t.key]);
    }
  }

  // Stores row k - 1, runs row k and loads row k + 1. Row k is already loaded. Row k + 1 takes the
  // set of row k - 2, which is already stored.
  template <typename RowOf>
  NamedTensors run_one_of_three(Graph& g, const RowOf& row_of, int64_t k, const Trees& sets,
                                const NamedTensors& values, const NamedTensors& invariants) const {
    store(g, row_of(k - 1), set(sets, k - 1));
    NamedTensors after = run(g, row_of(k), set(sets, k), values, invariants);
    reload(g, row_of(k + 1), set(sets, k + 1));
    return after;
  }

  bool descends() const { return loop_.order == RowLoop::Order::kDescending; }

  // The first row of the loop. Unrolled rows before it have negative numbers.
  int64_t first_row() const { return descends() ? trips_ - 1 : loop_.rows.in_line; }
  int64_t direction() const { return descends() ? -1 : 1; }

  // A row, by its index in execution order.
  RemoteRow row(int64_t number) const {
    const int64_t row = first_row() + direction() * number;
    return {row, row};
  }
  // The row that is `ahead` rows after the first row of an iteration, which has `rows` rows.
  RemoteRow row(const Inside& in, int64_t ahead, int64_t rows = 1) const {
    const Tensor first = rows == 1 ? in.iteration : in.iteration * static_cast<double>(rows);
    const int64_t offset = first_row() + direction() * ahead;
    if (descends()) return {in.graph.scalar(static_cast<double>(offset), i32) - first, -ahead};
    return {offset == 0 ? first : first + static_cast<double>(offset), ahead};
  }

  NamedTensors one_by_one(Graph& g, const RemoteRow& row, const NamedTensors& values,
                          const NamedTensors& invariants) const {
    const NamedTensors own = load(g, row);
    NamedTensors next = run(g, row, own, values, invariants);
    store(g, row, own);
    return next;
  }

  // An iteration runs `rows` rows.
  template <typename Body>
  Trees repeat(int64_t trips, int64_t rows, const Trees& carried, const Trees& sets,
               const Body& body) const {
    Graph& g = main_.ir().create_empty_graph("rows");
    const Graph::IoScope scope(g, loop_.io_mode);
    Tensors given;
    const auto inputs = [&](const NamedTensors& tree, Pass pass) {
      NamedTensors own;
      tree.for_each([&](const std::string& key, const Tensor& t) {
        own.merge(key, g.input(t.spec(), t.name(), pass));
        given.push_back(t);
      });
      return own;
    };
    Inside in{g, {}, {}, {}, {}};
    for (const NamedTensors& tree : carried) in.carried.push_back(inputs(tree, Pass::kByValue));
    in.invariants = inputs(invariants_, Pass::kByValue);
    for (const NamedTensors& tree : sets) in.sets.push_back(inputs(tree, Pass::kByReference));
    in.iteration = g.input({{}, i32, {}}, "iteration");
    const Trees made = body(in);
    for (size_t i = 0; i < made.size(); ++i) {
      for (const std::string& key : carried[i].keys_flat()) g.add_output(made[i][key]);
    }
    const Graph::ProvenanceScope of_loop(
        main_, {.at = {.row = first_row()}, .per_iteration = {.row = direction() * rows}});
    const Tensors results = ops::repeat(main_, g, trips, given, {}, {.iteration = in.iteration});
    Trees after;
    auto next = results.begin();
    for (const NamedTensors& tree : carried) {
      NamedTensors& own = after.emplace_back();
      for (const std::string& key : tree.keys_flat()) own.merge(key, *next++);
    }
    return after;
  }

  Graph& main_;
  const RowLoop& loop_;
  int64_t trips_;
  const NamedTensors& invariants_;
};

}  // namespace

NamedTensors run_rows(Graph& main, const RowLoop& loop, const NamedTensors& values,
                      const NamedTensors& invariants) {
  const Rows rows(main, loop, invariants);
  const int64_t n = loop.rows.looped;
  const bool skewed = loop.io_mode == IoMode::kIoOverlapped;
  const bool storing = stores(loop);
  const int64_t trips = !skewed ? n : storing ? (n - 3) / 3 : n - 1;
  const bool loops = trips >= kMinTrips;
  const NamedTensors first = rows.in_line(values, -loop.rows.in_line, loops ? 0 : n);
  if (!loops) return first;
  if (!skewed) return rows.plain(first);
  return storing ? rows.delayed_stores(first) : rows.loads_ahead(first);
}

}  // namespace sluice::train
