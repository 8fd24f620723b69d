#include "sluice/data/synthetic_digits.h"
#include "sluice/models/labelled.h"

namespace sluice::models {

const Data kDigits{.name = "digits",
                   .missing = "no MNIST files found (--data, $SLUICE_DATA, data/mnist)",
                   .find = data::find_mnist,
                   .load = load_labelled<data::load_mnist>,
                   .generate = generate_labelled<data::synthetic_digits>};

}  // namespace sluice::models
