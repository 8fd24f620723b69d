#include "sluice/train/checkpoints/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/base/hash.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/system/folder.h"
#include "sluice/runtime/process_group.h"
#include "sluice/train/checkpoints/best_weights.h"
#include "sluice/train/checkpoints/checkpoint_copy.h"
#include "sluice/train/checkpoints/checkpoint_folder.h"
#include "sluice/train/model_state.h"
#include "sluice/train/run/finite.h"

namespace sluice::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_from(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void check_options(const CheckpointOptions& o) {
  require(!o.folder.empty(), "checkpoints: folder must be a path, got an empty text");
  require(o.save_every >= 0, "checkpoints: save_every must be at least 0, got {}", o.save_every);
  require(std::isfinite(o.save_every_seconds) && o.save_every_seconds >= 0,
          "checkpoints: save_every_seconds must be finite and at least 0, got {}",
          o.save_every_seconds);
  require(o.keep >= 1, "checkpoints: keep must be at least 1, got {}", o.keep);
}

// Returns the error of the first process that has one, in every process of a group; null without
// one. An error of the system names the process.
std::exception_ptr agreed_error(runtime::Agreement& agreement, std::exception_ptr own) {
  if (agreement.size() == 1) return own;
  const std::vector<uint64_t> failed = agreement.gathered(std::vector<uint64_t>{own != nullptr});
  const auto first = std::find(failed.begin(), failed.end(), 1);
  if (first == failed.end()) return nullptr;
  const auto rank = static_cast<int>(first - failed.begin());
  Error error(ErrorKind::kInternal, "unknown error");
  try {
    if (own != nullptr) std::rethrow_exception(own);
  } catch (const Error& e) {
    error = e;
  } catch (const std::exception& e) {
    error = Error(ErrorKind::kInternal, e.what());
  }
  std::string text = error.what();
  std::array<uint64_t, 2> header{static_cast<uint64_t>(error.kind()), text.size()};
  agreement.broadcast(rank, std::as_writable_bytes(std::span(header)));
  text.resize(header[1]);
  agreement.broadcast(rank, std::as_writable_bytes(std::span(text)));
  const auto kind = static_cast<ErrorKind>(header[0]);
  if (kind == ErrorKind::kIo)
    text = fmt::format("checkpoints: process {} could not save: {}", rank, text);
  return std::make_exception_ptr(Error(kind, text));
}

// Calls f() in process 0. All processes throw if it fails there.
void in_first_process(runtime::Agreement& agreement, const std::function<void()>& f) {
  std::exception_ptr error;
  try {
    if (agreement.rank() == 0) f();
  } catch (...) {
    error = std::current_exception();
  }
  error = agreed_error(agreement, error);
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace

class Checkpoints::State {
 public:
  State(const TrainingModel& model, CheckpointOptions options)
      : model_(model), session_(model_.session()), options_(std::move(options)) {
    check_options(options_);
    sort(options_.options.begin(), options_.options.end());
    variables_ = session().variables();
    parts_ = checkpoint_parts(variables_, agreement().size());
    check_names(options_.options);
    internal::ModelAccess::state(model_).name_run();
    in_first_process(agreement(), [&] { open_folder(); });
    agreement().broadcast(0, std::as_writable_bytes(std::span(&newest_, 1)));
    counted_ = model_.updates();
    files_.resize(parts_.size());
    offsets_.resize(variables_.size(), -1);
    int64_t own = 0;
    for (const CheckpointPart& part : parts_) {
      statistics_.bytes += part.bytes;
      if (part.process != agreement().rank()) continue;
      for (const size_t v : part.variables) {
        offsets_[v] = own;
        own += variables_[v].second.bytes();
      }
    }
    if (options_.copy == SaveCopy::kHost) {
      copy_ = make_copy(session_.executable(), own);
      statistics_.copy_bytes = own;
    }
    options_.metadata.merge(internal::ModelAccess::state(model_).save_metadata());
  }

  ~State() {
    if (writer_.joinable()) writer_.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void after_call() {
    const auto begin = Clock::now();
    collect();
    if (is_due()) begin_save();
    statistics_.waited_seconds += seconds_from(begin);
  }

  void request_save() { requested_ = true; }

  void save() {
    const auto begin = Clock::now();
    begin_save();
    statistics_.waited_seconds += seconds_from(begin);
  }

  void wait() {
    const auto begin = Clock::now();
    finish();
    statistics_.waited_seconds += seconds_from(begin);
  }

  std::function<void()> before_each_save(std::function<void()> f) {
    return std::exchange(before_save_, std::move(f));
  }
  std::string add_best(std::string path) { return std::exchange(best_path_, std::move(path)); }
  const std::string& folder() const { return options_.folder; }
  std::string newest() const {
    return newest_ < 0 ? "" : fmt::format("{}/{}", options_.folder, checkpoint_name(newest_));
  }
  Statistics statistics() const { return statistics_; }

 private:
  // The writer must not ask the model, whose queue of calls another thread may hold.
  Session& session() const { return session_; }
  runtime::Agreement& agreement() const { return session_.agreement(); }
  bool is_alone() const { return agreement().size() == 1; }
  std::string temporary() const {
    return fmt::format("{}/{}", options_.folder, temporary_name(updates_));
  }

  // Locks the folder. Its whole checkpoints must be those that this run continues.
  void open_folder() {
    sys::check_folder(options_.folder);
    sys::make_folder(options_.folder);
    sys::sync_folder(options_.folder + "/..");
    lock_.emplace(options_.folder);
    remove_leftovers(options_.folder);
    const Run run = model_.run();
    for (const int64_t other : checkpoints_in(options_.folder)) {
      const std::string path = fmt::format("{}/{}", options_.folder, checkpoint_name(other));
      if (other < run.updates && run_id_of(path) == run.id) continue;
      if (!is_whole(path)) continue;  // A save may replace it.
      require(
          other <= run.updates && run_id_of(path) == run.id,
          "checkpoints: {} must have no checkpoints but those that the model continues, got {}; "
          "resume it (--resume {}), or use another folder",
          options_.folder, path, options_.folder);
      newest_ = other;
    }
  }

  // Returns the name of the run of a checkpoint; empty if it cannot be read.
  static std::string run_id_of(const std::string& checkpoint) {
    try {
      return read_run(fmt::format("{}/{}", checkpoint, kRunName)).id;
    } catch (const Error&) {
      return "";
    }
  }

  // Whether a checkpoint must be saved after the calls since the last time.
  bool is_due() {
    const int64_t updates = model_.updates();
    const int64_t every = options_.save_every;
    bool due = every > 0 && updates / every > counted_ / every;
    counted_ = updates;
    due = due || std::exchange(requested_, false);
    if (options_.save_every_seconds > 0 && !due) {
      std::array<std::byte, 1> late{std::byte(seconds_from(saved_) >= options_.save_every_seconds)};
      if (!is_alone()) agreement().broadcast(0, late);  // The clock of the first process counts.
      due = late[0] != std::byte(0);
    }
    return due;
  }

  void begin_save() {
    finish();
    const auto lock = internal::ModelAccess::state(model_).next_call();
    const Run run = run_now();
    if (run.updates == newest_) return;
    if (before_save_ != nullptr) before_save_();
    updates_ = run.updates;
    run_json_ = to_json(run);
    saved_ = Clock::now();
    in_first_process(agreement(), [&] {
      best_ = open_best(best_path_, run);
      make_temporary();
    });
    error_ = nullptr;
    done_ = false;
    published_ = false;
    if (options_.copy == SaveCopy::kNone) {
      saves_ = true;
      write([&] { write_in_turn(); });
      return finish();
    }
    copy_variables();
    writer_ = std::thread([this] { write([&] { write_copy(); }); });
    saves_ = true;
  }

  // Two options of one name would hide each other.
  void check_names(const std::vector<NamedOption>& options) {
    for (const auto& [name, value] : options) {
      for (const auto& [other, text] : model_.run().options)
        require(name != other,
                "checkpoints: options must have other names than those of the model, got '{}'",
                name);
    }
  }

  Run run_now() {
    Run run = model_.run();
    run.options.insert(run.options.end(), options_.options.begin(), options_.options.end());
    std::sort(run.options.begin(), run.options.end());
    return run;
  }

  void make_temporary() {
    const int64_t best = best_ ? sys::size(*best_, best_path_) : 0;
    check_space(options_.folder, checked_add(statistics_.bytes, best),
                sys::free_bytes(options_.folder));
    remove_leftovers(options_.folder);  // Also what a failed removal left.
    sys::make_folder(temporary());
  }

  // All processes read all variables in one order, as reading exchanges their parts.
  void copy_variables() {
    std::vector<std::byte> other;  // A variable that another process writes.
    for (size_t v = 0; v < variables_.size(); ++v) {
      const auto bytes = static_cast<size_t>(variables_[v].second.bytes());
      if (offsets_[v] < 0) other.resize(bytes);
      session().read_variable(v, 0, offsets_[v] < 0 ? std::span(other) : copy_of(v));
    }
  }

  std::span<std::byte> copy_of(size_t variable) {
    return std::span(copy_).subspan(static_cast<size_t>(offsets_[variable]),
                                    static_cast<size_t>(variables_[variable].second.bytes()));
  }

  // Runs a write, and stores its error.
  void write(const std::function<void()>& f) {
    const auto begin = Clock::now();
    try {
      f();
      write_best();
      if (is_alone()) publish();
    } catch (...) {
      error_ = std::current_exception();
    }
    write_seconds_ = seconds_from(begin);
    done_ = true;
  }

  // Copies the file with the best weights. Another one may have replaced its name.
  void write_best() {
    best_file_.reset();
    if (!best_) return;
    best_file_ = copy_to_checkpoint(*best_, best_path_, sys::size(*best_, best_path_), temporary(),
                                    kBestName);
    best_.reset();
  }

  std::vector<NamedSpec> specs_of_part(const CheckpointPart& part) const {
    std::vector<NamedSpec> specs;
    for (const size_t v : part.variables)
      specs.push_back({variables_[v].first, variables_[v].second});
    return specs;
  }

  // Checks bytes of a variable that are saved.
  void check_value(size_t v, int64_t offset, std::span<const std::byte> bytes) const {
    const auto& [path, spec] = variables_[v];
    check_finite_value(path, spec.dtype, bytes, offset / size_of(spec.dtype), updates_);
  }

  void write_copy() {
    for (size_t p = 0; p < parts_.size(); ++p) {
      const CheckpointPart& part = parts_[p];
      if (part.process != agreement().rank()) continue;
      CheckpointWriter file(temporary(), part.file);
      const TensorSource source = [&](size_t t, int64_t offset, std::span<std::byte> out) {
        const size_t v = part.variables[t];
        std::memcpy(out.data(), copy_of(v).data() + offset, out.size());
        check_value(v, offset, out);
      };
      write_safetensors(
          specs_of_part(part), source, [&](std::span<const std::byte> bytes) { file.add(bytes); },
          options_.metadata);
      files_[p] = file.finish();
    }
  }

  // Writes straight from the session. All processes read all variables in one order, also after an
  // error of one of them.
  void write_in_turn() {
    std::exception_ptr error;
    const auto unless_failed = [&](const auto& f) {
      if (error != nullptr) return;
      try {
        f();
      } catch (...) {
        error = std::current_exception();
      }
    };
    for (size_t p = 0; p < parts_.size(); ++p) {
      const CheckpointPart& part = parts_[p];
      std::optional<CheckpointWriter> file;
      if (part.process == agreement().rank())
        unless_failed([&] { file.emplace(temporary(), part.file); });
      const TensorSource source = [&](size_t t, int64_t offset, std::span<std::byte> out) {
        const size_t v = part.variables[t];
        session().read_variable(v, offset / size_of(variables_[v].second.dtype), out);
        if (file) unless_failed([&] { check_value(v, offset, out); });
      };
      const ByteSink sink = [&](std::span<const std::byte> bytes) {
        if (file) unless_failed([&] { file->add(bytes); });
      };
      write_safetensors(specs_of_part(part), source, sink, options_.metadata);
      if (file) unless_failed([&] { files_[p] = file->finish(); });
    }
    if (error != nullptr) std::rethrow_exception(error);
  }

  // Writes the other files in the first process, and names the checkpoint.
  void publish() {
    Manifest manifest{.updates = updates_, .files = files_};
    manifest.files.push_back(
        write_text_file(temporary(), kIndexName, index_json(variables_, parts_)));
    manifest.files.push_back(write_text_file(temporary(), kRunName, run_json_));
    if (best_file_) manifest.files.push_back(*best_file_);
    publish_checkpoint(options_.folder, manifest);
    published_ = true;  // A failure below does not change that.
    remove_old_checkpoints(options_.folder, updates_, options_.keep);
  }

  // Ends a save whose writing is done.
  void collect() {
    if (!saves_) return;
    const bool waits = !done_.load();
    if (is_alone() ? waits : agreement().any(waits)) return;
    finish();
  }

  // Waits for the end of the save in progress. Throws its error.
  void finish() {
    if (!saves_) return;
    if (writer_.joinable()) writer_.join();
    saves_ = false;
    if (!is_alone()) {
      error_ = agreed_error(agreement(), error_);
      if (error_ == nullptr) {
        exchange_files();
        try {
          in_first_process(agreement(), [&] { publish(); });
        } catch (...) {
          error_ = std::current_exception();
        }
        std::array<std::byte, 1> published{std::byte(published_)};
        agreement().broadcast(0, published);
        published_ = published[0] != std::byte(0);
      }
    }
    if (published_) note_newest();
    if (error_ != nullptr) {
      try {
        if (agreement().rank() == 0 && !published_) sys::remove_folder(temporary());
      } catch (const Error&) {  // The error of the save says more.
      }
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
  }

  void note_newest() {
    newest_ = updates_;
    ++statistics_.saves;
    statistics_.write_seconds += write_seconds_;
  }

  // Sends the sizes and hashes of the files of each process to all.
  void exchange_files() {
    constexpr size_t kWords = 3;
    std::vector<uint64_t> words(kWords * parts_.size());
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p].process != agreement().rank()) continue;
      const Hash128 hash = Hash128::parse(files_[p].hash).value_or(Hash128());
      words[kWords * p] = static_cast<uint64_t>(files_[p].bytes);
      words[kWords * p + 1] = hash.high;
      words[kWords * p + 2] = hash.low;
    }
    const std::vector<uint64_t> all = agreement().gathered(words);
    for (size_t p = 0; p < parts_.size(); ++p) {
      const size_t at = static_cast<size_t>(parts_[p].process) * words.size() + kWords * p;
      files_[p] = {parts_[p].file, static_cast<int64_t>(all[at]),
                   Hash128{all[at + 1], all[at + 2]}.hex()};
    }
  }

  TrainingModel model_;
  Session& session_;
  CheckpointOptions options_;
  std::optional<sys::FolderLock> lock_;  ///< In the first process.
  VariableSpecs variables_;
  std::vector<CheckpointPart> parts_;
  std::vector<int64_t> offsets_;  ///< In copy_, by variable; -1: another process writes it.
  std::vector<std::byte> copy_;
  std::function<void()> before_save_;
  std::string best_path_;  ///< Empty: none.
  Statistics statistics_;
  int64_t newest_ = -1;                     ///< Updates of the newest complete checkpoint.
  bool requested_ = false;                  ///< request_save() was called.
  int64_t counted_ = 0;                     ///< Updates at the last after_call().
  Clock::time_point saved_ = Clock::now();  ///< Begin of the last save.

  // The save in progress. The writer uses these members until it is done.
  bool saves_ = false;
  bool published_ = false;
  int64_t updates_ = 0;
  std::string run_json_;
  std::vector<CheckpointFile> files_;  ///< By part.
  std::optional<sys::File> best_;      ///< The best weights, in the first process.
  std::optional<CheckpointFile> best_file_;
  std::exception_ptr error_;
  double write_seconds_ = 0;
  std::atomic<bool> done_{false};
  std::thread writer_;
};

Checkpoints::Checkpoints(const TrainingModel& model, CheckpointOptions options)
    : state_(std::make_unique<State>(model, std::move(options))) {}
Checkpoints::~Checkpoints() = default;
Checkpoints::Checkpoints(Checkpoints&&) noexcept = default;
Checkpoints& Checkpoints::operator=(Checkpoints&&) noexcept = default;

void Checkpoints::after_call() { state_->after_call(); }
void Checkpoints::save() { state_->save(); }
void Checkpoints::request_save() { state_->request_save(); }
void Checkpoints::wait() { state_->wait(); }
std::function<void()> Checkpoints::before_each_save(std::function<void()> f) {
  return state_->before_each_save(std::move(f));
}
std::string Checkpoints::add_best(std::string path) { return state_->add_best(std::move(path)); }
const std::string& Checkpoints::folder() const { return state_->folder(); }
std::string Checkpoints::newest() const { return state_->newest(); }
Checkpoints::Statistics Checkpoints::statistics() const { return state_->statistics(); }

}  // namespace sluice::train
