#include "sluice/train/row_loop.h"

#include "sluice/ir/call.h"
#include "sluice/ops/arithmetic.h"

namespace sluice::train {
namespace {

// Of fewer turns a loop would cost its border and repeat next to nothing.
constexpr int64_t kFewestTurns = 2;

// The tensors of a tree, and back.
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

  // L0; { Lk+1 | Ck }; Cn-1.
  Tensors loads_ahead(const Tensors& values) const {
    const nn::NamedTensors first = loop_.load(main_, row(0));
    const Tensors end =
        repeat(loop_.rows - 1, joined({values, flat(first)}), [&](const Inside& in) {
          const auto [before, own] = split<2>(in.carried, {values.size(), first.size_flat()});
          const nn::NamedTensors next = loop_.load(in.graph, row(in, 1));
          return joined({run(in, row(in, 0), like(first, own), before), flat(next)});
        });
    const auto [before, own] = split<2>(end, {values.size(), first.size_flat()});
    return loop_.run(main_, row(loop_.rows - 1), like(first, own), before, invariants_);
  }

  // L0; L1 | C0; { Lk+1, Sk-1 | Ck }; Sn-2 | Cn-1; Sn-1.
  Tensors stores_behind(const Tensors& values) const {
    const int64_t n = loop_.rows;
    const nn::NamedTensors first = loop_.load(main_, row(0));
    const nn::NamedTensors second = loop_.load(main_, row(1));
    const size_t count = first.size_flat();
    const Tensors started = loop_.run(main_, row(0), first, values, invariants_);
    const Tensors end =
        repeat(n - 2, joined({started, flat(second), flat(first)}), [&](const Inside& in) {
          const auto [before, own, done] = split<3>(in.carried, {started.size(), count, count});
          const nn::NamedTensors next = loop_.load(in.graph, row(in, 2));
          loop_.store(in.graph, row(in, 0), like(first, done));
          return joined({run(in, row(in, 1), like(first, own), before), flat(next), own});
        });
    const auto [before, own, done] = split<3>(end, {started.size(), count, count});
    loop_.store(main_, row(n - 2), like(first, done));
    Tensors last = loop_.run(main_, row(n - 1), like(first, own), before, invariants_);
    loop_.store(main_, row(n - 1), like(first, own));
    return last;
  }

 private:
  // Handles in the loop's body.
  struct Inside {
    Graph& graph;
    Tensor iteration;
    Tensors carried;
    Tensors invariants;
  };

  bool descends() const { return loop_.order == RowLoop::Order::kDescending; }

  RemoteEntry row(int64_t turn) const { return descends() ? loop_.rows - 1 - turn : turn; }
  // `ahead` turns after the iteration.
  RemoteEntry row(const Inside& in, int64_t ahead) const {
    if (descends())
      return in.graph.scalar(static_cast<double>(loop_.rows - 1 - ahead), i32) - in.iteration;
    return ahead == 0 ? in.iteration : in.iteration + static_cast<double>(ahead);
  }

  Tensors one_by_one(Graph& g, const RemoteEntry& row, const Tensors& values,
                     const Tensors& invariants) const {
    const nn::NamedTensors own = loop_.load(g, row);
    Tensors next = loop_.run(g, row, own, values, invariants);
    if (loop_.store) loop_.store(g, row, own);
    return next;
  }

  Tensors run(const Inside& in, const RemoteEntry& row, const nn::NamedTensors& own,
              const Tensors& values) const {
    return loop_.run(in.graph, row, own, values, in.invariants);
  }

  static Tensors joined(std::initializer_list<Tensors> lists) {
    Tensors all;
    for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
  }

  template <size_t n>
  static std::array<Tensors, n> split(const Tensors& all, const std::array<size_t, n>& sizes) {
    std::array<Tensors, n> parts;
    auto at = all.begin();
    for (size_t i = 0; i < n; ++i) {
      const auto end = at + static_cast<std::ptrdiff_t>(sizes[i]);
      parts[i].assign(at, end);
      at = end;
    }
    return parts;
  }

  template <typename Body>
  Tensors repeat(int64_t trips, const Tensors& carried, const Body& body) const {
    Graph& g = main_.ir().create_empty_graph("rows");
    const Graph::IoScope scope(g, loop_.io_mode);
    Inside in{g, {}, {}, {}};
    for (const Tensor& t : carried) in.carried.push_back(g.input(t.spec(), t.name()));
    for (const Tensor& t : invariants_) in.invariants.push_back(g.input(t.spec(), t.name()));
    in.iteration = g.input({{}, i32, {}}, "iteration");
    g.set_outputs(body(in));
    return ops::repeat(main_, g, trips, joined({carried, invariants_}), {},
                       {.iteration = in.iteration});
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
  const int64_t around = !skewed ? 0 : loop.store ? 2 : 1;  // Turns before and behind the loop.
  if (loop.form == RowLoop::Form::kInLine || loop.rows - around < kFewestTurns)
    return rows.in_line(values);
  if (!skewed) return rows.plain(values);
  return loop.store ? rows.stores_behind(values) : rows.loads_ahead(values);
}

}  // namespace sluice::train
