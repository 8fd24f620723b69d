#pragma once
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "sluice/nn/graph_cache.h"

namespace sluice::train {

/// One part of a sequential model, from the output of the part before it to its own:
///
///     Tensor build(nn::Builder& b, Tensor x, const Tensors& seed) const;
///
/// of a module with a cache_key(). `seed` is a uint32[2] tensor in training if `Draws::kYes`, else empty. It has one place
/// ("path") in the model, whichever strategy runs it.
class Block : public nn::Module {
 public:
  /// Whether the block takes random numbers in training.
  enum class Draws { kNo, kYes };

  template <nn::CacheableModule M>
  Block(std::string path, M module, Draws draws = Draws::kNo)
      : path_(std::move(path)),
        kind_(std::string(typeid(M).name()) + "|" + std::string(module.cache_key())),
        draws_(draws),
        build_([m = std::move(module)](nn::Builder& b, Tensor x, const Tensors& seed) {
          return m.build(b, x, seed);
        }) {}

  const std::string& path() const { return path_; }
  bool draws() const { return draws_ == Draws::kYes; }
  /// Blocks of equal keys make equal graphs from equal specs.
  const std::string& cache_key() const { return kind_; }
  Tensor build(nn::Builder& b, Tensor x, const Tensors& seed) const { return build_(b, x, seed); }

 private:
  std::string path_;
  std::string kind_;
  Draws draws_;
  std::function<Tensor(nn::Builder&, Tensor, const Tensors&)> build_;
};

/// Blocks one after another, each built in place at its path.
class Sequence : public nn::Module {
 public:
  explicit Sequence(std::vector<Block> blocks) : blocks_(std::move(blocks)) {}
  const std::vector<Block>& blocks() const { return blocks_; }
  /// `seed`: the model's; each block that draws gets it folded with its path. Empty when evaluating.
  Tensor build(nn::Builder& b, Tensor x, const Tensors& seed) const {
    for (const Block& block : blocks_)
      x = b.inlined(block.path(), block, x, block.draws() ? seed : Tensors{});
    return x;
  }

 private:
  std::vector<Block> blocks_;
};

}  // namespace sluice::train
