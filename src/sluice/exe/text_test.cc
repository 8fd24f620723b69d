#include "sluice/exe/text.h"
#include "sluice/base/error.h"
#include "sluice/base/test_refusals.h"
#include "sluice/exe/fingerprint.h"
#include "sluice/exe/test_plans.h"
#include "sluice/exe/validate.h"

namespace sluice::exe {
namespace {

/// Removes comments, the spaces before them and the fingerprint.
std::string bare(const std::string& text) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find('\n', at);
    std::string line = text.substr(at, end - at);
    const size_t comment = line.find("  # ");
    if (comment != std::string::npos) line.resize(comment);
    if (!line.starts_with("computes ")) out += line + '\n';
    at = end + 1;
  }
  return out;
}

std::string error_of(const std::string& text) {
  try {
    parse_text(text, "f.plan", Fingerprints::kIgnored);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kBadFile) << e.what();
    return e.what();
  }
  return "";
}

std::string damaged(std::string_view from, std::string_view to) {
  return error_of(plans::replaced(plans::everything(), from, to));
}

TEST(Text, RoundTripIsIdentity) {
  for (const std::string& text :
       {plans::everything(), plans::train_step(), plans::two_devices(), plans::overlapped_loop(),
        plans::carried_ring(), plans::rotating_ring(), plans::branch(), plans::by_reference(),
        plans::collectives()}) {
    const Executable e = plans::plan(text);
    EXPECT_EQ(bare(to_text(e)), bare(text));
    EXPECT_EQ(parse_text(to_text(e), "again"), e);
  }
}

TEST(Text, EmptyExecutable) {
  EXPECT_EQ(bare(to_text({})), "sluice executable 1\nend\n");
  EXPECT_EQ(parse_text(to_text({}), "f"), Executable{});
}

TEST(Text, NamesValuesInComments) {
  const std::string text = to_text(plans::plan(plans::by_reference()));
  EXPECT_NE(text.find("update %0>%2 at arena1+0 bytes 64 float32(16) row  # a v0 > a v1\n"),
            std::string::npos);
}

TEST(Text, ARotationNamesTheValueAfterTheLoop) {
  const std::string text = plans::rotating_ring();
  const Executable e = plans::plan(text);
  const std::vector<Carry> carried{{ParamId(0), ParamId(2)}, {ParamId(1), ParamId(0), ValueId(3)}};
  EXPECT_EQ(std::get<Loop>(e.functions[FunctionId(1)].steps[2].body).carried, carried);
  EXPECT_EQ(error_of(plans::replaced(text, "1:0 %3", "1:0 %7")),
            "f.plan:26: value 7 does not exist (there are 7)");
  EXPECT_EQ(error_of(plans::replaced(text, "1:0 %3", "1:0 %3 %3")),
            "f.plan:27: arguments must be a pair 'a:b', found '%3'");
}

TEST(Text, ErrorsNameFileAndLine) {
  EXPECT_EQ(error_of(""), "f.plan:0: the text is empty");
  EXPECT_EQ(error_of("sluice executable 2\n"), "f.plan:1: '1' expected, found '2'");
  EXPECT_EQ(error_of("sluice executable 1\n"), "f.plan:1: the text ends before 'end'");
  EXPECT_EQ(error_of("sluice executable 1\nend\nmore"), "f.plan:3: text after 'end'");
  EXPECT_EQ(damaged("tier 1 \"file\"", "tier 2 \"file\""), "f.plan:6: number 1 expected, found 2");
  EXPECT_EQ(damaged("kind tier", "kind attic"),
            "f.plan:9: kind of arena must be one of persistent, frames, workspace, slots, tier, "
            "staging, checksums, rings, got 'attic'");
  EXPECT_EQ(damaged("data 00ff1a", "data 00ff1g"),
            "f.plan:15: data must be hexadecimal (0-9, a-f), got '1g'");
  EXPECT_EQ(damaged("(p0*-2)", "(p0*-2"),
            "f.plan:31: index expression '(p0*-2': ')' expected at ''");
  EXPECT_EQ(damaged("float16(2,3)\nstream", "float16(2,-3)\nstream"),
            "f.plan:11: a dimension must be an integer >= 0, got '-3'");
  EXPECT_EQ(damaged("6 sync send", "5 sync send"), "f.plan:64: step 6 expected, found 5");
}

