#pragma once
#include <memory>
#include <optional>
#include <string>

/// Blocks name the parts of a model. A strategy (train/training_step.h) decides where and when each
/// block runs. Every op belongs to the block that is open when it is added. There are three ways to
/// open a block, and a model may mix them:
///
///     nn::Block block(b, "B1");              // until the end of the scope
///     fc1_.in_block("B1");                   // while the submodule builds
///     nn::begin_block(fc2_, "B2");           // from the submodule on, until another block begins
///
/// A block may be opened again. If a model does not open blocks, its submodules are its blocks.
namespace sluice {
class Graph;
}  // namespace sluice

namespace sluice::nn {

class Builder;

struct BlockOptions {
  std::optional<int> device = {};  ///< The block's ops run on this device.
};

/// While a Block exists, ops that `b` adds belong to block `name`. The end restores the block that
/// was open before. Error{kUsage} for an empty name.
class Block {
 public:
  Block(Builder& b, std::string name, const BlockOptions& options = {});
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

 private:
  friend class BlockMark;
  Block(Graph& graph, std::string name, const BlockOptions& options);

  Graph& graph_;
  std::string previous_;
  int previous_device_;
};

/// The blocks that a submodule opens. nn::Child and the items of nn::Children have one.
class BlockMark {
 public:
  /// The submodule's ops belong to block `name`. Error{kUsage} if the submodule has a block.
  void in_block(std::string name, const BlockOptions& options = {});
  /// Block `name` begins with the submodule. Error{kUsage} if the submodule has a block.
  void begin(std::string name, const BlockOptions& options = {});

 protected:
  /// Opens the block in the builder's graph. The result restores the block that was open before,
  /// unless a block begins here.
  std::unique_ptr<Block> open(Builder& b) const;
  void set_owner(std::string name) { owner_ = std::move(name); }

 private:
  void set(std::string name, const BlockOptions& options, bool begins);

  std::string owner_;  ///< Name of the submodule, for errors.
  std::string name_;
  BlockOptions options_;
  bool begins_ = false;
};

/// Begins block `name` with `submodule`, a nn::Child or an item of nn::Children. Error{kUsage} if
/// the submodule has a block.
template <typename Submodule>
void begin_block(Submodule& submodule, std::string name, const BlockOptions& options = {}) {
  submodule.begin(std::move(name), options);
}

}  // namespace sluice::nn
