#include "sluice/train/options/option_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <limits>
#include <utility>

#include "sluice/base/options/option_file.h"
#include "sluice/data/feed_queues.h"
#include "sluice/ir/ir.h"
#include "sluice/session/option_table.h"
#include "sluice/train/pipeline/schedule.h"
#include "sluice/train/pipeline/stages.h"

namespace sluice::train {
namespace {

constexpr int64_t kMaxTrips = std::numeric_limits<int32_t>::max();  // Iterations of a loop.

// Sets the stages of a strategy that has stages.
void set_stages(Options& o, const OptionTexts& texts) {
  const Stages stages = parse_stages(texts);
  const auto set = [&](auto& strategy) {
    if constexpr (!std::is_same_v<std::decay_t<decltype(strategy)>, ResidentExecution>)
      strategy.stages = stages;
  };
  if (o.strategy) std::visit(set, *o.strategy);
}

std::string print_stages(const Options& o) {
  const Stages* const stages = o.strategy ? given_stages(*o.strategy) : nullptr;
  if (stages == nullptr) return "none";
  if (const int* number = std::get_if<int>(stages)) return fmt::format("{}", *number);
  std::string text;
  for (const Stage& stage : std::get<std::vector<Stage>>(*stages)) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", fmt::join(stage.blocks(), "+"),
                        stage.device() ? fmt::format(" on {}", *stage.device()) : "");
  }
  return text.empty() ? "blocks" : text;
}

template <typename Execution, typename AnyOptions>
auto* execution_of(AnyOptions& o) {
  return o.strategy ? std::get_if<Execution>(&*o.strategy) : nullptr;
}

TextForm<Strategy> strategies() {
  constexpr std::array kNames = {"resident", "phased", "sharded", "pipelined", "a function"};
  TextForm<size_t> form =
      forms::words<size_t>({{kNames[0], 0}, {kNames[1], 1}, {kNames[2], 2}, {kNames[3], 3}});
  return {form.type,
          form.placeholder,
          form.values,
          [=](const Strategy& s) { return std::string(kNames[s.index()]); },
          [parse = form.parse](const std::string& text) -> std::optional<Strategy> {
            const Strategy all[] = {resident(), phased(), ShardedExecution{}, PipelinedExecution{}};
            const std::optional<size_t> index = parse(text);
            return index ? std::optional(all[*index]) : std::nullopt;
          },
          form.words};
}

TextForm<Output> outputs() {
  constexpr std::string_view kPrefixes[] = {"every:", "every "};
  TextForm<Output> form = forms::words<Output>(
      {{"all", Output::all()}, {"final", Output::final()}, {"sum", Output::sum()}});
  form.placeholder = "MODE";
  form.values += ", every:N with N of at least 1";
  form.print = [print = form.print](const Output& output) {
    return output.mode == Output::Mode::kEvery ? fmt::format("every:{}", output.period)
                                               : print(output);
  };
  form.parse = [=, parse = form.parse](const std::string& text) -> std::optional<Output> {
    for (const std::string_view prefix : kPrefixes) {
      if (!text.starts_with(prefix)) continue;
      const auto period = read_integer<int64_t>(text.substr(prefix.size()));
      return period && *period > 0 ? std::optional(Output::every(*period)) : std::nullopt;
    }
    return parse(text);
  };
  return form;
}

TextForm<LearningRate> learning_rates() {
  constexpr std::string_view kFrom = "streamed from ";
  const TextForm<double> number = forms::floats({}, "RATE");
  return {OptionType::kNumber, number.placeholder,
          "default, streamed, streamed from a field, or " + number.values,
          [=](const LearningRate& rate) {
            if (rate.index() == 0) return std::string("default");
            if (const double* constant = std::get_if<double>(&rate)) return number.print(*constant);
            const std::string& field = std::get<StreamedRate>(rate).field;
            return field.empty() ? "streamed" : "streamed from " + field;
          },
          [=](const std::string& text) -> std::optional<LearningRate> {
            if (text == "default") return LearningRate();
            if (text == "streamed") return StreamedRate{};
            if (text.starts_with(kFrom)) return StreamedRate{text.substr(kFrom.size())};
            const std::optional<double> constant = number.parse(text);
            return constant ? std::optional<LearningRate>(*constant) : std::nullopt;
          }};
}

