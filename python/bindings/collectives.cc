#include "sluice/ops/collectives.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "python/bindings/graphs.h"

/// Collectives over groups of replicas.
namespace sluice::python {
namespace {

using ops::CollectiveOp;
using ops::Group;

CollectiveOp collective_op(const std::string& word) {
  std::vector<std::pair<const char*, CollectiveOp>> words;
  for (const CollectiveOp op : {CollectiveOp::kAdd, CollectiveOp::kMean, CollectiveOp::kMul,
                                CollectiveOp::kMin, CollectiveOp::kMax, CollectiveOp::kAnd,
                                CollectiveOp::kOr, CollectiveOp::kSquareAdd, CollectiveOp::kLocal})
    words.emplace_back(ops::word_of(op).data(), op);
  return word_argument("collective: op", word, words);
}

ops::Gather gather_argument(const std::string& word) {
  return word_argument<ops::Gather>("replicated_all_gather: output_shape", word,
                                    {{"auto", ops::Gather::kAuto},
                                     {"concat", ops::Gather::kConcat},
                                     {"new_axis", ops::Gather::kNewAxis},
                                     {"meta_shape", ops::Gather::kMetaShape}});
}

/// Binds a function of a tensor, an op and a group.
template <typename F>
void bind_reduction(nb::module_& m, const char* name, F f, const char* doc) {
  m.def(
      name,
      [f](const Tensor& t, const std::string& op, const Group& group) {
        const AtPythonLine line(t.graph());
        return f(t, collective_op(op), group);
      },
      "t"_a, "op"_a = "add", "group"_a = nb::none(), doc);
}

}  // namespace

void bind_collectives(nb::module_& m) {
  const auto bind = [&](const char* name, Tensor (*f)(TensorArg, CollectiveOp, const Group&),
                        const char* doc) {
    bind_reduction(
        m, name,
        [f](const Tensor& t, CollectiveOp op, const Group& group) { return f(t, op, group); }, doc);
  };
  bind("replicated_all_reduce", &ops::replicated_all_reduce,
       "Combines t over the group; every member gets the same result. Gradients do not pass.");
  bind("replicated_all_reduce_", &ops::replicated_all_reduce_,
       "replicated_all_reduce into t's storage.");
  bind("replicated_all_reduce_identical_inputs", &ops::replicated_all_reduce_identical_inputs,
       "Returns t, which must be equal on all members. Its gradient is combined over the group.");
  bind("replicated_all_reduce_identical_grad_inputs",
       &ops::replicated_all_reduce_identical_grad_inputs,
       "Combines t over the group. The gradient, equal on all members, passes unchanged.");
  m.def(
      "replicated_reduce_scatter",
      [](const Tensor& t, const std::string& op, const Group& group, bool sharded) {
        const AtPythonLine line(t.graph());
        return ops::replicated_reduce_scatter(
            t, collective_op(op), group,
            sharded ? ops::Sharding::kReplicated : ops::Sharding::kPlain);
      },
      "t"_a, "op"_a = "add", "group"_a = nb::none(), "sharded"_a = false,
      "Combines t over the group and returns this member's chunk of the flattened result, padded "
      "with zeros. Op \"local\" does not combine. With `sharded`, the meta_shape of the result is "
      "the shape of t.");
  m.def(
      "replica_sharded_slice",
      [](const Tensor& t, const Group& group) {
        const AtPythonLine line(t.graph());
        return ops::replica_sharded_slice(t, group);
      },
      "t"_a, "group"_a = nb::none(),
      "Shards t over the group: returns this member's chunk. t is equal on all members.");
  m.def(
      "replicated_all_gather",
      [](const Tensor& t, int64_t axis, const Group& group, const std::string& output_shape) {
        const AtPythonLine line(t.graph());
        return ops::replicated_all_gather(t, axis, group, gather_argument(output_shape));
      },
      "t"_a, "axis"_a = 0, "group"_a = nb::none(), "output_shape"_a = "auto",
      "Gathers the operands of all members: \"concat\" joins them along `axis`, \"new_axis\" "
      "stacks them, \"meta_shape\" joins shards to the whole tensor, and \"auto\" is "
      "\"meta_shape\" for a shard, else \"concat\".");
  m.def(
      "replicated_slice",
      [](const Tensor& t, int64_t axis, const Group& group) {
        const AtPythonLine line(t.graph());
        return ops::replicated_slice(t, axis, group);
      },
      "t"_a, "axis"_a = 0, "group"_a = nb::none(),
      "Cuts t along `axis` and returns this member's part; the axis is dropped if it has size 1.");
}

}  // namespace sluice::python
