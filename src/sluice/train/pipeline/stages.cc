#include "sluice/train/pipeline/stages.h"

#include <algorithm>
#include <charconv>

#include "sluice/base/error.h"
#include "sluice/base/ids/ids_format.h"
#include "sluice/base/provenance.h"
#include "sluice/train/cut/cut.h"
#include "sluice/train/pipeline/block_times.h"

namespace sluice::train {
namespace {

std::string names_of(const Cut& cut) {
  std::string names;
  for (const BlockGraph& block : cut.blocks) names += (names.empty() ? "" : ", ") + block.name;
  return names;
}

BlockId find_block(const Cut& cut, const std::string& name) {
  const auto found = std::find_if(cut.blocks.begin(), cut.blocks.end(),
                                  [&](const BlockGraph& block) { return block.name == name; });
  require(
      found != cut.blocks.end(),
      "Unknown Block '{}': the blocks of the model are {}; a block that no result needs is left "
      "out",
      name, names_of(cut));
  return BlockId(found - cut.blocks.begin());
}

// The device that the ops of a block name.
std::optional<int> named_device(const NetworkGraph& network, const std::string& block) {
  for (const Op& op : network.graph.graph().ops()) {
    if (op.provenance->block == block && op.device != kInheritDevice) return op.device;
  }
  return std::nullopt;
}

Ids<StageId, std::vector<BlockId>> blocks_of(const Ids<StageId, Stage>& stages, const Cut& cut) {
  Ids<StageId, std::vector<BlockId>> result;
  Ids<BlockId, StageId> stage_of(cut.blocks.size());
  for (const StageId s : stages.ids()) {
    auto& blocks = result.emplace_back();
    require(!stages[s].blocks().empty(), "stage {}: must have a block", s);
    for (const std::string& name : stages[s].blocks()) {
      const BlockId b = find_block(cut, name);
      require(!stage_of[b].valid(),
              "block '{}' must be in one stage, is associated with more than one stage: {} and {}",
              name, stage_of[b], s);
      stage_of[b] = s;
      blocks.push_back(b);
    }
    std::sort(blocks.begin(), blocks.end());
  }
  const auto before = [](BlockId b) { return BlockId(b - 1); };
  for (const BlockId b : stage_of.ids()) {
    const std::string& name = cut.blocks[b].name;
    require(stage_of[b].valid(), "block '{}' must be in a stage", name);
    require(b == 0 || stage_of[before(b)] <= stage_of[b],
            "stages must have the blocks in the order {}; block '{}' of stage {} precedes block "
            "'{}' of stage {}",
            names_of(cut), cut.blocks[before(b)].name, stage_of[before(b)], name, stage_of[b]);
  }
  return result;
}

Ids<StageId, Stage> named_stages(const Stages& stages, const Cut& cut,
                                 const Ids<BlockId, double>& seconds) {
  if (const auto* named = std::get_if<std::vector<Stage>>(&stages); named && !named->empty())
    return Ids<StageId, Stage>(*named);
  std::vector<BlockId> begins;
  if (const int* count = std::get_if<int>(&stages)) {
    begins = balanced_cut(seconds, *count);
  } else {
    for (const BlockId b : cut.blocks.ids()) begins.push_back(b);
  }
  begins.push_back(cut.blocks.end_id());
  Ids<StageId, Stage> result;
  for (auto begin = begins.begin(); begin + 1 != begins.end(); ++begin) {
    std::vector<std::string> blocks;
    for (const BlockId b : IdRange(*begin, *(begin + 1))) blocks.push_back(cut.blocks[b].name);
    result.emplace_back(std::move(blocks));
  }
  return result;
}

// Refuses concurrent stages that depend on each other.
void check_concurrent(const AssignedStage& stage, const AssignedStage& other, const Cut& cut) {
  for (const BlockId b : stage.blocks) {
    const BlockGraph& block = cut.blocks[b];
    for (const BlockId o : other.blocks) {
      const BlockGraph& before = cut.blocks[o];
      for (const BlockValue& v : block.inputs) {
        require(!before.output(v.whole).valid(),
                "concurrent stages must not read values of each other, but block '{}' reads '{}' "
                "of block '{}'",
                block.name, v.whole.name(), before.name);
      }
      for (const WeightUse& w : block.weights) {
        require(std::none_of(before.weights.begin(), before.weights.end(),
                             [&](const WeightUse& used) { return used.key == w.key; }),
                "concurrent stages must not share weights, but blocks '{}' and '{}' read '{}'",
                before.name, block.name, w.key);
      }
    }
  }
}

// Numbers the steps of the schedule.
void set_steps(const Ids<StageId, Stage>& stages, const Cut& cut, PlacedStages& assigned) {
  for (const StageId s : IdRange(StageId(1), assigned.end_id())) {
    const auto before = [](StageId stage) { return StageId(stage - 1); };
    assigned[s].step = assigned[before(s)].step + (stages[s].is_concurrent() ? 0 : 1);
    for (StageId o = before(s); o.valid() && assigned[o].step == assigned[s].step; o = before(o))
      check_concurrent(assigned[s], assigned[o], cut);
  }
  require(assigned.back().step >= 1,
          "a pipeline must have at least two stages that are not concurrent, got 1");
}

}  // namespace

const Stages* given_stages(const Strategy& strategy) {
  const auto find = [](const auto& s) -> const Stages* {
    using T = std::decay_t<decltype(s)>;
    if constexpr (std::is_same_v<T, ResidentExecution>) {
      return nullptr;
    } else if constexpr (std::is_same_v<T, PhasedExecution>) {
      return s.stages ? &*s.stages : nullptr;
    } else {
      return &s.stages;
    }
  };
  return std::visit(find, strategy);
}

Stages parse_stages(const std::vector<std::string>& texts) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (texts.size() == 1 && std::all_of(texts[0].begin(), texts[0].end(), is_digit)) {
    int count = 0;
    const char* const end = texts[0].data() + texts[0].size();
    const auto [stop, error] = std::from_chars(texts[0].data(), end, count);
    require(error == std::errc() && stop == end && count >= 2 && count <= kMaxDevices,
            "stages: must be from 2 to {}, or names of blocks, got '{}'", kMaxDevices, texts[0]);
    return count;
  }
  std::vector<Stage> stages;
  for (const std::string& text : texts) {
    std::vector<std::string> blocks;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('+', begin), text.size());
      blocks.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    stages.emplace_back(std::move(blocks));
  }
  return stages;
}

