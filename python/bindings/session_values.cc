#include "python/bindings/session_values.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "python/bindings/arrays.h"
#include "python/bindings/graphs.h"
#include "sluice/exe/executable.h"
#include "sluice/report/report.h"
#include "sluice/runtime/strand.h"

/// The variables of a session by path, files of them, and reports of its plan.
namespace sluice::python {
namespace {

/// Returns the position in Session::variables() of the variable with this path, and its spec.
std::pair<size_t, TensorSpec> variable_at(const BoundSession& session, const std::string& path) {
  const auto all = session.variables();
  const auto found = std::lower_bound(all.begin(), all.end(), path,
                                      [](const auto& v, const auto& p) { return v.first < p; });
  require(found != all.end() && found->first == path, "session: there is no variable '{}'", path);
  return {static_cast<size_t>(found - all.begin()), found->second};
}

nb::object read_variable(const BoundSession& session, const nb::object& variable) {
  std::optional<HostTensor> value;
  std::string path;
  if (nb::try_cast(variable, path)) {
    const nb::gil_scoped_release release;
    const auto [index, spec] = variable_at(session, path);
    value.emplace(spec);
    session.read_variable(index, 0, value->bytes());
  } else {
    const Tensor tensor = tensor_argument(variable, "variable");
    const nb::gil_scoped_release release;
    value = session.read(tensor);
  }
  return to_numpy(*std::move(value));
}

void write_variable(BoundSession& session, const nb::object& variable, const nb::object& value) {
  std::string path;
  if (!nb::try_cast(variable, path)) {
    const Tensor tensor = tensor_argument(variable, "variable");
    const ArgumentArray array =
        array_argument(value, Access::kRead, fmt::format("variable '{}'", tensor.name()));
    const nb::gil_scoped_release release;
    session.write(tensor, array.view());
    return;
  }
  const ArgumentArray array =
      array_argument(value, Access::kRead, fmt::format("variable '{}'", path));
  const nb::gil_scoped_release release;
  const auto [index, spec] = variable_at(session, path);
  require(array.spec.shape == spec.shape && array.spec.dtype == spec.dtype,
          "variable '{}': must be {}, got {}", path, to_string(spec), to_string(array.spec));
  session.write_variable(
      index, 0,
      {static_cast<const std::byte*>(array.data), static_cast<size_t>(array.spec.bytes())});
}

/// Returns {path: value} of all variables.
nb::dict values(const BoundSession& session) {
  std::vector<NamedArray> all;
  {
    const nb::gil_scoped_release release;
    session.each_variable([&](const std::string& path, HostTensor value) {
      all.push_back({path, std::move(value)});
    });
  }
  nb::dict result;
  for (NamedArray& each : all) result[each.name.c_str()] = to_numpy(std::move(each.array));
  return result;
}

void restore(BoundSession& session, const nb::dict& given) {
  std::vector<NamedArray> all;
  for (const auto [key, value] : given) {
    const auto path = nb::cast<std::string>(key);
    const ArgumentArray array = array_argument(value, Access::kRead, "variable '" + path + "'");
    HostTensor copy(array.spec);
    if (!copy.bytes().empty()) std::memcpy(copy.bytes().data(), array.data, copy.bytes().size());
    all.push_back({path, std::move(copy)});
  }
  const nb::gil_scoped_release release;
  session.restore(all);
}

void bind_access(nb::class_<BoundSession>& type) {
  type.def("read", read_variable, "variable"_a,
           "Returns a copy of the value of a variable: a tensor of any entry graph, or a path. "
           "Shards and remote variables are read whole.")
      .def("write", write_variable, "variable"_a, "value"_a,
           "Sets a variable to an array of its shape and dtype.")
      .def("values", values, "Returns {path: array} of all variables.")
      .def("restore", restore, "values"_a,
           "Sets all variables from {path: array}. On an error none is set.")
      .def(
          "initialize_variables",
          [](BoundSession& session) {
            const nb::gil_scoped_release release;
            session.initialize_variables();
          },
          "Sets all variables to their first values.")
      .def_prop_ro(
          "variables",
          [](const BoundSession& session) {
            nb::dict specs;
            for (const auto& [path, spec] : session.variables()) specs[path.c_str()] = spec;
            return specs;
          },
          "The specs of the variables by path, ascending.")
      .def_prop_ro("variable_changes", &BoundSession::variable_changes,
                   "A number that grows with each call that may change variables.");
}

void bind_files(nb::module_& m, nb::class_<BoundSession>& type) {
  nb::class_<LoadResult>(m, "LoadResult", "The differences between a file and the variables.")
      .def_ro("missing", &LoadResult::missing, "Paths of the variables that keep their values.")
      .def_ro("unused", &LoadResult::unused, "Names in the file that set no variable.");
  type.def(
          "save",
          [](const BoundSession& session, const nb::object& path,
             const std::map<std::string, std::string>& metadata) {
            const auto file = nb::cast<std::string>(nb::str(path));
            const nb::gil_scoped_release release;
            session.save(file, metadata);
          },
          "path"_a, "metadata"_a = nb::dict(),
          "Writes all variables as safetensors, by path, a part at a time.")
      .def(
          "load",
          [](BoundSession& session, const nb::object& path, bool strict,
             const std::map<std::string, std::string>& names) {
            const auto file = nb::cast<std::string>(nb::str(path));
            const nb::gil_scoped_release release;
            return session.load(file, LoadOptions{.strict = strict, .names = names});
          },
          "path"_a, "strict"_a = true, "names"_a = nb::dict(),
          "Sets variables from a safetensors file, a part at a time. If `strict`, the file must "
          "have all of them. `names` is {name in the file: path}; both may have one `*`.");
}

report::Report report_of(const BoundSession& session) {
  const exe::Executable& executable = session.executable();
  const report::Rates rates{.threads = executable.devices[exe::DeviceId(0)].workers};
  report::Report report = report::make_report(executable, rates);
  report.machine = fmt::format("assumed: {:.0f} GF/s and copies of {:.0f} GB/s a worker",
                               rates.flops / 1e9, rates.copies / 1e9);
  report.feeds = session.feed_statistics();
  return report;
}

void bind_reports(nb::class_<BoundSession>& type) {
  type.def_prop_ro(
          "programs",
          [](const BoundSession& session) {
            nb::list names;
            for (const exe::Program& program : session.executable().programs)
              names.append(program.name);
            return nb::tuple(names);
          },
          "The names of the programs: one for each entry graph.")
      .def(
          "expected_inputs",
          [](const BoundSession& session, const std::string& program) {
            nb::dict inputs;
            for (const auto& [stream, spec] : session.expected_inputs(program))
              inputs[nb::cast(stream)] = spec;
            return inputs;
          },
          "program"_a = "main",
          "Returns the streams that a run reads, with the specs of their arrays.")
      .def("planned_bytes", &BoundSession::planned_bytes, "device"_a = 0,
           "Returns the arena bytes of a device in one replica, as planned.")
      .def("measured_bytes", &BoundSession::measured_bytes, "device"_a = 0,
           "Returns the arena bytes of a device in one replica, as allocated.")
      .def_prop_ro(
          "counters",
          [](const BoundSession& session) {
            const runtime::Counters counters = session.counters();
            nb::dict result;
            result["kernels"] = counters.kernels;
            result["bytes"] = counters.bytes;
            result["flops"] = counters.flops;
            result["barriers"] = counters.barriers;
            return result;
          },
          "Counts over all runs.")
      .def(
          "summary", [](const BoundSession& session) { return session.plan().summary(); },
          "Returns the plan for users.")
      .def(
          "report_json",
          [](const BoundSession& session) { return report::to_json(report_of(session)); },
          "Returns the plan as JSON (docs/report_schema.md).")
      .def(
          "report",
          [](const BoundSession& session) {
            return nb::module_::import_("json").attr("loads")(report::to_json(report_of(session)));
          },
          "Returns the plan as a dict (docs/report_schema.md).")
      .def(
          "report_html",
          [](const BoundSession& session) { return report::to_html(report_of(session)); },
          "Returns the plan as one HTML page with a viewer that works offline.")
      .def(
          "_repr_html_",
          [](const nb::object& session) {
            return nb::module_::import_("sluice._notebook").attr("page")(session);
          },
          "Returns the report for a notebook.");
}

}  // namespace

void bind_session_values(nb::module_& m, nb::class_<BoundSession>& type) {
  bind_access(type);
  bind_files(m, type);
  bind_reports(type);
}

}  // namespace sluice::python
