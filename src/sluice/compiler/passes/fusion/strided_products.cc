#include "sluice/compiler/passes/fusion/strided_products.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/exe/executable.h"
#include "sluice/ops/attention.h"
#include "sluice/ops/attention_shape.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/strided_matrices.h"
#include "sluice/ops/transpose.h"

namespace sluice::compiler {
namespace {

// A tensor whose elements lie in the row-major bytes of `base`.
struct StridedView {
  ValueIndex base;
  TensorSpec spec;  // The spec of the base, as it is read.
  int64_t offset = 0;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
};

// Returns the strides of the same elements under another shape; nullopt if no strides describe it.
// Neighbouring axes whose strides continue each other form one block, which is cut again.
std::optional<std::vector<int64_t>> strides_under(const StridedView& v, const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()));
  int to = shape.rank() - 1;
  for (size_t from = v.dims.size(); from-- > 0;) {
    if (v.dims[from] == 1) continue;
    int64_t block = v.dims[from], stride = v.strides[from];
    const auto next = [&] {  // The axis before this one, without axes of size 1.
      size_t i = from;
      while (i > 0 && v.dims[i - 1] == 1) --i;
      return i;
    };
    for (size_t i = next(); i > 0 && v.strides[i - 1] == block * stride; i = next()) {
      from = i - 1;
      block *= v.dims[from];
    }
    for (; block > 1 && to >= 0; --to) {
      if (block % shape[to] != 0) return std::nullopt;
      strides[static_cast<size_t>(to)] = stride;
      stride *= shape[to];
      block /= shape[to];
    }
    if (block > 1) return std::nullopt;
  }
  return strides;
}

constexpr int kMaxSteps = 16;  // Moves and views between a tensor and a product.

class ProductStrider {
 public:
  ProductStrider(Body& body, const Target& target)
      : body_(body), target_(target), readers_(readers_of(body)), fixed_(kept_values(body)) {
    maker_.assign(body.values.size(), NodeId());
    overwriter_.assign(body.values.size(), NodeId());
    for (const NodeId n : body.nodes.ids()) {
      for (const ValueIndex v : body.nodes[n].outputs) {
        if (v != kNone) maker_[v] = n;
      }
      for (const Tie& t : body.nodes[n].ties) note_overwriter(t.into, n);
    }
    find_operands();
  }

  int64_t run() {
    int64_t changed = 0;
    for (const NodeId n : body_.nodes.ids()) changed += stride(n);
    if (changed > 0) remove_unread();
    return changed;
  }

 private:
  // Notes that node n overwrites a value, and the values that it is a view of.
  void note_overwriter(ValueIndex v, NodeId n) {
    while (true) {
      if (!overwriter_[v].valid()) overwriter_[v] = n;
      if (!maker_[v].valid() || !body_.nodes[maker_[v]].is<Node::View>()) return;
      v = body_.nodes[maker_[v]].inputs[0];
    }
  }

  static bool is_plain(const Node& node) {
    return node.def != nullptr && node.is<Node::Kernel>() && node.ties.empty() &&
           !node.has_stages();
  }
  static bool is_plain(const Node& node, const OpDef& def) {
    return node.def == &def && is_plain(node);
  }
  static bool is_attention(const Node& node) {
    return is_plain(node) && (ops::is_attention(*node.def) || ops::is_attention_grad(*node.def));
  }
  // The operands of attention that are cut into heads: [0, head_operands).
  static size_t head_operands(const Node& node) { return ops::is_attention(*node.def) ? 3 : 4; }
  // Whether a node reads a value in its matrices only.
  static bool is_product(const Node& node, ValueIndex v) {
    if (is_plain(node, ops::matmul_def())) return true;
    return is_attention(node) &&
           std::find(node.inputs.begin() + static_cast<int64_t>(head_operands(node)),
                     node.inputs.end(), v) == node.inputs.end();
  }
  template <typename Options>
  static Options options_of(const Node& node) {
    const Attrs& attrs = node.as<Node::Kernel>()->attrs;
    return OpView(*node.def, attrs, node.in_specs, node.out_specs).options<Options>();
  }
  // Whether a value need not be made if nobody reads it.
  bool is_free(ValueIndex v) const {
    return !fixed_[v] && !overwriter_[v].valid() && body_.value(v).layout == Layout{};
  }
  // Whether node n may read a value.
  bool is_readable(ValueIndex v, NodeId n) const {
    return body_.value(v).layout == Layout{} && (!overwriter_[v].valid() || n < overwriter_[v]);
  }

