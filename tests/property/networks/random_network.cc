#include "random_network.h"

#include <fmt/format.h>

#include <memory>

#include "network_writer.h"

namespace sluice::property {
namespace {

using train::Inputs;
using train::Results;

constexpr int kMaxBlocks = 7;

std::vector<train::Field> fields() {
  return {{.name = "x", .spec = f32_spec({kBatch, 6})},
          {.name = "labels", .spec = i32_spec({kBatch})},
          {.name = "scale", .spec = f32_spec({kBatch, 1})},
          {.name = "index", .spec = i32_spec({3})}};
}

class Module : public nn::Module {
 public:
  Module(NetworkRecipe recipe, std::shared_ptr<NetworkRecord> record)
      : recipe_(std::move(recipe)), outline_(recipe_.seed), record_(std::move(record)) {
    for (size_t v = 0; v < outline_.blocks.size(); ++v) {
      if (outline_.forms[v] == NetworkOutline::BlockSyntax::kScope) continue;
      // A skipped block or a stack of rows has no mark.
      if (outline_.stacks[v] || recipe_.skipped.contains(v * kBlockStride)) continue;
      marked_.add(3 + static_cast<int64_t>(v % 3), nn::Bias::kAdd, nn::WeightInit::kHe);
      auto& item = marked_[marked_.size() - 1];
      if (outline_.forms[v] == NetworkOutline::BlockSyntax::kBegin) {
        nn::begin_block(item, outline_.blocks[v]);
      } else {
        item.in_block(outline_.blocks[v]);
      }
    }
  }

  Results build(nn::Builder& b, const Inputs& in) const {
    NetworkWriter writer(recipe_, outline_, marked_, b, in);
    Results results = writer.run();
    if (in.mode() == nn::RunMode::kTrain) *record_ = std::move(writer.record);
    return results;
  }

 private:
  NetworkRecipe recipe_;
  NetworkOutline outline_;
  std::shared_ptr<NetworkRecord> record_;
  MarkedLayers marked_{*this, "fc"};
};

}  // namespace

Seed network_key(uint64_t seed, std::string_view what, uint64_t index) {
  const Seed own{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
  return fold(fold(own, what), index);
}

NetworkOutline::NetworkOutline(uint64_t seed) {
  Dice dice(network_key(seed, "outline"));
  named = !dice.one_in(4);
  const int count = 2 + dice(kMaxBlocks - 1);
  for (int v = 0; v < count; ++v) {
    const bool again = v > 0 && dice.one_in(5);
    blocks.push_back(again ? blocks[static_cast<size_t>(dice(v))] : fmt::format("B{}", v));
    const int form = dice(4);
    forms.push_back(!named || form < 2 ? BlockSyntax::kScope
                    : form == 2        ? BlockSyntax::kProperty
                                       : BlockSyntax::kBegin);
    stacks.push_back(dice.one_in(4));
  }
}

NetworkCensus& NetworkCensus::operator+=(const NetworkCensus& o) {
  reopened += o.reopened;
  rows += o.rows;
  tied += o.tied;
  losses += o.losses;
  own_gradients += o.own_gradients;
  predictions += o.predictions;
  calls += o.calls;
  conditionals += o.conditionals;
  in_place += o.in_place;
  draws += o.draws;
  running += o.running;
  return *this;
}

RandomNetwork random_network(const NetworkRecipe& recipe) {
  const auto record = std::make_shared<NetworkRecord>();
  train::Network network(Module(recipe, record), fields());
  network.build(Ir(), nn::RunMode::kTrain);
  return {std::move(network), record->decisions, record->census};
}

}  // namespace sluice::property
