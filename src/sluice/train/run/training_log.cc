#include "sluice/train/run/training_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include "sluice/base/error.h"
#include "sluice/base/options/read_number.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "sluice/exe/memory_needs.h"
#include "sluice/ir/graph.h"
#include "sluice/ir/variable.h"
#include "sluice/report/traffic.h"
#include "sluice/train/model.h"

namespace sluice::train {
namespace {

constexpr int64_t kPart = 1 << 16;  // Elements of a variable that are read together.

// Quotes a cell of a CSV file where its characters require it.
std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

std::string cell(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

std::string metrics_path(const std::string& folder) { return folder + "/metrics.csv"; }

std::string run_path(const std::string& folder) {
  return fmt::format("{}/{}", folder, TrainingLog::kRunName);
}

std::string watched_path(const std::string& folder) {
  return fmt::format("{}/{}", folder, TrainingLog::kWatchedName);
}

// Returns the contents of a file; empty if it does not exist.
std::string text_of(const std::string& path) {
  if (!sys::exists(path)) return "";
  const std::vector<std::byte> bytes = sys::read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string header_of(const TrainingLog::Columns& columns) {
  std::string header(TrainingLog::kColumns);
  for (const std::string& name : columns.losses) header += ',' + cell("loss/" + name);
  for (const std::string_view name : TrainingLog::kMetrics) {
    if (columns.validations) header += fmt::format(",validation/{}", name);
  }
  return header + '\n';
}

// The lines of a file that a training keeps.
struct KeptLines {
  int64_t bytes = 0;   ///< 0: the file has another header, or does not exist.
  double seconds = 0;  ///< Cell "seconds" of the last one.
};

// Returns the whole lines of steps up to `step`, if the file begins with `header`.
KeptLines kept_lines(const std::string& path, const std::string& header, int64_t step) {
  constexpr int kSecondsCell = 5;  // As in kColumns.
  if (!sys::exists(path)) return {};
  const std::vector<std::byte> bytes = sys::read_file(path);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(header)) return {};
  KeptLines kept{static_cast<int64_t>(header.size()), 0};
  for (size_t begin = header.size(), end; (end = text.find('\n', begin)) != text.npos;
       begin = end + 1) {
    std::string_view line = text.substr(begin, end - begin);
    const auto found = read_integer<int64_t>(std::string(line.substr(0, line.find(','))));
    if (!found || *found > step) break;
    for (int cell = 0; cell < kSecondsCell; ++cell)
      line = line.substr(std::min(line.find(','), line.size() - 1) + 1);
    kept.seconds = read_real(std::string(line.substr(0, line.find(',')))).value_or(kept.seconds);
    kept.bytes = static_cast<int64_t>(end) + 1;
  }
  return kept;
}

}  // namespace

void make_log_folder(const std::string& folder) {
  try {
    for (size_t end = folder.find('/', 1); end != folder.npos; end = folder.find('/', end + 1))
      sys::make_folder(folder.substr(0, end));
    sys::make_folder(folder);
    sys::check_replaceable(metrics_path(folder));
  } catch (const Error& e) {
    fail(ErrorKind::kIo, "log folder {}: must be a folder that can be written; {}", folder,
         e.what());
  }
}

std::string name_of_new_log(const std::string& folder) {
  std::string name = kOnlyLog;
  std::error_code error;  // A folder that cannot be read is refused later, by its name.
  for (int64_t run = 2; std::filesystem::is_regular_file(metrics_path(folder + "/" + name), error);
       ++run)
    name = fmt::format("run-{}", run);
  return name;
}

std::string folder_of_log(const std::string& folder, const std::string& name) {
  return name == kOnlyLog ? folder : fmt::format("{}/{}", folder, name);
}

bool has_log(const std::string& folder, const TrainingLog::Columns& columns) {
  const std::string header = header_of(columns);
  return text_of(run_path(folder)) == columns.run &&
         text_of(metrics_path(folder)).starts_with(header);
}

std::vector<TaggedNumber> bytes_of(const Session& session) {
  const exe::Executable& executable = session.executable();
  std::vector<TaggedNumber> numbers;
  const auto add = [&](const std::string& tag, int64_t bytes) {
    numbers.emplace_back("bytes/" + tag, static_cast<double>(bytes));
  };
  for (int d = 0; d < static_cast<int>(executable.devices.size()); ++d) {
    add(fmt::format("device_{}/planned", d), session.planned_bytes(d));
    add(fmt::format("device_{}/measured", d), session.measured_bytes(d));
  }
  for (const exe::MemoryNeeds& m : exe::memory_needs(executable, 0)) {
    std::string tag = m.name;
    std::replace(tag.begin(), tag.end(), ' ', '_');
    if (m.device < 0 && m.total_bytes > 0) add(tag, m.total_bytes);
  }
  const report::TrafficCounter traffic(executable);
  int64_t remote = 0, messages = 0, collectives = 0;
  for (const exe::Program& p : executable.programs) {
    if (p.name != "train") continue;
    for (const report::Traffic& t : traffic.of(p)) {
      const bool stream =
          t.kind == exe::TransferKind::kStreamIn || t.kind == exe::TransferKind::kStreamOut;
      if (!stream) remote += executable.replicas * t.bytes;
    }
    for (const report::Messages& m : traffic.messages_of(p))
      messages += executable.replicas * m.bytes;
    for (const report::CollectiveBytes& c : traffic.collectives_of(p))
      collectives += executable.replicas * c.bytes;
  }
  if (remote > 0) add("remote_per_call", remote);
  if (messages > 0) add("messages_per_call", messages);
  if (collectives > 0) add("collectives_per_call", collectives);
  return numbers;
}

void each_histogram(const Session& session, const nn::NamedTensors& variables,
                    const std::function<void(const std::string&, const data::Histogram&)>& f) {
  std::vector<std::byte> part;
  variables.for_each([&](const std::string& path, const Tensor& variable) {
    const TensorSpec spec = host_spec(variable.spec(), *variable.graph().info(variable).variable);
    const int64_t elements = spec.elements(), width = size_of(spec.dtype);
    data::Histogram histogram;
    for (int64_t begin = 0; begin < elements; begin += kPart) {
      const int64_t count = std::min(kPart, elements - begin);
      part.resize(static_cast<size_t>(count * width));
      session.read_chunk(variable, begin, count, part);
      histogram.add(spec.dtype, part);
    }
    f(path, histogram);
  });
}

namespace {

// Removes the files of watched tensors after a step.
void cut_watched(const std::string& folder, int64_t step) {
  std::error_code error;  // Without the folder, there are none.
  for (const auto& file : std::filesystem::directory_iterator(watched_path(folder), error)) {
    if (file.path().extension() != ".safetensors") continue;
    const auto update = read_integer<int64_t>(file.path().stem().string());
    if (update && *update > step) std::filesystem::remove(file.path(), error);
  }
}

// Makes the folder, and removes events and tensors after a step that the training continues.
const std::string& prepared(const std::string& folder, std::optional<int64_t> continued) {
  make_log_folder(folder);
  if (continued) {
    data::cut_events(folder, *continued);
    cut_watched(folder, *continued);
  }
  return folder;
}

// Opens metrics.csv and sets the seconds of the lines that it keeps.
data::GrowingFile open_metrics(const std::string& folder, const TrainingLog::Columns& columns,
                               std::optional<int64_t> continued, double& seconds) {
  const std::string header = header_of(columns), path = metrics_path(folder);
  const KeptLines kept = continued ? kept_lines(path, header, *continued) : KeptLines();
  seconds = kept.seconds;
  data::GrowingFile file(path, kept.bytes);
  sys::replace_file(run_path(folder),
                    std::as_bytes(std::span(columns.run.data(), columns.run.size())));
  if (kept.bytes > 0) return file;
  file.append(header);
  file.flush();
  return file;
}

// Adds a histogram, and the number of values that are not finite.
void add_values(data::Summary& summary, const std::string& tag, const std::string& path,
                const data::Histogram& values) {
  summary.add(tag, values);
  if (values.non_finite() > 0)
    summary.add("non_finite/" + path, static_cast<double>(values.non_finite()));
}

}  // namespace

TrainingLog::TrainingLog(const std::string& folder, const Columns& columns,
                         std::optional<int64_t> continued, std::chrono::milliseconds period)
    : folder_(folder),
      columns_(columns),
      period_(period),
      events_(prepared(folder, continued)),
      metrics_(open_metrics(folder, columns, continued, seconds_)) {}

TrainingLog::~TrainingLog() {
  if (!failed_) flush();
}

void TrainingLog::sync() {
  if (!failed_) flush(/*to_disk=*/true);
}

void TrainingLog::flush(bool to_disk) {
  try {
    events_.flush();
    metrics_.flush();
    if (to_disk) {
      events_.sync();
      metrics_.sync();
    }
    written_ = Clock::now();
  } catch (const Error& e) {
    failed_ = true;
    sys::print_stderr("log: {}; the rest of the training is not logged\n", e.what());
  }
}

void TrainingLog::write(const std::function<void()>& add) {
  if (failed_) return;
  add();
  if (Clock::now() - written_ >= period_) flush();
}

void TrainingLog::add(const Call& call) {
  write([&] {
    data::Summary summary;
    summary.add("loss", call.loss);
    if (call.accuracy) summary.add("accuracy", *call.accuracy);
    summary.add("samples_per_second", call.samples_per_second);
    if (call.learning_rate) summary.add("learning_rate", *call.learning_rate);
    const double seconds = seconds_ + std::chrono::duration<double>(Clock::now() - begin_).count();
    std::string line =
        fmt::format("{},{},{},{:.1f},{},{:.6f}", call.step, call.loss, cell(call.accuracy),
                    call.samples_per_second, cell(call.learning_rate), seconds);
    for (size_t i = 0; i < columns_.losses.size(); ++i) {
      summary.add("loss/" + columns_.losses[i], call.losses[i]);
      line += ',' + cell(call.losses[i]);
    }
    for (size_t i = 0; columns_.validations && i < std::size(kMetrics); ++i)
      line += ',' + (call.validation.empty() ? "" : cell(call.validation[i]));
    events_.add(call.step, summary);
    metrics_.append(line + '\n');
  });
}

void TrainingLog::add_numbers(int64_t step, const std::vector<TaggedNumber>& numbers) {
  write([&] {
    data::Summary summary;
    for (const auto& [tag, value] : numbers) summary.add(tag, value);
    events_.add(step, summary);
  });
}

void TrainingLog::add_histogram(int64_t step, const std::string& path,
                                const data::Histogram& values) {
  write([&] {
    data::Summary summary;
    add_values(summary, "weights/" + path, path, values);
    events_.add(step, summary);
  });
}

void TrainingLog::add_watched(Watched watched) {
  std::vector<NamedArray> arrays;
  const auto add = [&](data::Element& from, const std::string& prefix) {
    for (size_t i = 0; i < from.arrays.size(); ++i)
      arrays.push_back({prefix + from.names[i], std::move(from.arrays[i])});
  };
  add(watched.gradients, "gradient/");
  add(watched.values, "value/");
  write([&] {
    data::Summary summary;
    for (const NamedArray& a : arrays) {
      data::Histogram values;
      values.add(a.array.dtype(), a.array.bytes());
      add_values(summary, a.name, a.name, values);
    }
    events_.add(watched.updates, summary);
  });
  if (watched_failed_) return;
  try {
    const std::string folder = watched_path(folder_);
    sys::make_folder(folder);
    write_safetensors_file(fmt::format("{}/{}.safetensors", folder, watched.updates), arrays);
  } catch (const Error& e) {
    watched_failed_ = true;
    sys::print_stderr("log: {}; watched tensors are not written any more\n", e.what());
  }
}

}  // namespace sluice::train
