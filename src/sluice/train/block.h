#pragma once
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "sluice/nn/graph_cache.h"

namespace sluice::train {

/// Variables that are stored in remote memory. Activations between phases are always stored there.
struct Offload {
  bool optimizer = false;
  bool weights = false;
  bool operator==(const Offload&) const = default;
};

/// Whether a layer keeps its inner activations from its forward to its backward phase, or computes
/// them again.
enum class Activations { kKeep, kRecompute };

/// One part of a sequential model. It holds a module with a cache_key() and one of these functions,
/// which map the output of the part before to its own:
///
///     Tensor build(nn::Builder& b, Tensor x) const;
///     Tensor build(nn::Builder& b, Tensor x, const Tensors& seed) const;
///
/// `seed` is one uint32[2] tensor in training with `Draws::kYes`, else empty. `path` is the block's
/// place in the model; it is the same under every strategy.
class Block : public nn::Module {
 public:
  /// Whether the block draws random numbers in training.
  enum class Draws { kNo, kYes };

  template <nn::CacheableModule M>
  Block(std::string path, M module, Draws draws = Draws::kNo)
      : path_(std::move(path)),
        kind_(std::string(typeid(M).name()) + "|" + std::string(module.cache_key())),
        draws_(draws),
        build_([m = std::move(module)](nn::Builder& b, Tensor x, const Tensors& seed) {
          if constexpr (requires { m.build(b, x, seed); }) {
            return m.build(b, x, seed);
          } else {
            return m.build(b, x);
          }
        }) {}

  const std::string& path() const { return path_; }
  bool draws() const { return draws_ == Draws::kYes; }
  /// Blocks with equal keys build equal graphs from equal specs.
  const std::string& cache_key() const { return kind_; }
  Tensor build(nn::Builder& b, Tensor x, const Tensors& seed) const { return build_(b, x, seed); }

 private:
  std::string path_;
  std::string kind_;
  Draws draws_;
  std::function<Tensor(nn::Builder&, Tensor, const Tensors&)> build_;
};

/// Blocks that run in order. Each is built in place at its path.
class Sequence : public nn::Module {
 public:
  explicit Sequence(std::vector<Block> blocks) : blocks_(std::move(blocks)) {}
  const std::vector<Block>& blocks() const { return blocks_; }
  /// `seed` is the seed of the model, or empty in evaluation. A block that draws gets it folded
  /// with the block's path.
  Tensor build(nn::Builder& b, Tensor x, const Tensors& seed) const {
    for (const Block& block : blocks_)
      x = b.inlined(block.path(), block, x, block.draws() ? seed : Tensors{});
    return x;
  }

 private:
  std::vector<Block> blocks_;
};

}  // namespace sluice::train