TextForm<AccumulatorDtype> accumulator_dtypes() {
  const TextForm<DType> dtypes = forms::words<DType>({{"f32", f32},
                                                      {"f16", f16},
                                                      {"bf16", bf16},
                                                      {"float32", f32},
                                                      {"float16", f16},
                                                      {"bfloat16", bf16}});
  return {dtypes.type,
          dtypes.placeholder,
          dtypes.values,
          [=](const AccumulatorDtype& dtype) {
            if (const DType* one = std::get_if<DType>(&dtype)) return dtypes.print(*one);
            return std::string(dtype.index() == 0 ? "the dtype of each variable" : "a function");
          },
          [=](const std::string& text) -> std::optional<AccumulatorDtype> {
            const std::optional<DType> one = dtypes.parse(text);
            return one ? std::optional<AccumulatorDtype>(*one) : std::nullopt;
          },
          dtypes.words};
}

std::string print_recompute(const Options& o) {
  if (o.recompute.all) return "all";
  return o.recompute.blocks.empty() ? "none"
                                    : fmt::format("{}", fmt::join(o.recompute.blocks, ", "));
}

// Adds an option that only C++ can set.
Option<Options>& add_object(OptionTable<Options>& t, const char* name, const char* help,
                            const char* value, bool (*is_set)(const Options& options)) {
  return t.add({name, OptionType::kText, "", help,
                [=](const Options& o) -> std::string { return is_set(o) ? value : "none"; }});
}

OptionTable<DeviceRates> rates_table() {
  const forms::Interval positive{.excludes_min = true};
  OptionTable<DeviceRates> t;
  t.add("flops", &DeviceRates::flops, forms::reals(positive),
        "Balance stages for X floating-point operations a second");
  t.add("copies", &DeviceRates::copies, forms::reals(positive),
        "Balance stages for copies of X bytes a second");
  t.add("messages", &DeviceRates::messages, forms::reals(positive),
        "Balance stages for messages of X bytes a second");
  t.add("latency", &DeviceRates::latency, forms::reals({}),
        "Balance stages for messages with X seconds of latency");
  t.add({"message_seconds", OptionType::kText, "", "Balance stages for messages of these seconds",
         [](const DeviceRates& r) -> std::string {
           return r.message_seconds ? "a function" : "none";
         }});
  return t;
}

OptionTable<TensorLocations> locations_table() {
  using L = TensorLocations;
  const TextForm<Location> location =
      forms::words<Location>({{"device", Location::kDevice}, {"remote", Location::kRemote}});
  OptionTable<L> t;
  t.add("optimizer", &L::optimizer, location, "Keep the optimizer's state in this memory");
  t.add("weights", &L::weights, location, "Keep weights and running variables in this memory");
  t.add("activations", &L::activations, location,
        "Keep activations in this memory until their gradients");
  t.add("accumulators", &L::accumulators, location,
        "Keep accumulated gradients in this memory until the update");
  t.add("min_elements_off_device", &L::min_elements_off_device, forms::integers<int64_t>(0),
        "Keep tensors of fewer than N elements on the device")
      .named("--offload-threshold");
  t.add("min_elements_sharded", &L::min_elements_sharded,
        forms::or_word("inf", nn::kNeverShard, forms::integers<int64_t>(0), "never"),
        "Shard the state of weights of at least N elements over the replicas")
      .named("--shard-threshold");
  return t;
}

