// Folders of checkpoints after failed calls, crashes and damage.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sluice/base/failpoint.h"
#include "sluice/base/sys.h"
#include "sluice/base/system/call_log.h"
#include "sluice/base/system/folder.h"
#include "sluice/train/checkpoints/checkpoint_folder.h"
#include "sluice/train/checkpoints/checkpoints.h"
#include "sluice/train/checkpoints/test_runs.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using test::RunFolder;
using test::RunState;
using test::state_of;

void train_more(TrainingModel& model, int64_t calls) {
  DataLoader data = test::run_data({});
  fit(model, data, {.calls = calls});
}

// The states of a run after 0, 1, 2, … updates.
std::vector<RunState> states(int64_t updates) {
  TrainingModel model = test::run_model({});
  std::vector<RunState> all = {state_of(model)};
  for (int64_t u = 0; u < updates; ++u) {
    train_more(model, 1);
    all.push_back(state_of(model));
  }
  return all;
}

// Resumes in a model and compares it with the states. Returns the updates.
int64_t resumed_updates(TrainingModel& model, const std::string& folder,
                        const std::vector<RunState>& expected) {
  const int64_t updates = resume(model, folder).run.updates;
  EXPECT_EQ(state_of(model), expected.at(static_cast<size_t>(updates)));
  return updates;
}

// Saves after each update; each system call of every other save fails in turn.
void expect_saves_after_failures(SaveCopy copy, int code, const std::vector<RunState>& expected) {
  RunFolder folder;
  TrainingModel model = test::run_model({}), reader = test::run_model({});
  Checkpoints checkpoints(model, {.folder = folder.path(), .keep = 1, .copy = copy});
  const auto train_and_save = [&] {
    train_more(model, 1);
    checkpoints.save();
    checkpoints.wait();
  };
  train_and_save();
  bool fails = true;
  for (int64_t number = 1; fails; ++number) {
    const int64_t before = model.updates();
    ASSERT_LT(before + 2, static_cast<int64_t>(expected.size()));
    sys::set_failpoint({.number = number, .code = code});
    bool failed = false;
    try {
      train_and_save();
    } catch (const Error& e) {
      failed = true;
      EXPECT_EQ(e.kind(), ErrorKind::kIo) << e.what();
    }
    fails = sys::failpoint_calls() >= number;
    sys::clear_failpoint();
    EXPECT_FALSE(failed && (code == EINTR || code == 0)) << "call " << number;
    EXPECT_EQ(failed, fails && code != EINTR && code != 0) << "call " << number;
    const int64_t updates = resumed_updates(reader, folder.path(), expected);
    EXPECT_TRUE(updates == before + 1 || (failed && updates == before)) << "call " << number;
    train_and_save();  // Is not disturbed.
    EXPECT_EQ(resumed_updates(reader, folder.path(), expected), before + 2);
  }
  EXPECT_GT(model.updates(), 50);
}

TEST(Crashes, ASystemCallThatFailsLosesNoCheckpoint) {
  const std::vector<RunState> expected = states(180);
  for (const SaveCopy copy : {SaveCopy::kHost, SaveCopy::kNone}) {
    for (const int code : {EIO, ENOSPC, EINTR, 0})  // 0: a short transfer.
      expect_saves_after_failures(copy, code, expected);
  }
}

// Returns a path without "." and ".." in it, and without a slash at its end.
std::string plain_path(const std::string& path) {
  const std::string plain = fs::path(path).lexically_normal();
  return plain.ends_with('/') ? plain.substr(0, plain.size() - 1) : plain;
}