TEST(Text, IndicesAreChecked) {
  EXPECT_EQ(damaged("frame arena3+0", "frame arena4+0"),
            "f.plan:75: arena 4 does not exist (there are 4)");
  EXPECT_EQ(damaged("2:1\n", "3:1\n"), "f.plan:28: operand 3 does not exist (there are 3)");
  EXPECT_EQ(damaged("at param0+8", "at param2+8"),
            "f.plan:28: parameter 2 does not exist (there are 2)");
  EXPECT_EQ(damaged("5 wait queue 1", "5 wait queue 3"),
            "f.plan:63: queue 3 does not exist (there are 3)");
  EXPECT_EQ(damaged("send 0 message", "send 1 message"),
            "f.plan:64: channel 1 does not exist (there are 1)");
  EXPECT_EQ(damaged("stream_in 0", "stream_in 2"),
            "f.plan:58: stream 2 does not exist (there are 2)");
  EXPECT_EQ(damaged("message 0\n", "message it\n"), "f.plan:64: 'it' must be used in loops only");
  EXPECT_EQ(damaged("index it ((it*2)+1)", "index it"),
            "f.plan:43: 'callee' must get 2 index arguments, got 1");
  EXPECT_EQ(damaged("then 0 frame frame+0", "then 1 frame frame+0"),
            "f.plan:48: 'main' must get 0 arguments, got 2");
}

/// A plan with two kernels and a call. The second kernel has two stages.
std::string fingerprinted() {
  return R"plan(sluice executable 1
replicas 4
device 0 kind cpu isa avx2 memory 4096 workers 2 queues compute
arena 0 "persistent" kind persistent space device device 0 bytes 128 stride 0
arena 1 "frames" kind frames space device device 0 bytes 192 stride 0
stream 0 "x" in float32(4)
variable 0 "w" float32(4) arena 0 offset 0 bytes 16 row value %0 shard 0 group 0 buffer -1 entry 0 init "zeros"
constant 0 "c" uint8(2) arena 0 offset 64 value %1 data 00ff
group 0 stride 1 size 2
value 0 "w" 0
value 1 "c" 0
value 2 "t" 0
value 3 "u" 0
function 0 "f" memo "m" device 0 index_params 1 frame 64 bound 64
  param 0 "in" read %2 bytes 16 float32(4) row
  0 sync kernel cpu.reference Softmax tasks 1 workspace 8 origin 7 where "a.cc:1"
      attrs axis=1
      scalars p0
      read %2 at param0+0 bytes 16 float32(4) row
      write %3 at frame+0 bytes 16 float32(4) row
function 1 "main" memo "" device 0 index_params 0 frame 192 bound 192
  0 kernel cpu.fused Scale+Relu tasks 1 workspace 0
      coincide 0:1
      read %0 at arena0+0 bytes 16 float32(4) row
      write %2 at frame+0 bytes 16 float32(4) row
      stage Scale from 0 to -1 float32(4)
      stage_attrs alpha=0.5
      stage Relu from -1 to 1 float32(4)
  1 call 0 frame frame+64
      index 3
      read %2 at frame+0 bytes 16 float32(4) row
program "train"
  entry device 0 function 1 frame arena1+0
  final 0 value %0
end
)plan";
}

