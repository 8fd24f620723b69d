#include "sluice/devices/opaque_device.h"
#include "sluice/train/options/option_table.h"
#include "sluice/train/pipeline/stages.h"
#include "tools/devices.h"
#include "tools/flags/flag_table.h"

namespace sluice::tool {
namespace {

constexpr auto of_session(auto... members) {
  return member_path(&ToolOptions::step, &train::Options::session, members...);
}

bool never_offloads(const ToolOptions& o) { return o.offload.tensors == "none"; }

const Requirement<ToolOptions>& offloaded_tensors() {
  static const Requirement<ToolOptions> requirement{
      "offloaded tensors",
      [](const ToolOptions& o) {
        const bool budget = o.step.session.device.memory >= 0;
        return !never_offloads(o) && (o.phased() || budget || o.offload.tensors != "auto");
      },
      [](const ToolOptions& o) -> std::string {
        return never_offloads(o) ? "--offload none"
                                 : "--offload auto without --memory and --strategy phased";
      }};
  return requirement;
}

}  // namespace

void add_memory_flags(FlagTable& table) {
  Section device(table, kWithModel | kGenerate, "Memory", Common::kYes);
  Section s(table, kWithModel, "Memory", Common::kYes);
  Option<ToolOptions>& memory = device.add_library("session.device.memory");
  memory.help += ": 512K, 64M, 2G, or a list";
  memory.type = OptionType::kList;
  memory.defaults_to("none");
  memory.read = [read_one = memory.read](ToolOptions& o, const OptionTexts& texts) {
    for (const std::string& text : texts) {
      read_one(o, {text});
      o.memory.push_back(o.step.session.device.memory);
    }
    o.step.session.device.memory = o.memory[0];
  };
  s.add("offload", member_path(&ToolOptions::offload, &OffloadOptions::tensors),
        forms::texts("TENSORS"),
        "Move tensors off the device: none, or some of "
        "optimizer,weights,activations,accumulators");
  s.add("remote", member_path(&ToolOptions::offload, &OffloadOptions::remote),
        forms::texts("PLACE"), "Keep offloaded tensors in PLACE: none, host or file:DIR");
  const Requirement<ToolOptions> may_offload{
      "offloaded tensors", [](const ToolOptions& o) { return !never_offloads(o); },
      [](const ToolOptions&) { return std::string("--offload none"); }};
  Section rare(table, kWithModel, "Memory", Common::kNo);
  rare.add_library("locations.min_elements_off_device");
  rare.add_library("session.remote_memory").require(may_offload);
  rare.add_library("session.remote_bandwidth").require(may_offload);
  const Requirement<ToolOptions> file{"{remote} file:DIR", [](const ToolOptions& o) {
                                        return o.offload.remote.starts_with("file:");
                                      }};
  rare.add_library("session.remote_direct").requirements = {file};
  rare.add_library("session.verify_remote").requirements = {file};
}

void add_strategy_flags(FlagTable& table) {
  Section s(table, kWithModel, "Strategy", Common::kYes);
  s.add_library("strategy");
  Section(table, kWithModel | kGenerate, "Strategy", Common::kYes)
      .add_library("session.device.threads");
  if (make_opaque_device != nullptr) {
    Section opaque(table, kWithModel, "", Common::kYes);
    opaque.add("opaque", &ToolOptions::opaque, forms::texts("IDS"),
               "Compute on opaque test devices, or only on those with these ids");
    opaque.last().implied = "all";
  }
  Section rare(table, kWithModel, "Strategy", Common::kNo);
  rare.add_library("stages")
      .require({"training", [](const ToolOptions& o) { return o.trains || !o.phased(); },
                [](const ToolOptions&) { return std::string("inference with --strategy phased"); }})
      .defaults_to("each block; with --strategy phased, no stages");
  rare.add_library("schedule").defaults_to("grouped");
  rare.add_library("group")
      .require({"training", [](const ToolOptions& o) { return o.trains; },
                [](const ToolOptions&) { return std::string("inference"); }})
      .defaults_to("all");
  rare.add("devices", &ToolOptions::devices, forms::integers<int64_t>(1, train::kMaxDevices),
           "Compute on N devices, replicas included")
      .defaults_to("those that the stages need");
  rare.add_list("device_ids", &ToolOptions::device_ids, "IDS",
                "Compute on the devices with these ids, replica by replica; instead of --devices")
      .defaults_to("0, 1, …");
  rare.add_list(
          "map", &ToolOptions::map, "RANKS",
          "Assign devices to MPI ranks: one rank per device, or `devices` to fill device 0 of "
          "all replicas first")
      .require({"several processes of mpirun",
                [](const ToolOptions& o) { return o.step.session.group != nullptr; },
                [](const ToolOptions&) { return std::string("one"); }})
      .defaults_to("replica 0 first");
  rare.add_library("io_mode").require(offloaded_tensors());
  rare.add("io_queues", of_session(&SessionOptions::io_queues),
           forms::words<int>({{"1", 1}, {"3", 3}}),
           train::options_table().find("session.io_queues").help)
      .require(offloaded_tensors())
      .require({"{step.io_mode} io or io_overlapped",
                [](const ToolOptions& o) { return o.step.io_mode != IoMode::kCompute; }});
  Section gradients(table, kWithModel & ~kPredict, "Strategy", Common::kNo);
  gradients.add_library("locations.min_elements_sharded");
  constexpr auto recompute = [](auto member) {
    return member_path(&ToolOptions::step, &train::Options::recompute, member);
  };
  gradients.add("recompute", recompute(&train::Recompute::all), forms::flags(),
                "Recompute the activations of all blocks instead of keeping them");
  gradients.add_list("recompute_blocks", recompute(&train::Recompute::blocks), "NAMES",
                     "Recompute the activations of these blocks, for example fc.1,fc.2");
  Section(table, kTrain | kPlan, "Strategy", Common::kNo)
      .add("machine", &ToolOptions::machine, forms::texts("FILE"),
           "Forecast, and balance stages, with the rates of FILE (sluice doctor --measure)");
  Section compiler(table, kWithModel, "Compiler", Common::kNo);
  compiler.add_library("session.disable");
  compiler.add_library("session.verify");
  Section printed(table, kPlan, "Compiler", Common::kNo);
  printed.add_library("session.print_after");
  printed.last().in_sweep = InSweep::kRefused;
}

}  // namespace sluice::tool
