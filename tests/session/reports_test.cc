// Reports that sessions write when they end.

#include "sluice/session/profile.h"

#include <gmock/gmock.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "../support/mlp.h"
#include "sluice/exe/executable.h"
#include "sluice/report/report.h"
#include "sluice/runtime/events.h"

namespace sluice::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A folder of its own, and no variables of the environment.
class Reports : public testing::Test {
 protected:
  Reports()
      : folder_(std::filesystem::path(testing::TempDir()) /
                ("sluice_reports_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(folder_);
    unsetenv("SLUICE_PROFILE");
    unsetenv("SLUICE_OPTIONS");
  }
  ~Reports() override {
    unsetenv("SLUICE_PROFILE");
    std::filesystem::remove_all(folder_);
  }

  SessionOptions with(std::optional<std::string> profile) const {
    SessionOptions options{.device = cpu_device({.threads = 2})};
    options.profile = std::move(profile);
    return options;
  }
  // The folders of reports, and the text of the report in the only one of a kind that begins so.
  std::vector<std::string> parts() const {
    std::vector<std::string> names;
    if (!std::filesystem::exists(folder_)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename());
    return names;
  }
  std::string report(const std::string& part) const {
    std::ifstream file(folder_ / part / "report.json");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  const std::filesystem::path folder_;
};

TEST_F(Reports, SayWhatTheLastRunDid) {
  const MlpProgram p;
  {
    Session session(p.ir, with(folder_));
    train(session, p, 2);
    ASSERT_EQ(session.lanes().size(), 2u);
    EXPECT_EQ(session.event_bytes(),
              2 * kReportEvents * static_cast<int64_t>(sizeof(runtime::Event)));
    int64_t loads = 0, stores = 0;
    for (const runtime::StepRuns& m : session.moves()) {
      const auto& issue = std::get<exe::Issue>(m.step->body);
      (issue.kind == exe::TransferKind::kStreamIn ? loads : stores) += m.runs;
    }
    EXPECT_EQ(loads, 2);  // Image and labels, in the last run alone.
    EXPECT_EQ(stores, 1);
    EXPECT_THAT(parts(), testing::SizeIs(1));
    EXPECT_EQ(report(parts().front()), "");  // A report is written only at the end.
  }
  ASSERT_THAT(parts(), testing::SizeIs(1));
  const std::string part = parts().front();
  EXPECT_THAT(part, testing::StartsWith("training"));
  EXPECT_THAT(report(part), HasSubstr(R"("schema":"sluice-report")"));
  EXPECT_THAT(report(part), HasSubstr(R"("measured":[{"program":"train")"));
  for (const char* name : {"report.html", "trace.json"})
    EXPECT_TRUE(std::filesystem::exists(folder_ / part / name));

  Session(p.ir, with(folder_));  // Another session has another folder, and no run.
  EXPECT_THAT(parts(), testing::SizeIs(2));
  for (const std::string& name : parts()) {
    if (name != part) {
      EXPECT_THAT(report(name), HasSubstr(R"("measured":[])"));
    }
  }
}

TEST_F(Reports, HaveTheLastRunOfEachProgram) {
  const MlpProgram p;
  {
    Session session(p.ir, with(folder_));
    const Batch batch(p.options, 0);
    for (int i = 0; i < 2; ++i) {
      train(session, p, 2);
      session.run({{p.eval_image, batch.image}}, "eval");
    }
  }
  const std::string text = report(parts().front());
  EXPECT_THAT(text, HasSubstr(R"("measured":[{"program":"eval","replica":0,)"));
  EXPECT_THAT(text, HasSubstr(R"({"program":"train","replica":0,)"));
}

TEST_F(Reports, OfProgramsThatChangeNoVariableAreInference) {
  for (const bool remote : {false, true}) {
    for (const bool changes : {false, true}) {
      std::filesystem::remove_all(folder_);
      Ir ir;
      Graph& g = ir.main_graph();
      VariableInfo info;
      info.path = "v";
      info.initializer = Initializer::normal(0, 1);
      RemoteBuffer buffer;
      if (remote) {
        buffer = ir.remote_buffer(f32_spec({3}), 1);
        info.location = {buffer.id, 0};
      }
      const Tensor variable = g.variable(f32_spec({3}), info, "v");
      const Tensor v = remote ? g.remote_load(buffer, 0) : variable;
      if (changes) ops::add_(v, v);
      if (changes && remote) g.remote_store(buffer, 0, v);
      g.host_store(v + v, "twice");
      Session(ir, with(folder_)).run();
      ASSERT_THAT(parts(), testing::SizeIs(1));
      EXPECT_THAT(parts().front(), testing::StartsWith(changes ? "training" : "inference"));
    }
  }
}

TEST_F(Reports, AreThoseOfTheEnvironmentUnlessTheOptionsSayOtherwise) {
  const MlpProgram p;
  Session(p.ir, with({}));
  EXPECT_THAT(parts(), IsEmpty());
  setenv("SLUICE_PROFILE", folder_.c_str(), 1);
  Session(p.ir, with(""));
  EXPECT_THAT(parts(), IsEmpty());
  {
    Session session(p.ir, with({}));
    EXPECT_GT(session.event_bytes(), 0);
  }
  EXPECT_THAT(parts(), testing::SizeIs(1));
  setenv("SLUICE_PROFILE", "/none/such", 1);
  testing::internal::CaptureStderr();
  Session(p.ir, with(folder_));
  Session(p.ir, with(folder_));
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warning,
              HasSubstr("SLUICE_PROFILE is ignored: the report goes to " + folder_.string()));
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1) << warning;
  EXPECT_THAT(parts(), testing::SizeIs(3));
  error_of(ErrorKind::kIo, [&] { Session(p.ir, with({})); });
}

TEST_F(Reports, OfPlansThatDoNotFitHaveTheRefusal) {
  const MlpProgram p;
  const int64_t peak = Session(p.ir, with({})).planned_bytes();
  SessionOptions options = with(folder_);
  options.device.memory = peak - 1;
  const std::string what = error_of(ErrorKind::kDoesNotFit, [&] { Session(p.ir, options); });
  ASSERT_THAT(parts(), testing::SizeIs(1));
  const std::string text = report(parts().front());
  EXPECT_THAT(text, HasSubstr(R"("refusal":")" + what.substr(0, what.find('\n'))));
  EXPECT_THAT(text, HasSubstr(fmt::format(R"("budget_bytes":{})", peak - 1)));
  EXPECT_THAT(text, HasSubstr(fmt::format(R"("planned_bytes":{})", peak)));
}

TEST_F(Reports, ThatCannotBeWrittenAreOneWarning) {
  const MlpProgram p;
  testing::internal::CaptureStderr();
  {
    Session session(p.ir, with(folder_));
    train(session, p, 1);
    const std::filesystem::path part = folder_ / parts().front();
    std::filesystem::remove_all(part);
    std::ofstream(part) << "a file";
  }
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warning, HasSubstr("report in " + folder_.string()));
  EXPECT_THAT(warning, HasSubstr("it is not complete"));
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1) << warning;
}

}  // namespace
}  // namespace sluice::test