TEST(Text, FingerprintHoldsTheValuesOfATextInPlace) {
  const std::string text = to_text(plans::plan(fingerprinted()));
  EXPECT_EQ(parse_text(text, "f.plan"), plans::plan(text));
  for (const auto& [from, to] : std::vector<std::pair<const char*, const char*>>{
           {"axis=1", "axis=0"},
           {"alpha=0.5", "alpha=0.25"},
           {" Softmax ", " LogSoftmax "},
           {"stage Scale", "stage Neg"},
           {"stage Relu from -1", "stage Relu from 0"},
           {"scalars p0", "scalars (p0+1)"},
           {"index 3", "index 2"},
           {"replicas 4", "replicas 8"},
           {"group 0 stride 1", "group 0 stride 2"},
           {"init \"zeros\"", "init \"ones\""},
           {"data 00ff", "data 01ff"},
           {"value 2 \"t\" 0", "value 2 \"t\" 1"},
           {"read %0 at", "read %1 at"},
           {"\"x\" in float32(4)", "\"x\" in float32(2,2)"},
           {"final 0 value %0", "final 0 value %2"},
           {"program \"train\"", "program \"eval\""}}) {
    const std::string changed = plans::replaced(text, from, to);
    try {
      parse_text(changed, "f.plan");
      ADD_FAILURE() << from << " -> " << to << " is accepted";
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find("f.plan:2: computes: must be "), 0u) << e.what();
    }
  }
}

TEST(Text, FingerprintLeavesOutWhereValuesLie) {
  const std::string before = fingerprint(plans::plan(fingerprinted()));
  for (const auto& [from, to] :
       std::vector<std::pair<const char*, const char*>>{{"at param0+0", "at param0+8"},
                                                        {"memory 4096", "memory -1"},
                                                        {"0 sync kernel", "0 kernel"},
                                                        {"cpu.reference", "cpu.rows"},
                                                        {"workspace 8", "workspace 0"},
                                                        {"      coincide 0:1\n", ""},
                                                        {"where \"a.cc:1\"", ""}}) {
    EXPECT_EQ(fingerprint(plans::plan(plans::replaced(fingerprinted(), from, to))), before) << from;
  }
}

TEST(Text, FingerprintMayNotBeMissing) {
  try {
    parse_text(fingerprinted(), "f.plan");
    ADD_FAILURE() << "a text without the line is accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("got none"), std::string::npos) << e.what();
  }
}

TEST(Text, RecursionIsRefused) {
  const std::string text =
      plans::replaced(plans::two_devices(), "0 sync loop 0 frame frame+0 trips 5\n      index it",
                      "0 sync loop 2 frame frame+0 trips 5");
  EXPECT_EQ(error_of(text), "f.plan:26: function 2 'main 0' calls itself");
}

TEST(Text, DamagedBytesNeverCrash) {
  const std::string text = plans::everything();
  int refused = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'0', '\n', static_cast<char>(text[i] ^ 1)}) {
      std::string damaged = text;
      damaged[i] = c;
      refused += !error_of(damaged).empty();
    }
    refused += !error_of(text.substr(0, i)).empty();
  }
  EXPECT_GT(refused, static_cast<int>(text.size()) * 2);
}

TEST(Text, DeepExpressionsAreRefused) {
  EXPECT_NE(damaged("((p1/3)%4)", std::string(100000, '(')).find("less nesting"),
            std::string::npos);
}

