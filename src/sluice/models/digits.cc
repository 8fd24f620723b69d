#include "sluice/data/synthetic_digits.h"
#include "sluice/models/model.h"

namespace sluice::models {

const Data kDigits{.name = "digits",
                   .missing = "no MNIST files found (--data, $SLUICE_DATA, data/mnist)",
                   .find = data::find_mnist,
                   .load = data::load_mnist,
                   .generate = data::synthetic_digits};

}  // namespace sluice::models
