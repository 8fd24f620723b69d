#include "sluice/data/cifar.h"
#include "sluice/data/synthetic_objects.h"
#include "sluice/models/labelled.h"

namespace sluice::models {

const Data kObjects{.name = "objects",
                    .missing = "no CIFAR-10 files found (--data, $SLUICE_DATA, data/cifar10)",
                    .find = data::find_cifar,
                    .load = load_labelled<data::load_cifar>,
                    .generate = generate_labelled<data::synthetic_objects>};

}  // namespace sluice::models
