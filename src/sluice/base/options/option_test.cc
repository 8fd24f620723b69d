#include "sluice/base/options/option.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "sluice/base/options/option_file.h"
#include "sluice/base/test_refusals.h"

namespace sluice {
namespace {

enum class Colour { kRed, kBlue };

struct Inner {
  int64_t limit = -1;
  double share = 0.5;
};

struct Outer {
  Colour colour = Colour::kRed;
  int count = 1;
  std::optional<int64_t> steps;
  std::string file;
  bool quick = false;
  OptionTexts names;
  Inner inner;
};

OptionTable<Inner> inner_table() {
  OptionTable<Inner> t;
  t.add("limit", &Inner::limit, forms::or_word<int64_t>("none", -1, forms::bytes(1), "-1"),
        "Limit");
  t.add("share", &Inner::share, forms::floats({.max = 1, .excludes_min = true}, "SHARE"), "Share")
      .require({"{limit} of some bytes", [](const Inner& i) { return i.limit >= 0; }});
  return t;
}

OptionTable<Outer> outer_table() {
  OptionTable<Outer> t;
  t.add("colour", &Outer::colour,
        forms::words<Colour>(
            {{"red", Colour::kRed}, {"blue", Colour::kBlue}, {"azure", Colour::kBlue}}),
        "Colour");
  t.add("count", &Outer::count, forms::integers<int>(1, 8), "Count")
      .require({"{colour} blue", [](const Outer& o) { return o.colour == Colour::kBlue; }});
  t.add("steps", &Outer::steps, forms::integers<int64_t>(0), "Steps", "by epochs");
  t.add("file", &Outer::file, forms::texts("FILE"), "File").named("--to");
  t.add("quick", &Outer::quick, forms::flags(), "Quick")
      .require({"a file", [](const Outer& o) { return !o.file.empty(); },
                [](const Outer&) { return std::string("nothing"); }});
  t.add_list("names", &Outer::names, "NAMES", "Names");
  t.add_members("inner", &Outer::inner, inner_table());
  return t;
}

// Sets an option of a default struct and returns its text.
std::string set(const std::string& name, const OptionTexts& texts,
                OptionNames names = OptionNames::kMembers) {
  const OptionTable<Outer> table = outer_table();
  Outer o;
  table.set(table.find(name), o, texts, names);
  return table.find(name).print(o);
}

TEST(Option, ReadsWhatItPrints) {
  EXPECT_EQ(set("colour", {"blue"}), "blue");
  EXPECT_EQ(set("colour", {"azure"}), "blue");
  EXPECT_EQ(set("steps", {"1e3"}), "1000");
  EXPECT_EQ(set("inner.limit", {"2K"}), "2048");
  EXPECT_EQ(set("inner.limit", {"-1"}), "none");
  EXPECT_EQ(set("names", {"a", "b"}), "a, b");
  const OptionTable<Outer> table = outer_table();
  EXPECT_EQ(table.print(Outer()),
            "colour=red\ncount=1\nsteps=by epochs\nfile=absent\nquick=false\nnames=none\n"
            "inner.limit=none\ninner.share=0.5\n");
  EXPECT_NE(table.print({.steps = 2}).find("steps=2 (changed)\n"), std::string::npos);
  EXPECT_EQ(table.find("colour").placeholder, "red|blue");
}

TEST(Option, RefusesWrongTexts) {
  const auto bad = [](const std::string& name, const OptionTexts& texts, const std::string& part) {
    return Refusal{name + part, [=] { set(name, texts); }, part};
  };
  expect_refused({
      bad("colour", {"blu"}, "colour: must be one of red, blue, got 'blu'; did you mean blue?"),
      bad("steps", {"-1"}, "steps: must be an integer from 0 to 9223372036854775807, got '-1'"),
      bad("steps", {"1", "2"}, "steps: must have one value, got 2"),
      bad("file", {""}, "file: must be a text that is not empty, got ''"),
      bad("inner.limit", {"0"}, "inner.limit: must be none or bytes from 1 to "),
  });
}

TEST(Option, RequiresItsPrerequisites) {
  const auto bad = [](const std::string& name, const std::string& text, OptionNames names,
                      const std::string& part) {
    return Refusal{part, [=] { set(name, {text}, names); }, part};
  };
  expect_refused({
      bad("count", "2", OptionNames::kMembers, "count requires colour blue (it is red)"),
      bad("count", "2", OptionNames::kFlags, "--count requires --colour blue (it is red)"),
      bad("quick", "true", OptionNames::kFlags, "--quick requires a file (it is nothing)"),
      bad("inner.share", "0.1", OptionNames::kMembers,
          "inner.share requires inner.limit of some bytes (it is none)"),
      bad("inner.share", "0.1", OptionNames::kFlags, "--share requires --limit of some bytes"),
      bad("file", "", OptionNames::kFlags, "--to: must be a text"),
  });
  EXPECT_EQ(set("count", {"1"}), "1");  // The default has no effect.
}

TEST(Option, ChecksStructs) {
  const OptionTable<Outer> table = outer_table();
  const auto bad = [&](const Outer& o, const std::string& part) {
    return Refusal{part, [&table, o] { table.check(o); }, part};
  };
  expect_refused({
      bad({.colour = Colour::kBlue, .count = 9}, "count: must be an integer from 1 to 8, got '9'"),
      bad({.count = 2}, "count requires colour blue (it is red)"),
      bad({.steps = -1}, "steps: must be an integer from 0"),
      bad({.inner = {.limit = 0}}, "inner.limit: must be none or bytes from 1"),
      bad({.inner = {.limit = 1, .share = 0}},
          "inner.share: must be a finite float32 number above 0 to 1, got '0'"),
      bad({.inner = {.limit = 1, .share = std::numeric_limits<double>::quiet_NaN()}}, "got 'nan'"),
      bad({.inner = {.limit = 1, .share = 1 + 1e-9}}, "got '1.000000001'"),
  });
  table.check({.colour = Colour::kBlue, .count = 8, .steps = 0, .inner = {.limit = 1, .share = 1}});
}

TEST(Option, IsReadFromAFileInTheOrderOfTheTable) {
  const std::string path = testing::TempDir() + "option_test.json";
  std::ofstream(path) << R"({"inner": {"share": 0.25, "limit": "1K"}, "count": 3,
                             "colour": "blue", "names": ["a"], "file": "f", "quick": true})";
  Outer o;
  read_option_file(path, outer_table(), o);
  EXPECT_EQ(o.count, 3);
  EXPECT_EQ(o.inner.limit, 1024);
  EXPECT_EQ(o.inner.share, 0.25);
  EXPECT_TRUE(o.quick);
  std::ofstream(path) << R"({"count": 3})";
  expect_refused(
      {{"prerequisite", [&] { read_option_file(path, outer_table(), o = Outer()); },
        "option_test.json: count requires colour blue (it is red)", ErrorKind::kBadFile}});
}

}  // namespace
}  // namespace sluice
