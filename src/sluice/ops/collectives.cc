#include "sluice/ops/collectives.h"

#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/combine.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

constexpr const char* kGroupDoc =
    " The group is `size` replicas that are `stride` apart. (C1) x has a device dtype; stride and "
    "size are positive. ";

void require_group(const OpView& op) {
  const std::string& name = op.def().name;
  require_device_dtype(op.input(0), name + " (C1): x");
  for (const auto& [field, value] : op.attrs().items) {
    if (field != "stride" && field != "size") continue;
    const auto number = std::get<int64_t>(value);
    require(number >= 1, "{} (C1): {} must be positive, got {}", name, field, number);
  }
}

int64_t elements_before(const Shape& shape, int64_t axis) {
  int64_t n = 1;
  for (int64_t a = 0; a < axis; ++a) n *= shape[static_cast<int>(a)];
  return n;
}

std::vector<TensorSpec> infer_all_reduce(const OpView& op) {
  require_group(op);
  require_combines(op.options<AllReduceOptions>().op, op.input(0).dtype, op.def().name);
  return {op.input(0)};
}

std::vector<TensorSpec> infer_reduce_scatter(const OpView& op) {
  const TensorSpec& x = op.input(0);
  require_group(op);
  const auto o = op.options<ReduceScatterOptions>();
  if (o.op != "local") require_combines(o.op, x.dtype, op.def().name);
  require(!o.sharded || x.shape.rank() > 0,
          "replicated_reduce_scatter (C4): x must have an axis to be sharded, got a scalar");
  const TensorSpec chunk{{ceil_div(x.elements(), o.size)}, x.dtype, {}};
  if (!o.sharded) return {chunk};
  return {{chunk.shape, x.dtype, x.meta_shape.empty() ? x.shape : x.meta_shape}};
}

std::vector<TensorSpec> infer_all_gather(const OpView& op) {
  const TensorSpec& x = op.input(0);
  require_group(op);
  const auto o = op.options<AllGatherOptions>();
  require(o.axis >= 0 && o.axis <= x.shape.rank(),
          "replicated_all_gather (C2): axis must be in [0, {}], got {}", x.shape.rank(), o.axis);
  const int64_t all = checked_mul(x.elements(), o.size);
  const int64_t n = o.shape.elements();
  const bool padded = o.axis == 0 && ceil_div(n, o.size) == x.elements();
  require(n == all || padded,
          "replicated_all_gather (C3): shape must hold the elements of {} operands of {}, got {}",
          o.size, to_string(x), to_string(o.shape));
  return {{o.shape, x.dtype, {}}};
}

std::vector<TensorSpec> infer_replica_slice(const OpView& op) {
  const TensorSpec& x = op.input(0);
  require_group(op);
  const auto o = op.options<ReplicatedSliceOptions>();
  require(o.axis >= 0 && o.axis < x.shape.rank(),
          "replicated_slice (C2): axis must be in [0, {}) for {}, got {}", x.shape.rank(),
          to_string(x), o.axis);
  std::vector<int64_t> dims = x.shape.dims();
  int64_t& dim = at(dims, o.axis);
  require(dim % o.size == 0,
          "replicated_slice (C3): the group size must divide axis {} of {}, got {} replicas",
          o.axis, to_string(x), o.size);
  dim /= o.size;
  if (dim == 1) dims.erase(dims.begin() + o.axis);
  return {{Shape(std::move(dims)), x.dtype, {}}};
}

// Combines elements [begin, begin + out.size()) of the members' operands into `out`. Elements
// beyond the end of the operands are zero.
template <typename T, typename E>
void combine(const KernelArgs& k, std::string_view op, int64_t begin, std::span<E> out) {
  const int members = k.op().inputs();
  const int64_t n = k.op().input(0).elements();
  const int64_t count = std::clamp<int64_t>(n - begin, 0, static_cast<int64_t>(out.size()));
  visit_combine<E>(op, [&]<typename Combine>(Combine) {
    for (int64_t i = 0; i < count; ++i) {
      const auto element = [&](int j) { return k.in<E>(j).data()[begin + i]; };
      E value = Combine::begin(element(0));
      for (int j = 1; j < members; ++j) value = Combine::next(value, element(j));
      out.data()[i] = Combine::end(value, static_cast<E>(members));
    }
  });
  std::fill(out.begin() + count, out.end(), E{});
}

template <typename T>
void reference_all_reduce(const KernelArgs& k) {
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    combine<T, E>(k, k.options<AllReduceOptions>().op, 0, k.out<E>(0));
  });
}

