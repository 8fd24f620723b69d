#include "sluice/train/metrics/call_loss.h"

namespace sluice::train {
namespace {

// Adds the entries of all replicas.
double sum_of_entries(const HostTensor& array) {
  double sum = 0;
  for (const float x : array.as<float>()) sum += static_cast<double>(x);
  return sum;
}

}  // namespace

double CallLoss::mean(size_t loss) const {
  const size_t losses = training_.losses.size();
  const std::vector<HostTensor>& sums = calls_.loss_sums();
  if (sums.empty()) {
    const HostTensor& entries = calls_.arrays()[loss];
    const auto count = static_cast<double>(entries.elements() * training_.loss_micro_batches[loss]);
    return sum_of_entries(entries) / count;
  }
  const CallSize& size = calls_.size();
  const double weight = sums.size() > losses
                            ? sum_of_entries(sums[losses])
                            : static_cast<double>(size.samples() / size.micro_batch);
  return weight == 0 ? 0 : sum_of_entries(sums[loss]) / weight;
}

double CallLoss::total() const {
  double total = 0;
  for (size_t i = 0; i < training_.losses.size(); ++i) total += training_.loss_weights[i] * mean(i);
  return total;
}

}  // namespace sluice::train
