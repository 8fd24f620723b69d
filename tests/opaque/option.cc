#include "choice.h"
#include "sluice/devices/opaque_device.h"

// Gives the tool that links this file the option --opaque.

namespace sluice {

static const bool kHasOption = [] {
  make_opaque_device = opaque::choice;
  return true;
}();

}  // namespace sluice