  // Finds the values that only products read, also through moves and views. The readers of a value
  // are later nodes.
  void find_operands() {
    only_products_.assign(body_.values.size(), false);
    for (size_t i = body_.nodes.size(); i-- > 0;) {
      for (const ValueIndex v : body_.nodes[NodeId(i)].outputs) {
        if (v == kNone || !is_free(v)) continue;
        only_products_[v] = std::all_of(readers_[v].begin(), readers_[v].end(), [&](NodeId n) {
          const Node& reader = body_.nodes[n];
          if (is_product(reader, v)) return true;
          return leaves_elements(reader) &&
                 std::all_of(reader.outputs.begin(), reader.outputs.end(), [&](ValueIndex made) {
                   return made == kNone || only_products_[made];
                 });
        });
      }
    }
  }
  static bool moves(const Node& node) {
    return is_plain(node, ops::transpose_def()) || is_plain(node, ops::slice_def()) ||
           is_plain(node, ops::split_def());
  }

  // Whether the results of a node are some of the elements of its operand.
  static bool leaves_elements(const Node& node) {
    return moves(node) || (node.is<Node::View>() && node.ties.empty());
  }

  // The value as a view of a tensor that was not transposed, sliced or split, if there is one.
  // `moved`: whether a kernel that moves elements is left out. `steps`: moves and views to pass.
  StridedView trace(NodeId reader, ValueIndex v, const TensorSpec& spec, bool& moved,
                    int steps = kMaxSteps) const {
    const StridedView whole = whole_view(v, spec);
    const NodeId n = maker_[v];
    if (!n.valid() || !is_free(v) || steps == 0) return whole;
    const Node& node = body_.nodes[n];
    if (!leaves_elements(node) || (moves(node) && !only_products_[v])) return whole;
    bool moved_before = false;
    StridedView from = trace(reader, node.inputs[0], node.in_specs[0], moved_before, steps - 1);
    if (!is_readable(from.base, reader)) return whole;
    if (moves(node)) move(node, v, from);
    const auto strides = strides_under(from, spec.shape);
    if (!strides) return whole;
    from.dims = spec.shape.dims();
    from.strides = *strides;
    moved = moved || moved_before || moves(node);
    return from;
  }

  // Changes the view of a node's operand to that of its output `v`.
  void move(const Node& node, ValueIndex v, StridedView& view) const {
    if (node.def == &ops::transpose_def()) {
      const StridedView old = view;
      const auto permutation = options_of<ops::TransposeOptions>(node).permutation;
      for (size_t i = 0; i < permutation.size(); ++i) {
        view.dims[i] = at(old.dims, permutation[i]);
        view.strides[i] = at(old.strides, permutation[i]);
      }
    } else if (node.def == &ops::slice_def()) {
      const auto o = options_of<ops::SliceOptions>(node);
      for (size_t i = 0; i < view.dims.size(); ++i) {
        view.offset += o.starts[i] * view.strides[i];
        view.strides[i] *= o.steps[i];
        view.dims[i] = o.sizes[i];
      }
    } else {
      const auto o = options_of<ops::SplitOptions>(node);
      const auto rank = static_cast<int>(view.dims.size());
      const auto axis = static_cast<size_t>(normalize_axis(o.axis, rank, "split"));
      for (size_t i = 0; node.outputs[i] != v; ++i) view.offset += o.sizes[i] * view.strides[axis];
      const auto part = std::find(node.outputs.begin(), node.outputs.end(), v);
      view.dims[axis] = o.sizes[static_cast<size_t>(part - node.outputs.begin())];
    }
  }

