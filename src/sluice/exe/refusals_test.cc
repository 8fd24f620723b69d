// Each edit makes a valid plan invalid. parse_text must reject it with an error that names the
// defect.

#include "sluice/base/test_refusals.h"
#include "sluice/exe/test_plans.h"
#include "sluice/exe/text.h"
#include "sluice/exe/validate.h"

namespace sluice::exe {
namespace {

struct Edit {
  std::string from;
  std::string to;
  std::string part;  ///< Part of the error message.
};

void expect_unreadable(const std::string& text, const std::vector<Edit>& edits) {
  for (const Edit& e : edits) {
    const std::string edited = plans::replaced(text, e.from, e.to);
    expect_refused(
        {{e.from + " -> " + e.to, [&] { parse_text(edited, "f.plan", Fingerprints::kIgnored); },
          e.part, ErrorKind::kBadFile}});
  }
}

TEST(ExeRefusals, Words) {
  expect_unreadable(
      plans::everything(),
      {
          {"kind tier", "kind attic", "'attic' is no kind of arena"},
          {"0 \"host\" space", "0 \"host\" spice", "'space' expected, found 'spice'"},
          {"budget -1\n", "budget\n", "budget is missing"},
          {"budget -1\n", "budget none\n", "budget must be an integer, found 'none'"},
          {"budget -1\n", "budget -1 more\n", "the end of the line expected, found 'more'"},
          {"workers 3", "workers 4294967296", "workers 4294967296 is out of range"},
          {"\"w\" 0\n", "\"w 0\n", "a string does not end"},
          {"\"w\" 0\n", "\"w\"0\n", "a space must follow a string"},
          {"\\x0a", "\\xg0", "\\x needs two hexadecimal digits"},
          {"data 00ff1a", "data 00ff1g", "'1g' is not hexadecimal"},
          {"data 00ff1a", "data 00ff1", "an odd number of hexadecimal digits"},
          {"float16(2,3)\nstream", "float17(2,3)\nstream", "unknown dtype 'float17'"},
          {"float16(2,3)\nstream", "float16\nstream", "a shape '(2,3)' expected, found ''"},
          {"float16(2,3)\nstream", "float16(2,3\nstream", "a shape without ')': '(2,3'"},
          {"float16(2,3)\nstream", "float16(2,x)\nstream", "'x' is no dimension"},
          {"float16(2,3)\nstream", "float16(2,)\nstream", "a shape ends in ','"},
          {"float16(2,3)\nstream", "float16(2,3)x\nstream", "'x' after a tensor spec"},
          {"shard 2", "shard 02", "shard must be an integer, found '02'"},
          {"token 0\n      write %1 at frame+0 bytes 12",
           "token -0\n      write %1 at frame+0 bytes 12", "token must be an integer, found '-0'"},
          {"carry 0:0", "carry 0:", "must be a pair 'a:b', found '0:'"},
          {"entry_from read %0", "entry_from read 0", "a value '%N' expected, found '0'"},
      });
}

TEST(ExeRefusals, AddressesAndExpressions) {
  expect_unreadable(
      plans::everything(),
      {
          {"at param0+8", "at parameter+8", "'parameter+8' is no address"},
          {"at param0+8", "at heap+8",
           "'heap+8' is no address: arenaN+K, frame+K or paramN+K expected"},
          {"at param0+8", "at param-1+8", "'param-1+8' is no address"},
          {"at param0+8", "at param0", "'param0' is no address: an offset is missing"},
          {"at param0+8", "at param0+08", "'param0+08' is no address"},
          {"at param0+8", "at param0+8x", "'param0+8x' is no address"},
          {"@ring(3,1,", "@ring(3,x,", "@ring(3,x,(rep+p1))' is no address"},
          {"@ring(3,1,(rep+p1))", "@ring(3,1,0", "ring(depth,stride,slot) expected"},
          {"@ring(3,1,", "@ring(3;1,", "is no address: ring(depth,stride,slot) expected"},
          {"(rep+p1)", "(rep^p1)", "one of + - * / % before this, expected"},
          {"(p0*-2)", "(p0*-2", "index expression '(p0*-2': ')' expected at ''"},
          {"(p0*-2)", "(p-1*2)", "a parameter number >= 0 expected at '*2)'"},
          {"(p0*-2)", "(q0*-2)", "an integer expected at 'q0*-2)'"},
      });
}

TEST(ExeRefusals, Lines) {
  const std::string text = plans::everything();
  expect_refused({
      {"nothing", [] { parse_text("", "f.plan"); }, "f.plan:0: the text is empty",
       ErrorKind::kBadFile},
      {"another version", [] { parse_text("sluice executable 2\n", "f.plan"); },
       "f.plan:1: '1' expected, found '2'", ErrorKind::kBadFile},
      {"no end", [] { parse_text("sluice executable 1\n", "f.plan"); },
       "f.plan:1: the text ends before 'end'", ErrorKind::kBadFile},
      {"more", [] { parse_text("sluice executable 1\nend\nmore", "f.plan"); },
       "f.plan:3: text after 'end'", ErrorKind::kBadFile},
  });
  const std::string memory = "      read %0 at frame+0 bytes 16 float32(4) row\n";
  expect_unreadable(
      text,
      {
          {"tier 1 \"file\"", "tier 2 \"file\"", "number 1 expected, found 2"},
          {"tier 1 \"file\"", "tear 1 \"file\"", "'tear' begins no line"},
          {"  final 0 value %1", "  finale 0 value %1", "'finale' begins no line of a program"},
          {"param 1 \"y\"", "param 2 \"y\"", "parameters are numbered from 0"},
          {"  0 sync kernel", memory + "  0 sync kernel", "there is no step before this line"},
          {"      index 1 rep\n", "      coincide 0:1\n",
           "the step has no operands that may coincide"},
          {"row\n      then\n", "row\n", "'then' or 'else' must come before this line"},
          {"5 wait queue 1 token 0\n", "5 wait queue 1 token 0\n" + memory,
           "a wait has no operands"},
          {"      index 1 rep\n", "      index 1 rep\n      index 1 rep\n",
           "'index' stands twice in this step"},
          {"      stage_attrs lhs_transposed=true\n",
           "      stage_attrs lhs_transposed=true\n      stage_attrs lhs_transposed=true\n",
           "'stage_attrs' stands twice in this step"},
          {"5 wait queue 1 token 0\n", memory + "5 wait queue 1 token 0\n",
           "'an operand' stands twice in this step"},
          {"      else\n", "      else\n      else\n", "'else' stands twice in this step"},
          {"6 sync send", "5 sync send", "step 6 expected, found 5"},
          {"6 sync send", "6 sync sent", "'sent' is no kind of step"},
          {"b=0.5", "b=half", "unknown dtype 'half'"},
          {"g=float32 ", "g= ", "a value is missing"},
      });
}

TEST(ExeRefusals, Numbers) {
  expect_unreadable(
      plans::everything(),
      {
          {"workers 1 queues compute\n", "workers 1 queues\n", "a device needs a compute queue"},
          {"workers 1 ", "workers 0 ", "a device needs at least one worker"},
          {"memory 1048576", "memory -2", "budget -2 is negative"},
          {"budget 65536", "budget -2", "budget -2 is negative"},
          {"bytes 4096 stride", "bytes -1 stride", "arena bytes -1 is outside [0, "},
          {"entries 2 arena 2 offset 4096 stride 4096",
           "entries 1000000000000 arena 2 offset 4096 stride 1000000000000",
           "entries 1000000000000 x 1000000000000 is too large"},
          {"0 \"r\" float32(4)", "0 \"r\" float32(4611686018427387904)",
           "shape (4611686018427387904,) is not one of a tensor"},
          {"replicas 4", "replicas 0", "0 replicas"},
          {"group 0 stride 2", "group 0 stride 0", "stride 0 x size 2 does not tile 4 replicas"},
          {"group 0 stride 2", "group 0 stride 3", "stride 3 x size 2 does not tile 4 replicas"},
          {"collectives 1 device", "collectives -1 device", "collectives -1 is outside [0, "},
          {"  final 0 value %1", "  remote 3 loads 1 stores 1 found 1\n  final 0 value %1",
           "remote buffer 3 does not exist (there are 1)"},
          {"capacity 2", "capacity 0", "capacity 0 is less than 1"},
          {"shard 2", "shard -2", "shard -2 is negative"},
          {"buffer 0 entry 1", "buffer 0 entry 2", "entry 2 is not in the remote buffer"},
          {"data 00ff1a", "data 00ff", "the constant has 2 bytes, its spec 3"},
          {"index_params 2", "index_params 5000", "5000 index parameters"},
          {"tasks 7", "tasks 0", "0 tasks"},
          {"trips 3", "trips -3", "-3 trips"},
      });
}

TEST(ExeRefusals, References) {
  expect_unreadable(
      plans::everything(),
      {
          {"frame arena3+0", "frame arena4+0", "arena 4 does not exist (there are 4)"},
          {"2:1\n", "3:1\n", "operand 3 does not exist (there are 3)"},
          {"at param0+8", "at param2+8", "parameter 2 does not exist (there are 2)"},
          {"5 wait queue 1", "5 wait queue 3", "queue 3 does not exist (there are 3)"},
          {"send 0 message", "send 1 message", "channel 1 does not exist (there are 1)"},
          {"stream_in 0", "stream_in 2", "stream 2 does not exist (there are 2)"},
          {"message 0\n      read", "message it\n      read", "'it' stands outside a loop"},
          {"(p0*-2)", "(p2*-2)", "index parameter 2 does not exist (there are 2)"},
          {"  0 call 0", "  0 call 7", "function 7 does not exist (there are 3)"},
          {"then 0 frame frame+0", "then 1 frame frame+0",
           "2 arguments for 0 parameters of 'main'"},
          {"index it ((it*2)+1)", "index it", "1 index arguments for 2 of 'callee'"},
          {"  entry device 1 function 2", "  entry device 0 function 2",
           "device 0 has two entries"},
          {"device 1 function 2", "device 1 function 1", "the entry 'main' is for device 0"},
          {"device 1 function 2", "device 1 function 0", "the entry 'callee' has parameters"},
          {"frame arena3+0", "frame frame+0",
           "an entry's frame has a constant address in an arena"},
          {"queue 1 token 1 found", "queue 1 token 0 found", "token 0 is issued twice"},
      });
  expect_unreadable(plans::two_devices(),
                    {
                        {"0 sync loop 0 frame frame+0 trips 5\n      index it",
                         "0 sync loop 2 frame frame+0 trips 5", "function 2 'main 0' calls itself"},
                        {"0 sync loop 0", "0 sync loop 1", "'consume' is a function of device 1"},
                    });
  // The text form cannot express this defect.
  Executable e = plans::plan(plans::everything());
  std::get<Call>(e.functions[1].steps[0].body).frame.index = 1;
  ASSERT_EQ(validate(e).size(), 1u);
  EXPECT_EQ(validate(e)[0].message, "a frame has no index (1)");
  expect_refused(
      {{"a program", [&] { e.program("eval"); }, "no program 'eval'; there are: load, train"}});
}

TEST(ExeRefusals, ExpressionsWithoutAValue) {
  const IndexExpr p0 = IndexExpr::param(0);
  expect_refused({
      {"a parameter", [&] { (void)p0.evaluate({}); },
       "index expression p0: there are 0 index parameters"},
      {"a division by zero", [] { (void)(IndexExpr::iteration() / 0).evaluate({}); },
       "index expression (it/0): 0 / 0 has no 64-bit value"},
  });
}

}  // namespace
}  // namespace sluice::exe
