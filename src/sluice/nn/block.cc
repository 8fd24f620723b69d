#include "sluice/nn/block.h"

#include <utility>

#include "sluice/base/error.h"
#include "sluice/nn/module.h"

namespace sluice::nn {
namespace {

void begin(Graph& graph, std::string name, const BlockOptions& options) {
  require(!name.empty(), "block: the name must not be empty");
  graph.set_block(std::move(name));
  graph.set_device(options.device.value_or(kInheritDevice));
}

}  // namespace

Block::Block(Builder& b, std::string name, const BlockOptions& options)
    : Block(b.graph(), std::move(name), options) {}

Block::Block(Graph& graph, std::string name, const BlockOptions& options)
    : graph_(graph), previous_(graph.block()), previous_device_(graph.device()) {
  begin(graph, std::move(name), options);
}

Block::~Block() {
  graph_.set_block(std::move(previous_));
  graph_.set_device(previous_device_);
}

void BlockMark::in_block(std::string name, const BlockOptions& options) {
  set(std::move(name), options, false);
}

void BlockMark::begin(std::string name, const BlockOptions& options) {
  set(std::move(name), options, true);
}

void BlockMark::set(std::string name, const BlockOptions& options, bool begins) {
  require(!name.empty(), "block of submodule '{}': the name must not be empty", owner_);
  require(name_.empty(),
          "block '{}': submodule '{}' must have one block at most, but it already has block '{}'",
          name, owner_, name_);
  name_ = std::move(name);
  options_ = options;
  begins_ = begins;
}

std::unique_ptr<Block> BlockMark::open(Builder& b) const {
  if (name_.empty()) return nullptr;
  if (!begins_) return std::unique_ptr<Block>(new Block(b.graph(), name_, options_));
  nn::begin(b.graph(), name_, options_);
  return nullptr;
}

}  // namespace sluice::nn
