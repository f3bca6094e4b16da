#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/enum_names.hpp"
#include "base/json_text.hpp"
#include "topology/json.hpp"
#include "topology/json_fields.hpp"

namespace strait {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t most_copies = 100'000;
constexpr std::uint64_t most_lanes = 32, most_links = 10'000;
constexpr std::size_t most_devices = 1'000'000;  // a file with more is taken for a mistake

class Reader {
 public:
  TopologyData read(const Json& root) {
    Fields file(root, "the file");
    if (!file.has("strait_topology")) file.fail("there is no key \"strait_topology\": this is no topology of Strait's");
    if (file.whole_or("strait_topology", 0) != 1) file.fail("\"strait_topology\" must be 1, the version of the format");
    data_.name = file.text("name");
    for (const Json& note : file.list("notes")) {
      if (!note.is_string()) file.fail("\"notes\" must be texts");
      data_.notes.push_back(note.get<std::string>());
    }
    read_devices(file.list("devices"), Scope{"", no_device, {}, "devices"});
    const Json& hosts = file.list("hosts");
    if (hosts.empty()) file.fail("there are no \"hosts\": no devices that ranks could run on");
    for (std::size_t i = 0; i < hosts.size(); ++i) read_hosts(hosts[i], "hosts[" + std::to_string(i) + "]");
    for (const auto& later : later_) later();  // deferred, because links may name hosts that come later in the file
    const Scope outside{"", no_device, {}, "the file"};
    read_links(file.list("links"), outside);
    read_calibrations(file.list("calibration"), outside);
    file.done();
    return std::move(data_);
  }

 private:
  /// The names that are visible in a place, and its description for messages.
  struct Scope {
    std::string prefix;  ///< "host3/"
    DeviceId host;
    CopyNumbers numbers;
    std::string where;
  };

  /// Calls `read(fields, where)` for each copy of each object of a list.
  static void each_copy(const Json& list, const Scope& scope, const std::string& list_name,
                        const std::function<void(Fields&, const std::string&)>& read) {
    for (std::size_t n = 0; n < list.size(); ++n) {
      const std::string where = scope.where + ": " + list_name + "[" + std::to_string(n) + "]";
      Fields first(list[n], where, scope.numbers);
      const bool copied = first.has("copies");
      const std::uint64_t copies = first.whole_or("copies", 1, {1, most_copies});
      for (std::uint64_t i = 0; i < copies; ++i) {
        CopyNumbers numbers = scope.numbers;
        if (copied) numbers.i = static_cast<std::int64_t>(i);
        Fields object(list[n], where, numbers);
        object.has("copies");
        read(object, where);
        object.done();
      }
    }
  }

  void read_hosts(const Json& json, const std::string& where) {
    Fields first(json, where);
    const std::uint64_t copies = first.whole_or("copies", 1, {1, most_copies});
    for (std::uint64_t copy = 0; copy < copies; ++copy) {
      const CopyNumbers numbers{static_cast<std::int64_t>(copy), std::nullopt};
      Fields fields(json, where, numbers);
      fields.has("copies");
      Device host{.kind = DeviceKind::host, .name = fields.text("name"), .model = fields.text_or("model", "")};
      fields.set_where(where + " '" + host.name + "'");
      if (host.name.find('/') != std::string::npos) fields.fail("a host's name has no slash");
      host.gpudirect = fields.flag_or("gpudirect", false);
      host.p2p = status(fields, fields.text_or("p2p", "unknown"));
      const Scope scope{host.name + "/", add(std::move(host), fields), numbers, fields.where()};
      read_devices(fields.list("devices"), scope);
      for (const char* list : {"links", "p2p_pairs", "calibration"}) fields.list(list);
      fields.done();
      later_.push_back([this, &json, scope] {
        Fields again(json, scope.where);
        read_links(again.list("links"), scope);
        read_pairs(again.list("p2p_pairs"), scope);
        read_calibrations(again.list("calibration"), scope);
      });
    }
  }

  void read_devices(const Json& list, const Scope& scope) {
    each_copy(list, scope, "devices", [&](Fields& fields, const std::string& where) {
      const std::string own_name = fields.text("name");
      fields.set_where(where + " '" + own_name + "'");
      if (own_name.find('/') != std::string::npos) fields.fail("a device's name has no slash");
      Device device{.name = scope.prefix + own_name};
      const std::string kind = fields.text("kind");
      const auto known = device_kind_of(kind);
      if (!known || *known == DeviceKind::host) fields.fail("'" + kind + "' is no kind of device: " + kinds());
      device.kind = *known;
      device.parent = fields.has("parent") ? find_parent(fields, scope) : scope.host;
      device.model = fields.text_or("model", "");
      device.bus_id = fields.text_or("bus_id", "");
      device.cpus = fields.text_or("cpus", "");
      device.memory_gbps = fields.number_or("memory_gbps", 0);
      device.cache_bytes = fields.whole_or("cache_bytes", 0);
      device.acs = fields.flag_or("acs", false);
      const DeviceId parent = device.parent;
      const DeviceId id = add(std::move(device), fields);
      if (fields.has("link")) read_uplink(fields, parent, id);
    });
  }

