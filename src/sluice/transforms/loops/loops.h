#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <source_location>
#include <string_view>
#include <type_traits>
#include <utility>

#include "sluice/ir/call.h"

/// Loops from functions. The function adds the ops of an iteration:
///
///     const Tensor sum = ops::repeat(
///         main, 20, [](Tensor v, Tensor x) { return v + x; }, {zero}, infeed)[0];
namespace sluice {

/// The tensors that a loop passes to its body: the carried values and the fields of an element.
class LoopArguments {
 public:
  /// `loop`: name of the loop, for errors.
  LoopArguments(Tensors carried, Tensors fields, std::optional<Infeed> infeed,
                std::string_view loop);

  /// Returns argument `i`: the carried values in their order, then the fields in their order.
  /// Error{kUsage} if there are fewer.
  const Tensor& operator[](size_t i) const;
  /// Returns a field of the element by its name. Error{kUsage} listing the fields if it does not
  /// exist.
  const Tensor& operator[](std::string_view field) const;
  size_t size() const { return arguments_.size(); }
  const Tensors& arguments() const { return arguments_; }
  /// Error{kUsage} unless a body with `count` parameters can receive the arguments.
  void require_count(size_t count) const;

 private:
  std::string describe() const;

  Tensors arguments_;
  size_t carried_;
  std::optional<Infeed> infeed_;
  std::string_view loop_;
};

/// A function that adds the ops of an iteration and returns the new carried values, a Tensor or
/// Tensors. It does not return a value if the loop does not carry values. It takes the arguments
/// one by one, or together, or not at all:
///
///     Tensor body(Tensor sum, Tensor image, Tensor label);
///     Tensors body(const LoopArguments& in);  // in[0], in["image"]
///     void body();
class LoopBody {
 public:
  template <typename F>
  requires(!std::same_as<F, LoopBody>) LoopBody(F body)  // NOLINT: implicit
      : body_([f = std::move(body)](const LoopArguments& in) mutable -> Tensors {
          if constexpr (std::invocable<F&, const LoopArguments&>) {
            return to_tensors([&] { return f(in); });
          } else {
            return spread<0>(f, in);
          }
        }) {}

  Tensors operator()(const LoopArguments& in) const { return body_(in); }

 private:
  static constexpr size_t kMaxParameters = 16;

  template <size_t>
  using Argument = const Tensor&;

  template <typename F, size_t... I>
  static constexpr bool accepts(std::index_sequence<I...>) {
    return std::invocable<F&, Argument<I>...>;
  }
  template <typename F, size_t... I>
  static Tensors call(F& f, const LoopArguments& in, std::index_sequence<I...>) {
    return to_tensors([&] { return f(in[I]...); });
  }
  // Finds the number of parameters, from `Count` on.
  template <size_t Count, typename F>
  static Tensors spread(F& f, const LoopArguments& in) {
    static_assert(Count <= kMaxParameters,
                  "the body of a loop takes const LoopArguments&, or up to 16 tensors");
    if constexpr (Count > kMaxParameters) {
      return {};
    } else if constexpr (accepts<F>(std::make_index_sequence<Count>())) {
      in.require_count(Count);
      return call(f, in, std::make_index_sequence<Count>());
    } else {
      return spread<Count + 1>(f, in);
    }
  }
  template <typename Call>
  static Tensors to_tensors(const Call& call) {
    using Result = std::invoke_result_t<Call>;
    if constexpr (std::is_void_v<Result>) {
      call();
      return {};
    } else if constexpr (std::convertible_to<Result, Tensor>) {
      return {call()};
    } else {
      return call();
    }
  }

  std::function<Tensors(const LoopArguments&)> body_;
};

namespace ops {

/// Runs `body` `n` times on the device and returns the carried values after the last iteration.
///
/// `body` is called once, with `graph` as the graph of all its ops. Iteration 0 receives the values
/// of `inputs`, each further one the tensors that `body` returned: as many as `inputs`, with their
/// specs. With an `infeed`, each iteration also receives the next element of it. The position of
/// the infeed continues from loop to loop, from program to program and from run to run.
///
/// The body may use all tensors of `graph`, call graphs, make variables if `graph` is an entry
/// graph, and contain loops. Updates of variables and of other tensors of `graph`, outfeeds,
/// streams, remote buffers and collectives take effect in each iteration, in the order of the ops.
/// The initial value of a variable is set once, before a program runs. Only the body can use a
/// tensor that the body makes. With `n` = 0, the results are copies of `inputs`; the ops of the
/// body do not remain, and no element is read.
///
/// Error{kUsage}: `n` outside [0, 2^31); inputs of another graph; results of another number, dtype
/// or shape; a result of another graph; a body with another number of parameters than arguments; an
/// infeed of another Ir; a body that reads no field of the infeed; an output of `graph` that the
/// body adds. `graph` then has the ops that it had before.
Tensors repeat(Graph& graph, int64_t n, const LoopBody& body, const Tensors& inputs = {},
               const std::optional<Infeed>& infeed = {},
               std::source_location where = std::source_location::current());

/// The order in which the iterations of a loop use the rows of a tensor.
enum class RowOrder {
  kAscending,
  kDescending,  ///< Iteration 0 uses the last row.
};

struct ScanResults {
  Tensors carried;  ///< The carried values after the last iteration.
  Tensors rows;     ///< The other outputs of all iterations, of shape (rows, …).
};

/// Runs `graph` for each row of `sequences`, tensors of shape (rows, …) with equally many rows, at
/// least one. The inputs of `graph` are the carried values, first `carried`; then a row of each
/// sequence; then invariant tensors, from `named`. Its outputs are the new carried values, then
/// rows of results. Rows of results are stored in the order of the rows that are read. The gradient
/// of a sequence is stored row by row, too.
///
/// Error{kUsage} without a sequence or without rows, for an input without a tensor, and for tensors
/// of another graph, shape or dtype. `parent` then has the ops that it had before.
ScanResults scan(Graph& parent, Graph& graph, const Tensors& carried, const Tensors& sequences,
                 const TensorMap& named = {}, RowOrder order = RowOrder::kAscending,
                 std::source_location where = std::source_location::current());

/// Runs `body` on the device while `condition` holds, at most `max_iterations` times. Returns the
/// carried values after the last iteration.
///
///     const Tensor sum = ops::while_loop(
///         main, [&](Tensor v) { return ops::greater(limit, v); },
///         [](Tensor v, Tensor x) { return v + x; }, {zero}, infeed)[0];
///
/// `condition` receives the carried values, never an element, and returns a scalar bool. It is
/// evaluated before each iteration, on the device, and once more after the last one. `body`, inputs
/// and infeed are those of repeat(). Elements that the loop has not read remain for the next run.
///
/// The counts of a program and the time of a forecast assume that all `max_iterations` run. The
/// proof of a plan simulates all iterations if they use remote buffers, so limit them. All devices
/// and replicas exit after the same iteration. So the condition must be equal on all replicas:
/// compute it from variables, constants, or results of collectives over all replicas. A loop has no
/// gradient.
///
/// Error{kUsage} as for repeat(), and for a condition that is not a scalar bool of `graph`.
/// compile() refuses a condition that may differ between replicas, streams without a feed in the
/// loop, and an iteration that does not use all fields of a feed equally often.
Tensors while_loop(Graph& graph, const LoopBody& condition, const LoopBody& body,
                   const Tensors& inputs = {}, const std::optional<Infeed>& infeed = {},
                   int64_t max_iterations = std::numeric_limits<int32_t>::max(),
                   std::source_location where = std::source_location::current());

}  // namespace ops
}  // namespace sluice
