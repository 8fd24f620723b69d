#pragma once

/// Models: modules and their graphs, named variables, layers, losses, optimizers.

#include "sluice/nn/autodiff.h"
#include "sluice/nn/batch_serialise.h"
#include "sluice/nn/dot_tree.h"
#include "sluice/nn/graph_cache.h"
#include "sluice/nn/graph_with_named_args.h"
#include "sluice/nn/layers.h"
#include "sluice/nn/losses.h"
#include "sluice/nn/module.h"
#include "sluice/nn/named_tensors.h"
#include "sluice/nn/optimizers.h"
#include "sluice/nn/remote.h"
#include "sluice/nn/rts.h"
#include "sluice/nn/variable_factory.h"
