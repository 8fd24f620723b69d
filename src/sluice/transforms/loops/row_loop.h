#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <source_location>
#include <utility>
#include <vector>

#include "sluice/ir/call.h"
#include "sluice/transforms/loops/loops.h"

/// Loops whose iterations read rows of tensors and write rows of tensors.
namespace sluice::transforms {

/// Returns the other order.
ops::RowOrder reversed(ops::RowOrder order);

/// Makes a loop whose wrapper graph passes rows to the graph of an iteration, its body, and stores
/// rows of the body's results. The body never sees the whole tensors.
class RowLoop {
 public:
  RowLoop(Graph& parent, Graph& body, int64_t trips)
      : parent_(parent), body_(body), trips_(trips) {}

  /// These functions bind `input` of the body, or a new input of it if the handle is empty. They
  /// return the input. carry(): a carried value that is `first` in the first iteration.
  Tensor carry(const Tensor& first, Tensor input = {});
  /// A tensor that is the same in all iterations. It gets one new input for all calls.
  Tensor invariant(const Tensor& t, Tensor input = {});
  /// A row of a tensor of shape (trips, …).
  Tensor row(const Tensor& t, ops::RowOrder order, Tensor input = {});
  /// The number of the iteration, from 0, in descending order from trips - 1.
  Tensor iteration(ops::RowOrder order);
  Graph& body() const { return body_; }

  struct Results {
    Tensors carried;
    Tensors rows;  ///< Tensors of shape (trips, …).
  };
  /// Adds the loop. The outputs of the body are the carried values, then rows, in `orders`.
  Results run(const std::vector<ops::RowOrder>& orders,
              std::source_location where = std::source_location::current());

 private:
  struct Binding {
    Tensor input;
    Tensor operand;  ///< Empty: the number of the iteration.
    std::optional<ops::RowOrder> order = {};
  };

  Tensor bind(const Tensor& operand, const TensorSpec& spec, std::optional<ops::RowOrder> order,
              Tensor input);

  Graph& parent_;
  Graph& body_;
  const int64_t trips_;
  size_t carried_ = 0;
  std::vector<Binding> bindings_;
};

/// The use of a tensor of shape (trips, …) by the wrapper graph of a loop.
struct RowUse {
  Tensor row;          ///< The row, a tensor of the wrapper graph.
  Version version{0};  ///< Its version.
  ops::RowOrder order = ops::RowOrder::kAscending;
};
/// Returns the use of input `i` of a wrapper graph if its iterations only read one row each, or
/// only overwrite one row each.
std::optional<RowUse> row_read(const Graph& wrapper, size_t i);
std::optional<RowUse> row_written(const Graph& wrapper, size_t i);
/// Returns the order of a row index of a wrapper graph for `trips` iterations. Absent: `index` is
/// another tensor.
std::optional<ops::RowOrder> order_of(const Graph& wrapper, TensorId index, int64_t trips);

}  // namespace sluice::transforms
