#pragma once
#include <functional>

#include "sluice/nn/named_tensors.h"

namespace sluice::train {

/// Runs identical layers one after another. Layer r has its variables in row r of the remote
/// buffers.
struct RowLoop {
  enum class Order { kAscending, kDescending };
  enum class Form {
    kInLine,  ///< The rows are in the graph one after another. Required if a row has variables on
              ///< the device.
    kLoop,    ///< One `repeat` op, unless there are too few rows.
  };

  int64_t rows = 1;
  Order order = Order::kAscending;
  Form form = Form::kLoop;
  IoMode io_mode = IoMode::kIo;
  /// Load a row's remote variables: `load` into new tensors, `reload` into the tensors of another
  /// row.
  std::function<nn::NamedTensors(Graph& graph, const RemoteEntry& row)> load;
  std::function<void(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& over)> reload;
  /// Runs a row. `values` are the results of the row before; returns the values for the next row.
  /// `invariants` are those given to run_rows().
  std::function<Tensors(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& loaded,
                        const Tensors& values, const Tensors& invariants)>
      run;
  /// Stores the loaded tensors after `run`; absent if `run` does not change them.
  std::function<void(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& loaded)> store;
};

/// Adds the layers to `main`. The program of a loop does not grow with the number of rows. With
/// kIoOverlapped the loop loads the next row and stores the row before while it runs a row. Then
/// two rows are on the device, or three if rows are stored. The results have the same bits.
/// `values` are the inputs of the first row. Returns the values of the last row.
Tensors run_rows(Graph& main, const RowLoop& loop, const Tensors& values,
                 const Tensors& invariants);

}  // namespace sluice::train
