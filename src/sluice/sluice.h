#pragma once
/// Everything a program that builds, trains and runs networks needs.
#include "sluice/devices/cpu_device.h"
#include "sluice/ir/call.h"
#include "sluice/ir/ir.h"
#include "sluice/ir/print.h"
#include "sluice/nn/nn.h"
#include "sluice/ops/ops.h"
#include "sluice/report/summary.h"
#include "sluice/session/session.h"
#include "sluice/train/schedule.h"
#include "sluice/train/throughput.h"
#include "sluice/train/training_step.h"
#include "sluice/transforms/autodiff.h"
