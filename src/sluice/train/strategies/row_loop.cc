#include "sluice/train/strategies/row_loop.h"

#include "sluice/ir/call.h"
#include "sluice/ops/arithmetic.h"

namespace sluice::train {
namespace {

// A loop with fewer iterations costs more at its boundary than it saves.
constexpr int64_t kFewestTurns = 2;

// Flattens a tree to a list, and makes a tree with the same keys from a list.
Tensors flat(const nn::NamedTensors& tree) { return tree.values_flat(); }
nn::NamedTensors like(const nn::NamedTensors& tree, const Tensors& list) {
  return nn::NamedTensors::pack(tree.keys_flat(), list);
}

class Rows {
 public:
  Rows(Graph& main, const RowLoop& loop, const Tensors& invariants)
      : main_(main), loop_(loop), invariants_(invariants) {}

  Tensors in_line(Tensors values) const {
    for (int64_t turn = 0; turn < loop_.rows; ++turn)
      values = one_by_one(main_, row(turn), values, invariants_);
    return values;
  }

  Tensors plain(const Tensors& values) const {
    return repeat(loop_.rows, values, [&](const Inside& in) {
      return one_by_one(in.graph, row(in, 0), in.carried, in.invariants);
    });
  }

  // Lk loads and Ck computes row k. {} is the loop; steps joined by | overlap.
  // L0; { Lk+1 | Ck }; Cn-1.
  Tensors loads_ahead(const Tensors& values) const {
    const nn::NamedTensors first = loop_.load(main_, row(0));
    const Tensors end =
        repeat(loop_.rows - 1, joined({values, flat(first)}), [&](const Inside& in) {
          const auto [before, own] = split(in.carried, first.size_flat());
          const nn::NamedTensors next = loop_.load(in.graph, row(in, 1));
          return joined({loop_.run(in.graph, row(in, 0), like(first, own), before, in.invariants),
                         flat(next)});
        });
    const auto [before, own] = split(end, first.size_flat());
    return loop_.run(main_, row(loop_.rows - 1), like(first, own), before, invariants_);
  }

  // Sk stores row k.
  // L0; C0 | L1; S0 | C1 | L2; { Sk-1 | Ck | Lk+1 }; Sn-2 | Cn-1; Sn-1.
  // Three sets of tensors take turns: one is stored, one is used and one is loaded. A loop body of
  // three rows ends with each set in the role that it began with, so that no tensor is copied.
  Tensors stores_behind(Tensors values) const {
    const int64_t n = loop_.rows;
    Sets sets;
    sets[0] = loop_.load(main_, row(0));
    values = loop_.run(main_, row(0), sets[0], values, invariants_);
    sets[1] = loop_.load(main_, row(1));
    loop_.store(main_, row(0), sets[0]);
    values = loop_.run(main_, row(1), sets[1], values, invariants_);
    sets[2] = loop_.load(main_, row(2));
    const auto in_main = [this](int64_t turn) { return row(turn); };
    int64_t next = 2;  // The next row to run; it is already loaded into set next % 3.
    const int64_t rounds = (n - 1 - next) / kSets;
    if (rounds >= kFewestTurns) {
      values = repeat(rounds, values, sets, [&](const Inside& in, const Sets& inside) {
        Tensors carried = in.carried;
        for (int64_t k = 0; k < kSets; ++k) {
          const auto in_body = [&](int64_t turn) { return row(in, turn, kSets); };
          carried = turn_of_three(in.graph, in_body, next + k, inside, carried, in.invariants);
        }
        return carried;
      });
      next += rounds * kSets;
    }
    for (; next < n - 1; ++next)
      values = turn_of_three(main_, in_main, next, sets, values, invariants_);
    loop_.store(main_, row(n - 2), set(sets, n - 2));
    values = loop_.run(main_, row(n - 1), set(sets, n - 1), values, invariants_);
    loop_.store(main_, row(n - 1), set(sets, n - 1));
    return values;
  }

 private:
  // Tensors of the loop's body.
  struct Inside {
    Graph& graph;
    Tensor iteration;
    Tensors carried;
    Tensors invariants;
  };

  static constexpr int64_t kSets = 3;
  using Sets = std::array<nn::NamedTensors, kSets>;

