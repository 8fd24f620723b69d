#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/base/hash.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/system/folder.h"
#include "sluice/runtime/process_group.h"
#include "sluice/train/checkpoints/checkpoint_folder.h"
#include "sluice/train/checkpoints/checkpoints.h"
#include "sluice/train/model_state.h"
#include "sluice/train/options/option_table.h"

namespace sluice::train {
namespace {

constexpr const char* kData = "data";    // Override of the samples and their order.
constexpr const char* kDtype = "dtype";  // Override of the dtypes of variables.
constexpr int64_t kLoadedBytes = 1 << 20;

// Returns the checkpoints that may be resumed, the newest first.
std::vector<std::string> candidates(const std::string& folder) {
  if (sys::exists(fmt::format("{}/{}", folder, Manifest::kName))) return {folder};
  std::vector<std::string> paths;
  if (!sys::is_folder(folder))
    fail(ErrorKind::kNoCheckpoint, "{}: must be a folder of checkpoints, got none", folder);
  for (const int64_t updates : checkpoints_in(folder))
    paths.push_back(fmt::format("{}/{}", folder, checkpoint_name(updates)));
  if (paths.empty()) fail(ErrorKind::kNoCheckpoint, "{}: must have a checkpoint, got none", folder);
  return paths;
}

// Returns the copy of the best weights in a checkpoint; absent without one.
std::optional<CheckpointFile> best_of(const Manifest& manifest) {
  const auto found = std::find_if(manifest.files.begin(), manifest.files.end(),
                                  [](const CheckpointFile& f) { return f.name == kBestName; });
  return found == manifest.files.end() ? std::nullopt : std::optional(*found);
}

Run read_run_of(const std::string& checkpoint, const Manifest& manifest) {
  bool has_run = false;
  for (const CheckpointFile& f : manifest.files) {
    if (!is_part(f) && f.name != kBestName) check_file(checkpoint, f);
    has_run = has_run || f.name == kRunName;
  }
  if (!has_run) fail(ErrorKind::kBadFile, "{}: must have the file {}", checkpoint, kRunName);
  const Run run = read_run(fmt::format("{}/{}", checkpoint, kRunName));
  if (run.updates != manifest.updates)
    fail(ErrorKind::kBadFile, "{}: must have {} updates in {}, got {}", checkpoint,
         manifest.updates, kRunName, run.updates);
  return run;
}

// The facts of a run that a resumed one must have, and those that may differ.
class Facts {
 public:
  Facts(const Run& run, const ResumeOptions& options) : options_(options), known_(options.facts) {
    for (const Option<Options>& o : options_table()) {
      if (!o.decides_bits) continue;
      of_model_.insert(o.name);
      OptionFact& fact = known_[o.name];
      if (!fact.unnamed) fact.unnamed = o.print(Options());
    }
    for (const auto& [name, value] : run.options) {
      found_[name] = value;
      of_model_.insert(name);
    }
    for (const auto& [name, value] : options.options) found_[name] = value;
  }

  bool overrides(const std::string& name) const {
    const auto& all = options_.override;
    return std::any_of(all.begin(), all.end(), [&](const std::string& other) {
      return other == name || other == override_of(name);
    });
  }

  // Error{kUsage} for a fact that differs and is not overridden. Returns the others that differ.
  std::vector<std::string> compare(const Run& saved, const std::string& checkpoint) const {
    const std::map<std::string, std::string> expected(saved.options.begin(), saved.options.end());
    std::set<std::string> names = {kData, kDtype};
    for (const auto* facts : {&expected, &found_}) {
      for (const auto& [name, value] : *facts) names.insert(name);
    }
    check_overrides(names);
    std::vector<std::string> changed;
    for (const std::string& name : in_order(names)) {
      const Value before = value_of(expected, name), now = value_of(found_, name);
      if (before.is_any || now.is_any || before.text == now.text) continue;
      if (!overrides(name)) refuse(name, before, now, checkpoint);
      changed.push_back(fmt::format("{}: {}, now {}", shown(name), before.text, now.text));
    }
    return changed;
  }

 private:
  // A value that a run names or has without naming it.
  struct Value {
    std::string text = "absent";
    bool is_known = true;  // Whether the run has the option.
    bool is_any = false;   // Whether it equals each other value.
  };

  Value value_of(const std::map<std::string, std::string>& facts, const std::string& name) const {
    if (const auto found = facts.find(name); found != facts.end()) return {found->second};
    const auto fact = known_.find(name);
    if (fact == known_.end()) return {.is_known = name == kData || name == kDtype};
    return fact->second.unnamed ? Value{*fact->second.unnamed} : Value{.is_any = true};
  }

  std::string flag_of_fact(const std::string& name) const {
    const auto fact = known_.find(name);
    return fact == known_.end() ? "" : fact->second.flag;
  }

  // Returns an option as its user knows it.
  std::string shown(const std::string& name) const {
    const std::string flag = flag_of_fact(name);
    return flag.empty() ? name : flag;
  }

