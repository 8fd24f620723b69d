#include "python/bindings/composites.h"
#include "sluice/ops/ops.h"

namespace sluice::python {
namespace {

using OptionalHyper = std::optional<Hyper>;

/// Binds an accumulation t = f(t, x) with one hyperparameter.
template <Tensor (*function)(TensorArg, TensorArg, const ops::HyperArg&)>
void bind_accumulation(nb::module_& m, const char* signature, const char* doc) {
  bind_function(
      m, signature, doc, +[](Tensor t, Tensor x, Hyper f) { return function(t, x, hyper_arg(f)); });
}

void bind_accumulations(nb::module_& m) {
  bind_accumulation<ops::accumulate_>(
      m, "def accumulate_(t: Tensor, x: Tensor, f: Hyper = 1.0) -> Tensor", "t += f·x.");
  bind_accumulation<ops::accumulate_square_>(
      m, "def accumulate_square_(t: Tensor, x: Tensor, f: Hyper = 1.0) -> Tensor", "t += f·x².");
  bind_accumulation<ops::accumulate_mean_>(
      m, "def accumulate_mean_(t: Tensor, x: Tensor, step: Hyper) -> Tensor",
      "t = (s/(s+1))·t + x/(s+1): the running mean. `step` is s, the number of values so far. At "
      "s = 0, t must be finite.");
  bind_accumulation<ops::accumulate_moving_average_>(
      m, "def accumulate_moving_average_(t: Tensor, x: Tensor, f: Hyper) -> Tensor",
      "t = f·t + (1 − f)·x.");
  bind_accumulation<ops::accumulate_moving_average_square_>(
      m, "def accumulate_moving_average_square_(t: Tensor, x: Tensor, f: Hyper) -> Tensor",
      "t = f·t + (1 − f)·x².");
  bind_accumulation<ops::accumulate_infinity_>(
      m, "def accumulate_infinity_(t: Tensor, x: Tensor, f: Hyper) -> Tensor",
      "t = max(f·t, |x|): the exponentially weighted infinity norm of the values so far.");
  bind_function(
      m, "def scaled_add(x: Tensor, y: Tensor, a: Hyper = 1.0, b: Hyper = 1.0) -> Tensor",
      "a·x + b·y.", +[](Tensor x, Tensor y, Hyper a, Hyper b) {
        return ops::scaled_add(x, y, hyper_arg(a), hyper_arg(b));
      });
  bind_function(
      m, "def scaled_add_(x: Tensor, y: Tensor, a: Hyper = 1.0, b: Hyper = 1.0) -> Tensor",
      "x = a·x + b·y.", +[](Tensor x, Tensor y, Hyper a, Hyper b) {
        return ops::scaled_add_(x, y, hyper_arg(a), hyper_arg(b));
      });
  bind_function(
      m, "def accumulator_scale_(t: Tensor, f: Hyper) -> Tensor",
      "t *= f. If f is 0, t becomes 0 even if it was NaN or infinite.",
      +[](Tensor t, Hyper f) { return ops::accumulator_scale_(t, hyper_arg(f)); });
  bind_function(
      m, "def accumulator_zero_(t: Tensor) -> Tensor", "t = 0.",
      +[](Tensor t) { return ops::accumulator_zero_(t); });
  bind_function(
      m,
      "def sparse_accumulate_(t: Tensor, x: Tensor, indices: Tensor, axis: int = 0, "
      "f: Hyper = 1.0) -> Tensor",
      "t += f·x at `indices` along `axis`: the update of the slices that gather took, without a "
      "gradient of t's size. `x` has the shape of t with the axis replaced by the shape of "
      "`indices` (int32 or uint32). Indices outside the axis add nothing.",
      +[](Tensor t, Tensor x, Tensor indices, int64_t axis, Hyper f) {
        return ops::sparse_accumulate_(t, x, indices, axis, hyper_arg(f));
      });
}

using Updater = Tensor (*)(TensorArg, TensorArg, const ops::AdamUpdaterArgs&);

template <Updater updater>
void bind_updater(nb::module_& m, const char* signature, const char* doc) {
  bind_function(
      m, signature, doc,
      +[](Tensor m, Tensor v, std::optional<Tensor> weight, std::optional<Tensor> time_step,
          OptionalHyper weight_decay, OptionalHyper beta1, OptionalHyper beta2, Hyper epsilon) {
        ops::AdamUpdaterArgs args;
        args.weight = weight.value_or(Tensor());
        args.time_step = time_step.value_or(Tensor());
        if (weight_decay) args.weight_decay = hyper_arg(*weight_decay);
        if (beta1) args.beta1 = hyper_arg(*beta1);
        if (beta2) args.beta2 = hyper_arg(*beta2);
        args.epsilon = hyper_arg(epsilon);
        return updater(m, v, args);
      });
}

void bind_updaters(nb::module_& m) {
  bind_updater<ops::adam_updater>(
      m,
      "def adam_updater(m: Tensor, v: Tensor, weight: Optional[Tensor] = None, "
      "time_step: Optional[Tensor] = None, weight_decay: Optional[Hyper] = None, "
      "beta1: Optional[Hyper] = None, beta2: Optional[Hyper] = None, epsilon: Hyper = 1e-07) "
      "-> Tensor",
      "Adam's step (Kingma and Ba, 2015) before the learning rate: m̂ / (√v̂ + ε). A time step "
      "t is incremented in place first; then m̂ = m/(1 − β1ᵗ) and v̂ = v/(1 − β2ᵗ), which "
      "requires the betas. Otherwise m̂ = m and v̂ = v. Weight decay requires a weight and adds "
      "weight_decay·weight. With it, the result has the dtype of the weight, else that of m.");
  bind_updater<ops::lamb_updater>(
      m,
      "def lamb_updater(m: Tensor, v: Tensor, weight: Optional[Tensor] = None, "
      "time_step: Optional[Tensor] = None, weight_decay: Optional[Hyper] = None, "
      "beta1: Optional[Hyper] = None, beta2: Optional[Hyper] = None, epsilon: Hyper = 1e-07) "
      "-> Tensor",
      "The update that LAMB scales by its norms (You et al., 2020): adam_updater.");
  bind_updater<ops::adamax_updater>(
      m,
      "def adamax_updater(m: Tensor, v: Tensor, weight: Optional[Tensor] = None, "
      "time_step: Optional[Tensor] = None, weight_decay: Optional[Hyper] = None, "
      "beta1: Optional[Hyper] = 0.9, beta2: Optional[Hyper] = None, epsilon: Hyper = 1e-07) "
      "-> Tensor",
      "AdaMax's step (Kingma and Ba, 2015, §7.1) before the learning rate: m̂ / (v + ε), where v "
      "is an infinity norm (accumulate_infinity_). `time_step` is required; beta2 is not used. "
      "Weight decay is that of adam_updater.");
  bind_function(
      m,
      "def adam_var_update(t: Tensor, x: Tensor, r1: Tensor, r2: Tensor, "
      "learning_rate: Hyper = 1.0, max_weight_norm: Hyper = float('inf')) -> Tensor",
      "t −= learning_rate·ratio·x with ratio = min(√r1, max_weight_norm)/√r2, or 1 where r1 or r2 "
      "is 0. r1 and r2 are squared norms (sumsquare_extended()).",
      +[](Tensor t, Tensor x, Tensor r1, Tensor r2, Hyper rate, Hyper max) {
        return ops::adam_var_update(t, x, r1, r2, hyper_arg(rate), hyper_arg(max));
      });
}

ops::CollectiveOp collective_op(const std::string& word, std::string_view function) {
  return from_word<ops::CollectiveOp>(word, fmt::format("{}: op", function));
}

const std::string kOp =
    "op: Literal['add', 'mean', 'mul', 'min', 'max', 'and', 'or', 'square_add'] = 'add'";
const std::string kGroup = "group: Optional[Any] = None";

using AllReduce = Tensor (*)(TensorArg, ops::CollectiveOp, const ops::Group&);

template <AllReduce function>
void bind_all_reduce(nb::module_& m, const std::string& signature, const char* doc) {
  bind_function(
      m, signature, doc, +[](Tensor t, std::string op, ops::Group group) {
        return function(t, collective_op(op, "replicated_all_reduce"), group);
      });
}

void bind_collectives(nb::module_& m) {
  bind_all_reduce<ops::replicated_all_reduce>(
      m, "def replicated_all_reduce(t: Tensor, " + kOp + ", " + kGroup + ") -> Tensor",
      "Combines t over a group of replicas (default: all); every member gets the same result. "
      "Elements are combined in ascending order of the replicas. Gradients do not pass.");
  bind_all_reduce<ops::replicated_all_reduce_>(
      m, "def replicated_all_reduce_(t: Tensor, " + kOp + ", " + kGroup + ") -> Tensor",
      "replicated_all_reduce into t's storage.");
  bind_all_reduce<ops::replicated_all_reduce_identical_inputs>(
      m,
      "def replicated_all_reduce_identical_inputs(t: Tensor, " + kOp + ", " + kGroup +
          ") -> Tensor",
      "Returns t, which must be equal on all members. The gradient of t is combined over the "
      "group.");
  bind_all_reduce<ops::replicated_all_reduce_identical_grad_inputs>(
      m,
      "def replicated_all_reduce_identical_grad_inputs(t: Tensor, " + kOp + ", " + kGroup +
          ") -> Tensor",
      "Combines t over the group. The gradient, which must be equal on all members, passes "
      "unchanged.");
  bind_function(
      m,
      "def replicated_reduce_scatter(t: Tensor, op: Literal['add', 'mean', 'mul', 'min', 'max', "
      "'and', 'or', 'square_add', 'local'] = 'add', " +
          kGroup + ", sharded: bool = False) -> Tensor",
      "Combines t over the group and returns this member's chunk of the result. t, with n "
      "elements, is flattened and cut into chunks of ceil(n / size) elements, padded with zeros. "
      "local does not combine: the result is the chunk of the member's own t. With `sharded`, the "
      "result has the shape of t as its meta_shape.",
      +[](Tensor t, std::string op, ops::Group group, bool sharded) {
        return ops::replicated_reduce_scatter(
            t, collective_op(op, "replicated_reduce_scatter"), group,
            sharded ? ops::Sharding::kReplicated : ops::Sharding::kPlain);
      });
  bind_function(
      m, "def replica_sharded_slice(t: Tensor, " + kGroup + ") -> Tensor",
      "Shards t over the group: returns this member's chunk of t. t must be equal on all members.",
      +[](Tensor t, ops::Group group) { return ops::replica_sharded_slice(t, group); });
  bind_function(
      m,
      "def replicated_all_gather(t: Tensor, axis: int = 0, " + kGroup +
          ", arrangement: "
          "Literal['auto', 'concat', 'new_axis', 'meta_shape'] = 'auto') -> Tensor",
      "Gathers the operands of all members, in ascending order: concatenated along `axis`, stacked "
      "along a new axis there, or joined from shards to the whole tensor, whose shape is their "
      "meta_shape. auto joins shards and concatenates others.",
      +[](Tensor t, int64_t axis, ops::Group group, std::string arrangement) {
        return ops::replicated_all_gather(
            t, axis, group,
            from_word<ops::Gather>(arrangement, "replicated_all_gather: arrangement"));
      });
  bind_function(
      m, "def replicated_slice(t: Tensor, axis: int = 0, " + kGroup + ") -> Tensor",
      "Cuts t along `axis` into equal parts, one per member of the group, and returns this "
      "member's part. t must be equal on all members. The axis is dropped if a part has size 1 "
      "there.",
      +[](Tensor t, int64_t axis, ops::Group group) {
        return ops::replicated_slice(t, axis, group);
      });
}

}  // namespace

void bind_update_functions(nb::module_& m) {
  bind_accumulations(m);
  bind_updaters(m);
  bind_collectives(m);
}

}  // namespace sluice::python
