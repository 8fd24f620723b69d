#include <functional>
#include <map>
#include <set>

#include "sluice/exe/fingerprint.h"
#include "sluice/exe/line_reader.h"
#include "sluice/exe/text.h"
#include "sluice/exe/validate.h"
#include "sluice/exe/words.h"

namespace sluice::exe {
namespace {

class TextParser {
 public:
  TextParser(std::string_view text, const std::string& file) : in_(text, file) {}

  Executable run(Fingerprints fingerprints) {
    if (!in_.next_line()) in_.bad("the text is empty");
    for (const char* word : {"sluice", "executable", "1"}) in_.expect(word);
    in_.expect_end();
    bool ended = false;
    while (!ended) {
      if (!in_.next_line()) in_.bad("the text ends before 'end'");
      ended = in_.peek("end");
      if (!ended) one_line();
    }
    if (in_.next_line()) in_.bad("text after 'end'");
    const std::vector<Problem> problems = validate(e_);
    if (!problems.empty()) in_.bad_at(line_of(problems.front().position), problems.front().message);
    if (fingerprints == Fingerprints::kCompared) compare_fingerprint();
    return std::move(e_);
  }

 private:
  using Section = PlanPosition::Section;

  void compare_fingerprint() const {
    const std::string found = fingerprint(e_);
    if (found == computes_) return;
    in_.bad_at(computes_line_, fmt::format("computes: must be {} for the steps of this text, got "
                                           "{}; the text was edited after it was written, so "
                                           "write it again",
                                           found, computes_.empty() ? "none" : computes_));
  }

  int64_t line_of(const PlanPosition& position) const {
    const auto found = lines_.find({position.section, position.index, position.step});
    return found == lines_.end() ? in_.line() : found->second;
  }

  void note(Section section, int64_t index, int64_t step = -1) {
    lines_[{section, index, step}] = in_.line();
  }

  /// Reads the row number at the beginning of a table's line and adds the row. Rows are numbered
  /// from 0.
  template <typename Table>
  auto& row(Section section, Table& rows) {
    const int64_t n = in_.integer("a number");
    if (n != static_cast<int64_t>(rows.size()))
      in_.bad("number {} expected, found {}", rows.size(), n);
    note(section, n);
    function_ = nullptr;
    program_ = nullptr;
    step_ = nullptr;
    return rows.emplace_back();
  }

  /// Fails if the current step has had such a line before; in a branch, the current arm.
  void once(std::string_view line) {
    if (!lines_of_step_.emplace(line).second) in_.bad("this step must have only one '{}'", line);
  }

  void one_line() {
    if (in_.eat("attrs")) {
      once("attrs");
      auto* c = std::get_if<Collective>(&the_step().body);
      return attrs(c != nullptr ? c->attrs : body<Kernel>("attributes").attrs);
    }
    if (in_.eat("stage_attrs")) {
      once("stage_attrs");
      return attrs(stage_attrs());
    }
    if (in_.eat("computes")) {
      computes_ = in_.string("a fingerprint");
      computes_line_ = in_.line();
    } else if (in_.eat("replicas")) {
      e_.replicas = in_.integer32("a number");
    } else if (table_line() || object_line()) {
      // The call has read the line.
    } else if (in_.eat("function")) {
      function(row(Section::kFunction, e_.functions));
    } else if (in_.eat("program")) {
      note(Section::kProgram, static_cast<int64_t>(e_.programs.size()));
      function_ = nullptr;
      step_ = nullptr;
      program_ = &e_.programs.emplace_back();
      program_->name = in_.string("a name");
    } else if (program_ != nullptr) {
      return program_line();
    } else if (function_ != nullptr) {
      return function_line();
    } else {
      in_.bad("unknown kind of line '{}'", in_.string("a word"));
    }
    in_.expect_end();
  }