  // Returns the override of an option: "clip-norm" for the flag "--clip-norm", or its name.
  std::string override_of(const std::string& name) const {
    const std::string flag = flag_of_fact(name);
    return flag.empty() ? name : flag.substr(flag.find_first_not_of('-'));
  }

  void check_overrides(const std::set<std::string>& names) const {
    std::set<std::string> known;
    for (const std::string& name : names) known.insert(override_of(name));
    for (const std::string& name : options_.override)
      require(names.contains(name) || known.contains(name),
              "resume: an override must be one of {}, got '{}'", fmt::join(known, ", "), name);
  }

  // Options of the caller precede those of the model that follow from them, such as the rate of an
  // optimizer. An option of the caller with a flag of the model's follows that.
  std::vector<std::string> in_order(const std::set<std::string>& names) const {
    std::set<std::string> flags;
    for (const std::string& name : of_model_) flags.insert(flag_of_fact(name));
    flags.erase("");
    const auto rank = [&](const std::string& name) {
      return of_model_.contains(name) ? 1 : flags.contains(flag_of_fact(name)) ? 2 : 0;
    };
    std::vector<std::string> all(names.begin(), names.end());
    std::stable_sort(all.begin(), all.end(),
                     [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    return all;
  }

  [[noreturn]] void refuse(const std::string& name, const Value& before, const Value& now,
                           const std::string& checkpoint) const {
    const std::string flag = flag_of_fact(name), override = override_of(name);
    const std::string subject = flag.empty() ? fmt::format("resume: {}", name) : flag + ":";
    if (!now.is_known)
      fail(ErrorKind::kUsage,
           "{} must be {}, as in {}, got no such option; resume with the program that saved it, or "
           "override {} (--override {}) to continue without it",
           subject, before.text, checkpoint, name, name);
    fail(ErrorKind::kUsage, "{} must be {}, as in {}, got {}; {} to continue with {}", subject,
         before.text, checkpoint, now.text,
         flag.empty() ? fmt::format("override {} (--override {})", name, name)
                      : fmt::format("add --override {}", override),
         now.text);
  }

  const ResumeOptions& options_;
  std::map<std::string, OptionFact> known_;
  std::map<std::string, std::string> found_;
  std::set<std::string> of_model_;  ///< Names of options that are not the caller's.
};

// The file of variables and the tensor of each variable of a session.
class Loader {
 public:
  Loader(Session& session, std::string checkpoint, const Manifest& manifest, bool converts)
      : session_(session), checkpoint_(std::move(checkpoint)), converts_(converts) {
    for (const CheckpointFile& f : manifest.files) {
      if (is_part(f)) files_.push_back(f);
    }
    for (const CheckpointFile& f : files_)
      readers_.emplace_back(fmt::format("{}/{}", checkpoint_, f.name));
    mismatch_ = find_mismatch();
  }

  // Returns why the checkpoint is of another model; empty if it has the variables of the session.
  const std::string& mismatch() const { return mismatch_; }

  // Sets the variables. Error{kBadFile} if the bytes are not those of the manifest.
  void load() {
    const VariableSpecs variables = session_.variables();
    for (size_t f = 0; f < files_.size(); ++f) load_file(files_[f], readers_[f], variables);
  }

 private:
  std::string find_mismatch() {
    const VariableSpecs variables = session_.variables();
    for (size_t v = 0; v < variables.size(); ++v) indices_[variables[v].first] = v;
    std::set<std::string> found;
    for (const SafetensorsReader& reader : readers_) {
      for (const ForeignTensor& t : reader.index().foreign)
        return fmt::format("{}: '{}' must have a dtype of Sluice, got {}", checkpoint_, t.name,
                           t.dtype);
      for (const SafetensorsTensor& t : reader.index().tensors) {
        const auto index = indices_.find(t.name);
        if (index == indices_.end())
          return fmt::format("{}: must be of this model, got the variable '{}' of another one",
                             checkpoint_, t.name);
        const TensorSpec& spec = variables[index->second].second;
        if (!is_loaded(t.spec, spec))
          return fmt::format("{}: '{}' must be {}, got {}{}", checkpoint_, t.name, to_string(spec),
                             to_string(t.spec),
                             t.spec.shape == spec.shape
                                 ? "; override dtype (--override dtype) to convert it"
                                 : "");
        found.insert(t.name);
      }
    }
    for (const auto& [name, spec] : variables) {
      if (!found.contains(name))
        return fmt::format("{}: variable '{}' is missing", checkpoint_, name);
    }
    return "";
  }

  bool is_loaded(const TensorSpec& saved, const TensorSpec& spec) const {
    if (saved.shape != spec.shape) return false;
    return saved.dtype == spec.dtype ||
           (converts_ && is_float(saved.dtype) && is_float(spec.dtype));
  }

  // Reads the file once, from its begin to its end.
  void load_file(const CheckpointFile& file, const SafetensorsReader& reader,
                 const VariableSpecs& variables) {
    const std::string path = fmt::format("{}/{}", checkpoint_, file.name);
    const sys::File raw = sys::open_for_read(path);
    std::vector<SafetensorsTensor> tensors = reader.index().tensors;
    std::sort(tensors.begin(), tensors.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
    Digest digest;
    std::vector<std::byte> bytes(
        static_cast<size_t>(tensors.empty() ? file.bytes : tensors[0].offset));
    sys::read_exactly(raw, path, 0, bytes);
    digest.add(bytes);
    for (const SafetensorsTensor& t : tensors) {
      const size_t v = indices_.at(t.name);
      const TensorSpec& spec = variables[v].second;
      const int64_t width = size_of(t.spec.dtype), elements = t.spec.elements();
      const int64_t step = kLoadedBytes / width;
      for (int64_t begin = 0; begin < elements; begin += step) {
        const int64_t count = std::min(step, elements - begin);
        HostTensor part({{count}, t.spec.dtype, {}});
        reader.read(t, begin * width, part.bytes());
        digest.add(part.bytes());
        session_.write_variable(
            v, begin, t.spec.dtype == spec.dtype ? part.bytes() : part.cast(spec.dtype).bytes());
      }
    }
    check_hash(path, file, digest.hex());
  }

  Session& session_;
  std::string checkpoint_;
  bool converts_;
  std::vector<CheckpointFile> files_;
  std::vector<SafetensorsReader> readers_;
  std::map<std::string, size_t> indices_;  ///< By path.
  std::string mismatch_;
};

// Returns the error of a function that reads a checkpoint; empty without one.
template <typename F>
std::string damage_of(const F& read) {
  try {
    read();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kBadFile || e.kind() == ErrorKind::kIo) return e.what();
    throw;
  }
  return "";
}

}  // namespace

namespace {

// Sets the variables to their first values when it ends, if values of a damaged checkpoint were
// written to them.
class Damage {
 public:
  explicit Damage(Session& session) : session_(session) {}
  ~Damage() {
    if (!written) return;
    try {
      session_.initialize_variables();
    } catch (const Error&) {  // The error that ends the caller says more.
    }
  }
  Damage(const Damage&) = delete;
  Damage& operator=(const Damage&) = delete;