TEST(IndexExpr, FoldsAndEvaluates) {
  const IndexExpr it = IndexExpr::iteration();
  EXPECT_EQ(to_string((it * 4 + 1) % 3 - IndexExpr::param(2)), "((((it*4)+1)%3)-p2)");
  EXPECT_EQ(it + 0, it);
  EXPECT_EQ(1 * it, it);
  EXPECT_EQ(it * 0, IndexExpr(0));
  EXPECT_EQ(IndexExpr(-7) / 2, IndexExpr(-4));
  EXPECT_EQ(IndexExpr(-7) % 2, IndexExpr(1));
  EXPECT_EQ(IndexExpr(7) % -2, IndexExpr(-1));
  EXPECT_EQ(it + 1 + 2, it + 3);
  EXPECT_EQ(it + 1 - 3, it - 2);
  EXPECT_EQ(it - 2 + 2, it);
  EXPECT_EQ(to_string(it + INT64_MAX + 1), "((it+9223372036854775807)+1)");
  const std::vector<IndexExpr> for_params{it * 2, IndexExpr(7)};
  EXPECT_EQ(substitute((IndexExpr::param(0) + 1) % IndexExpr::param(1), for_params),
            (it * 2 + 1) % 7);
  const std::vector<int64_t> params{10, 20};
  EXPECT_EQ(((it * 4 + IndexExpr::param(1)) % 7).evaluate({params, 3, 0}), 4);
  EXPECT_EQ((IndexExpr::replica() - 1).evaluate({{}, 0, 5}), 4);
  EXPECT_THROW((it / 0).evaluate({}), Error);
  EXPECT_THROW(IndexExpr::param(2).evaluate({params, 0, 0}), Error);
  EXPECT_THROW((it * INT64_MAX).evaluate({{}, 2, 0}), Error);
  IndexExpr deep = it;
  for (int i = 0; i < 100; ++i) deep = IndexExpr::param(0) - deep;
  EXPECT_EQ(deep.evaluate({params, 3, 0}), 3);
  EXPECT_EQ(parse_index_expr(to_string(deep)), deep);
}

TEST(Executable, ProgramByName) {
  const Executable e = plans::plan(plans::everything());
  EXPECT_EQ(e.program("load").name, "load");
  EXPECT_THROW(e.program("eval"), Error);
  EXPECT_EQ(planned_bytes(e, DeviceId(0), Space::kDevice), 4096 + 384);
}

// Each edit makes a valid plan invalid. parse_text must reject it with an error that names the
// defect.
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
          {"kind tier", "kind attic", "kind of arena must be one of persistent, frames, "},
          {"0 \"host\" space", "0 \"host\" spice", "'space' expected, found 'spice'"},
          {"budget -1\n", "budget\n", "budget is missing"},
          {"budget -1\n", "budget none\n", "budget must be an integer, found 'none'"},
          {"budget -1\n", "budget -1 more\n", "the end of the line expected, found 'more'"},
          {"workers 3", "workers 4294967296", "workers must fit 32 bits, got 4294967296"},
          {"\"w\" 0\n", "\"w 0\n", "a string must end in '\"'"},
          {"\"w\" 0\n", "\"w\"0\n", "a space must follow a string"},
          {"\\x0a", "\\xg0", "\\x needs two hexadecimal digits"},
          {"data 00ff1a", "data 00ff1g", "data must be hexadecimal (0-9, a-f), got '1g'"},
          {"data 00ff1a", "data 00ff1", "an even number of hexadecimal digits, got 5"},
          {"float16(2,3)\nstream", "float17(2,3)\nstream", "unknown dtype 'float17'"},
          {"float16(2,3)\nstream", "float16\nstream", "a shape '(2,3)' expected, found ''"},
          {"float16(2,3)\nstream", "float16(2,3\nstream", "a shape must end in ')', got '(2,3'"},
          {"float16(2,3)\nstream", "float16(2,x)\nstream",
           "a dimension must be an integer >= 0, got 'x'"},
          {"float16(2,3)\nstream", "float16(2,)\nstream", "a shape must not end in ','"},
          {"float16(2,3)\nstream", "float16(2,3)x\nstream",
           "a tensor spec must end after its shape, got 'x'"},
          {"shard 2", "shard 02", "shard must be an integer, found '02'"},
          {"token 0\n      write %1 at frame+0 bytes 12",
           "token -0\n      write %1 at frame+0 bytes 12", "token must be an integer, found '-0'"},
          {"carry 0:0", "carry 0:", "must be a pair 'a:b', found '0:'"},
          {"entry_from read %0", "entry_from read 0", "a value '%N' expected, found '0'"},
          {"provenance 1 running", "provenance 1 runs", "role must be one of forward, gradient, "},
          {"message 2 provenance 1", "message 2 provenance 2",
           "provenance 2 does not exist (there are 2)"},
          {"where \"m/fc (a.cc:1)\" provenance 0", "where \"m/fc (a.cc:1)\" provenance 1",
           "provenance 2 does not exist (there are 2)"},
          {"role update of 0", "role update of 1", "variable 1 does not exist (there are 1)"},
      });
}