  /// Reads a line about the machine or its memory, if it is one.
  bool table_line() {
    if (in_.eat("device")) {
      device(row(Section::kDevice, e_.devices));
    } else if (in_.eat("tier")) {
      Tier& t = row(Section::kTier, e_.tiers);
      t.name = in_.string("a name");
      in_.expect("space");
      t.space = in_.one_of<Space>(kSpaceWords, "space");
      t.budget = in_.labelled("budget");
    } else if (in_.eat("arena")) {
      Arena& a = row(Section::kArena, e_.arenas);
      a.name = in_.string("a name");
      in_.expect("kind");
      a.kind = in_.one_of<ArenaKind>(kArenaWords, "kind of arena");
      in_.expect("space");
      a.space = in_.one_of<Space>(kSpaceWords, "space");
      in_.labelled(a.device, "device");
      a.bytes = in_.labelled("bytes");
      a.stride = in_.labelled("stride");
    } else if (in_.eat("channel")) {
      Channel& c = row(Section::kChannel, e_.channels);
      c.name = in_.string("a name");
      in_.labelled(c.from, "from");
      in_.labelled(c.to, "to");
      c.capacity = in_.labelled("capacity");
      in_.labelled(c.arena, "arena");
      c.offset = in_.labelled("offset");
      c.slot_bytes = in_.labelled("slot");
    } else if (in_.eat("group")) {
      ReplicaGroup& g = row(Section::kGroup, e_.groups);
      g.stride = in_.labelled32("stride");
      g.size = in_.labelled32("size");
    } else {
      return false;
    }
    return true;
  }

  /// Reads a line about a stream, a variable or another object of the executable, if it is one.
  /// Lines of a program begin with some of these words too.
  bool object_line() {
    if (program_ == nullptr && in_.eat("stream")) {
      StreamPort& s = row(Section::kStream, e_.streams);
      s.name = in_.string("a name");
      s.input = in_.eat("in");
      if (!s.input) in_.expect("out");
      s.spec = in_.spec();
    } else if (in_.eat("feed")) {
      feed(row(Section::kFeed, e_.feeds));
    } else if (program_ == nullptr && in_.eat("remote")) {
      RemoteBufferPlan& b = row(Section::kRemoteBuffer, e_.remote_buffers);
      b.name = in_.string("a name");
      b.spec = in_.spec();
      b.entries = in_.labelled("entries");
      in_.labelled(b.arena, "arena");
      b.offset = in_.labelled("offset");
      b.entry_stride = in_.labelled("stride");
    } else if (in_.eat("variable")) {
      variable(row(Section::kVariable, e_.variables));
    } else if (in_.eat("constant")) {
      ConstantPlan& c = row(Section::kConstant, e_.constants);
      c.name = in_.string("a name");
      c.spec = in_.spec();
      in_.labelled(c.arena, "arena");
      c.offset = in_.labelled("offset");
      in_.expect("value");
      c.value = in_.values().first;
      in_.expect("data");
      c.data = in_.hex();
    } else if (in_.eat("value")) {
      Value& v = row(Section::kValue, e_.values);
      v.tensor = in_.string("a tensor");
      v.version = in_.integer("a version");
      if (in_.peek("message")) v.message = in_.labelled32("message");
      e_.origins.values.push_back(from());
    } else if (in_.eat("provenance")) {
      provenance(row(Section::kProvenance, e_.origins.rows));
    } else if (in_.eat("rows_of_block")) {
      std::vector<std::string>& rows = e_.origins.rows_of_blocks[in_.string("a block")];
      while (!in_.done()) rows.push_back(in_.string("a name"));
    } else {
      return false;
    }
    return true;
  }

  int32_t from() { return in_.eat("provenance") ? in_.integer32("a provenance") : -1; }

  void provenance(Provenance& p) {
    p.role = in_.one_of<OpRole>(kOpRoleWords, "role");
    const auto field = [&](std::string_view label, std::string& text) {
      if (in_.eat(label)) text = in_.string("a text");
    };
    field("op", p.op);
    field("block", p.block);
    field("module", p.module_path);
    field("line", p.line);
    field("variable", p.variable);
    const auto instance = [&](std::string_view label, Instance& at) {
      if (!in_.eat(label)) return;
      at.micro_batch = in_.integer("a micro-batch");
      at.row = in_.integer("a row");
    };
    instance("at", p.at);
    instance("per_iteration", p.per_iteration);
  }

  void feed(Feed& f) {
    f.name = in_.string("a name");
    f.input = in_.eat("in");
    if (!f.input) in_.expect("out");
    f.depth = in_.labelled("depth");
    while (in_.eat("field")) {
      FeedRing& r = f.rings.emplace_back();
      in_.read(r.stream, "a stream");
      r.slots = in_.labelled("slots");
      in_.labelled(r.arena, "arena");
      r.offset = in_.labelled("offset");
      r.slot_bytes = in_.labelled("slot");
    }
  }