  // Returns the transpose that is the only reader of a product's result; null if there is none.
  Node* transpose_of(const Node& product, size_t output = 0) {
    const ValueIndex result = product.outputs[output];
    if (!is_free(result) || readers_[result].size() != 1) return nullptr;
    Node& reader = body_.nodes[readers_[result][0]];
    // A reader may see another shape of the same elements.
    const bool writes = is_plain(reader, ops::transpose_def()) &&
                        reader.in_specs[0].shape == product.out_specs[output].shape &&
                        body_.value(reader.outputs[0]).layout == Layout{};
    return writes ? &reader : nullptr;
  }

  // The matrices of an operand in a batch of these axes. Axes that it lacks have stride 0.
  static ops::StridedMatrices matrices(const StridedView& v, const Shape& batch, bool transposed) {
    ops::StridedMatrices s;
    s.offset = v.offset;
    const size_t own = v.dims.size() - 2;
    for (size_t i = 0; i < static_cast<size_t>(batch.rank()); ++i) {
      const size_t lead = static_cast<size_t>(batch.rank()) - own;
      s.batch.push_back(i < lead || v.dims[i - lead] == 1 ? 0 : v.strides[i - lead]);
    }
    s.row = v.strides[own];
    s.col = v.strides[own + 1];
    if (transposed) std::swap(s.row, s.col);
    return s;
  }

  // Whether the view is its base with the last two axes swapped.
  static bool is_transposed_base(const StridedView& v) {
    std::vector<int64_t> dims = v.dims;
    const size_t rank = dims.size();
    std::swap(dims[rank - 2], dims[rank - 1]);
    std::vector<int64_t> strides = Shape(dims).strides();
    std::swap(strides[rank - 2], strides[rank - 1]);
    for (size_t i = 0; i < rank; ++i) {
      if (v.dims[i] > 1 && v.strides[i] != strides[i]) return false;
    }
    return v.offset == 0 && Shape(dims).elements() == v.spec.elements();
  }

  static StridedView whole_view(ValueIndex v, const TensorSpec& spec) {
    return {v, spec, 0, spec.shape.dims(), spec.shape.strides()};
  }

  int64_t stride(NodeId n) {
    Node& node = body_.nodes[n];
    if (is_attention(node)) return stride_attention(n) ? 1 : 0;
    if (!is_plain(node, ops::matmul_def()) || node.out_specs[0].elements() == 0 ||
        node.in_specs[0].elements() == 0 || node.in_specs[0].shape.rank() < 2 ||
        node.in_specs[1].shape.rank() < 2)
      return 0;
    Operands in_place;  // The views of operands that need not be made.
    bool changed = false;
    auto o = options_of<ops::MatmulOptions>(node);
    for (const size_t i : {0, 1}) {
      bool moved = false;
      StridedView view = trace(n, node.inputs[i], node.in_specs[i], moved);
      if (!moved) continue;
      if (!is_transposed_base(view)) {
        in_place[i] = std::move(view);
        continue;
      }
      bool& flag = i == 0 ? o.lhs_transposed : o.rhs_transposed;
      flag = !flag;
      std::swap(view.dims[view.dims.size() - 2], view.dims[view.dims.size() - 1]);
      node.inputs[i] = view.base;
      node.in_specs[i] = {Shape(view.dims), node.in_specs[i].dtype, {}};
      changed = true;
    }
    if (changed) node.as<Node::Kernel>()->attrs = to_attrs(o);
    return stride_batch(node, o, in_place) || changed ? 1 : 0;
  }

  using Operands = std::array<std::optional<StridedView>, 2>;