TEST(ExeRefusals, AddressesAndExpressions) {
  expect_unreadable(plans::everything(),
                    {
                        {"at param0+8", "at parameter+8", "got 'parameter+8'"},
                        {"at param0+8", "at heap+8",
                         "an address must be arenaN+K, frame+K or paramN+K, or one of these with "
                         "@ring(depth,stride,slot), got 'heap+8'"},
                        {"at param0+8", "at param-1+8", "got 'param-1+8'"},
                        {"at param0+8", "at param0", "got 'param0'"},
                        {"at param0+8", "at param0+08", "got 'param0+08'"},
                        {"at param0+8", "at param0+8x", "got 'param0+8x'"},
                        {"@ring(3,1,", "@ring(3,x,", "@ring(3,x,(rep+p1))'"},
                        {"@ring(3,1,(rep+p1))", "@ring(3,1,0", "@ring(3,1,0'"},
                        {"@ring(3,1,", "@ring(3;1,", "@ring(3;1,(rep+p1))'"},
                        {"(rep+p1)", "(rep^p1)", "one of + - * / % expected at '^p1)"},
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
          {"tier 1 \"file\"", "tear 1 \"file\"", "unknown kind of line 'tear'"},
          {"  final 0 value %1", "  finale 0 value %1",
           "a program must have lines entry, stream, collectives, remote or final, got 'finale'"},
          {"param 1 \"y\"", "param 2 \"y\"", "param 1 expected, found 2"},
          {"  0 sync kernel", memory + "  0 sync kernel", "there is no step before this line"},
          {"      index 1 rep\n", "      coincide 0:1\n",
           "a step of this kind must not have operands that may coincide"},
          {"row\n      then\n", "row\n", "'then' or 'else' must come before this line"},
          {"5 wait queue 1 token 0\n", "5 wait queue 1 token 0\n" + memory,
           "a wait must not have operands"},
          {"      index 1 rep\n", "      index 1 rep\n      index 1 rep\n",
           "this step must have only one 'index'"},
          {"      stage_attrs lhs_transposed=true\n",
           "      stage_attrs lhs_transposed=true\n      stage_attrs lhs_transposed=true\n",
           "this step must have only one 'stage_attrs'"},
          {"5 wait queue 1 token 0\n", memory + "5 wait queue 1 token 0\n",
           "this step must have only one 'an operand'"},
          {"      else\n", "      else\n      else\n", "this step must have only one 'else'"},
          {"6 sync send", "5 sync send", "step 6 expected, found 5"},
          {"6 sync send", "6 sync sent", "kind of step must be one of kernel, call, "},
          {"b=0.5", "b=half", "unknown dtype 'half'"},
          {"g=float32 ", "g= ", "a value is missing"},
      });
}