// Adds the strategy and the options of its alternatives.
void add_strategy(OptionTable<Options>& t) {
  t.add("strategy", &Options::strategy, strategies(),
        "Run the model at once, block by block in phases, or in stages on several devices",
        "automatic");
  t.add({"stages", OptionType::kList, "BLOCKS",
         "Cut the model into these stages, for example B1+B2,B3, or into a number of stages of "
         "about equal time",
         print_stages, set_stages})
      .require({"{strategy} phased, pipelined or sharded", [](const Options& o) {
                  return o.strategy && !execution_of<ResidentExecution>(o);
                }});
  const auto add = [&]<typename Execution, typename T>(const char* name, T Execution::*member,
                                                       const TextForm<T>& form, const char* help,
                                                       const char* strategy) {
    t.add({name, form.type, form.placeholder, help,
           [=](const Options& o) {
             const auto* e = execution_of<Execution>(o);
             return e == nullptr ? std::string("none") : form.print(e->*member);
           },
           [=](Options& o, const OptionTexts& texts) {
             Execution unused;
             Execution* const execution = execution_of<Execution>(o);
             forms::assign((execution == nullptr ? unused : *execution).*member, form, texts);
           }})
        .require(
            {strategy, [](const Options& o) { return execution_of<Execution>(o) != nullptr; }});
  };
  add("schedule", &PipelinedExecution::schedule,
      forms::words<Schedule>({{"grouped", Schedule::kGrouped},
                              {"interleaved", Schedule::kInterleaved},
                              {"sequential", Schedule::kSequential},
                              {"auto", Schedule::kAuto}}),
      "Run the micro-batches of a pipeline in this order", "{strategy} pipelined");
  add("group", &PhasedExecution::group,
      forms::or_word<int64_t>("all", 0, forms::integers<int64_t>(1)),
      "Run N micro-batches through a block before the next block", "{strategy} phased");
}

// A list of texts; "none" for an empty one.
template <typename T>
Option<T>& add_texts(OptionTable<T>& t, const char* name, std::vector<std::string> T::*member,
                     const char* placeholder, const char* help) {
  return t.add({name, OptionType::kList, placeholder, help,
                [=](const T& o) {
                  const std::vector<std::string>& all = o.*member;
                  return all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", "));
                },
                [=](T& o, const OptionTexts& texts) {
                  o.*member = texts == OptionTexts{"none"} ? OptionTexts() : texts;
                }});
}

void add_gradients(OptionTable<Options>& t) {
  t.add("learning_rate", &Options::learning_rate, learning_rates(),
        "Set the learning rate; streamed: the program reads it from a stream")
      .that_decides_bits();
  t.add("accumulation_reduction", &Options::accumulation_reduction,
        forms::words<Accumulation>({{"sum", Accumulation::kSum},
                                    {"mean", Accumulation::kMean},
                                    {"running_mean", Accumulation::kRunningMean}}),
        "Reduce gradients over micro-batches by this")
      .that_decides_bits()
      .require({"{accumulate} of at least 2", [](const Options& o) { return o.accumulate > 1; },
                nullptr, false});
  t.add("replica_reduction", &Options::replica_reduction,
        forms::words<ReplicaReduction>(
            {{"sum", ReplicaReduction::kSum}, {"mean", ReplicaReduction::kMean}}),
        "Reduce gradients over replicas by this")
      .that_decides_bits()
      .require({"{replicas} of at least 2", [](const Options& o) { return o.replicas > 1; },
                nullptr, false});
  t.add("accumulator_dtype", &Options::accumulator_dtype, accumulator_dtypes(),
        "Accumulate gradients in this dtype")
      .that_decides_bits();
  add_object(t, "gradient_hook", "Build ops that change the gradient of each weight", "a function",
             [](const Options& o) { return o.gradient_hook != nullptr; })
      .that_decides_bits();
  t.add("max_grad_norm", &Options::max_grad_norm, forms::floats({}, "NORM"),
        "Scale all gradients so that their norm is at most NORM", "none")
      .named("--clip-norm")
      .that_decides_bits();
  t.add("ema_decay", &Options::ema_decay, forms::floats({.max = 1, .excludes_max = true}, "DECAY"),
        "Evaluate exponential moving averages (EMA) of the weights with this decay", "none")
      .that_decides_bits();
  add_texts(t, "freeze", &Options::freeze, "PATTERNS",
            "Freeze weights by patterns of their paths, for example embedding.*")
      .that_decides_bits();
}

OptionTable<Watch> watch_table() {
  OptionTable<Watch> t;
  add_texts(t, "gradients", &Watch::gradients, "PATTERNS",
            "Watch the gradients of weights, by patterns of their paths, for example encoder.*")
      .named("--watch-gradients");
  add_texts(t, "values", &Watch::values, "PATTERNS",
            "Watch the tensors that submodules return, by patterns of their paths")
      .named("--watch-values");
  t.add("every", &Watch::every, forms::integers<int64_t>(1), "Watch every Nth call")
      .named("--watch-every");
  return t;
}