// A file system of which a crash may lose or reorder all changes that were not synchronised:
// writes of a file until its fdatasync, and names in a folder until its fsync.
class CrashedDisk {
 public:
  // Reads the files of a folder, which are on the disk.
  explicit CrashedDisk(const std::string& folder) : root_(folder) {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string path = entry.path();
      const int id = next_++;
      names_[path] = id;
      if (entry.is_regular_file()) {
        const std::vector<std::byte> bytes = sys::read_file(path);
        files_[id] = bytes;
      }
    }
    now_ = names_;
  }

  // Adds the calls of a save, in their order.
  void add(sys::RecordedCall call) {
    call.path = plain_path(call.path);
    if (!call.to.empty()) call.to = plain_path(call.to);
    Change c{.call = call};
    if (call.call == "create" || call.call == "mkdir") {
      c.id = next_++;
      now_[call.path] = c.id;
      if (call.call == "create") files_[c.id];
    } else if (call.call == "rename") {
      c.id = now_.at(call.path);
      move(now_, call.path, call.to);
    } else {
      c.id = call.call == "fsync" ? -1 : now_.at(call.path);
      if (call.call == "unlink" || call.call == "rmdir") now_.erase(call.path);
    }
    changes_.push_back(c);
  }

  size_t changes() const { return changes_.size(); }

  // Writes to `folder` what a crash before change `end` may leave: each change that need not be on
  // the disk is there with probability `share`; a write may be there in part.
  void materialise(const std::string& folder, size_t end, double share,
                   std::mt19937& random) const {
    std::map<std::string, int> names = names_;
    std::map<int, std::vector<std::byte>> files = files_;
    std::bernoulli_distribution reaches(share);
    for (size_t i = 0; i < end; ++i) {
      const Change& c = changes_[i];
      const std::string& call = c.call.call;
      const bool whole = is_synced(i, end) || reaches(random);
      if (call == "pwrite") {
        size_t bytes = c.call.bytes.size();
        if (!whole) bytes = std::uniform_int_distribution<size_t>(0, bytes)(random);
        std::vector<std::byte>& file = files[c.id];
        const auto at = static_cast<size_t>(c.call.offset);
        if (bytes == 0) continue;
        file.resize(std::max(file.size(), at + bytes));
        std::copy_n(c.call.bytes.begin(), bytes, file.begin() + static_cast<int64_t>(at));
      } else if (whole && (call == "create" || call == "mkdir")) {
        names[c.call.path] = c.id;
      } else if (whole && call == "rename") {
        if (!names.contains(c.call.path)) names[c.call.path] = c.id;
        move(names, c.call.path, c.call.to);
      } else if (whole && (call == "unlink" || call == "rmdir")) {
        names.erase(c.call.path);
      }
    }
    for (const auto& [path, id] : names) {
      const std::string target = folder + path.substr(root_.size());
      if (!fs::exists(fs::path(target).parent_path())) continue;  // Its folder is lost.
      const auto file = files.find(id);
      if (file == files.end()) {
        fs::create_directory(target);
      } else {
        std::ofstream(target, std::ios::binary)
            .write(reinterpret_cast<const char*>(file->second.data()),
                   static_cast<std::streamsize>(file->second.size()));
      }
    }
  }

 private:
  struct Change {
    sys::RecordedCall call;
    int id = -1;  // The file or folder.
  };

  static std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

  static void move(std::map<std::string, int>& names, const std::string& from,
                   const std::string& to) {
    std::map<std::string, int> moved;
    for (const auto& [path, id] : names) {
      const bool inside = path == from || path.starts_with(from + "/");
      moved[inside ? to + path.substr(from.size()) : path] = id;
    }
    names = moved;
  }

  // Whether a later call before `end` has put change i on the disk. A name is on the disk only by
  // an fsync of the folder that holds it, also the name of a folder.
  bool is_synced(size_t i, size_t end) const {
    const Change& c = changes_[i];
    for (size_t s = i + 1; s < end; ++s) {
      const Change& sync = changes_[s];
      if (c.call.call == "pwrite") {
        if (sync.call.call == "fdatasync" && sync.id == c.id) return true;
      } else if (sync.call.call == "fsync" && folder_of(c.call.path) == sync.call.path) {
        return true;
      }
    }
    return false;
  }

  std::string root_;
  int next_ = 0;
  std::map<std::string, int> names_;             // On the disk before the save.
  std::map<std::string, int> now_;               // After the calls so far.
  std::map<int, std::vector<std::byte>> files_;  // Contents before the save.
  std::vector<Change> changes_;
};