PlacedStages assign_stages(const Stages& stages, const NetworkGraph& network, const Cut& cut,
                           const Ids<BlockId, double>& seconds) {
  const Ids<StageId, Stage> all = named_stages(stages, cut, seconds);
  const auto blocks = blocks_of(all, cut);
  require(all.size() >= 2,
          "a pipeline must have at least two stages, got {}; the model's blocks: {}", all.size(),
          names_of(cut));
  require(!all.front().is_concurrent(), "stage 0: must not be concurrent, as it is the first one");
  PlacedStages assigned;
  std::optional<StageId> with, without;  // A stage with a device, and one without.
  for (const StageId s : all.ids()) {
    std::optional<int> device = all[s].device();
    for (const BlockId b : blocks[s]) {
      const std::string& name = cut.blocks[b].name;
      const std::optional<int> named = named_device(network, name);
      if (!named) continue;
      require(!std::holds_alternative<int>(stages),
              "stages: must be named, as block '{}' names device {}, got the number {}", name,
              *named, all.size());
      if (!device) device = named;
      require(*device == *named,
              "stage {}: must run on one device, got {}, but block '{}' names {}", s, *device, name,
              *named);
    }
    require(!device || (*device >= 0 && *device < kMaxDevices),
            "stage {}: its device must be from 0 to {}, got {}", s, kMaxDevices - 1,
            device.value_or(0));
    (device ? with : without) = s;
    assigned.push_back({blocks[s], DeviceId(device.value_or(s))});
  }
  require(!with || !without,
          "stages: all must have a device, or none, but stage {} has one and stage {} has none",
          with.value_or(StageId(0)), without.value_or(StageId(0)));
  set_steps(all, cut, assigned);
  return assigned;
}

}  // namespace sluice::train
