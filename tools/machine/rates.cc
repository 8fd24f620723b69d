#include "tools/machine/rates.h"

#include <fmt/core.h>

#include <algorithm>

#include "bench/machine.h"
#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"
#include "tools/machine/measure.h"
#include "tools/programs.h"

namespace sluice::tool {
namespace {

constexpr int kRateSamples = 3;
constexpr int64_t kCopied = int64_t{8} << 20;
constexpr int64_t kFileBytes = int64_t{4} << 20;
constexpr int64_t kPiece = int64_t{1} << 20;

// Bytes a second that a file is written with, and read.
double file_rate(const std::string& folder, sys::PageCache cache) {
  const bench::Memory memory(kPiece);
  const sys::File file = sys::scratch_file(folder, kFileBytes, cache);
  const std::string name = "a file in " + folder;
  const double begin = bench::seconds_now();
  for (int64_t at = 0; at < kFileBytes; at += kPiece)
    sys::write_exactly(file, name, at, {memory.bytes(), kPiece});
  for (int64_t at = 0; at < kFileBytes; at += kPiece)
    sys::read_exactly(file, name, at, {memory.bytes(), kPiece});
  return 2 * static_cast<double>(kFileBytes) / (bench::seconds_now() - begin);
}

// The rates of a worker.
struct WorkerRates {
  double flops = 0;
  double copies = 0;
};

WorkerRates measure_worker() {
  bench::Machine machine(cpu::current_isa());
  const bench::Memory from(kCopied), to(kCopied);
  WorkerRates rates;
  double seconds = 1;
  for (int i = 0; i < kRateSamples;
       ++i) {  // Keep the best sample: other processes may use the machine
               // too.
    rates.flops = std::max(rates.flops, machine.peak(1));
    seconds = std::min(seconds,
                       machine.copy_seconds(bench::CopyWith::kMemcpy, from, to, kCopied, 1, 2e-3));
  }
  rates.copies = static_cast<double>(kCopied) / seconds;
  return rates;
}

}  // namespace

MachineRates measure_rates(const ToolOptions& o) {
  if (!o.machine.empty()) return rates_of_machine(o);
  const SessionOptions session = session_options(o);
  // Measured once, so that the plans of a sweep can be compared.
  static const WorkerRates worker = measure_worker();
  MachineRates result;
  report::Rates& rates = result.rates;
  rates.threads = compile_options(session).devices[exe::DeviceId(0)].threads;
  rates.flops = worker.flops;
  rates.copies = worker.copies;
  const std::string folder = remote_folder(session.remote);
  std::string source = "as copies in host memory";
  rates.remote = rates.copies;
  if (o.step.session.remote_bandwidth >= 0) {
    rates.remote = static_cast<double>(o.step.session.remote_bandwidth);
    source = "by --remote-bandwidth";
  } else if (!folder.empty()) {
    const auto cache =
        o.step.session.remote_direct ? sys::PageCache::kBypass : sys::PageCache::kUse;
    try {
      rates.remote = file_rate(folder, cache);
      source = fmt::format("measured on a file of {} MiB", kFileBytes >> 20);
    } catch (const Error& e) {  // A plan may be made on another machine.
      source += fmt::format(", as it {}", e.what());
    }
  }
  result.text =
      fmt::format("{:.1f} GF/s and copies of {:.2f} GB/s a worker, remote memory {:.3g} GB/s {}",
                  rates.flops / 1e9, rates.copies / 1e9, rates.remote / 1e9, source);
  return result;
}

}  // namespace sluice::tool