TEST(Crashes, ACrashLeavesTheOldOrTheNewCheckpoint) {
  const std::vector<RunState> expected = states(2);
  RunFolder folder;
  TrainingModel model = test::run_model({}), reader = test::run_model({});
  Checkpoints checkpoints(model, {.folder = folder.path(), .keep = 1});
  train_more(model, 1);
  checkpoints.save();
  checkpoints.wait();
  CrashedDisk disk(folder.path());
  train_more(model, 1);
  sys::set_call_recorder([&](const sys::RecordedCall& call) { disk.add(call); });
  checkpoints.save();
  checkpoints.wait();
  sys::set_call_recorder(nullptr);
  ASSERT_GT(disk.changes(), 15u);

  std::mt19937 random(1);
  std::set<int64_t> seen;
  for (size_t end = 0; end <= disk.changes(); ++end) {
    for (const double share : {0.0, 1.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95}) {
      for (int repeat = 0; repeat < (share == 0 || share == 1 ? 1 : 4); ++repeat) {
        RunFolder crashed;
        disk.materialise(crashed.path(), end, share, random);
        const int64_t updates = resumed_updates(reader, crashed.path(), expected);
        EXPECT_TRUE(updates == 1 || updates == 2);
        EXPECT_TRUE(end < disk.changes() || updates == 2);
        seen.insert(updates);
        // The next run takes over the folder and saves to it.
        Checkpoints next(reader, {.folder = crashed.path()});
        next.save();
        next.wait();
      }
    }
  }
  EXPECT_EQ(seen, (std::set<int64_t>{1, 2}));
}

// The save creates the folder of checkpoints, whose name in the folder above must reach the disk.
TEST(Crashes, ACrashLosesNoCheckpointOfANewFolder) {
  const std::vector<RunState> expected = states(2);
  RunFolder above;
  const std::string name = "/checkpoints";
  for (const std::string slash : {"", "/"}) {
    TrainingModel model = test::run_model({}), reader = test::run_model({});
    CrashedDisk disk(above.path());
    std::vector<size_t> saved;  // The changes at the end of each save.
    sys::set_call_recorder([&](const sys::RecordedCall& call) { disk.add(call); });
    {
      Checkpoints checkpoints(model, {.folder = above.path() + name + slash});
      for (int i = 0; i < 2; ++i) {
        train_more(model, 1);
        checkpoints.save();
        checkpoints.wait();
        saved.push_back(disk.changes());
      }
    }
    sys::set_call_recorder(nullptr);
    std::mt19937 random(2);
    for (size_t end = 0; end <= disk.changes(); ++end) {
      const auto saves =
          std::count_if(saved.begin(), saved.end(), [&](size_t changes) { return changes <= end; });
      for (const double share : {0.0, 0.5, 0.9}) {
        RunFolder crashed;
        disk.materialise(crashed.path(), end, share, random);
        int64_t updates = 0;
        try {
          updates = resumed_updates(reader, crashed.path() + name, expected);
        } catch (const Error& e) {
          EXPECT_EQ(e.kind(), ErrorKind::kNoCheckpoint) << e.what();
        }
        EXPECT_GE(updates, saves) << "a crash after " << end << " changes";
      }
    }
    fs::remove_all(above.path() + name);
  }
}

void flip(const std::string& path, int64_t at, int bits) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ bits));
}

// Saves after 1 and 2 updates.
void save_two(const std::string& folder) {
  TrainingModel model = test::run_model({});
  Checkpoints checkpoints(model, {.folder = folder});
  for (int i = 0; i < 2; ++i) {
    train_more(model, 1);
    checkpoints.save();
  }
  checkpoints.wait();
}

TEST(Crashes, DamagedBytesAreNamedAndSkipped) {
  const std::vector<RunState> expected = states(2);
  RunFolder folder;
  save_two(folder.path());
  const std::string newest = folder.path() + "/step-000000002";
  TrainingModel reader = test::run_model({});
  int64_t damages = 0;
  for (const std::string& name : sys::names_in(newest)) {
    const std::string path = newest + "/" + name;
    const auto size = static_cast<int64_t>(fs::file_size(path));
    const int64_t step = name == "manifest.json" ? 1 : std::max<int64_t>(size / 60, 1);
    for (int64_t at = 0; at < size; at += step) {
      const int bits = at % 3 == 0 ? 1 : at % 3 == 1 ? 0x20 : 0x80;
      flip(path, at, bits);
      const Resumed resumed = resume(reader, folder.path());
      EXPECT_EQ(resumed.run.updates, 1) << name << " byte " << at;
      ASSERT_EQ(resumed.skipped.size(), 1u);
      EXPECT_NE(resumed.skipped[0].find(newest), std::string::npos) << resumed.skipped[0];
      EXPECT_EQ(state_of(reader), expected[1]);
      flip(path, at, bits);
      ++damages;
    }
  }
  EXPECT_GT(damages, 500);
  EXPECT_EQ(resumed_updates(reader, folder.path(), expected), 2);
}

