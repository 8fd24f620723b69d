#include "sluice/cpu/vector_kernels_inl.h"
#include "sluice/ops/functors.h"

using namespace sluice::ops::functor;  // NOLINT: a list of names

SLUICE_MAP_KERNELS(
    std::tuple<Add, Sub, Mul, Div, Max, Min, Neg, Abs, AbsGrad, Sqrt, SqrtGrad, Exp, Log>)
SLUICE_MAP_KERNELS(std::tuple<Relu, ReluGrad, Gelu, GeluGrad, GeluErf, GeluErfGrad, Swish,
                              SwishGrad, Sigmoid, SigmoidGrad, Tanh, TanhGrad, Clip, ClipGrad>)