TEST(ExeRefusals, Numbers) {
  expect_unreadable(
      plans::everything(),
      {
          {"queued queues compute\n", "queued queues\n", "a device needs a compute queue"},
          {"message 2 provenance 1\n", "message -5\n", "message must be at least 0, got -5"},
          {"message 2 provenance 1\n", "message\n", "message is missing"},
          {"1 queued queues", "1 queue queues", "'queues' expected, found 'queue'"},
          {"workers 1 ", "workers 0 ", "workers must be at least 1, got 0"},
          {"memory 1048576", "memory -2",
           "budget must be at least 0 bytes, or -1 for none, got -2"},
          {"budget 65536", "budget -2", "budget must be at least 0 bytes, or -1 for none, got -2"},
          {"bytes 4096 stride", "bytes -1 stride", "arena bytes must be in [0, "},
          {"entries 2 arena 2 offset 4096 stride 4096",
           "entries 1000000000000 arena 2 offset 4096 stride 1000000000000",
           "in all, got 1000000000000 x 1000000000000"},
          {"0 \"r\" float32(4)", "0 \"r\" float32(4611686018427387904)",
           "bytes, got shape (4611686018427387904,)"},
          {"replicas 4", "replicas 0", "replicas must be at least 1, got 0"},
          {"group 0 stride 2", "group 0 stride 0",
           "stride x size must divide 4 replicas, got 0 x 2"},
          {"group 0 stride 2", "group 0 stride 3",
           "stride x size must divide 4 replicas, got 3 x 2"},
          {"collectives 1 device", "collectives -1 device", "collectives must be in [0, "},
          {"  final 0 value %1", "  remote 3 loads 1 stores 1 found 1\n  final 0 value %1",
           "remote buffer 3 does not exist (there are 1)"},
          {"capacity 2", "capacity 0", "capacity must be at least 1, got 0"},
          {"shard 2", "shard -2", "shard must be at least 0, got -2"},
          {"buffer 0 entry 1", "buffer 0 entry 2", "entry must be in [0, 2), got 2"},
          {"data 00ff1a", "data 00ff", "data must have 3 bytes for this spec, got 2"},
          {"index_params 2", "index_params 5000", "index_params must be in [0, 4096], got 5000"},
          {"tasks 7", "tasks 0", "tasks must be in [1, "},
          {"flops 34", "flops -1", "flops must be in [0, "},
          {"trips 3", "trips -3", "trips must be in [0, "},
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
          {"message 0\n      read", "message it\n      read", "'it' must be used in loops only"},
          {"(p0*-2)", "(p2*-2)", "index parameter 2 does not exist (there are 2)"},
          {"  0 call 0", "  0 call 7", "function 7 does not exist (there are 3)"},
          {"then 0 frame frame+0", "then 1 frame frame+0", "'main' must get 0 arguments, got 2"},
          {"index it ((it*2)+1)", "index it", "'callee' must get 2 index arguments, got 1"},
          {"  entry device 1 function 2", "  entry device 0 function 2",
           "device 0 has two entries"},
          {"device 1 function 2", "device 1 function 1",
           "the entry 'main' must be for device 1, got device 0"},
          {"device 1 function 2", "device 1 function 0",
           "the entry 'callee' must not have parameters"},
          {"frame arena3+0", "frame frame+0",
           "an entry's frame must have a constant address in an arena"},
          {"queue 1 token 1 found", "queue 1 token 0 found", "token 0 is issued twice"},
      });
  expect_unreadable(plans::two_devices(),
                    {
                        {"0 sync loop 0 frame frame+0 trips 5\n      index it",
                         "0 sync loop 2 frame frame+0 trips 5", "function 2 'main 0' calls itself"},
                        {"0 sync loop 0", "0 sync loop 1",
                         "'consume' must be a function of device 0, got device 1"},
                    });
  // The text form cannot express this defect.
  Executable e = plans::plan(plans::everything());
  std::get<Call>(e.functions[FunctionId(1)].steps[0].body).frame.index = 1;
  ASSERT_EQ(validate(e).size(), 1u);
  EXPECT_EQ(validate(e)[0].message, "the index of a frame must be 0, got 1");
  expect_refused(
      {{"a program", [&] { e.program("eval"); }, "no program 'eval'; there are: load, train"}});
}

TEST(ExeRefusals, ExpressionsWithoutAValue) {
  const IndexExpr p0 = IndexExpr::param(0);
  expect_refused({
      {"a parameter", [&] { (void)p0.evaluate({}); },
       "index expression p0: index parameters must be below 0, got p0"},
      {"a division by zero", [] { (void)(IndexExpr::iteration() / 0).evaluate({}); },
       "index expression (it/0): 0 / 0 has no 64-bit value"},
  });
}

}  // namespace
}  // namespace sluice::exe