TEST(Crashes, LostCutAndExchangedFilesAreNamedAndSkipped) {
  const std::vector<RunState> expected = states(2);
  TrainingModel reader = test::run_model({});
  const std::vector<std::string> names = {"manifest.json", "run.json",
                                          "model.safetensors.index.json",
                                          "model-00001-of-00001.safetensors"};
  for (const std::string& name : names) {
    for (const std::string damage : {"lost", "cut", "long", "older", "a folder"}) {
      RunFolder folder;
      save_two(folder.path());
      const std::string path = folder.path() + "/step-000000002/" + name;
      if (damage == "cut") fs::resize_file(path, fs::file_size(path) - 1);
      if (damage == "long") fs::resize_file(path, fs::file_size(path) + 1);
      if (damage == "lost" || damage == "a folder") fs::remove(path);
      if (damage == "a folder") fs::create_directory(path);
      if (damage == "older") {
        fs::copy_file(folder.path() + "/step-000000001/" + name, path,
                      fs::copy_options::overwrite_existing);
      }
      const Resumed resumed = resume(reader, folder.path());
      // The index is the same in both.
      const bool same = damage == "older" && name == "model.safetensors.index.json";
      EXPECT_EQ(resumed.run.updates, same ? 2 : 1) << name << " " << damage;
      EXPECT_EQ(state_of(reader), expected[same ? 2 : 1]);
    }
  }
}

TEST(Crashes, DamagedCheckpointsAloneAreNone) {
  RunFolder folder;
  save_two(folder.path());
  for (const int step : {1, 2})
    flip(fmt::format("{}/step-00000000{}/model-00001-of-00001.safetensors", folder.path(), step),
         static_cast<int64_t>(
             fs::file_size(folder.path() + "/step-000000001/model-00001-of-00001.safetensors")) -
             9,
         1);
  TrainingModel reader = test::run_model({});
  const RunState fresh = state_of(reader);
  train_more(reader, 1);
  try {
    resume(reader, folder.path());
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kNoCheckpoint);
    EXPECT_THAT(e.what(), testing::HasSubstr("step-000000001"));
    EXPECT_THAT(e.what(), testing::HasSubstr("step-000000002"));
  }
  EXPECT_EQ(state_of(reader).variables, fresh.variables);
  const std::vector<CheckpointInfo> all = inspect_checkpoints(folder.path());
  ASSERT_EQ(all.size(), 2u);
  for (const CheckpointInfo& c : all)
    EXPECT_THAT(c.damage, testing::HasSubstr("model-00001-of-00001.safetensors"));
}

TEST(Crashes, LeftoversAreRemovedByTheNextUser) {
  RunFolder folder;
  save_two(folder.path());
  fs::create_directory(folder.path() + "/.tmp-step-000000003");
  std::ofstream(folder.path() + "/.tmp-step-000000003/run.json") << "{}";
  TrainingModel model = test::run_model({});
  resume(model, folder.path());
  Checkpoints checkpoints(model, {.folder = folder.path()});
  EXPECT_THAT(sys::names_in(folder.path()),
              testing::ElementsAre("lock", "step-000000001", "step-000000002"));
}

TEST(Crashes, ADamagedCheckpointIsReplacedWhenItsStepIsReached) {
  const std::vector<RunState> expected = states(2);
  RunFolder folder;
  save_two(folder.path());
  flip(folder.path() + "/step-000000002/run.json", 5, 1);
  TrainingModel model = test::run_model({});
  EXPECT_EQ(resume(model, folder.path()).run.updates, 1);
  Checkpoints checkpoints(model, {.folder = folder.path(), .keep = 1});
  train_more(model, 1);
  checkpoints.save();
  checkpoints.wait();
  EXPECT_EQ(checkpoints_in(folder.path()), std::vector<int64_t>{2});
  TrainingModel reader = test::run_model({});
  EXPECT_EQ(resumed_updates(reader, folder.path(), expected), 2);
}

}  // namespace
}  // namespace sluice::train
