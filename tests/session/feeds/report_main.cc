// Runs a program with an infeed and an outfeed, and writes report.json and report.html to a folder.
// Prints the elements that the functions of the source and of the sink have counted themselves.
// tests/cli/feeds_test.py reads all three.

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "sluice/base/sys.h"
#include "sluice/core.h"
#include "sluice/report/report.h"

namespace {

using namespace sluice;

// Sleeps for 2 ms before each element.
struct Source : FeedSource {
  bool next(std::span<const ArrayView> fields) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (const ArrayView& field : fields) std::fill_n(field.data, field.spec.bytes(), std::byte{0});
    ++made;
    return true;
  }
  std::atomic<int64_t> made{0};
};

struct Sink : FeedSink {
  void take(std::span<const ConstArrayView>) override { ++taken; }
  std::atomic<int64_t> taken{0};
};

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    sys::write_stderr("usage: feed_report DIR\n");
    return 2;
  }
  const TensorSpec spec{{3}, f32, {}};
  Ir ir;
  const Infeed in = ir.infeed("samples", {{"x", spec}}, {.prefetch_depth = 2});
  const Outfeed out = ir.outfeed("results", {{"sum", spec}}, {.depth = 4});
  Graph& body = ir.create_empty_graph("body");
  const Tensor sum = body.input(spec, "v") + body.dequeue(in)[0];
  body.enqueue(out, Tensors{sum});
  body.add_output(sum);
  Graph& main = ir.main_graph();
  main.host_store(ops::repeat(main, body, 50, {main.constant(HostTensor(spec), "zero")})[0], "out");

  Session session(ir, {.device = cpu_device({.threads = 1})});
  const auto source = std::make_shared<Source>();
  const auto sink = std::make_shared<Sink>();
  session.bind_feed(in, source);
  session.bind_feed(out, sink);
  for (int run = 0; run < 2; ++run) session.run();
  // The source fills its ring after the last run.
  while (session.feed_statistics()[0].moved < 102) std::this_thread::yield();

  report::Report report = report::make_report(session.executable(), {});
  report.model = "feeds";
  report.machine = "default rates";
  report.feeds = session.feed_statistics();
  write(std::string(argv[1]) + "/report.json", report::to_json(report));
  write(std::string(argv[1]) + "/report.html", report::to_html(report));
  fmt::print("{} {}\n", source->made.load(), sink->taken.load());
}