template <typename T>
void reference_reduce_scatter(const KernelArgs& k) {
  const auto o = k.options<ReduceScatterOptions>();
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const auto y = k.out<E>(0);
    const int64_t begin = k.member() * static_cast<int64_t>(y.size());
    if (o.op != "local") return combine<T, E>(k, o.op, begin, y);
    const auto x = k.in<E>(k.member());
    const int64_t count = std::clamp<int64_t>(std::ssize(x) - begin, 0, std::ssize(y));
    std::fill(std::copy_n(x.data() + (count == 0 ? 0 : begin), count, y.begin()), y.end(), E{});
  });
}

template <typename T>
void reference_all_gather(const KernelArgs& k) {
  const auto o = k.options<AllGatherOptions>();
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const auto y = k.out<E>(0);
    const int64_t blocks = elements_before(k.in_shape(0), o.axis);
    const int64_t block = blocks == 0 ? 0 : k.in_shape(0).elements() / blocks;
    for (size_t i = 0; i < y.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t from = at / block;  // Blocks of the result alternate between the members.
      const E* const x = k.in<E>(static_cast<int>(from % o.size)).data();
      y[i] = x[from / o.size * block + at % block];
    }
  });
}

template <typename T>
void reference_replica_slice(const KernelArgs& k) {
  const auto o = k.options<ReplicatedSliceOptions>();
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const E* const x = k.in<E>(k.member()).data();
    const auto y = k.out<E>(0);
    const int64_t blocks = elements_before(k.in_shape(0), o.axis);
    const int64_t block = blocks == 0 ? 0 : static_cast<int64_t>(y.size()) / blocks;
    for (size_t i = 0; i < y.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t from = at / block * o.size + k.member();
      y[i] = x[from * block + at % block];
    }
  });
}

template <typename Options>
Options grouped(const GroupOptions& group, Options o) {
  o.stride = group.stride;
  o.size = group.size;
  return o;
}

Tensor gather_chunks(const Tensor& t, const GroupOptions& group, int64_t axis, const Shape& shape) {
  AllGatherOptions o;
  o.axis = axis;
  o.shape = shape;
  return emit_one(replicated_all_gather_def(), {t}, grouped(group, o));
}

Tensors grad_identical_inputs(GradContext& g) {
  return {emit_one(replicated_all_reduce_def(), {g.grad(0)}, g.options<AllReduceOptions>())};
}

Tensors grad_identical_grad_inputs(GradContext& g) { return {g.grad(0)}; }

// Gradient of the sum of the losses that the replicas compute from their chunks.
Tensors grad_reduce_scatter(GradContext& g) {
  const auto o = g.options<ReduceScatterOptions>();
  const TensorSpec& x = g.op().input(0);
  if ((o.op != "add" && o.op != "mean" && o.op != "local") || !x.meta_shape.empty()) return {{}};
  const Tensor whole = gather_chunks(g.grad(0), o, 0, x.shape);
  if (o.op != "mean") return {whole};
  return {div(whole, scalar_like(whole, static_cast<double>(o.size)))};
}

// Gradient of the sum of the losses that the replicas compute from the whole tensor.
Tensors grad_all_gather(GradContext& g) {
  const auto o = g.options<AllGatherOptions>();
  const TensorSpec& x = g.op().input(0);
  if (elements_before(x.shape, o.axis) == 1) {
    ReduceScatterOptions scatter;
    scatter.sharded = !x.meta_shape.empty();
    const Tensor chunk =
        emit_one(replicated_reduce_scatter_def(), {g.grad(0)}, grouped(o, scatter));
    return {chunk.shape() == x.shape ? chunk : reshape(chunk, x.shape)};
  }
  AllReduceOptions sum;
  const Tensor all = emit_one(replicated_all_reduce_def(), {g.grad(0)}, grouped(o, sum));
  std::vector<int64_t> dims = x.shape.dims();
  dims.insert(dims.begin() + o.axis, o.size);
  ReplicatedSliceOptions slice;
  slice.axis = o.axis;
  return {
      emit_one(replicated_slice_def(), {reshape(all, Shape(std::move(dims)))}, grouped(o, slice))};
}

Tensors grad_replica_slice(GradContext& g) {
  const auto o = g.options<ReplicatedSliceOptions>();
  return {gather_chunks(g.grad(0), o, o.axis, g.op().input(0).shape)};
}

template <typename Options>
Attrs of(int64_t size, Options o, int64_t stride = 1) {
  o.size = size;
  o.stride = stride;
  return to_attrs(o);
}