OptionTable<Options> make_options_table() {
  OptionTable<Options> t;
  add_strategy(t);
  for (const Option<DeviceRates>& rate : rates_table())
    t.add_member("rates.", &Options::rates, rate)
        .require({"{strategy} with stages", [](const Options& o) {
                    return o.strategy && given_stages(*o.strategy) != nullptr;
                  }});
  t.add("accumulate", &Options::accumulate, forms::integers<int64_t>(1, kMaxTrips),
        "Accumulate the gradients of N micro-batches for each update")
      .that_decides_bits();
  t.add("device_iterations", &Options::device_iterations, forms::integers<int64_t>(1, kMaxTrips),
        "Run N updates in a call of the program")
      .that_decides_bits();
  t.add("replicas", &Options::replicas, forms::integers<int>(1, kMaxReplicas),
        "Train N replicas, each on samples of its own")
      .that_decides_bits();
  t.add("output", &Options::output, outputs(),
        "Return the results of all micro-batches of a call, of the final one, their sum, or those "
        "of every:N, each Nth update",
        "default")
      .named("--output-mode")
      .that_decides_bits();
  add_object(t, "infeed", "Read micro-batches from this queue", "a queue",
             [](const Options& o) { return o.infeed != nullptr; });
  t.add("prefetch", &Options::prefetch, forms::integers<int>(0, data::kMaxPrefetchDepth),
        "Let a thread read N micro-batches of each replica ahead of a training; 0: read between "
        "calls");
  add_object(t, "outfeed", "Write results to this queue", "a queue",
             [](const Options& o) { return o.outfeed != nullptr; });
  t.add_members("locations", &Options::locations, locations_table());
  t.add("offload", &Options::offload,
        forms::words<Offload>({{"given", Offload::kGiven}, {"automatic", Offload::kAutomatic}}),
        "Offload the tensors of locations, or more until the program fits");
  t.add("io_mode", &Options::io_mode,
        forms::words<IoMode>({{"compute", IoMode::kCompute},
                              {"io", IoMode::kIo},
                              {"io_overlapped", IoMode::kIoOverlapped}}),
        "Run transfers on the compute queue (compute), on an I/O queue (io), or overlapped with "
        "neighbouring blocks (io_overlapped)");
  t.add({"recompute", OptionType::kList, "NAMES",
         "Recompute the activations of all blocks, or of these, instead of keeping them",
         print_recompute, [](Options& o, const OptionTexts& texts) {
           const bool all = texts == OptionTexts{"all"};
           o.recompute = {all, all || texts == OptionTexts{"none"} ? OptionTexts() : texts};
         }});
  add_gradients(t);
  for (const Option<Watch>& option : watch_table()) {
    Option<Options>& added = t.add_member("watch.", &Options::watch, option);
    if (option.name == "every")
      added.require({"{watch.gradients} or values",
                     [](const Options& o) { return !o.watch.empty(); },
                     [](const Options&) { return std::string("none of them"); }});
  }
  t.add("seed", &Options::seed, forms::integers<uint64_t>(0),
        "Draw first weights, the samples' order and dropout from this seed")
      .that_decides_bits();
  t.add_members("session", &Options::session, session_table());
  return t;
}

}  // namespace

const OptionTable<Options>& options_table() {
  static const OptionTable<Options> table = make_options_table();
  return table;
}

std::string_view to_string(ReplicaReduction reduction) {
  return reduction == ReplicaReduction::kSum ? "sum" : "mean";
}

Output parse_output(std::string_view text) {
  const TextForm<Output> form = outputs();
  const std::optional<Output> output = form.parse(std::string(text));
  require(output.has_value(), "output: must be {}, got '{}'", form.values, text);
  return *output;
}

std::string to_string(const Options& options) { return options_table().print(options); }

Options read_options(const std::string& path, const Options& defaults) {
  Options options = defaults;
  read_option_file(path, options_table(), options);
  return options;
}

}  // namespace sluice::train