  static const nn::NamedTensors& set(const Sets& sets, int64_t turn) {
    return sets[static_cast<size_t>(turn % kSets)];
  }

  // Stores row k - 1, runs row k and loads row k + 1. Row k is already loaded. Row k + 1 takes the
  // set of row k - 2, which is already stored.
  template <typename RowOf>
  Tensors turn_of_three(Graph& g, const RowOf& row_of, int64_t k, const Sets& sets,
                        const Tensors& values, const Tensors& invariants) const {
    loop_.store(g, row_of(k - 1), set(sets, k - 1));
    Tensors after = loop_.run(g, row_of(k), set(sets, k), values, invariants);
    loop_.reload(g, row_of(k + 1), set(sets, k + 1));
    return after;
  }

  bool descends() const { return loop_.order == RowLoop::Order::kDescending; }

  RemoteEntry row(int64_t turn) const { return descends() ? loop_.rows - 1 - turn : turn; }
  // The row that is `ahead` rows after the first row of an iteration. An iteration has `turns`
  // rows.
  RemoteEntry row(const Inside& in, int64_t ahead, int64_t turns = 1) const {
    const Tensor first = turns == 1 ? in.iteration : in.iteration * static_cast<double>(turns);
    if (descends())
      return in.graph.scalar(static_cast<double>(loop_.rows - 1 - ahead), i32) - first;
    return ahead == 0 ? first : first + static_cast<double>(ahead);
  }

  Tensors one_by_one(Graph& g, const RemoteEntry& row, const Tensors& values,
                     const Tensors& invariants) const {
    const nn::NamedTensors own = loop_.load(g, row);
    Tensors next = loop_.run(g, row, own, values, invariants);
    if (loop_.store) loop_.store(g, row, own);
    return next;
  }

  static Tensors joined(std::initializer_list<Tensors> lists) {
    Tensors all;
    for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
  }

  // Splits off the last `count` tensors.
  static std::pair<Tensors, Tensors> split(const Tensors& all, size_t count) {
    const auto at = all.end() - static_cast<std::ptrdiff_t>(count);
    return {Tensors(all.begin(), at), Tensors(at, all.end())};
  }

  template <typename Body>
  Tensors repeat(int64_t trips, const Tensors& carried, const Body& body) const {
    return repeat(trips, carried, {}, [&](const Inside& in, const Sets&) { return body(in); });
  }

  // The body takes `sets` by reference.
  template <typename Body>
  Tensors repeat(int64_t trips, const Tensors& carried, const Sets& sets, const Body& body) const {
    Graph& g = main_.ir().create_empty_graph("rows");
    const Graph::IoScope scope(g, loop_.io_mode);
    Inside in{g, {}, {}, {}};
    for (const Tensor& t : carried) in.carried.push_back(g.input(t.spec(), t.name()));
    for (const Tensor& t : invariants_) in.invariants.push_back(g.input(t.spec(), t.name()));
    Tensors given = joined({carried, invariants_});
    Sets inside;
    for (size_t i = 0; i < sets.size(); ++i) {
      Tensors own;
      for (const Tensor& t : flat(sets[i])) {
        own.push_back(g.input(t.spec(), t.name(), Pass::kByReference));
        given.push_back(t);
      }
      inside[i] = like(sets[i], own);
    }
    in.iteration = g.input({{}, i32, {}}, "iteration");
    g.set_outputs(body(in, inside));
    return ops::repeat(main_, g, trips, given, {}, {.iteration = in.iteration});
  }

  Graph& main_;
  const RowLoop& loop_;
  const Tensors& invariants_;
};

}  // namespace

Tensors run_rows(Graph& main, const RowLoop& loop, const Tensors& values,
                 const Tensors& invariants) {
  const Rows rows(main, loop, invariants);
  const bool skewed = loop.io_mode == IoMode::kIoOverlapped;
  const int64_t turns = !skewed ? loop.rows : loop.store ? (loop.rows - 3) / 3 : loop.rows - 1;
  if (loop.form == RowLoop::Form::kInLine || turns < kFewestTurns) return rows.in_line(values);
  if (!skewed) return rows.plain(values);
  return loop.store ? rows.stores_behind(values) : rows.loads_ahead(values);
}

}  // namespace sluice::train