AllReduceOptions reducing(std::string_view op) {
  AllReduceOptions o;
  o.op = op;
  return o;
}
ReduceScatterOptions scattering(std::string_view op, bool sharded = false) {
  ReduceScatterOptions o;
  o.op = op;
  o.sharded = sharded;
  return o;
}
AllGatherOptions gathering(int64_t axis, Shape shape) {
  AllGatherOptions o;
  o.axis = axis;
  o.shape = std::move(shape);
  return o;
}
ReplicatedSliceOptions slicing(int64_t axis) {
  ReplicatedSliceOptions o;
  o.axis = axis;
  return o;
}

// The samples have groups of one replica; tests/replicas tests larger groups.
OpDef all_reduce_like(const char* type, const char* name, const char* doc) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = std::string(doc) + kGroupDoc +
          "(C2) op is add, mean, mul, min, max, and, or or square_add. (C3) and, or take integers "
          "and bool, mean floating point, the rest all but bool.";
  d.inputs = {{"x"}};
  d.outputs = {"y"};
  d.set_options(AllReduceOptions{});
  d.traits = kCollective;
  d.may_coincide = {{0, 0}};
  d.infer = infer_all_reduce;
  d.reference_float = reference_all_reduce<float>;
  d.reference_double = reference_all_reduce<double>;
  d.samples = {{.inputs = {f32_spec({2, 3})}},
               {.inputs = {f32_spec({5})}, .options = of(1, reducing("mean"))},
               {.inputs = {i32_spec({4})}, .options = of(1, reducing("or")), .gradient = false}};
  d.must_fail = {{"(C1)", {{{4}, f64, {}}}, of(1, reducing("add"))},
                 {"(C1)", {f32_spec({4})}, of(0, reducing("add"))},
                 {"(C1)", {f32_spec({4})}, of(2, reducing("add"), 0)},
                 {"(C2)", {f32_spec({4})}, of(2, reducing("xor"))},
                 {"(C2)", {f32_spec({4})}, of(2, reducing("local"))},
                 {"(C3)", {f32_spec({4})}, of(2, reducing("and"))},
                 {"(C3)", {i32_spec({4})}, of(2, reducing("mean"))},
                 {"(C3)", {{{4}, boolean, {}}}, of(2, reducing("add"))}};
  return d;
}

GroupOptions group_options(const Tensor& t, const Group& group) {
  const int replicas = t.graph().ir().fix_replication("a collective");
  if (!group) return {.stride = 1, .size = replicas};
  require(group->replicas() == replicas, "{}: must group the {} replicas of the program, got {}",
          to_string(*group), replicas, group->replicas());
  return {.stride = group->stride(), .size = group->size()};
}

template <typename Options>
Tensor emit_collective(const OpDef& def, const TensorArg& t, const Group& group, Options o,
                       const char* suffix) {
  o = grouped(group_options(t.tensor, group), std::move(o));
  return emit(def, {t}, to_attrs(o), {.name = t->name() + suffix})[0];
}

}  // namespace

const OpDef& replicated_all_reduce_def() {
  static const OpDef def = [] {
    OpDef d = all_reduce_like("ReplicatedAllReduce", "replicated_all_reduce",
                              "x combined over the replicas of the group, in ascending order.");
    for (Sample& s : d.samples) s.gradient = false;
    d.samples.push_back({.inputs = {f32_spec({0, 3})},
                         .options = of(1, reducing("square_add")),
                         .gradient = false});
    return d;
  }();
  return def;
}

const OpDef& replicated_all_reduce_in_place_def() {
  static const OpDef def = [] {
    OpDef d = all_reduce_like("ReplicatedAllReduceInplace", "replicated_all_reduce_",
                              "replicated_all_reduce into x's storage.");
    d.inputs = {{"x", Mode::kUpdate}};
    d.aliases = {{0, 0}};
    for (Sample& s : d.samples) s.gradient = false;
    return d;
  }();
  return def;
}

const OpDef& replicated_all_reduce_identical_inputs_def() {
  static const OpDef def = [] {
    OpDef d = all_reduce_like("ReplicatedAllReduceIdenticalInputs",
                              "replicated_all_reduce_identical_inputs",
                              "x, which all replicas of the group have alike; the gradient is "
                              "combined over the group.");
    d.traits = kView | kElementwise;
    d.grad = grad_identical_inputs;
    return d;
  }();
  return def;
}

const OpDef& replicated_all_reduce_identical_grad_inputs_def() {
  static const OpDef def = [] {
    OpDef d = all_reduce_like(
        "ReplicatedAllReduceIdenticalGradInputs", "replicated_all_reduce_identical_grad_inputs",
        "replicated_all_reduce; the gradient, which all replicas of the group "
        "have alike, goes through as it is.");
    d.grad = grad_identical_grad_inputs;
    return d;
  }();
  return def;
}

