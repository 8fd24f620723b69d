#include "sluice/data/cifar.h"
#include "sluice/data/synthetic_objects.h"
#include "sluice/models/model.h"

namespace sluice::models {

const Data kObjects{.name = "objects",
                    .missing = "no CIFAR-10 files found (--data, $SLUICE_DATA, data/cifar10)",
                    .find = data::find_cifar,
                    .load = data::load_cifar,
                    .generate = data::synthetic_objects};

}  // namespace sluice::models
