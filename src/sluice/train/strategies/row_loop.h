#pragma once
#include <functional>
#include <string>
#include <vector>

#include "sluice/nn/named_tensors.h"

namespace sluice::train {

/// A tensor that each row has in one remote buffer: row r has entry r.
struct RowTensor {
  std::string key;   ///< Key among the loaded tensors.
  std::string name;  ///< Name of the tensor that is loaded.
  RemoteBuffer buffer = {};
  bool stored = false;        ///< Whether a row changes it, so that it is stored after the row.
  std::string variable = {};  ///< Key of row 0's variable.
};

/// Runs the rows of equal blocks one after another.
struct RowLoop {
  enum class Order { kAscending, kDescending };
  enum class Form {
    kInLine,  ///< The rows are in the graph one after another. Required if a row has variables on
              ///< the device.
    kLoop,    ///< One `repeat` op, unless there are too few rows.
  };

  int64_t first = 0;  ///< The row with the smallest index.
  int64_t rows = 1;
  Order order = Order::kAscending;
  Form form = Form::kLoop;
  IoMode io_mode = IoMode::kIo;
  std::vector<RowTensor> tensors = {};
  /// Runs a row. `loaded` has the row's `tensors`, `values` are the results of the row before;
  /// returns the values for the next row. `invariants` are those given to run_rows().
  std::function<nn::NamedTensors(Graph& graph, const RemoteEntry& row,
                                 const nn::NamedTensors& loaded, const nn::NamedTensors& values,
                                 const nn::NamedTensors& invariants)>
      run = nullptr;
};

/// Adds the rows to `main`. The program of a loop does not grow with the number of rows. With
/// kIoOverlapped the loop loads the next row and stores the row before while it runs a row. Then
/// two rows are on the device, or three if rows are stored. The results have the same bits.
/// `values` are the inputs of the first row; in a loop, all rows have the same keys. Returns the
/// values of the last row.
nn::NamedTensors run_rows(Graph& main, const RowLoop& loop, const nn::NamedTensors& values,
                          const nn::NamedTensors& invariants);

}  // namespace sluice::train