const OpDef& replicated_reduce_scatter_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "ReplicatedReduceScatter";
    d.name = "replicated_reduce_scatter";
    d.doc = std::string(
                "This replica's chunk of x combined over the group in ascending order: x flat, in "
                "chunks of ceil(n / size), zeros after the end. Op local: of its own x. Autodiff "
                "refuses ops other than add, mean and local, and sharded operands.") +
            kGroupDoc +
            "(C2) op is add, mean, mul, min, max, and, or, square_add or local. (C3) and, or take "
            "integers and bool, mean floating point, local all, the rest all but bool. (C4) A "
            "sharded operand has an axis.";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.set_options(ReduceScatterOptions{});
    d.traits = kCollective;
    d.infer = infer_reduce_scatter;
    d.grad = grad_reduce_scatter;
    d.reference_float = reference_reduce_scatter<float>;
    d.reference_double = reference_reduce_scatter<double>;
    d.samples = {
        {.inputs = {f32_spec({2, 3})}},
        {.inputs = {f32_spec({5})}, .options = of(1, scattering("mean", true))},
        {.inputs = {f32_spec({2, 2})}, .options = of(1, scattering("local"))},
        {.inputs = {{{4}, boolean, {}}}, .options = of(1, scattering("local")), .gradient = false}};
    d.must_fail = {{"(C1)", {{{4}, i64, {}}}, of(1, scattering("add"))},
                   {"(C1)", {f32_spec({4})}, of(-1, scattering("add"))},
                   {"(C2)", {f32_spec({4})}, of(2, scattering("sum"))},
                   {"(C3)", {f32_spec({4})}, of(2, scattering("or"))},
                   {"(C4)", {f32_spec({})}, of(2, scattering("add", true))}};
    return d;
  }();
  return def;
}

const OpDef& replicated_all_gather_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "ReplicatedAllGather";
    d.name = "replicated_all_gather";
    d.doc = std::string(
                "The x of all replicas of the group, ascending, concatenated along the axis, "
                "as a tensor of the given shape.") +
            kGroupDoc +
            "(C2) axis is in [0, rank]. (C3) The shape has as many elements as the operands; along "
            "axis 0 the last of them may be left out, as ceil(n / size) of each make n.";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.set_options(AllGatherOptions{});
    d.traits = kCollective;
    d.infer = infer_all_gather;
    d.grad = grad_all_gather;
    d.reference_float = reference_all_gather<float>;
    d.reference_double = reference_all_gather<double>;
    d.samples = {
        {.inputs = {f32_spec({6})}, .options = of(1, gathering(0, {2, 3}))},
        {.inputs = {f32_spec({2, 3})}, .options = of(1, gathering(1, {2, 3}))},
        {.inputs = {{{3}, f32, {1, 3}}}, .options = of(1, gathering(0, {1, 3}))},
        {.inputs = {i32_spec({0, 2})}, .options = of(1, gathering(0, {0, 2})), .gradient = false}};
    d.must_fail = {{"(C1)", {{{4}, f64, {}}}, of(1, gathering(0, {4}))},
                   {"(C1)", {f32_spec({4})}, of(0, gathering(0, {4}))},
                   {"(C2)", {f32_spec({4})}, of(2, gathering(2, {8}))},
                   {"(C3)", {f32_spec({4})}, of(2, gathering(0, {9}))},
                   {"(C3)", {f32_spec({4})}, of(2, gathering(0, {6}))},
                   {"(C3)", {f32_spec({2, 2})}, of(2, gathering(1, {7}))}};
    return d;
  }();
  return def;
}

const OpDef& replicated_slice_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "ReplicatedSlice";
    d.name = "replicated_slice";
    d.doc = std::string(
                "This replica's part of x, cut along the axis in `size` equal parts; without the "
                "axis, if a part has size 1 there. x is the same in the group.") +
            kGroupDoc + "(C2) x has the axis. (C3) size divides it.";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.set_options(ReplicatedSliceOptions{});
    d.traits = kCollective;
    d.infer = infer_replica_slice;
    d.grad = grad_replica_slice;
    d.reference_float = reference_replica_slice<float>;
    d.reference_double = reference_replica_slice<double>;
    d.samples = {{.inputs = {f32_spec({2, 3})}, .options = of(1, slicing(1))},
                 {.inputs = {f32_spec({3, 1, 2})}, .options = of(1, slicing(1))},
                 {.inputs = {i32_spec({2})}, .options = of(1, slicing(0)), .gradient = false}};
    d.must_fail = {{"(C1)", {{{4}, f64, {}}}, of(1, slicing(0))},
                   {"(C1)", {f32_spec({4})}, of(2, slicing(0), -2)},
                   {"(C2)", {f32_spec({4})}, of(2, slicing(1))},
                   {"(C3)", {f32_spec({4, 3})}, of(2, slicing(1))}};
    return d;
  }();
  return def;
}

