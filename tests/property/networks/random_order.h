#pragma once
#include "../random_graph_ops.h"
#include "sluice/train/order/dependences.h"

namespace sluice::property {

/// Forms of random orders.
enum class OrderForm : uint8_t {
  kLine,   ///< Each task of each micro-batch on a line of its own.
  kLoop,   ///< One loop, in whose iterations tasks run different micro-batches, and its ramps.
  kLoops,  ///< Several loops one after another; each runs some tasks of all micro-batches.
};

/// Draws an order of the tasks of single blocks that respects the dependences of a step.
train::Order random_order(Dice& dice, OrderForm form, const train::StepDependences& step);

}  // namespace sluice::property
