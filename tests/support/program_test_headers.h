#pragma once
/// Headers that CMake precompiles for the tests of whole programs. No file includes this one.
#include "layer_test_headers.h"
#include "sluice/interp/interpreter.h"
#include "sluice/sluice.h"
