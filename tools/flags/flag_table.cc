#include "tools/flags/flag_table.h"

#include "sluice/train/options/option_table.h"

namespace sluice::tool {

const FlagTable& flag_table() {
  static const FlagTable table = [] {
    FlagTable t;
    add_model_flags(t);
    add_data_flags(t);
    add_predict_flags(t);
    add_generate_flags(t);
    add_training_flags(t);
    add_memory_flags(t);
    add_strategy_flags(t);
    add_output_flags(t);
    t.exclusions = {{"--dataset", "--data"},
                    {"--dataset", "--synthetic"},
                    {"--all", "--validation"},
                    {"--quiet", "--log-level"},
                    {"--epochs", "--steps"},
                    {"--weights", "--torch-weights"},
                    {"--resume", "--weights"},
                    {"--resume", "--torch-weights"},
                    {"--recompute", "--recompute-blocks"},
                    {"--device-ids", "--devices"}};
    const char* const forms[] = {"--full",      "--passes",         "--fusions", "--memory-map",
                                 "--transfers", "--schedule-table", "--dot"};
    for (const char* const& form : forms) {
      for (const char* const* other = &form + 1; other != std::end(forms); ++other)
        t.exclusions.emplace_back(*other, form);
      if (form != std::string_view("--schedule-table")) t.exclusions.emplace_back(form, "--json");
    }
    t.exclusions.emplace_back("--dot", "--print-after");
    return t;
  }();
  return table;
}

InSweep in_sweep(const std::string& flag) {
  const FlagTable& table = flag_table();
  size_t i = 0;
  for (const Option<ToolOptions>& option : table.options) {
    if ((table.flags[i].commands & kPlan) != 0 && flag_of(option) == flag)
      return table.flags[i].in_sweep;
    ++i;
  }
  return InSweep::kAllowed;  // --help
}

Option<ToolOptions>& Section::add_library(std::string_view name) {
  table_.flags.push_back(flag_);
  last().sets = name;
  return table_.options.add_member("step.", &ToolOptions::step, train::options_table().find(name));
}

}  // namespace sluice::tool