  // Makes a product of several matrices a StridedMatMul, with as much in place as the target
  // supports.
  bool stride_batch(Node& node, const ops::MatmulOptions& o, const Operands& in_place) {
    const ops::MatmulShape s = ops::matmul_shape(node.in_specs[0].shape, node.in_specs[1].shape, o);
    // One product of all rows runs faster, and with other ops.
    if (s.batch.elements() < 2 || ops::fold_batch(s).batch.elements() < 2) return false;
    Node* const transpose = transpose_of(node);
    for (const bool writes : {true, false}) {
      if (writes && transpose == nullptr) continue;
      for (const auto& [lhs, rhs] :
           {std::pair(true, true), {true, false}, {false, true}, {false, false}}) {
        if ((lhs && !in_place[0]) || (rhs && !in_place[1]) || !(lhs || rhs || writes)) continue;
        const StridedView a = lhs ? *in_place[0] : whole_view(node.inputs[0], node.in_specs[0]);
        const StridedView b = rhs ? *in_place[1] : whole_view(node.inputs[1], node.in_specs[1]);
        if (replace(node, o, s, {a, b}, writes ? transpose : nullptr)) return true;
      }
    }
    return false;
  }

  // Replaces a product by a StridedMatMul that writes the result of `transpose`, unless that is
  // null. Changes nothing if the target has no kernel for it.
  bool replace(Node& node, const ops::MatmulOptions& o, const ops::MatmulShape& s,
               const std::array<StridedView, 2>& views, Node* transpose) {
    StridedView out = whole_view(node.outputs[0], node.out_specs[0]);
    out.dims = s.out.dims();
    out.strides = s.out.strides();
    if (transpose != nullptr) {
      const auto permutation = options_of<ops::TransposeOptions>(*transpose).permutation;
      out.spec = transpose->out_specs[0];
      const std::vector<int64_t> strides = out.spec.shape.strides();
      for (size_t i = 0; i < permutation.size(); ++i) at(out.strides, permutation[i]) = strides[i];
    }
    const Attrs attrs = to_attrs(
        ops::StridedMatmulOptions{.batch = s.batch.dims(),
                                  .m = s.m,
                                  .n = s.n,
                                  .k = s.k,
                                  .lhs = matrices(views[0], s.batch, o.lhs_transposed).list(),
                                  .rhs = matrices(views[1], s.batch, o.rhs_transposed).list(),
                                  .out = matrices(out, s.batch, false).list(),
                                  .shape = out.spec.shape.dims()});
    const std::vector<TensorSpec> inputs{views[0].spec, views[1].spec};
    const OpDef& def = ops::strided_matmul_def();
    const std::vector<TensorSpec> outputs = def.infer(OpView(def, attrs, inputs));
    if (exe::is_reference_kernel(target_.choose(OpView(def, attrs, inputs, outputs)).key))
      return false;
    if (transpose != nullptr) write_transposed(node, 0, *transpose);
    node.def = &def;
    node.what = Node::Kernel{attrs};
    node.inputs = {views[0].base, views[1].base};
    node.in_specs = inputs;
    return true;
  }

  // Makes a node write the result of the transpose that reads its output.
  void write_transposed(Node& node, size_t output, Node& transpose) {
    maker_[transpose.outputs[0]] = maker_[node.outputs[output]];
    node.outputs[output] = std::exchange(transpose.outputs[0], kNone);
    node.out_specs[output] = transpose.out_specs[0];
  }

