#pragma once
/// Everything a program that builds and runs graphs needs: without modules, gradients and training.
#include "sluice/devices/cpu_device.h"
#include "sluice/ir/call.h"
#include "sluice/ir/ir.h"
#include "sluice/ops/ops.h"
#include "sluice/report/summary.h"
#include "sluice/session/session.h"