  bool written = false;

 private:
  Session& session_;
};

}  // namespace

Resumed resume(TrainingModel& model, const std::string& folder, const ResumeOptions& options) {
  Session& session = model.session();
  runtime::Agreement& agreement = session.agreement();
  const Run own = model.run();
  const Facts facts(own, options);
  std::vector<std::string> skipped;
  Damage damage(session);
  for (const std::string& path : candidates(folder)) {
    Resumed resumed{.checkpoint = path};
    Manifest manifest;
    const auto reads = [&](const auto& read) {
      const std::string reason = damage_of(read);
      if (!agreement.any(!reason.empty())) return true;
      skipped.push_back(reason.empty() ? path + ": another process could not read it" : reason);
      return false;
    };
    if (!reads([&] {
          manifest = read_manifest(path);
          resumed.run = read_run_of(path, manifest);
          if (const auto best = best_of(manifest); best && agreement.rank() == 0)
            check_file(path, *best);
        }))
      continue;
    agreement.require_same("checkpoints", to_text(manifest));
    resumed.changed = facts.compare(resumed.run, path);
    std::optional<Loader> loader;
    if (!reads([&] {
          loader.emplace(session, path, manifest, facts.overrides(kDtype));
          // A damaged header may name any variables.
          if (!loader->mismatch().empty()) check_checkpoint(path, manifest);
        }))
      continue;
    if (!loader->mismatch().empty()) fail(ErrorKind::kBadFile, "{}", loader->mismatch());
    damage.written = true;
    if (!reads([&] { loader->load(); })) continue;
    damage.written = false;
    resumed.skipped = std::move(skipped);
    internal::ModelState& state = internal::ModelAccess::state(model);
    state.continue_run(resumed.run, facts.overrides(kData));
    if (auto best = best_of(manifest)) {
      best->name = fmt::format("{}/{}", path, best->name);
      state.set_resumed_best(std::move(*best));
    }
    return resumed;
  }
  fail(ErrorKind::kNoCheckpoint, "{}: must have a whole checkpoint, got damaged ones alone:\n  {}",
       folder, fmt::join(skipped, "\n  "));
}

std::vector<CheckpointInfo> inspect_checkpoints(const std::string& folder) {
  std::vector<CheckpointInfo> all;
  for (const std::string& path : candidates(folder)) {
    CheckpointInfo& info = all.emplace_back();
    info.path = path;
    try {
      const Manifest manifest = read_manifest(path);
      for (const CheckpointFile& f : manifest.files) {
        info.bytes += f.bytes;
        if (!is_part(f)) continue;
        ++info.parts;
        info.variables += static_cast<int64_t>(
            SafetensorsReader(fmt::format("{}/{}", path, f.name)).index().tensors.size());
      }
      info.run = read_run_of(path, manifest);
      check_checkpoint(path, manifest);
    } catch (const Error& e) {
      info.damage = e.what();
    }
  }
  return all;
}

}  // namespace sluice::train