  // Lets attention read its heads in place, and write them after the rows if all results that are
  // read are transposed so.
  bool stride_attention(NodeId n) {
    Node& node = body_.nodes[n];
    auto o = options_of<ops::AttentionOpOptions>(node);
    const size_t count = head_operands(node);
    for (size_t i = 0; i < count; ++i) {
      if (node.in_specs[i].elements() == 0) return false;
    }
    if (!o.sizes.empty() || o.heads_last) return false;
    const ops::AttentionShape s(
        OpView(*node.def, node.as<Node::Kernel>()->attrs, node.in_specs, node.out_specs));
    std::vector<StridedView> views;
    bool changes = false;
    for (size_t i = 0; i < count; ++i) {
      bool moved = false;
      StridedView view = trace(n, node.inputs[i], node.in_specs[i], moved);
      const bool has_rows = view.dims[3] == 1 || view.strides[3] == 1;
      const bool ascends = std::all_of(view.strides.begin(), view.strides.end(),
                                       [](int64_t stride) { return stride >= 0; });
      changes = changes || (moved && has_rows && ascends);
      views.push_back(moved && has_rows && ascends ? view
                                                   : whole_view(node.inputs[i], node.in_specs[i]));
    }
    std::vector<Node*> transposes(node.outputs.size(), nullptr);
    bool writes = true;
    for (size_t i = 0; i < (count == 3 ? 1 : 3); ++i) {
      if (node.outputs[i] == kNone) continue;
      transposes[i] = transpose_of(node, i);
      writes = writes && transposes[i] != nullptr &&
               options_of<ops::TransposeOptions>(*transposes[i]).permutation ==
                   std::vector<int64_t>{0, 2, 1, 3};
    }
    o.heads_last = writes;
    if (!changes && !writes) return false;
    if (changes) {
      o.sizes = {s.batch, s.heads, s.kv_heads, s.queries, s.keys, s.size, s.value_size};
      for (const StridedView& view : views) {
        o.rows.push_back(view.offset);
        for (size_t axis = 0; axis < 3; ++axis)
          o.rows.push_back(view.dims[axis] == 1 ? 0 : view.strides[axis]);
      }
    }
    std::vector<TensorSpec> inputs = node.in_specs;
    for (size_t i = 0; changes && i < count; ++i) inputs[i] = views[i].spec;
    const Attrs attrs = to_attrs(o);
    const std::vector<TensorSpec> outputs = node.def->infer(OpView(*node.def, attrs, inputs));
    if (exe::is_reference_kernel(target_.choose(OpView(*node.def, attrs, inputs, outputs)).key))
      return false;
    node.as<Node::Kernel>()->attrs = attrs;
    node.in_specs = inputs;
    for (size_t i = 0; changes && i < count; ++i) node.inputs[i] = views[i].base;
    for (size_t i = 0; i < transposes.size(); ++i) {
      if (writes && transposes[i] != nullptr) write_transposed(node, i, *transposes[i]);
    }
    if (writes) node.out_specs = outputs;
    return true;
  }

  // Removes the views, transposes, slices and splits that nobody reads any more.
  void remove_unread() {
    Ids<ValueIndex, bool> needed = fixed_;
    std::vector<Node> kept;
    for (size_t i = body_.nodes.size(); i-- > 0;) {
      Node& node = body_.nodes[NodeId(i)];
      if (leaves_elements(node) &&
          std::none_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueIndex v) { return v != kNone && needed[v]; }))
        continue;
      for (const ValueIndex v : node.inputs) {
        if (v != kNone) needed[v] = true;
      }
      for (const Tie& t : node.ties) needed[t.into] = true;
      kept.push_back(std::move(node));
    }
    body_.nodes = {};
    for (size_t i = kept.size(); i-- > 0;) body_.nodes.push_back(std::move(kept[i]));
  }

  Body& body_;
  const Target& target_;
  const Ids<ValueIndex, std::vector<NodeId>> readers_;
  const Ids<ValueIndex, bool> fixed_;    // Needed after the body has ended.
  Ids<ValueIndex, NodeId> maker_;        // The node of each value.
  Ids<ValueIndex, NodeId> overwriter_;   // The first node that overwrites each value.
  Ids<ValueIndex, bool> only_products_;  // Whether only products read a value.
};

}  // namespace

int64_t strided_products(Body& body, const Target& target) {
  const bool transposes = std::any_of(body.nodes.begin(), body.nodes.end(), [](const Node& node) {
    return node.def == &ops::transpose_def();
  });
  return transposes ? ProductStrider(body, target).run() : 0;
}

}  // namespace sluice::compiler
