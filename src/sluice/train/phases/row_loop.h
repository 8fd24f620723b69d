#pragma once
#include <functional>
#include <string>
#include <vector>

#include "sluice/nn/named_tensors.h"
#include "sluice/train/strategies/step_variables.h"

namespace sluice::train {

/// Rows of equal blocks in the order in which they run: some in line, then the others in a loop.
struct BlockRows {
  int64_t in_line = 0;
  int64_t looped = 0;  ///< Rows with a tensor on the device must not be looped.
};

/// Runs the rows of equal blocks one after another.
struct RowLoop {
  enum class Order { kAscending, kDescending };

  BlockRows rows = {};
  Order order = Order::kAscending;
  IoMode io_mode = IoMode::kIo;
  std::vector<RowTensor> tensors = {};
  /// Runs a row. `loaded` has the row's `tensors`, `values` are the results of the row before;
  /// returns the values for the next row. `invariants` are those given to run_rows().
  std::function<nn::NamedTensors(Graph& graph, const RemoteEntry& row,
                                 const nn::NamedTensors& loaded, const nn::NamedTensors& values,
                                 const nn::NamedTensors& invariants)>
      run = nullptr;
};

/// Adds all rows, from row 0 or to row 0, to `main`. The program of a loop does not grow with the
/// number of rows; a loop of few rows is unrolled. With kIoOverlapped the loop loads the next row
/// and stores the row before while it runs a row. Then two rows are on the device, or three if rows
/// are stored. The results have the same bits. `values` are the inputs of the first row; in a loop,
/// all rows have the same keys. Returns the values of the last row.
nn::NamedTensors run_rows(Graph& main, const RowLoop& loop, const nn::NamedTensors& values,
                          const nn::NamedTensors& invariants);

}  // namespace sluice::train
