#include "sluice/train/checkpoints/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "sluice/base/error.h"
#include "sluice/base/hash.h"
#include "sluice/base/options/option_file.h"
#include "sluice/base/options/read_number.h"

namespace sluice::train {
namespace {

constexpr const char* kOptions = "options";

template <typename Member>
void add_count(OptionTable<Run>& table, const char* name, Member member, const char* help) {
  constexpr int64_t kMaxCount = int64_t{1} << 53;  // Sums of two counts do not overflow.
  table.add(name, member, forms::integers<int64_t>(0, kMaxCount), help);
}

// Any number, as text, as JSON has no infinity.
TextForm<double> all_numbers() {
  return {OptionType::kText, "X", "a number",
          [](const double& value) { return fmt::format("{}", value); },
          [](const std::string& text) -> std::optional<double> {
            constexpr double kInfinity = std::numeric_limits<double>::infinity();
            if (text == "inf") return kInfinity;
            if (text == "-inf") return -kInfinity;
            return read_real(text);
          }};
}

TextForm<std::string> log_names() {
  TextForm<std::string> form = forms::texts("NAME");
  form.values = "'.' or run-N";
  form.parse = [](const std::string& text) -> std::optional<std::string> {
    const bool numbered =
        text.starts_with("run-") && read_integer<int64_t>(text.substr(4)).value_or(0) > 0;
    return text == "." || numbered ? std::optional(text) : std::nullopt;
  };
  return form;
}

OptionTable<Run> make_table() {
  OptionTable<Run> t;
  t.add("id", &Run::id, forms::texts("ID"), "Random name of the run");
  add_count(t, "updates", &Run::updates, "Updates of the run");
  add_count(t, "calls", &Run::calls, "Calls of the model");
  add_count(t, "micro_batches", &Run::micro_batches, "Micro-batches of all replicas");
  add_count(t, "samples", &Run::samples, "Samples of all replicas");
  add_count(t, "epoch", &Run::epoch, "Number of the epoch, from 0");
  add_count(t, "epoch_samples", &Run::epoch_samples, "Samples since the begin of the epoch");
  const auto of_data = [](auto member) { return member_path(&Run::data, member); };
  add_count(t, "data.samples", of_data(&DataOrder::samples), "Samples of an epoch");
  t.add("data.shuffled", of_data(&DataOrder::shuffled), forms::flags(),
        "Whether each epoch has an order of its own");
  t.add("data.seed", of_data(&DataOrder::seed), forms::integers<uint64_t>(0),
        "Seed of the order of the data");
  t.add("data.fields", of_data(&DataOrder::fields), forms::texts("TEXT"),
        "Names and specs of the fields of a sample");
  t.add("data.hash", of_data(&DataOrder::hash), forms::texts("HASH"),
        "XXH3-128 of samples spread over epoch 0");
  t.add("seed", &Run::seed, forms::integers<uint64_t>(0), "Seed of random operators");
  t.add("learning_rate", &Run::learning_rate, forms::reals({}), "Learning rate of the last update");
  t.add({"coefficients", OptionType::kList, "NUMBERS", "Streamed coefficients of the last update",
         [](const Run& run) { return fmt::format("{}", fmt::join(run.coefficients, ", ")); },
         [](Run& run, const OptionTexts& texts) {
           for (const std::string& text : texts)
             run.coefficients.push_back(parse_value("coefficients", all_numbers(), text));
         }});
  const auto of_plateau = [](auto member) { return member_path(&Run::plateau, member); };
  t.add("plateau.best", of_plateau(&PlateauState::best), all_numbers(),
        "Best value of the validations");
  add_count(t, "plateau.bad", of_plateau(&PlateauState::bad), "Values since the last improvement");
  add_count(t, "plateau.cooldown", of_plateau(&PlateauState::cooldown),
            "Values until bad values count again");
  t.add("plateau.factor", of_plateau(&PlateauState::factor), forms::reals({}),
        "Product of the reductions of the learning rate");
  const auto of_best = [](auto member) { return member_path(&Run::best, member); };
  t.add("best.metric", of_best(&BestValidation::metric), forms::texts("NAME"),
        "Metric of the validations that is compared");
  t.add("best.value", of_best(&BestValidation::value), all_numbers(),
        "Best value of a metric of the validations");
  add_count(t, "best.updates", of_best(&BestValidation::updates), "Updates before it");
  add_count(t, "best.bad", of_best(&BestValidation::bad), "Validations since then");
  add_count(t, "losses", &Run::losses, "Losses that calls returned");
  t.add("losses_hash", &Run::losses_hash, forms::texts("HASH"), "Hash chain over the losses");
  t.add("log", &Run::log, log_names(), "Name of its log in the folder for logs");
  t.add({kOptions, OptionType::kList, "OPTIONS", "Options that decide the bits",
         [](const Run&) { return std::string(); },
         [](Run& run, const OptionTexts& texts) {
           for (const std::string& text : texts) {
             const size_t is = text.find('=');
             require(is != text.npos && is > 0, "must be NAME=VALUE, got '{}'", text);
             run.options.emplace_back(text.substr(0, is), text.substr(is + 1));
           }
         }});
  return t;
}

const OptionTable<Run>& run_table() {
  static const OptionTable<Run> table = make_table();
  return table;
}

OptionTexts options_of(const Run& run) {
  OptionTexts texts;
  for (const auto& [name, value] : run.options) texts.push_back(name + "=" + value);
  return texts;
}

}  // namespace

std::string Run::options_hash() const {
  Digest digest;
  for (const std::string& text : options_of(*this))
    digest.add(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
  return digest.hex();
}

std::string to_json(const Run& run) {
  const Run defaults;
  std::vector<OptionValue> values;
  for (const Option<Run>& o : run_table()) {
    const std::string text = o.print(run);
    if (o.name == kOptions) {
      values.push_back({o.name, o.type, options_of(run)});
    } else if (o.name == "coefficients") {
      OptionTexts numbers;
      for (const double c : run.coefficients) numbers.push_back(fmt::format("{}", c));
      if (!numbers.empty()) values.push_back({o.name, o.type, numbers});
    } else if (text != o.print(defaults)) {
      values.push_back({o.name, o.type, {text}});
    }
  }
  return to_json(values);
}

Run read_run(const std::string& path) {
  Run run;
  read_option_file(path, run_table(), run);
  return run;
}

}  // namespace sluice::train
