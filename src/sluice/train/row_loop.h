#pragma once
#include <functional>

#include "sluice/nn/named_tensors.h"

namespace sluice::train {

/// Visits of the device by identical layers that lie in the rows of remote buffers, one after the other.
struct RowLoop {
  enum class Order { kAscending, kDescending };
  enum class Form {
    kInLine,  ///< Each row at its place: the only form of rows that have something of their own on the device.
    kLoop,  ///< One `repeat`, unless rows are few.
  };

  int64_t rows = 1;
  Order order = Order::kAscending;
  Form form = Form::kLoop;
  IoMode io_mode = IoMode::kIo;
  /// What a row keeps in remote memory, brought into the graph: into tensors of its own, or over those of another row.
  std::function<nn::NamedTensors(Graph& graph, const RemoteEntry& row)> load;
  std::function<void(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& over)> reload;
  /// A row's work: from the values that the row before left to those for the next. `invariants` are those given to run_rows.
  std::function<Tensors(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& loaded,
                        const Tensors& values, const Tensors& invariants)>
      run;
  /// Stores what was loaded, as `run` left it; absent: it is as it was.
  std::function<void(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& loaded)> store;
};

/// Adds the visits to `main`. A loop's program does not grow with the rows. With kIoOverlapped it is skewed: beside the work
/// of a row it loads the next and stores the one before, so that two rows are on the device, three if they are stored;
/// the bits are the same. Returns the values that the last row leaves.
Tensors run_rows(Graph& main, const RowLoop& loop, const Tensors& values,
                 const Tensors& invariants);

}  // namespace sluice::train
