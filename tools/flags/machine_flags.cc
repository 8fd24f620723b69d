#include "tools/flags/machine_flags.h"

#include <vector>

#include "sluice/devices/opaque_device.h"
#include "sluice/train/pipeline/stages.h"
#include "tools/devices.h"
#include "tools/flags/flags.h"

namespace sluice::tool {
void add_memory(Flags flags, ToolOptions& o) {
  flags.group(kMemoryGroup)
      .list("--memory", "BYTES",
            {"Limit device memory: 4096, 512K, 64M, 2G, or a list", "no limit"},
            [&o](const std::vector<std::string>& texts) {
              for (const std::string& text : texts)
                o.memory.push_back(parse_bytes("--memory", text));
              o.session.device.memory = o.memory[0];
            });
  flags.text(
      "--offload", "TENSORS", o.offload.tensors,
      {"Move tensors off the device: none, or some of optimizer,weights,activations,accumulators",
       "auto"});
  flags.text("--remote", "PLACE", o.offload.remote,
             {"Keep offloaded tensors in PLACE: none, host or file:DIR", "host"});
  flags.group(kMemoryGroup, Common::kNo)
      .integer<int64_t, int64_t>("--offload-threshold", o.step.locations.min_elements_off_device, 0,
                                 kMost,
                                 {"Keep tensors of fewer than N elements on the device", "2"});
  flags.bytes("--remote-memory", o.session.remote_memory,
              {"Limit that memory to BYTES", "no limit"});
  flags.bytes("--remote-bandwidth", o.session.remote_bandwidth,
              {"Move at most BYTES a second to and from it", "no limit"});
  flags.flag("--remote-direct", "Bypass the page cache; requires --remote file:DIR",
             [&o] { o.session.remote_direct = true; });
  flags.flag("--verify-remote", "Verify checksums of what is read; requires --remote file:DIR",
             [&o] { o.session.verify_remote = true; });
}

void add_strategy(Flags flags, ToolOptions& o) {
  flags.group(kStrategyGroup)
      .choice("--strategy", o.execution,
              {{"resident", Execution::kResident},
               {"phased", Execution::kPhased},
               {"sharded", Execution::kSharded},
               {"pipelined", Execution::kPipelined}},
              {"Run the model at once, by blocks, or in stages on several devices", "resident"});
  flags.integer<int, int>("--threads", o.session.device.threads, 0, 1024,
                          {"Compute with N threads; 0 for all usable cores", "0"});
  if (make_opaque_device != nullptr) {
    flags.group("").optional_text(
        "--opaque", "all", o.opaque,
        "Compute on opaque test devices, or only on those with these ids");
  }
  flags.group(kStrategyGroup, Common::kNo);
  flags.list(
      "--stages", "BLOCKS",
      {"Cut the model into these stages, for example B1+B2,B3, or into a number of stages of about "
       "equal time; requires --strategy phased, pipelined or sharded",
       "each block; with --strategy phased, no stages"},
      [&o](const std::vector<std::string>& texts) { o.stages = train::parse_stages(texts); });
  flags.choice("--schedule", o.schedule,
               {{"grouped", train::Schedule::kGrouped},
                {"interleaved", train::Schedule::kInterleaved},
                {"sequential", train::Schedule::kSequential},
                {"auto", train::Schedule::kAuto}},
               {"Run the micro-batches of a pipeline in this order; requires --strategy pipelined",
                "grouped"});
  flags.integer<int64_t, int64_t>(
      "--group", o.group, 1, kMost,
      {"Let N micro-batches visit a block together; requires --strategy phased", "all"});
  flags.integer<std::optional<int64_t>, int64_t>(
      "--devices", o.devices, 1, train::kMostDevices,
      {"Compute on N devices, replicas included", "those that the stages need"});
  flags.list("--device-ids", "IDS",
             {"Compute on the devices with these ids, replica by replica; instead of --devices",
              "0, 1, …"},
             [&o](const std::vector<std::string>& texts) {
               o.device_ids = parse_ids("--device-ids", texts);
             });
  flags.list("--map", "PROCESSES",
             {"Run each device in this process of mpirun: numbers, replica by replica, or devices "
              "for the first devices first",
              "the first replicas first"},
             [&o](const std::vector<std::string>& texts) { o.map = texts; });
  flags.choice("--io-mode", o.step.io_mode,
               {{"compute", IoMode::kCompute},
                {"io", IoMode::kIo},
                {"io_overlapped", IoMode::kIoOverlapped}},
               {"Transfer in a phase's own time (compute), on a queue beside it (io), or beside "
                "other blocks (io_overlapped); requires offloaded tensors",
                "io"});
  flags.choice("--io-queues", o.session.io_queues, {{"1", 1}, {"3", 3}},
               {"Use so many queues for transfers, 3 for loads, stores and prefetches; requires "
                "offloaded tensors and --io-mode io or io_overlapped",
                "1"});
}

void add_gradients(Flags flags, ToolOptions& o) {
  flags.group(kStrategyGroup, Common::kNo)
      .value("--shard-threshold", "N",
             {"Share the state of weights of at least N elements among the replicas", "inf"},
             [&o](const std::string& text) {
               o.step.locations.min_elements_sharded = parse_threshold("--shard-threshold", text);
             });
  flags.flag("--recompute", "Recompute the activations of all blocks instead of keeping them",
             [&o] { o.step.recompute.all = true; });
  flags.list("--recompute-blocks", "NAMES",
             "Recompute the activations of these blocks, for example fc.1,fc.2",
             [&o](const std::vector<std::string>& names) { o.step.recompute.blocks = names; });
}

void add_compiler(Flags flags, ToolOptions& o) {
  flags.group(kCompilerGroup, Common::kNo)
      .list("--disable", "PASS", "Leave out this optional compiler pass (see sluice plan --passes)",
            [&o](const std::vector<std::string>& texts) { o.session.disable = texts; });
  flags.flag("--verify", "Verify the program after every compiler pass",
             [&o] { o.session.verify = true; });
}

}  // namespace sluice::tool