  void read_uplink(Fields& device, DeviceId parent, DeviceId id) {
    if (parent == no_device) device.fail("\"link\" is the PCIe link to the parent, and there is no parent");
    Fields fields(device.at("link"), device.where() + ": link");
    Link link{.kind = LinkKind::pcie, .upper = parent, .lower = id};
    read_rates(fields, link);
    link.pcie.gigatransfers = fields.number_or("gt_s", 0);
    link.pcie.lanes = static_cast<std::uint32_t>(fields.whole_or("lanes", 0, {0, most_lanes}));
    link.pcie.most_gigatransfers = fields.number_or("max_gt_s", 0);
    link.pcie.most_lanes = static_cast<std::uint32_t>(fields.whole_or("max_lanes", 0, {0, most_lanes}));
    fields.done();
    data_.links.push_back(link);
  }

  static void read_rates(Fields& fields, Link& link) {
    if (fields.at("gbps").is_object()) {
      Fields both(fields.at("gbps"), fields.where() + ": gbps");
      link.up_gbps = both.number("up");
      link.down_gbps = both.number("down");
      both.done();
    } else {
      link.up_gbps = link.down_gbps = fields.number("gbps");
    }
    link.latency_us = fields.number_or("us", 0);
    link.count = static_cast<std::uint32_t>(fields.whole_or("count", 1, {1, most_links}));
  }

  void read_links(const Json& list, const Scope& scope) {
    each_copy(list, scope, "links", [&](Fields& fields, const std::string&) {
      const std::string kind = fields.text("kind");
      const auto known = link_kind_of(kind);
      if (!known || *known == LinkKind::pcie)
        fields.fail("'" + kind + "' is no kind of link here: nvlink, socket, network (PCIe links stand at devices)");
      Link link{.kind = *known,
                .upper = find(fields, scope, fields.text("to")),
                .lower = find(fields, scope, fields.text("from"))};
      read_rates(fields, link);
      data_.links.push_back(link);
    });
  }

  void read_pairs(const Json& list, const Scope& scope) {
    each_copy(list, scope, "p2p_pairs", [&](Fields& fields, const std::string&) {
      const std::pair pair{find(fields, scope, fields.text("from")), find(fields, scope, fields.text("to"))};
      const P2pStatus value = status(fields, fields.text("status"));
      const auto [entry, is_new] = data_.p2p.emplace(pair, value);
      if (!is_new && entry->second != value) fields.fail("this pair already has another status");
    });
  }

  void read_calibrations(const Json& list, const Scope& scope) {
    each_copy(list, scope, "calibration", [&](Fields& fields, const std::string&) {
      MeasuredRate record{.from = find(fields, scope, fields.text("from")),
                          .to = find(fields, scope, fields.text("to"))};
      record.bandwidth_gbps = fields.number("gbps");
      record.latency_us = fields.number_or("us", 0);
      record.origin = fields.text("origin");
      data_.calibrations.push_back(std::move(record));
    });
  }

  static std::string kinds() {
    std::string names;
    for (int i = 1; i < device_kind_count; ++i)
      names += (i > 1 ? ", " : "") + std::string(name(static_cast<DeviceKind>(i)));
    return names;
  }

  static P2pStatus status(const Fields& fields, const std::string& text) {
    const auto known = p2p_status_of(text);
    if (known) return *known;
    fields.fail("'" + text + "' is no P2P status: " + all_names<P2pStatus>(p2p_status_count));
  }

  DeviceId add(Device device, const Fields& fields) {
    if (data_.devices.size() >= most_devices) fields.fail("more than a million devices");
    const auto id = static_cast<DeviceId>(data_.devices.size());
    if (!ids_.emplace(device.name, id).second) fields.fail("two devices are called '" + device.name + "'");
    data_.devices.push_back(std::move(device));
    return id;
  }

  /// Finds a device by name: "gpu0" of this host; "/leaf0" or "/host1/nic0" from the top.
  DeviceId find(const Fields& fields, const Scope& scope, const std::string& text) const {
    const auto found = known(scope, text);
    if (found == ids_.end()) fields.fail("there is no device '" + text + "'" + place_of(scope, text));
    return found->second;
  }

  DeviceId find_parent(Fields& fields, const Scope& scope) const {
    const std::string text = fields.text("parent");
    const auto found = known(scope, text);
    if (found == ids_.end())
      fields.fail("there is no device '" + text + "'" + place_of(scope, text) +
                  " before this one. (Parents stand before their children, so that there can be no cycle.)");
    return found->second;
  }

  std::map<std::string, DeviceId>::const_iterator known(const Scope& scope, const std::string& text) const {
    return ids_.find(text.starts_with('/') ? text.substr(1) : scope.prefix + text);
  }

  /// Returns for messages in which host a name is looked up; "" if that is the top.
  static std::string place_of(const Scope& scope, const std::string& text) {
    if (scope.host == no_device || text.starts_with('/')) return "";
    return " of host '" + scope.prefix.substr(0, scope.prefix.size() - 1) + "'";
  }

  TopologyData data_;
  std::map<std::string, DeviceId> ids_;
  std::vector<std::function<void()>> later_;
};

}  // namespace

Result<Topology> parse_topology_json(std::string_view text, std::string_view where) {
  const std::string file(where);
  try {
    auto topology = Topology::make(Reader().read(Json::parse(text)));
    if (!topology) topology.error().message = file + ": " + topology.error().message;
    return topology;
  } catch (const JsonProblem& problem) {
    return fail(Code::invalid_argument, file + ": " + problem.message);
  } catch (const Json::exception& problem) {  // its message names line and column
    return fail(Code::invalid_argument, file + " is not JSON, or was cut short: " + plain_text(problem));
  }
}

}  // namespace strait