ReplicaGrouping collective_group(const Attrs& attrs, int replicas) {
  GroupOptions o;
  for (const auto& [name, value] : attrs.items) {
    if (name == "stride") o.stride = std::get<int64_t>(value);
    if (name == "size") o.size = std::get<int64_t>(value);
  }
  require(o.stride <= replicas && o.size <= replicas,
          "collective: size and stride of a group must be at most {}, the number of replicas, got "
          "{} and {}",
          replicas, o.size, o.stride);
  return ReplicaGrouping::make(replicas, static_cast<int>(o.stride), static_cast<int>(o.size));
}

std::string_view word_of(CollectiveOp op) { return word_at(words_of(op), static_cast<int>(op)); }

Tensor replicated_all_reduce(TensorArg t, CollectiveOp op, const Group& group) {
  return emit_collective(replicated_all_reduce_def(), t, group, reducing(word_of(op)),
                         "_all_reduced");
}
Tensor replicated_all_reduce_(TensorArg t, CollectiveOp op, const Group& group) {
  return emit_collective(replicated_all_reduce_in_place_def(), t, group, reducing(word_of(op)),
                         "_all_reduced");
}
Tensor replicated_all_reduce_identical_inputs(TensorArg t, CollectiveOp op, const Group& group) {
  return emit_collective(replicated_all_reduce_identical_inputs_def(), t, group,
                         reducing(word_of(op)), "_identical");
}
Tensor replicated_all_reduce_identical_grad_inputs(TensorArg t, CollectiveOp op,
                                                   const Group& group) {
  return emit_collective(replicated_all_reduce_identical_grad_inputs_def(), t, group,
                         reducing(word_of(op)), "_all_reduced");
}

Tensor replicated_reduce_scatter(TensorArg t, CollectiveOp op, const Group& group,
                                 Sharding sharding) {
  return emit_collective(replicated_reduce_scatter_def(), t, group,
                         scattering(word_of(op), sharding == Sharding::kReplicated),
                         "_reduce_scattered");
}
Tensor replica_sharded_slice(TensorArg t, const Group& group) {
  return emit_collective(replicated_reduce_scatter_def(), t, group, scattering("local", true),
                         "_sharded_slice");
}

Tensor replicated_all_gather(TensorArg t, int64_t axis, const Group& group, Gather arrangement) {
  const bool shard = !t->meta_shape().empty();
  if (arrangement == Gather::kAuto) arrangement = shard ? Gather::kMetaShape : Gather::kConcat;
  const int64_t size = group_options(t.tensor, group).size;
  const int64_t rank = t->rank();
  const bool new_axis = arrangement == Gather::kNewAxis;
  const int64_t axes = new_axis ? rank + 1 : rank;
  const int64_t at = axis < 0 ? axis + axes : axis;
  require(at >= 0 && at < axes, "replicated_all_gather: axis {} is outside [{}, {})", axis, -axes,
          axes);
  std::vector<int64_t> dims = t->shape().dims();
  if (arrangement == Gather::kMetaShape) {
    require(shard, "replicated_all_gather: kMetaShape requires a shard, but '{}' has no meta_shape",
            t->name());
    require(at == 0, "replicated_all_gather: axis of a shard must be 0, got {}", axis);
    dims = t->meta_shape().dims();
  } else if (new_axis) {
    dims.insert(dims.begin() + at, size);
  } else {
    sluice::at(dims, at) *= size;
  }
  return emit_collective(replicated_all_gather_def(), t, group,
                         gathering(at, Shape(std::move(dims))), "_all_gathered");
}

Tensor replicated_slice(TensorArg t, int64_t axis, const Group& group) {
  const int64_t at = axis < 0 ? axis + t->rank() : axis;
  return emit_collective(replicated_slice_def(), t, group, slicing(at), "_replicated_slice");
}

std::vector<const OpDef*> collectives_ops() {
  return {&replicated_all_reduce_def(),
          &replicated_all_reduce_in_place_def(),
          &replicated_all_reduce_identical_inputs_def(),
          &replicated_all_reduce_identical_grad_inputs_def(),
          &replicated_reduce_scatter_def(),
          &replicated_all_gather_def(),
          &replicated_slice_def()};
}

}  // namespace sluice::ops