  void function(Function& f) {
    function_ = &f;
    e_.origins.buffers.emplace_back();
    f.name = in_.string("a name");
    in_.expect("memo");
    f.memo = in_.string("memo");
    in_.labelled(f.device, "device");
    f.index_params = in_.labelled32("index_params");
    f.frame_bytes = in_.labelled("frame");
    f.frame_bound = in_.labelled("bound");
  }

  void device(Device& d) {
    in_.expect("kind");
    d.kind = in_.string("kind");
    in_.expect("isa");
    d.isa = in_.string("isa");
    d.memory_budget = in_.labelled("memory");
    d.workers = in_.labelled32("workers");
    d.queued = in_.eat("queued");
    in_.expect("queues");
    while (!in_.done()) d.queues.push_back({in_.string("queue")});
  }

  void variable(VariablePlan& v) {
    v.path = in_.string("a path");
    v.spec = in_.spec();
    in_.labelled(v.arena, "arena");
    v.offset = in_.labelled("offset");
    v.bytes = in_.labelled("bytes");
    v.layout = in_.string("layout");
    in_.expect("value");
    v.value = in_.values().first;
    v.shard = in_.labelled32("shard");
    in_.labelled(v.group, "group");
    in_.labelled(v.buffer, "buffer");
    v.entry = in_.labelled("entry");
    in_.expect("init");
    v.initializer = in_.string("an initializer");
    Origins::Variable& origin = e_.origins.variables.emplace_back();
    if (in_.eat("role")) {
      origin.role = in_.one_of<OpRole>(kOpRoleWords, "role");
      in_.labelled(origin.owner, "of");
    }
  }

  void program_line() {
    if (in_.eat("entry")) {
      Start x;
      in_.labelled(x.device, "device");
      in_.labelled(x.function, "function");
      in_.expect("frame");
      x.frame = in_.address();
      program_->starts.push_back(x);
    } else if (in_.eat("stream")) {
      StreamCount s;
      in_.read(s.stream, "a stream");
      s.entries = in_.labelled("entries");
      program_->streams.push_back(s);
    } else if (in_.eat("collectives")) {
      CollectiveCount c;
      c.count = in_.integer("a count");
      in_.labelled(c.device, "device");
      in_.labelled(c.group, "group");
      program_->collectives.push_back(c);
    } else if (in_.eat("remote")) {
      RemoteTrace r;
      in_.read(r.buffer, "a remote buffer");
      r.loads = in_.labelled("loads");
      r.stores = in_.labelled("stores");
      r.found = in_.labelled("found");
      program_->remote.push_back(r);
    } else if (in_.eat("final")) {
      Final f;
      in_.read(f.variable, "a variable");
      in_.expect("value");
      f.value = in_.values().first;
      program_->finals.push_back(f);
    } else {
      in_.bad("a program must have lines entry, stream, collectives, remote or final, got '{}'",
              in_.string("a word"));
    }
    in_.expect_end();
  }

  void function_line() {
    if (in_.eat("param")) {
      const int64_t n = in_.integer("a number");
      if (n != static_cast<int64_t>(function_->params.size()))
        in_.bad("param {} expected, found {}", function_->params.size(), n);
      Param p;
      p.name = in_.string("a name");
      p.access = in_.one_of<Access>(kAccessWords, "access");
      std::tie(p.value, p.made) = in_.values();
      p.bytes = in_.labelled("bytes");
      p.spec = in_.spec();
      p.layout = in_.string("layout");
      function_->params.push_back(std::move(p));
    } else if (in_.eat("buffer")) {
      FrameBuffer b;
      b.name = in_.string("a name");
      b.offset = in_.labelled("offset");
      b.bytes = in_.labelled("bytes");
      b.begin = in_.labelled("steps");
      b.end = in_.integer("steps");
      e_.origins.buffers.back().push_back(in_.eat("value") ? in_.values().first : kNoValue);
      function_->buffers.push_back(std::move(b));
    } else if (item_line()) {
      // The call has read a line of the current step.
    } else {
      step_line();
    }
    in_.expect_end();
  }

