#include "bench/cases/one_operator.h"

namespace sluice::bench {

void keep(const Tensor& t) {
  const Tensor first = t.elements() == 1 ? t : ops::slice(ops::flatten_(t), {0}, {1});
  t.graph().host_store(first, "first");
}

OneOperator::OneOperator(const std::function<void(Graph& main)>& build, int64_t held, int threads)
    : threads_(threads), copied_(held / 2), from_(copied_), to_(copied_) {
  build(ir_.main_graph());
  session_ =
      std::make_unique<Session>(ir_, SessionOptions{.device = cpu_device({.threads = threads})});
  std::vector<StreamOutput> outputs;
  for (int32_t i = 0; i < ir_.stream_count(); ++i) {
    const StreamInfo& info = ir_.stream(i);
    first_ = HostTensor(info.spec);
    outputs.push_back({{ir_.id(), i, info.name, info.spec}, first_});
  }
  binding_ = session_->bind({}, outputs);
}

Round OneOperator::measure(Machine& machine, double moved, double seconds) {
  constexpr int kSamples = 2;
  std::vector<double> times, limits;
  for (int i = 0; i < kSamples; ++i) {
    const double copy =
        machine.copy_seconds(CopyWith::kMemcpy, from_, to_, copied_, threads_, seconds);
    limits.push_back(copy * moved / (2.0 * static_cast<double>(copied_)));
    times.push_back(seconds_a_call(seconds, [&] { session_->run_into(binding_); }));
  }
  return Round{median(times), median(limits)};
}

}  // namespace sluice::bench
