#include "sluice/train/pipeline/schedule_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "sluice/base/ids/ids_format.h"
#include "sluice/train/pipeline/stage_devices.h"
#include "sluice/train/pipeline/task_walk.h"

namespace sluice::train {
namespace {

// Joins rows of equally many cells to lines. The first column is aligned to the left, the others
// are aligned to the right.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    text += fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t c = 1; c < row.size(); ++c) text += fmt::format(" {:>{}}", row[c], widths[c]);
    text += '\n';
  }
  return text;
}

}  // namespace

std::string schedule_table(const PipelineOrder& order, int64_t micro_batches,
                           const Ids<StageId, DeviceId>& devices) {
  const Ids<StageId, DeviceId> device_of_stage = devices_of(devices, order.stages);
  const int64_t slots = order.slots(micro_batches);
  std::map<DeviceId, std::vector<std::string>>
      cells;  // Indexed by device, without the first column.
  for (const DeviceId device : device_of_stage) cells[device].resize(slots);
  for_each_task(order, micro_batches, [&](const PipelineTask& task, int64_t micro_batch) {
    const int64_t slot = task.slot + micro_batch * order.period;
    std::string& cell = at(cells[device_of_stage[task.stage]], slot);
    cell +=
        fmt::format("{}{}{}", cell.empty() ? "" : "+", task.backward ? 'B' : 'F', micro_batch + 1);
  });

  std::vector<std::vector<std::string>> rows = {{"slot"}};
  for (int64_t slot = 1; slot <= slots; ++slot) rows[0].push_back(std::to_string(slot));
  for (const auto& [device, row] : cells) {
    rows.push_back({fmt::format("{}{}", devices.empty() ? 'S' : 'D', device)});
    for (const std::string& cell : row) rows.back().push_back(cell.empty() ? "." : cell);
  }
  return aligned(rows);
}

}  // namespace sluice::train