  Step& the_step() {
    if (step_ == nullptr) in_.bad("there is no step before this line");
    return *step_;
  }

  template <typename Body>
  Body& body(std::string_view what) {
    Body* b = std::get_if<Body>(&the_step().body);
    if (b == nullptr) in_.bad("a step of this kind must not have {}", what);
    return *b;
  }

  /// Returns the call of the current step that arguments belong to; in a branch, the current arm's.
  Call& the_call() {
    Step& step = the_step();
    if (auto* c = std::get_if<Call>(&step.body)) return *c;
    if (auto* l = std::get_if<Loop>(&step.body)) return l->body;
    auto& b = body<Branch>("index arguments");
    if (arm_ == 0) in_.bad("'then' or 'else' must come before this line");
    return arm_ == 1 ? b.then_call : b.else_call;
  }

  void stage() {
    auto& k = body<Kernel>("stages");
    Stage& s = k.stages.emplace_back();
    lines_of_step_.erase("stage_attrs");
    s.op = in_.string("an op");
    in_.expect("from");
    while (!in_.peek("to")) s.inputs.push_back(in_.integer32("an operand"));
    in_.labelled(s.output, "to");
    s.spec = in_.spec();
  }

  Attrs& stage_attrs() {
    auto& k = body<Kernel>("stages");
    if (k.stages.empty()) in_.bad("there is no stage before this line");
    return k.stages.back().attrs;
  }

  void attrs(Attrs& to) {
    try {
      to = parse_attrs(in_.raw_rest());
    } catch (const Error& e) {
      in_.bad("{}", e.what());
    }
  }

  bool item_line() {
    if (in_.eat("stage")) {
      stage();
    } else if (in_.eat("coincide")) {
      once("coincide");
      auto* c = std::get_if<Collective>(&the_step().body);
      auto& pairs =
          c != nullptr ? c->may_coincide : body<Kernel>("operands that may coincide").may_coincide;
      while (!in_.done()) pairs.push_back(in_.pair("operands"));
    } else if (in_.eat("scalars")) {
      once("scalars");
      body<Kernel>("scalars").scalars = in_.expressions();
    } else if (in_.eat("index")) {
      once("index");
      the_call().index_args = in_.expressions();
    } else if (in_.eat("carry")) {
      once("carry");
      auto& l = body<Loop>("carried values");
      while (!in_.done()) {
        const auto [a, b] = in_.pair("arguments");
        l.carried.push_back(
            {ParamId(a), ParamId(b), in_.peek_value() ? in_.values().first : kNoValue});
      }
    } else if (in_.eat("condition")) {
      once("condition");
      body<Branch>("condition").condition = operand();
    } else if (in_.peek("then") || in_.peek("else")) {
      body<Branch>("arms");
      arm_ = in_.eat("then") ? 1 : 2;
      in_.eat("else");
      once(arm_ == 1 ? "then" : "else");
      lines_of_step_.erase("index");
    } else if (in_.eat("entry_from")) {
      once("entry_from");
      body<Issue>("entry").entry_from = operand();
    } else if (in_.peek("read") || in_.peek("write") || in_.peek("update")) {
      add_operand(operand());
    } else {
      return false;
    }
    return true;
  }

  Operand operand() {
    Operand o;
    o.access = in_.one_of<Access>(kAccessWords, "access");
    std::tie(o.value, o.made) = in_.values();
    in_.expect("at");
    o.at = in_.address();
    o.bytes = in_.labelled("bytes");
    o.spec = in_.spec();
    o.layout = in_.string("layout");
    if (in_.eat("task")) o.task_stride = in_.integer("task");
    if (in_.eat("pitch")) o.task_pitch = in_.integer("pitch");
    return o;
  }

  void add_operand(Operand o) {
    Step& step = the_step();
    if (auto* k = std::get_if<Kernel>(&step.body)) {
      k->operands.push_back(std::move(o));
    } else if (auto* i = std::get_if<Issue>(&step.body)) {
      once("an operand");
      i->memory = std::move(o);
    } else if (auto* s = std::get_if<Send>(&step.body)) {
      once("an operand");
      s->operand = std::move(o);
    } else if (auto* r = std::get_if<Receive>(&step.body)) {
      once("an operand");
      r->operand = std::move(o);
    } else if (auto* c = std::get_if<Collective>(&step.body)) {
      c->operands.push_back(std::move(o));
    } else if (std::holds_alternative<Wait>(step.body)) {
      in_.bad("a wait must not have operands");
    } else {
      the_call().args.push_back(std::move(o));
    }
  }

