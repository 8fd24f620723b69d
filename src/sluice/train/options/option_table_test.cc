#include "sluice/train/options/option_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "sluice/base/test_refusals.h"

namespace sluice::train {
namespace {

std::string file_of(const std::string& text) {
  const std::string path = testing::TempDir() + "options_test.json";
  std::ofstream(path) << text;
  return path;
}

std::string line_of(const Options& options, const std::string& name) {
  const std::string text = "\n" + to_string(options);
  const size_t begin = text.find("\n" + name + "=") + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(Options, ArePrintedWithThoseThatChanged) {
  EXPECT_EQ(to_string(Options()).find("changed"), std::string::npos);
  Options options{.strategy = pipelined(Stage("B1", "B2").device(0), Stage("B3").device(2)),
                  .accumulate = 10,
                  .output = Output::every(5)};
  options.locations.optimizer = Location::kRemote;
  EXPECT_EQ(line_of(options, "strategy"), "strategy=pipelined (changed)");
  EXPECT_EQ(line_of(options, "stages"), "stages=B1+B2 on 0, B3 on 2 (changed)");
  EXPECT_EQ(line_of(options, "accumulate"), "accumulate=10 (changed)");
  EXPECT_EQ(line_of(options, "device_iterations"), "device_iterations=1");
  EXPECT_EQ(line_of(options, "output"), "output=every:5 (changed)");
  EXPECT_EQ(line_of(options, "locations.optimizer"), "locations.optimizer=remote (changed)");
  const std::string text = to_string(options);
  EXPECT_EQ(std::count(text.begin(), text.end(), '('), 6) << text;  // The schedule, too.
}

// Every name that a file may have, with a value that is not the default.
TEST(Options, AreReadFromAFile) {
  const Options options = read_options(file_of(R"({
    "strategy": "pipelined", "stages": ["B1+B2", "B3"], "schedule": "interleaved",
    "rates": {"flops": 1e9, "copies": 2e9, "messages": 3e9, "latency": 1},
    "accumulate": 10, "device_iterations": 4, "replicas": 2, "output": "every 2", "prefetch": 3,
    "locations": {"optimizer": "remote", "weights": "remote", "activations": "remote",
                  "accumulators": "remote", "min_elements_off_device": 7,
                  "min_elements_sharded": 8192},
    "offload": "automatic", "io_mode": "io_overlapped", "recompute": ["B1"], "learning_rate": 0.001,
    "accumulation_reduction": "sum", "replica_reduction": "sum", "accumulator_dtype": "float16",
    "max_grad_norm": 1.5, "ema_decay": 0.5, "freeze": ["a.*"], "seed": 18446744073709551615,
    "watch": {"gradients": ["b.*"], "values": ["c"], "every": 4},
    "session": {"device": {"memory": 1000, "threads": 3}, "remote": "file:/tmp",
                "remote_memory": 2000, "remote_bandwidth": 3000, "remote_direct": true,
                "verify_remote": true, "stop_deadline": 1, "events": 5, "profile": "/tmp",
                "print_after": "all", "feed_deadline": 2, "io_queues": 3,
                "disable": ["fusion"], "verify": true, "proof": "trust"}})"));
  const std::string text = to_string(options);
  size_t unchanged = 0;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    if (line.find("(changed)") == line.npos) {
      EXPECT_TRUE(line == "gradient_hook=none" || line == "infeed=none" || line == "outfeed=none" ||
                  line == "group=none" || line == "rates.message_seconds=none");
      ++unchanged;
    }
  }
  EXPECT_EQ(unchanged, 5u);
  const auto& strategy = std::get<PipelinedExecution>(*options.strategy);
  EXPECT_EQ(strategy.schedule, Schedule::kInterleaved);
  EXPECT_EQ(std::get<std::vector<Stage>>(strategy.stages)[0].blocks(),
            (std::vector<std::string>{"B1", "B2"}));
  EXPECT_EQ(options.accumulate, 10);
  EXPECT_EQ(options.output, Output::every(2));
  EXPECT_EQ(options.locations.min_elements_sharded, 8192);
  EXPECT_EQ(options.offload, automatic);
  EXPECT_EQ(options.io_mode, IoMode::kIoOverlapped);
  EXPECT_EQ(std::get<double>(options.learning_rate), 0.001);
  EXPECT_EQ(std::get<DType>(options.accumulator_dtype), f16);
  EXPECT_EQ(options.ema_decay, 0.5);
  EXPECT_EQ(options.freeze, std::vector<std::string>{"a.*"});
  EXPECT_EQ(options.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(options.session.device.memory, 1000);
  EXPECT_TRUE(options.session.remote_direct);
}

// A text that is not the default of an option.
OptionTexts other_texts(const Option<Options>& option) {
  const std::string& words = option.placeholder;
  if (option.type == OptionType::kFlag) return {"true"};
  if (option.type == OptionType::kInteger || option.type == OptionType::kNumber) return {"3"};
  const std::string first = words.substr(0, words.find('|'));
  return {first == option.print(Options()) ? words.substr(words.rfind('|') + 1) : first};
}

TEST(Options, AreRefusedWithoutTheirPrerequisites) {
  int tested = 0;
  for (const Option<Options>& option : options_table()) {
    for (const Requirement<Options>& r : option.requirements) {
      if (option.read == nullptr) continue;  // Only C++ can set it.
      ++tested;
      Options options;
      expect_refused({{option.name,
                       [&] {
                         options_table().set(option, options, other_texts(option),
                                             OptionNames::kMembers);
                       },
                       option.name + " requires " +
                           options_table().text_of(r, OptionNames::kMembers) + " (it is "}});
    }
  }
  EXPECT_GE(tested, 8);
}

TEST(Options, OfAFileAreAddedToOthers) {
  const Options usual{.accumulate = 3, .device_iterations = 5};
  const Options options = read_options(file_of(R"({"accumulate": 4, "stages": 3,
                                                   "strategy": "sharded"})"),
                                       usual);
  EXPECT_EQ(options.accumulate, 4);
  EXPECT_EQ(options.device_iterations, 5);
  EXPECT_EQ(std::get<int>(std::get<ShardedExecution>(*options.strategy).stages), 3);
  EXPECT_FALSE(read_options(file_of("{}")).strategy.has_value());
}

TEST(Options, BadFilesAreRefused) {
  const auto bad = [](const std::string& text, const std::string& part) {
    return Refusal{text, [text] { read_options(file_of(text)); }, part, ErrorKind::kBadFile};
  };
  expect_refused({
      bad("{", "options_test.json: must be JSON, got: "),
      bad("[1]", "must be an object of options, got array"),
      bad(R"({"accumulat": 2})", "an option must be one of strategy, stages, schedule, "),
      bad(R"({"accumulat": 2})", "got 'accumulat'"),
      bad(R"({"gradient_hook": "clip"})", "got 'gradient_hook'"),
      bad(R"({"accumulate": "ten"})", "accumulate: must be an integer from "),
      bad(R"({"accumulate": 1.5})", "got '1.5'"),
      bad(R"({"replicas": 4294967296})", "replicas: must be an integer from "),
      bad(R"({"seed": -1})", "seed: must be an integer from 0 to "),
      bad(R"({"strategy": "fast"})",
          "strategy: must be one of resident, phased, sharded, pipelined, got 'fast'"),
      bad(R"({"stages": 2})",
          "stages requires strategy phased, pipelined or sharded (it is automatic)"),
      bad(R"({"schedule": "grouped"})", "schedule requires strategy pipelined (it is automatic)"),
      bad(R"({"strategy": "pipelined", "schedule": "x"})", "schedule: "),
      bad(R"({"output": "every 0"})",
          "output: must be one of all, final, sum, every:N with N of at least 1, got"),
      bad(R"({"locations": {"weights": "disk"}})",
          "locations.weights: must be one of device, remote, got 'disk'"),
      bad(R"({"offload": "auto"})", "offload: must be one of given, automatic, got 'auto'"),
      bad(R"({"locations": 3})", "got 'locations'"),
      bad(R"({"session": {"verify": 1}})", "session.verify: must be one of false, true, got '1'"),
      bad(R"({"accumulator_dtype": "float8"})", "accumulator_dtype: "),
      bad(R"({"ema_decay": 1})",
          "ema_decay: must be a finite float32 number from 0 to below 1, got '1'"),
      bad(R"({"recompute": ["B1", 1]})", "recompute: must be a list of strings, got"),
      bad(R"({"learning_rate": true})",
          "learning_rate: must be default, streamed, streamed from a field, or a finite float32 "
          "number of at least 0, got 'true'"),
      bad(R"({"a": {"b": {"c": {"d": {"e": 1}}}}})", "got 'a.b.c.d'"),
  });
  expect_refused({{"no file", [] { read_options("/nonexistent/x.json"); }, "/nonexistent/x.json",
                   ErrorKind::kIo}});
}

TEST(Outputs, HaveWords) {
  EXPECT_EQ(parse_output("all"), Output::all());
  EXPECT_EQ(parse_output("final"), Output::final());
  EXPECT_EQ(parse_output("sum"), Output::sum());
  EXPECT_EQ(parse_output("every:12"), Output::every(12));
  EXPECT_EQ(parse_output("every 12"), Output::every(12));
  for (const char* text : {"", "every", "every ", "every:", "every -1", "every 1x", "every:0",
                           "every 99999999999999999999"}) {
    expect_refused({{text, [text] { parse_output(text); },
                     "output: must be one of all, final, sum, every:N"}});
  }
}

}  // namespace
}  // namespace sluice::train
