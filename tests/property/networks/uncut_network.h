#pragma once
#include "sluice/train/training_step.h"

namespace sluice::property {

/// Adds the entry graph "train" of a network that is not cut: its whole graph is differentiated at
/// once, and each micro-batch is a call of it. The gradients of micro-batches are added and then
/// divided by their number. Fixes the number of replicas. The streams are those of
/// train::build_training(). There is no entry graph "eval".
train::Training uncut_training(Ir ir, const train::Network& network, nn::Optimizer optimizer,
                               const train::Options& options);

/// Returns the reason why the gradients of the cut network may be rounded differently from those of
/// the uncut one with accumulate 1; empty if they have the same bits.
///
/// The uncut network adds the gradients of a value from its last reader to its first. The cut one
/// does the same as long as blocks are in the order of their ops, but adds the readers of one use
/// of a weight first, and a loss's own gradient after the readers of later blocks.
std::string rounded_differently(const train::NetworkGraph& network);

}  // namespace sluice::property