  void call_head(Call& c) {
    in_.read(c.function, "a function");
    in_.expect("frame");
    c.frame = in_.address();
  }

  void step_line() {
    const int64_t n = in_.integer("a step number");
    if (n != static_cast<int64_t>(function_->steps.size())) {
      in_.bad("step {} expected, found {}", function_->steps.size(), n);
    }
    note(Section::kFunction, static_cast<int64_t>(e_.functions.size()) - 1, n);
    arm_ = 0;
    lines_of_step_.clear();
    step_ = &function_->steps.emplace_back();
    step_->sync = in_.eat("sync");
    if (in_.eat("kernel")) {
      auto& k = step_->body.emplace<Kernel>();
      k.key = in_.string("a key");
      k.op = in_.string("an op");
      k.tasks = in_.labelled("tasks");
      k.workspace_bytes = in_.labelled("workspace");
      if (in_.eat("flops")) k.flops = in_.integer("a number of operations");
    } else if (in_.eat("call")) {
      call_head(step_->body.emplace<Call>());
    } else if (in_.eat("loop")) {
      auto& l = step_->body.emplace<Loop>();
      call_head(l.body);
      l.trips = in_.labelled("trips");
      if (in_.peek("condition")) {
        in_.labelled(l.condition, "condition");
        l.exit = in_.labelled32("exit");
      }
    } else if (in_.eat("branch")) {
      auto& b = step_->body.emplace<Branch>();
      in_.expect("then");
      call_head(b.then_call);
      in_.expect("else");
      call_head(b.else_call);
    } else if (in_.eat("issue")) {
      auto& i = step_->body.emplace<Issue>();
      i.kind = in_.one_of<TransferKind>(kTransferWords, "transfer");
      i.object = in_.integer32("an object");
      in_.expect("entry");
      i.entry = in_.expression();
      i.queue = in_.labelled32("queue");
      i.token = in_.labelled32("token");
      if (in_.eat("found")) i.found = in_.values().first;
    } else if (in_.eat("wait")) {
      auto& w = step_->body.emplace<Wait>();
      w.queue = in_.labelled32("queue");
      w.token = in_.labelled32("token");
    } else if (in_.eat("send")) {
      auto& s = step_->body.emplace<Send>();
      in_.read(s.channel, "a channel");
      in_.expect("message");
      s.message = in_.expression();
    } else if (in_.eat("receive")) {
      auto& r = step_->body.emplace<Receive>();
      in_.read(r.channel, "a channel");
      in_.expect("message");
      r.message = in_.expression();
    } else if (in_.eat("collective")) {
      auto& c = step_->body.emplace<Collective>();
      c.op = in_.string("an op");
      in_.labelled(c.group, "group");
      in_.expect("sequence");
      c.sequence = in_.expression();
      if (in_.eat("workspace")) c.workspace_bytes = in_.integer("bytes");
    } else {
      in_.bad(
          "kind of step must be one of kernel, call, loop, branch, issue, wait, send, receive, "
          "collective, got '{}'",
          in_.string("a kind of step"));
    }
    if (in_.eat("origin")) step_->origin = in_.integer("origin");
    if (in_.eat("where")) step_->where = in_.string("where");
    step_->provenance = from();
  }

  LineReader in_;
  Executable e_;
  std::string computes_;
  int64_t computes_line_ = 1;
  std::map<std::tuple<Section, int64_t, int64_t>, int64_t> lines_;
  Function* function_ = nullptr;
  Program* program_ = nullptr;
  Step* step_ = nullptr;
  std::set<std::string, std::less<>> lines_of_step_;  ///< Lines read for the current step; once().
  int arm_ = 0;
};

}  // namespace

Executable parse_text(std::string_view text, const std::string& file, Fingerprints fingerprints) {
  return TextParser(text, file).run(fingerprints);
}

}  // namespace sluice::exe
